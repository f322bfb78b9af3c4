"""`predict --explain` and `admit` as a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from timebound.cli.app import execute

SLOTS = """name: slots
network:
  nodes: {a: {kind: host, mtu: 100}, b: {kind: host, mtu: 100}, s1: switch}
  links:
    - {between: [a, s1], rate: 1 Mbit/s, delay: 5 us, tdma: {cycle: 8 ms, slots: {a: {at: 0 ms, length: 2 ms}, s1: {at: 4 ms, length: 2 ms}}}}
    - {between: [s1, b], rate: 1 Mbit/s, delay: 5 us}
flows:
  - {name: x, from: a, to: b, size: 40 B, period: 40 ms, priority: 5, deadline: 40 ms}
stack: udp
"""
QOS_2 = ["--set", "flows.alarm.qos=2"]
SERVICE = ["--set", "stack.mqtt.broker.service={latency: 1 ms, per-message: 20 us}"]


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert execute(arguments) == 0
    return capsys.readouterr().out


def test_a_flow_with_several_instances_is_explained_by_its_bare_name(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["predict", "hello", "--explain", "telemetry", "--quiet"], capsys)
    assert len(re.findall(r"^telemetry.* end to end", out, re.MULTILINE)) == 3
    assert "These 3 have the least slack; 1 more with --json, or by name: --explain 'telemetry[1]'" in out
    entries = json.loads(printed(["predict", "hello", "--explain", "telemetry", "--json"], capsys))
    assert [entry["flow"] for entry in entries] == [f"telemetry[{number}]" for number in range(1, 5)]
    # One that is named is shown at all its receivers.
    assert "least slack" not in printed(["predict", "hello", "--explain", "telemetry[2]", "--quiet"], capsys)
    assert execute(["predict", "hello", "--explain", "telemetri"]) == 2
    assert "did you mean 'telemetry'" in capsys.readouterr().err


def test_an_explanation_says_whether_the_deadline_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "hello", "--explain", "alarm", "--quiet"]
    assert " met" in printed(arguments, capsys).splitlines()[0]
    assert execute([*arguments, "--set", "flows.alarm.deadline=1 ms"]) == 1
    assert "deadline 1,000.000 us missed by " in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("service", [[], SERVICE])
def test_a_handshake_is_taken_apart(service: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "hello", "--explain", "alarm", *QOS_2, *service]
    (entry,) = json.loads(printed([*arguments, "--json"], capsys))
    handshake = entry["between"][0][0]
    assert handshake["kind"] == "handshake"
    assert sum(step["bound_ns"] or 0 for step in handshake["steps"]) == handshake["counted_ns"] > 10**6
    assert (handshake["bound_ns"] is None) == (not service)
    parts = sum(part["counted_ns"] for parts in entry["between"] for part in parts)
    segments = [segment["explanation"] for segment in entry["segments"]]
    assert segments[0]["from_nominal_ns"] + segments[1]["from_actual_ns"] + parts == entry["end_to_end_ns"]
    out = printed([*arguments, "--quiet"], capsys)
    assert "alarm/publish/pubrec to h1 over the network" in out and "alarm/publish/pubrel to h2 over the network" in out
    assert ("without the broker's own time" in out) == (not service)


@pytest.mark.parametrize("service", [[], SERVICE])
def test_the_reports_parts_of_a_way_with_a_handshake_add_up(
    service: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from timebound.report.explained import Explained

    summary = json.loads(printed(["predict", "hello", "--json", *QOS_2, *service], capsys))
    (raw,) = (entry for entry in summary["explained"] if entry["flow"] == "alarm")
    assert Explained.parse(raw).total == pytest.approx(raw["end_to_end_us"], abs=0.01)


def test_a_blocking_frame_that_a_slot_cuts_short_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slots.yaml"
    file.write_text(SLOTS)
    rows = [
        line for line in printed(["predict", str(file), "--explain", "x"], capsys).splitlines() if "blocking" in line
    ]
    assert "2,000.000 us" in rows[0] and "as long as the longest slot lets through (2,000.000 us)" in rows[0]
    assert "1538 bytes" not in rows[0] and "undeclared best effort, 1538 bytes" in rows[1]


def test_admit_takes_each_flow_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "slots.yaml"
    file.write_text(
        SLOTS.replace(", tdma: {cycle: 8 ms, slots: {a: {at: 0 ms, length: 2 ms}, s1: {at: 4 ms, length: 2 ms}}}", "")
    )
    assert execute(["admit", str(file), "x", "x"]) == 2
    assert "flow 'x' is named twice" in capsys.readouterr().err
    assert execute(["admit", str(file), "x", "-q"]) == 0
    captured = capsys.readouterr()
    assert "x: admitted" in captured.out and captured.err == ""
