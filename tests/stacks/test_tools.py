"""Background traffic by D-ITG, VLC and vsftpd: their command lines, how they are told apart, and what is said where they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.engine import programs
from timebound.scenario import load
from timebound.scenario.problems import ScenarioError
from timebound.stacks import Plan, tools
from timebound.stacks.build import build_plan
from timebound.stacks.video import FIRST_TO_OTHERS, GROUP, pictures

TEXT = """name: real
network:
  nodes: {h[1-3]: host, s1: switch}
  links: [[h[1-3], s1]]
background: [ITEM]
run: {duration: 20 s, warm-up: 2 s}
stack: {udp: {}}
"""


def plan_of(folder: Path, item: str) -> Plan:
    file = folder / "real.yaml"
    file.write_text(TEXT.replace("ITEM", item))
    return build_plan(load(file))


def argv(plan: Plan, name: str) -> list[str]:
    (found,) = [program["argv"] for program in plan.programs if program["name"] == name]
    return list(found)


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_d_itg_sends_full_segments_at_the_stated_rate_on_the_wire(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "{kind: tcp, program: d-itg, from: h1, to: h2, rate: 1538 kbit/s, start: 1 s}")
    sent = argv(plan, "d-itg-50000-sender")
    # 1448 bytes of payload are 1538 on the wire, 125 times a second; it begins 1 s into 22 s.
    assert (after(sent, "-C"), after(sent, "-c"), after(sent, "-t")) == ("125", "1448", "21000")
    assert after(sent, "-a") == plan.addresses["h2"]
    received = argv(plan, "d-itg-50000-receiver")
    assert after(received, "-Sp") == after(sent, "-Sdp") == "50000" and after(sent, "-rp") == "50001"
    nodes = {program["name"]: (program["node"], program["start_ns"]) for program in plan.programs}
    assert nodes == {"d-itg-50000-receiver": ("h2", None), "d-itg-50000-sender": ("h1", 1_000_000_000)}
    assert plan.background == []


def test_vsftpd_keeps_the_rate_and_its_file_lasts_as_long_as_the_run(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "{kind: tcp, program: vsftpd, from: h1, to: [h2, h3], rate: 1538 kbit/s}")
    stated = dict(line.split("=") for line in plan.files["vsftpd-50002.conf"].splitlines())
    assert (stated["anon_max_rate"], stated["listen_port"], stated["pasv_max_port"]) == ("181000", "50003", "50002")
    serve = argv(plan, "vsftpd-50002-server")
    assert int(after(serve, "--bytes")) >= 181_000 * 22
    client = argv(plan, "vsftpd-50002-client")
    assert client[-1] == f"ftp://{plan.addresses['h1']}:50003/data" and "--max-time" not in client
    assert [p["node"] for p in plan.programs if p["name"].startswith("vsftpd-50002")] == ["h1", "h3"]


def test_vlc_is_nobody_and_ends_when_it_is_to(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "{kind: video, program: vlc, from: h1, to: h2, rate: 1444 kbit/s, start: 1 s, stop: 5 s}")
    play = argv(plan, "vlc-50000")
    assert play[:2] == ["timeout", "4.000"] and f"--map-user={tools.NOBODY}" in play
    assert f"#rtp{{dst={plan.addresses['h2']},port=50000,mux=ts}}" in play
    make = argv(plan, "vlc-50000-file")
    assert after(make, "--rate") == "1288000" and float(after(make, "--seconds")) > 4 and after(make, "--file") in play
    assert argv(plan, "vlc-50000-sink")[-4:-2] == ["50000", "50001"]


@pytest.mark.parametrize(("kind", "program"), [("tcp", "d-itg"), ("tcp", "vsftpd"), ("video", "vlc")])
def test_a_program_is_declared_as_the_generator_that_it_stands_for(tmp_path: Path, kind: str, program: str) -> None:
    ours = plan_of(tmp_path, f"{{kind: {kind}, name: b, from: h1, to: h2, rate: 1 Mbit/s}}")
    real = plan_of(tmp_path, f"{{kind: {kind}, name: b, program: {program}, from: h1, to: h2, rate: 1 Mbit/s}}")
    there, *back = real.streams
    assert there == ours.streams[0] and there.period_ns is None and there.priority == 0
    assert [(s.name, s.period_ns, s.priority) for s in back] == [
        (s.name, s.period_ns, s.priority) for s in ours.streams[1:]
    ]
    # Conversations beside the data have ports of their own, and frames as large as any.
    assert all(max(stream.frames_bytes) == 1538 for stream in back)
    marked = {(m.source_port, m.destination_port) for m in real.markers if m.source == real.addresses["h1"]}
    own = {(None, 50_000), (None, 50_001)}
    assert marked == ({(b, a) for a, b in own} if program == "vsftpd" else own)
    assert {marker.data for marker in real.markers} == {stream.name for stream in real.streams}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("{kind: udp, program: vlc, from: h1, to: h2, rate: 1 Mbit/s}", "vlc makes no udp traffic"),
        ("{kind: video, program: d-itg, from: h1, to: h2, rate: 1 Mbit/s}", "d-itg makes no video traffic"),
        ("{kind: tcp, program: d-itg, from: h1, to: h2}", "needs rate"),
        ("{kind: tcp, program: d-itg, from: h1, to: h2, rate: 1 Mbit/s, priority: 3}", "best effort"),
        (
            "{kind: video, program: vlc, from: h1, to: h2, rate: 1 Mbit/s, token-bucket: {rate: 2 Mbit/s, burst: 9 kB}}",
            "no token bucket",
        ),
    ],
)
def test_what_a_program_does_not_make_is_an_error(tmp_path: Path, item: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(tmp_path, item)
    assert said in str(caught.value)


def test_a_program_that_is_missing_is_named_with_its_package_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, "{kind: tcp, program: d-itg, from: h1, to: h2, rate: 1 Mbit/s}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "SERVERS", str(tmp_path))
    with pytest.raises(ScenarioError) as caught:
        programs.resolve(plan)
    (problem,) = caught.value.problems
    assert "ITGSend, ITGRecv, which cannot be found (sudo apt-get install d-itg)" in problem.message
    assert "real.yaml:5:" in problem.render()
    for name in ("ITGSend", "ITGRecv"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert programs.lacking("d-itg") is None


def test_vlc_without_its_plugins_is_missing_a_package(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("vlc", "unshare", "timeout"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    assert tools.missing("vlc", str(folder)) == {"libstream_out_rtp_plugin.so": "vlc-plugin-base"}
    plugin = tmp_path / "lib" / "x86_64-linux-gnu" / "vlc" / "plugins" / tools.VLC_PLUGIN
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    assert tools.missing("vlc", str(folder)) == {}


@pytest.mark.parametrize("rate", [180_000, 1_800_000, 20_000_000])
def test_a_video_has_its_rate_and_pictures_as_videos_have(rate: int) -> None:
    found = list(pictures(rate, 24.0))
    assert len(found) == 600
    assert sum(map(len, found)) * 8 / 24 == pytest.approx(rate, rel=0.002)
    assert len(found[0]) / len(found[1]) == pytest.approx(FIRST_TO_OTHERS, rel=0.05)
    assert [len(picture) for picture in found[:GROUP]] == [len(picture) for picture in found[GROUP : 2 * GROUP]]
    assert found[0].startswith(b"\0\0\1\xb3") and found[1].startswith(b"\0\0\1\0")


def test_a_scenario_with_programs_survives_being_resolved(tmp_path: Path) -> None:
    file = tmp_path / "real.yaml"
    file.write_text(TEXT.replace("ITEM", "{kind: video, program: vlc, from: h1, to: h2, rate: 2 Mbit/s}"))
    first = load(file)
    again = tmp_path / "again.yaml"
    again.write_text(first.to_yaml())
    assert load(again).background == first.background and first.background[0].program == "vlc"
