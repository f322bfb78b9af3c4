"""Guaranteed channels from end to end: clients that ask, manager, table, controller, eight real switches, an overloaded network."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_switches import emulate
from tests.tools import OVS, needs
from timebound.engine.doctor import can_emulate

pytestmark = [
    pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root"),
    needs(*OVS),
]


def audit(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / "controller-audit.jsonl").read_text().splitlines()]


def test_who_asks_keeps_the_deadline_where_who_does_not_misses_it(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        _, summary = emulate(folder, "--set", "run.duration=10 s", scenario="rt-mqtt")
        flows = {flow["flow"]: flow for flow in summary["flows"]}
        press, lathe = flows["press"], flows["lathe"]
        # Whatever the host does: both sides of `press` were granted, on four proven channels, before the first message.
        decided = audit(folder)
        granted = [entry for entry in decided if entry["what"] == "verdict" and entry["outcome"] == "granted"]
        assert {(entry["side"], entry["topic"]) for entry in granted} == {
            ("publish", "plant/press"),
            ("subscribe", "plant/press"),
        }
        states = Counter(entry["outcome"] for entry in decided if entry["what"] == "channel")
        assert states["proven"] >= 4 and states["broken"] == 0, states
        assert summary["violations"] == []
        assert press["sent"] == press["received"] >= 38 and press["duplicates"] == 0
        crowded = next(port for port in summary["ports"] if port["port"] == "s1->s2")
        assert crowded["dropped"] > 1_000, "no overload"
        assert lathe["latency_us"]["p50"] > 3 * press["latency_us"]["p50"]
        if summary["precision"]["verdict"] == "good":
            # The network's own figures, of virtual time: no message above its bound, none too late; without a channel they are.
            assert press["latency_us"]["max"] <= press["bound_us"]["observed_arrivals"]
            assert press["latency_us"]["max"] < press["deadline_us"]
            assert lathe["late"] > 0 or lathe["lost"] > 0
            return
    warnings.warn("the machine disturbed every run: deadlines and bounds were not judged", stacklevel=1)


def test_a_flow_that_cannot_be_guaranteed_is_best_effort_and_told_why(tmp_path: Path) -> None:
    file = tmp_path / "refused.yaml"
    file.write_text(
        """name: refused
network:
  defaults: {link: {rate: 10 Mbit/s}, switch: {engine: ovs, delay: 0 us..5 ms}}
  nodes: {h[1-3]: host, s1: switch}
  links: [[h1, s1], [h2, s1], [h3, s1]]
flows:
  - {name: fair, from: h1, to: h3, topic: fair, size: 100 B, period: 100 ms, jitter: 1 ms, deadline: 90 ms, priority: 4, qos: 1}
  - {name: hasty, from: h1, to: h3, topic: hasty, size: 100 B, period: 100 ms, jitter: 1 ms, deadline: 2 ms, priority: 5, qos: 1}
stack: {rt-mqtt: {broker: h2}}
run: {duration: 3 s, warm-up: 500 ms, seed: 1}
"""
    )
    _, summary = emulate(tmp_path / "run", scenario=str(file))
    outcomes = {
        (entry["topic"], entry["side"]): entry for entry in audit(tmp_path / "run") if entry["what"] == "verdict"
    }
    assert outcomes["fair", "publish"]["outcome"] == "granted"
    hasty = outcomes["hasty", "publish"]
    assert hasty["outcome"] == "refused" and "deadline" in hasty["reason"]
    told = {(answer["flow"], answer["side"]): answer for answer in summary["channels"]}
    assert told["hasty", "publish"]["outcome"] == "refused" and hasty["reason"] in told["hasty", "publish"]["text"]
    assert told["fair", "publish"]["outcome"] == "granted"
    flows = {flow["flow"]: flow for flow in summary["flows"]}
    assert flows["hasty"]["received"] == flows["hasty"]["sent"] > 20, "refused is not lost"


def test_a_host_that_has_sent_nothing_is_known_to_the_switches_before_the_run(tmp_path: Path) -> None:
    """Its first frames went by way of the controller, in the middle of the run, and took as long as that was busy."""
    file = tmp_path / "silent.yaml"
    look = "for s in s1 s2; do ovs-ofctl -O OpenFlow13 dump-flows $s; done"
    file.write_text(
        f"""name: silent
network:
  defaults: {{link: {{rate: 100 Mbit/s, buffer: 1 MiB, queue: strict-priority}}, switch: {{engine: ovs, delay: 0 us..20 ms}}}}
  nodes:
    h[1-3]: host
    h4: {{kind: host, run: [{{command: [sh, -c, "{look}"], name: look, start: 1 ms}}]}}
    s[1-2]: switch
  links: [[h1, s1], [h4, s1], [s1, s2], [h2, s2], [h3, s2]]
flows: [{{name: alpha, from: h1, to: h3, topic: t, size: 100 B, period: 50 ms, jitter: 5 ms, deadline: 50 ms, priority: 5, qos: 1}}]
stack: {{rt-mqtt: {{broker: h2}}}}
background: [{{kind: udp, from: h4, to: h3, rate: 200 kbit/s, start: 500 ms}}]
run: {{duration: 1 s, warm-up: 1 s, seed: 1}}
"""
    )
    folder = tmp_path / "run"
    code, summary = emulate(folder, scenario=str(file))
    assert code in (0, 1, 4) and summary["violations"] == []
    address = (folder / "hosts").read_text().partition("\th4")[0].rpartition("\n")[2]
    number = int.from_bytes(bytes(int(part) for part in address.split(".")))
    # The controller's rules for a host bear its address (`rules.cookie`): at 1 ms, half a second before it sends.
    known = (folder / "logs" / "look.log").read_text().count(f"cookie=0x746202{number:010x}")
    assert known == 2 * 3, "three rules in each of two switches"
