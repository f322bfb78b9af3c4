"""Switches that are a real Open vSwitch: the built-in scenario on them and on the emulated network's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools import OVS, needs
from timebound.engine.doctor import can_emulate

pytestmark = [
    pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root"),
    needs(*OVS),
]


def emulate(folder: Path, *more: str, scenario: str = "real-switches") -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", scenario, *more]
    done = subprocess.run(
        [*command, "--output", str(folder), "--quiet"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (folder / "summary.json").exists(), done.stderr
    return done.returncode, json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("rootless", [False, True])
def test_real_switches_deliver_what_ours_do_and_no_frame_is_above_its_bound(tmp_path: Path, rootless: bool) -> None:
    more = ["--rootless"] if rootless else []
    delivered = {}
    for engine in ("fabric", "ovs"):
        code, summary = emulate(tmp_path / engine, "--set", f"engine={engine}", *more)
        assert code in (0, 1, 4) and summary["violations"] == [], summary["violations"]
        delivered[engine] = {
            flow["flow"]: (flow["sent"], flow["received"], flow["duplicates"]) for flow in summary["flows"]
        }
        assert summary["tcp"]["retransmissions"] == 0 or summary["precision"]["verdict"] == "disturbed"
        crowded = next(port for port in summary["ports"] if port["port"] == "s1->s2")
        assert crowded["dropped"] > 1_000, "no overload"
    assert delivered["ovs"] == delivered["fabric"]
    assert all(sent == received > 20 for sent, received, _ in delivered["ovs"].values())
    names = [switch["switch"] for switch in summary["switches"]]
    assert names == ["s1", "s2", "s3", "s4"]
    first = summary["switches"][0]
    assert first["arrived"] > 5_000 and first["vanished"] == 0 and first["entered"] == 0
    assert 0 < first["transit_us"]["min"] <= first["transit_us"]["p50"] <= first["transit_us"]["max"]
    assert sum(copies for _, copies in first["histogram"]) == first["left"]
    outside = sum(switch["above"] + switch["below"] for switch in summary["switches"])
    assert not outside or summary["precision"]["verdict"] == "disturbed"
    described = json.loads((tmp_path / "ovs" / "switches.json").read_text())
    assert described["switches"][0]["ports"][0] == {"name": "s1-h1", "number": 1, "neighbour": "h1"}


def test_a_switch_that_left_its_declared_range_disturbs_the_run_and_breaks_no_bound(tmp_path: Path) -> None:
    scenario = tmp_path / "narrow.yaml"
    scenario.write_text(
        """name: narrow
network:
  defaults: {link: {rate: 1 Gbit/s}}
  nodes: {h1: host, h2: host, s1: {kind: switch, engine: ovs, delay: 1 us..2 us}}
  links: [[h1, s1], [h2, s1]]
flows: [{name: alpha, from: h1, to: h2, size: 100 B, period: 20 ms, jitter: 5 ms, deadline: 20 ms, priority: 5}]
stack: {udp: {}}
run: {duration: 1 s, warm-up: 100 ms, seed: 1}
"""
    )
    code, summary = emulate(tmp_path / "run", scenario=str(scenario))
    assert (code, summary["verdict"], summary["violations"]) == (4, "disturbed", [])
    (switch,) = summary["switches"]
    assert switch["above"] == switch["left"] > 40
    assert any("s1 took longer than the declared 2 us" in reason for reason in summary["precision"]["reasons"])
    (flow,) = summary["flows"]
    assert flow["latency_us"]["max"] > flow["bound_us"]["bound"]
