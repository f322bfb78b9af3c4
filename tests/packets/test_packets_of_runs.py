"""Captures of a run with mosquitto and real clients over a lossy link: equal to tshark's own statistics, and to what was sent."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from packet_helpers import needs_tshark
from tests.tools import needs

from timebound.engine.doctor import can_emulate
from timebound.engine.packets import Source, of_run, preferences
from timebound.engine.packets.frames import FLAGS, MQTT_TYPES

pytestmark = [
    needs_tshark,
    pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root"),
    needs("mosquitto"),
]

SIZES = {"zero": 300, "one": 4000, "two": 717}
SCENARIO = """name: lossy
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 1 ms}, switch: {delay: 10 us}}
  nodes: {a: host, b: host, c: host, s1: switch}
  links: [{between: [a, s1], loss: 5 %}, [b, s1], [c, s1]]
flows:
  - {name: zero, from: a, to: c, topic: t/zero, size: 300 B, period: 20 ms, jitter: 1 ms, deadline: 1 s, priority: 5, qos: 0}
  - {name: one, from: c, to: a, topic: t/one, size: 4000 B, period: 50 ms, jitter: 1 ms, deadline: 1 s, priority: 4, qos: 1}
  - {name: two, from: a, to: c, topic: t/two, size: 717 B, period: 10 ms, jitter: 1 ms, deadline: 1 s, priority: 3, qos: 2}
stack: {mqtt: {broker: {node: b, program: mosquitto, port: 7883}}}
background: [{kind: udp, from: c, to: a, rate: 100 kbit/s, size: 500 B}]
run: {duration: 2 s, warm-up: 300 ms, seed: 1, captures: ["a->s1", "s1->a", "b->s1", "s1->b"]}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an emulation with captures."""
    folder = tmp_path_factory.mktemp("packets")
    (folder / "lossy.yaml").write_text(SCENARIO)
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(folder / "lossy.yaml")]
    done = subprocess.run(
        [*command, "-q", "-o", str(folder / "run")], capture_output=True, text=True, timeout=180, check=False
    )
    assert (folder / "run" / "packets.parquet").is_file(), done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def packets(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())["packets"]
    assert found["status"] == "complete" and [c["capture"] for c in found["captures"]] == ["a-s1", "b-s1"]
    return found


class Judge:
    """tshark on a link's merged captures, asked in other ways than the analysis does."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.options = preferences(source)
        self.file = folder / f"{source.name}.pcapng"
        subprocess.run(["mergecap", "-w", self.file, *source.files], check=True, timeout=60)

    def ask(self, *arguments: str) -> str:
        command = ["tshark", *self.options, "-r", str(self.file), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    def count(self, display_filter: str) -> int:
        return len(self.ask("-Y", display_filter, "-T", "fields", "-e", "frame.number").split())


@pytest.fixture(scope="module", params=["a-s1", "b-s1"])
def link(
    request: pytest.FixtureRequest, run: Path, packets: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Judge]:
    source = next(source for source in of_run(run) if source.name == request.param)
    entry = next(entry for entry in packets["captures"] if entry["capture"] == request.param)
    return entry, Judge(source, tmp_path_factory.mktemp("judge"))


def test_frames_and_bytes_are_those_of_io_stat(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    row = re.search(r"\|\s*[\d.]+ <> +[\d.Dur]+ *\|\s*(\d+)\s*\|\s*(\d+)\s*\|", judge.ask("-q", "-z", "io,stat,0"))
    assert row, "tshark's table has another form"
    assert (int(row[1]), int(row[2])) == (entry["totals"]["frames"], entry["totals"]["frame_bytes"])
    assert entry["totals"]["frames"] > 500


def test_size_classes_are_those_of_the_packet_lengths_statistic(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    found = dict.fromkeys(entry["sizes"]["frame"], 0)
    for low, high, count in re.findall(
        r"^\s+(\d+)(?:-(\d+)| and greater)\s+(\d+)", judge.ask("-q", "-z", "plen,tree"), re.MULTILINE
    ):
        name = "<40" if int(low) < 40 else ">=1280" if int(low) >= 1280 else f"{low}-{high}"
        found[name] += int(count)
    assert found == entry["sizes"]["frame"]


def test_repairs_are_those_of_display_filters_and_expert_information(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    tcp = entry["totals"]["tcp"]
    assert {name: tcp[name] for name in FLAGS} == {name: judge.count(field) for name, field in FLAGS.items()}
    assert tcp["retransmissions"] > 0 and tcp["duplicate_acks"] > 0, "the lossy link lost nothing"
    expert = judge.ask("-q", "-z", "expert")
    for words, name in (
        ("This frame is a (suspected) retransmission", "retransmissions"),
        ("This frame is a (suspected) fast retransmission", "fast_retransmissions"),
        ("This frame is a (suspected) spurious retransmission", "spurious_retransmissions"),
        ("This frame is a (suspected) out-of-order segment", "out_of_order"),
    ):
        said = re.search(rf"^\s+(\d+)\s.*{re.escape(words)}", expert, re.MULTILINE)
        assert (int(said[1]) if said else 0) == tcp[name], words


def test_kinds_are_those_of_display_filters(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    kinds = {name: value["frames"] for name, value in entry["totals"]["categories"].items()}
    assert kinds["tcp-control"] == judge.count("tcp.len == 0")
    assert kinds["udp"] == judge.count("udp && !icmp") and kinds["arp"] == judge.count("arp")
    assert kinds["icmp"] == judge.count("icmp")
    assert sum(kinds.values()) == entry["totals"]["frames"]
    # Frames in which tshark sees a PUBLISH, and those that it names as parts of one.
    whole = set(judge.ask("-Y", "mqtt.msgtype == 3", "-T", "fields", "-e", "frame.number").split())
    parts = judge.ask("-Y", "mqtt.msgtype == 3 && tcp.segment", "-T", "fields", "-e", "tcp.segment").replace(",", " ")
    assert kinds["publish"] == len(whole | set(parts.split()))
    for name in ("syn", "fin"):
        assert entry["totals"]["tcp"][name] == judge.count(f"tcp.flags.{name} == 1")
    assert entry["totals"]["tcp"]["rst"] == judge.count("tcp.flags.reset == 1")


def test_mqtt_packets_are_those_that_tshark_lists(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    listed = judge.ask("-Y", "mqtt", "-T", "fields", "-e", "mqtt.msgtype").replace(",", " ").split()
    counts = {name: listed.count(str(number)) for number, name in MQTT_TYPES.items() if str(number) in listed}
    assert entry["mqtt_packets"] == counts and {"PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"} <= set(counts)
    reassembled = judge.ask("-Y", "mqtt && tcp.segment.count", "-T", "fields", "-e", "tcp.segment.count").replace(
        ",", " "
    )
    assert entry["totals"]["mqtt"]["packets_over_several_segments"] == len(reassembled.split()) > 0


def test_conversations_have_the_bytes_of_the_nodes(link: tuple[dict[str, Any], Judge], run: Path) -> None:
    entry, judge = link
    names = {h["address"]: h["node"] for h in json.loads((run / "emulation.json").read_text())["hosts"]}
    sent: dict[str, int] = {}
    table = judge.ask("-q", "-z", "endpoints,ip")
    for address, packets in re.findall(r"^(10\.[\d.]+)\s+\d+\s+[\d.]+(?: \w+)?\s+(\d+)", table, re.MULTILINE):
        sent[names[address]] = int(packets)
    found = {
        n["node"]: n["totals"]["frames"]
        for n in entry["nodes"]
        if n["direction"] == "sent" and n["node"] in names.values()
    }
    assert sent and found == sent


def test_directions_are_those_of_the_interfaces(link: tuple[dict[str, Any], Judge]) -> None:
    entry, judge = link
    for port in entry["ports"]:
        assert port["totals"]["frames"] == judge.count(f'frame.interface_name == "{port["port"]}"') > 0


def test_payload_is_what_was_published(run: Path, packets: dict[str, Any]) -> None:
    """Independent of tshark: every message crosses the broker's link twice, and a's link once."""
    entry = next(entry for entry in packets["captures"] if entry["capture"] == "b-s1")
    published = pl.read_parquet(run / "packets.parquet").filter(
        (pl.col("capture") == "b-s1") & (pl.col("scope") == "port") & (pl.col("category") == "publish")
    )
    flows = json.loads((run / "summary.json").read_text())["flows"]
    measured = sum(SIZES[flow["flow"]] * (flow["sent"] + flow["received"]) for flow in flows)
    # The records cover the measured part; the capture has the warm-up too (300 ms of 2.3 s) and what is sent while it ends.
    assert measured <= published["payload_bytes"].sum() <= 1.6 * measured
    types = entry["mqtt_packets"]
    assert types["PUBREC"] == types["PUBREL"] == types["PUBCOMP"]
    assert entry["totals"]["payload_bytes"] == published["payload_bytes"].sum()


def test_the_table_adds_up_to_the_summary(run: Path, packets: dict[str, Any]) -> None:
    table = pl.read_parquet(run / "packets.parquet")
    for entry in packets["captures"]:
        ports = table.filter((pl.col("scope") == "port") & (pl.col("capture") == entry["capture"]))
        for column in ("frames", "frame_bytes", "wire_bytes", "payload_bytes"):
            assert ports[column].sum() == entry["totals"][column]
        nodes = table.filter((pl.col("scope") == "node") & (pl.col("capture") == entry["capture"]))
        assert nodes.filter(pl.col("direction") == "sent")["frames"].sum() == entry["totals"]["frames"]
        assert (ports["start_ns"] % ports["interval_ns"] == 0).all() and ports["start_ns"].min() < 0  # type: ignore[operator]
        assert sum(entry["series"]["frames"]) == entry["totals"]["frames"]
        assert (
            entry["totals"]["overhead"]["wire_bytes"]
            == entry["totals"]["wire_bytes"] - entry["totals"]["payload_bytes"]
        )


def test_the_report_shows_them(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert '<section id="packets"' in page and "packet-table" in page
    for name in ("packet-kinds", "packet-sizes", "packet-overhead", "packet-series"):
        assert (run / "figures" / f"{name}.svg").is_file() and (run / "figures" / f"{name}.png").is_file()


def test_one_file_with_several_links_is_taken_apart(run: Path, packets: dict[str, Any], tmp_path: Path) -> None:
    from timebound.engine.packets import analyse

    folder = tmp_path / "run"
    (folder / "captures").mkdir(parents=True)
    files = sorted((run / "captures").glob("*.pcapng"))
    subprocess.run(["mergecap", "-w", folder / "captures" / "all.pcapng", *files], check=True, timeout=60)
    plan = json.loads((run / "emulation.json").read_text())
    plan["captures"] = [{"file": "all.pcapng", "ports": [p for c in plan["captures"] for p in c["ports"]]}]
    (folder / "emulation.json").write_text(json.dumps(plan))
    shutil.copy(run / "live.json", folder / "live.json")
    found = analyse(of_run(folder)).summary["captures"]
    for before, after in zip(packets["captures"], found, strict=True):
        assert after["totals"] == before["totals"] and after["mqtt_packets"] == before["mqtt_packets"]
