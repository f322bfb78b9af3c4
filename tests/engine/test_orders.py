"""Hosts that are stopped or paused by schedule: no bound is printed for what that touches, and a reason is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timebound.cli.app import execute
from timebound.engine.endtoend import end_to_end
from timebound.engine.predict import Prediction, predict
from timebound.scenario import load
from timebound.stacks import build_plan

TEXT = """
name: two
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, d: host, s: switch}
  links: [[a, s], [b, s], [c, s], [d, s]]
flows:
  - {name: alpha, from: a, to: c, size: 100 B, period: 10 ms, deadline: 9 ms, priority: 4}
  - {name: urgent, from: d, to: c, size: 100 B, period: 10 ms, deadline: 9 ms, priority: 6}
  - {name: near, from: b, to: a, size: 100 B, period: 10 ms, deadline: 9 ms, priority: 4}
run: {duration: 5 s}
"""
MQTT = "stack: {mqtt: {broker: {node: b, service: {latency: 20 us, per-message: 10 us}}}}\n"
UDP = "stack: {udp: {}}\n"


def bounds(text: str) -> tuple[Prediction, dict[str, tuple[int | None, str | None]]]:
    prediction = predict(build_plan(load(TEXT + text, {})))
    whole = {
        flow.name: end_to_end(prediction, flow, receiver)
        for flow in prediction.plan.scenario.flows
        for receiver in flow.receivers
    }
    return prediction, {name: (found.bound_ns, found.reason) for name, found in whole.items()}


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("{1 s: {node b: stop}}", "host b is told to stop at 1 s (at:)"),
        ("{1 s: {node b: pause}, 2 s: {node b: resume}}", "host b is told to pause at 1 s (at:)"),
    ],
)
def test_nothing_that_goes_by_way_of_a_broker_with_orders_has_a_bound(order: str, said: str) -> None:
    _, steady = bounds(MQTT)
    assert all(bound is not None for bound, _ in steady.values()), steady
    _, found = bounds(MQTT + f"at: {order}\n")
    assert found == dict.fromkeys(found, (None, said))


def test_over_tcp_a_client_with_orders_takes_the_bounds_of_what_meets_its_frames() -> None:
    _, found = bounds(MQTT + "at: {1 s: {node d: restart}}\n")
    said = "host d is told to restart at 1 s (at:)"
    assert found["urgent"] == (None, said)
    # Less urgent than frames that come whenever they like.
    assert found["alpha"][0] is None and said in (found["alpha"][1] or "")


def test_datagrams_of_a_host_that_is_only_stopped_keep_their_bounds() -> None:
    _, steady = bounds(UDP)
    prediction, found = bounds(UDP + "at: {1 s: {node d: stop}}\n")
    assert found == steady and found["urgent"][0] is not None
    assert any("d is stopped or paused by schedule" in note for note in prediction.plan.notes)
    _, found = bounds(UDP + "at: {1 s: {node c: stop}}\n")
    said = "host c is told to stop at 1 s (at:)"
    assert found["urgent"] == found["alpha"] == (None, said)


def test_datagrams_of_a_host_that_was_paused_may_come_all_at_once() -> None:
    prediction, found = bounds(UDP + "at: {1 s: {node d: pause}, 2 s: {node d: resume}}\n")
    assert found["urgent"][0] is None and found["alpha"][0] is None
    later = prediction.observed({name: stream.jitter_ns + 1 for name, stream in prediction.streams.items()})
    assert all(outcome.reason is not None for (name, _), outcome in later.items() if not name.startswith("near"))
    # The simulation is of the network as declared.
    assert all(stream["arrival"]["kind"] == "periodic" for stream in prediction.network.declaration["streams"])


def test_orders_to_a_flows_own_hosts_are_told_before_those_to_others(tmp_path: Path) -> None:
    orders = "at: {1 s: {node d: pause}, 2 s: {node d: resume, node a: restart}}\n"
    file = tmp_path / "two.yaml"
    file.write_text(TEXT + MQTT + orders)
    assert execute(["predict", str(file), "--output", str(tmp_path / "run"), "--quiet"]) == 1
    found = {flow["flow"]: flow for flow in json.loads((tmp_path / "run" / "summary.json").read_text())["flows"]}
    assert found["alpha"]["bound_us"]["reason"] == "host a is told to restart at 2 s (at:)"
    assert found["urgent"]["bound_us"]["reason"] == "host d is told to pause at 1 s (at:)"
    assert found["urgent"]["verdict"] == found["alpha"]["verdict"] == "unbounded"
