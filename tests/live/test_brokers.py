"""Brokers measured live: a profile, a run that is held against it, and bridges from broker to broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools import needs
from timebound.engine.doctor import can_emulate

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")
needs_mosquitto = needs("mosquitto")

TEXT = """name: stage
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b1: host, b2: host, c: host, s: switch}
  links: [[a, s], [b1, s], [b2, s], [c, s]]
flows:
  - {name: alpha, from: a, to: c, size: 200 B, period: 20 ms, jitter: 5 ms, deadline: 1 s, qos: 1, WAY}
  - {name: large, from: c, to: a, size: 4000 B, period: 50 ms, jitter: 5 ms, deadline: 1 s, qos: 2, WAY}
stack: {mqtt: {broker: BROKERS}}
run: {duration: 2 s, warm-up: 300 ms, seed: 1, simulate: {duration: 500 ms, search: 10}}
"""


def timebound(*arguments: str, scratch: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command line; `scratch` is where its temporary files go."""
    command = [sys.executable, "-c", "from timebound.cli import main; main()", *arguments]
    environment = {**os.environ, "TMPDIR": str(scratch)} if scratch else None
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def run(folder: Path, brokers: str, way: str = "priority: 5") -> dict[str, Any]:
    file = folder / "stage.yaml"
    file.write_text(TEXT.replace("BROKERS", brokers).replace("WAY", way))
    done = timebound("run", str(file), "--output", str(folder / "run"), "--quiet")
    assert (folder / "run" / "summary.json").exists(), done.stderr
    assert done.returncode in (0, 4), done.stdout + done.stderr
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["violations"] == []
    return summary


@pytest.mark.parametrize("program", ["embedded", pytest.param("mosquitto", marks=needs_mosquitto)])
def test_a_profile_is_measured_and_a_run_is_held_against_it(tmp_path: Path, program: str) -> None:
    file = tmp_path / "profile.json"
    small = ("--sizes", "64,4096", "--qos", "1,2", "--fan-out", "1,3")
    # A folder of its own: others on this machine may be measuring their brokers.
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = timebound("profile-broker", program, "-o", str(file), "--quiet", *small, scratch=scratch)
    assert done.returncode in (0, 4), done.stderr
    assert list(scratch.iterdir()) == []
    profile = json.loads(file.read_text())
    assert profile["broker"]["program"] == program and profile["broker"]["version"] not in ("", "unknown")
    assert [cell["fan_out"] for cell in profile["cells"]] == [1, 3] * 4
    for cell in profile["cells"]:
        assert 0 < cell["alone"]["median_ns"] <= cell["alone"]["p99_ns"] <= cell["alone"]["max_ns"]
        assert cell["first_copy"]["max_ns"] <= cell["alone"]["max_ns"]
        assert cell["alone"]["max_ns"] <= profile["fit"]["latency_ns"] + cell["fitted_work_ns"]
        # No broker takes less than a microsecond or, here, more than a second.
        assert 1_000 < cell["alone"]["median_ns"] < 10**9 and 1_000 < cell["back_to_back"]["median_ns"] < 10**9
    # With QoS 1 and 2 alone every message has acknowledgements: the fit may count all its cost to them.
    fit = profile["fit"]
    assert fit["message_ns"] + fit["copy_ns"] + fit["acknowledgement_ns"] > 1_000
    assert profile["precision"]["verdict"] == ("good" if done.returncode == 0 else "disturbed")

    if program == "mosquitto":
        return
    summary = run(tmp_path, "{node: b1, profile: profile.json}")
    for flow in summary["flows"]:
        whole = flow["end_to_end_us"]
        assert whole["covers"] == "measured" and "measured, not guaranteed" in whole["statement"]
        assert whole["bound"] == pytest.approx(sum(part["bound"] for part in whole["parts"]), abs=1e-3)
        (stage,) = whole["measured"]
        assert stage["broker"] == "b1" and stage["count"] == flow["received"] and stage["max"] > 0
        exceeded = stage["max"] > stage["bound_observed"]
        assert exceeded == any(entry["flow"] == flow["flow"] for entry in summary["assumptions"])


def test_a_service_time_that_does_not_hold_is_shown_as_a_broken_assumption(tmp_path: Path) -> None:
    summary = run(tmp_path, "{node: b1, service: {latency: 1 us}}")
    assert {entry["flow"] for entry in summary["assumptions"]} >= {"alpha"}
    assert all("the declared service time does not hold" in entry["text"] for entry in summary["assumptions"])
    assert "Assumptions that did not hold" in (tmp_path / "run" / "report.html").read_text()


TCP_WIRE = 90
"""Bytes of a segment on the wire beside its payload, time stamps included."""


def is_joined(entry: dict[str, Any]) -> bool:
    """Whole packets of one declared stream in one segment: an endpoint or a broker without a CPU answers several at once. Nothing else came."""
    found = re.fullmatch(r"larger than the (\d+) bytes declared for .*", entry["protocol"])
    return found is not None and (entry["largest"] - TCP_WIRE) % (int(found[1]) - TCP_WIRE) == 0


def test_answers_that_were_joined_are_told_from_others() -> None:
    entry = {"protocol": "larger than the 94 bytes declared for f/publish/puback", "largest": 98}
    assert is_joined(entry) and is_joined({**entry, "largest": 102})
    assert not is_joined({**entry, "largest": 97}) and not is_joined({**entry, "protocol": "tcp 1 -> 2"})


@needs_mosquitto
def test_messages_cross_two_brokers_over_a_real_bridge(tmp_path: Path) -> None:
    service = "service: {latency: 5 ms, per-message: 50 us, per-copy: 20 us, per-acknowledgement: 20 us}"
    brokers = f"[{{node: b1, program: mosquitto, {service}}}, {{node: b2, program: mosquitto, {service}}}]"
    summary = run(tmp_path, brokers, "via: [b1, b2]")
    for flow in summary["flows"]:
        assert flow["lost"] == 0 and flow["received"] > 30
        assert [segment["name"] for segment in flow["segments"]] == ["publish", "bridge", "deliver"]
        if summary["precision"]["verdict"] == "good" and summary["tcp"]["retransmissions"] == 0:
            assert flow["latency_us"]["max"] <= flow["bound_us"]["observed_arrivals"]
        assert [stage["broker"] for stage in flow["end_to_end_us"]["measured"]] == ["b1", "b2"]
        assert all(stage["count"] == flow["received"] for stage in flow["end_to_end_us"]["measured"])
    undeclared = [entry for entry in summary["undeclared"] if "control packets" not in entry["protocol"]]
    assert [entry for entry in undeclared if not is_joined(entry)] == []
