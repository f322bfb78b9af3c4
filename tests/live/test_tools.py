"""Background traffic by the real programs, in nodes: D-ITG, VLC and vsftpd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.test_switches import emulate
from tests.tools import OVS, PATH, absent, needs
from timebound.cli.app import execute
from timebound.engine.doctor import can_emulate
from timebound.reproduce.multicast import experiment, measure
from timebound.reproduce.multicast.cells import MADE_BY, Cell
from timebound.scenario import load
from timebound.stacks import tools

MISSING = absent([tool for program in MADE_BY.values() for tool in tools.missing(program, PATH)])
pytestmark = [
    pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root"),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

SCENARIO = """name: real
network:
  defaults: {link: {rate: 100 Mbit/s, buffer: 1 MiB, queue: strict-priority}, switch: {delay: 10..20 us}}
  nodes: {h[1-4]: host, s[1-2]: switch}
  links: [[h1, s1], [h2, s1], [s1, s2], [h3, s2], [h4, s2]]
flows: [{name: alpha, from: h1, to: h3, topic: t, size: 100 B, period: 50 ms, jitter: 5 ms, deadline: 50 ms, priority: 5, qos: 1}]
stack: {mqtt: {broker: h4}}
background:
  - {kind: tcp, name: d-itg, program: d-itg, from: h1, to: [h3, h4], rate: 2 Mbit/s}
  - {kind: video, name: vlc, program: vlc, from: h2, to: [h3, h4], rate: 2 Mbit/s}
  - {kind: tcp, name: vsftpd, program: vsftpd, from: h2, to: [h3, h4], rate: 1 Mbit/s}
run: {duration: 4 s, warm-up: 2 s, seed: 1}
"""


@pytest.mark.parametrize("rootless", [False, True])
def test_what_they_send_is_known_for_theirs_and_breaks_no_bound(tmp_path: Path, rootless: bool) -> None:
    file = tmp_path / "real.yaml"
    file.write_text(SCENARIO)
    folder = tmp_path / "run"
    code, summary = emulate(folder, *(["--rootless"] if rootless else []), scenario=str(file))
    assert code in (0, 1, 4) and summary["violations"] == []
    (flow,) = summary["flows"]
    assert flow["sent"] == flow["received"] >= 78
    for source in measure.background(folder, load(file)):
        share = source["measured_bps"] / source["declared_bps"]
        # A busy machine starts them late; none sends much more than it is to.
        assert 0.3 < share < 1.3, source
    # Conversations beside the data are the source's, too. (ICMP may come at the end, where a receiver ends before VLC does.)
    assert [entry for entry in summary["undeclared"] if entry["protocol"] in ("tcp", "udp")] == []


@needs(*OVS)
def test_a_short_cell_of_the_article_runs_with_its_programs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = "reproduce mrt-mqtt --background tools --stretch 10 --publishers 1 --load low --protocol dm-mqtt --duration 1s --evaluations 0 --quiet"
    assert execute([*words.split(), "--output", str(out)]) in (0, 4)
    entry = experiment._finished(
        Cell(
            protocol="dm-mqtt",
            load="low",
            publishers=1,
            duration_ns=1_000_000_000,
            iterations=1,
            seed=1,
            evaluations=0,
            background="tools",
            stretch=10,
        ),
        0,
        out / "cells" / "dm-mqtt-low",
    )
    assert entry is not None and entry["emulated"] is not None, "finished, and kept for the next start"
    assert entry["channels"] == {"granted": 2} and entry["violations"] == 0
    assert {source["name"] for source in entry["background"] if source["measured_bps"] > 0} == set(MADE_BY)
    page = (out / "report.html").read_text()
    assert "background by the programs themselves" in page and "messages of every publisher" in page
