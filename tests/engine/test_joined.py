"""Bounds where messages may wait together and leave in one TCP segment, larger than any single one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from timebound.engine.assign import Task
from timebound.engine.core import Network
from timebound.engine.endtoend import end_to_end
from timebound.engine.explain import explain, pairs_of
from timebound.engine.judged import Predictions
from timebound.engine.methods import work_out
from timebound.engine.predict import Prediction, predict
from timebound.engine.summary import Results, summarise
from timebound.scenario import load
from timebound.scenario.model import Scenario
from timebound.stacks import build_plan

BRIDGE = """
name: bridge
network:
  best-effort: none
  defaults: {link: {rate: 10 Mbit/s, delay: 2 ms}, switch: {delay: 1..2 us}}
  nodes: {a: host, b: host, b2: host, c: host, d: host, s: switch, s2: switch}
  links: [[a, s], [b, s], [s, s2], [c, s2], [b2, s2], {between: [d, s], delay: 0 us}]
flows:
  - {name: alpha, from: a, to: c, via: [b, b2], size: 100 B, period: 1 ms, qos: 0, priority: 2}
  - {name: urgent, from: d, to: c, via: [b2], size: 24 B, period: 7 ms, qos: 0, priority: 6}
stack: {mqtt: {broker: [{node: b, program: mosquitto}, {node: b2, program: mosquitto}]}}
"""
"""A bridge of mosquitto (Nagle's algorithm) put frames of 1,538 bytes on this network, where each message has 199: emulated,
urgent/publish took 6,613.6 us, and the bound for frames of single messages was 4,988.2 us."""

JITTER = """
name: jitter
network:
  best-effort: none
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
  nodes: {a: host, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows: [{name: alpha, from: a, to: c, size: 100 B, period: 10 ms, jitter: JITTER, qos: 1, priority: 2}]
stack: {mqtt: {broker: {node: b, service: {latency: 10 us}}}}
"""


RANDOM = """
name: random
network:
  best-effort: none
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 1..2 us}}
  nodes: {a: host, b: host, c: host, d: host, e: host, s: switch, s2: switch}
  links: [[a, s], [b, s], [s, s2], [c, s2], [d, s2], [e, s]]
flows: [FLOWS]
stack: {mqtt: {broker: b}}
"""


def scenario_of(text: str) -> Scenario:
    return load(text)


def prediction(text: str) -> Prediction:
    return predict(build_plan(scenario_of(text)))


def bound(found: Prediction, stream: str, receiver: str) -> int:
    span = found.outcomes[stream, receiver].actual_ns
    assert span is not None, found.outcomes[stream, receiver].reason
    return span


def test_a_full_segment_of_a_bridge_blocks_the_urgent_ones() -> None:
    found = prediction(BRIDGE)
    assert bound(found, "urgent/publish", "b2") == 7_130_600
    bridge = found.streams["alpha/bridge>b2"].joined
    assert bridge is not None and (bridge.packets, bridge.frame_bytes) == (57, 1538)
    # The same network with the frames that were seen there: what is found is above the former bound, and not above this one.
    full = {"kind": "periodic", "period_ns": 14_000_000, "jitter_ns": 0, "frames_bytes": [1538]}
    declaration: dict[str, Any] = found.network.declaration
    streams = [
        {**stream, "arrival": full} if stream["name"] == "alpha/bridge>b2" else stream
        for stream in declaration["streams"]
    ]
    network = Network(found.plan, {**declaration, "streams": streams})
    worst = network.search({"seed": 1, "schedule": [], "evaluations": 20}, lambda share: None)["worst"]
    names = list(found.streams)
    (seen,) = (each["latency"] for each in worst if names[each["stream"]] == "urgent/publish")
    assert 4_988_200 < seen <= 7_130_600


def test_messages_that_cannot_meet_have_the_bounds_of_single_ones() -> None:
    found = prediction(JITTER.replace("JITTER", "8 ms"))
    assert all(stream.joined is None for stream in found.streams.values())
    assert found.steady is found.network


def test_all_that_follows_messages_that_meet_may_be_joined_too() -> None:
    """A publisher's own jitter, what its broker forwards, and the acknowledgements of both, each with what can wait at its sender."""
    found = prediction(JITTER.replace("JITTER", "21 ms"))
    sizes = {name: stream.joined for name, stream in found.streams.items() if stream.joined is not None}
    assert set(sizes) == {"alpha/publish", "alpha/publish/puback", "alpha/deliver>c", "alpha/deliver>c/puback"}
    for name, joined in sizes.items():
        stream = found.streams[name]
        assert stream.tcp is not None and stream.period_ns is not None
        assert joined.packets == stream.jitter_ns // stream.period_ns + 1 == 3
        assert joined.frame_bytes == 3 * stream.tcp.size_bytes + 90
    # Three in one segment: at each of two ports as long as it takes, whichever of the three is looked at.
    frame = sizes["alpha/publish"].frame_bytes
    assert bound(found, "alpha/publish", "b") >= 2 * frame * 800
    outcome = found.outcomes["alpha/publish", "b"]
    assert outcome.nominal_ns == bound(found, "alpha/publish", "b") + 21_000_000
    # What is simulated are the messages by themselves.
    assert found.steady is not found.network
    kinds = {stream["name"]: stream["arrival"]["kind"] for stream in found.network.declaration["streams"]}
    assert kinds["alpha/publish"] == "periodic"


def test_the_segments_are_in_summary_and_explanation() -> None:
    found = prediction(JITTER.replace("JITTER", "21 ms"))
    summary = summarise(Results(found))
    segments = {segment["stream"]: segment["joined"] for segment in summary["flows"][0]["segments"]}
    assert segments["alpha/publish"] == {"messages": 3, "frame_bytes": found.streams["alpha/publish"].largest_frame}
    assert any("may be joined: 3 messages" in note for note in summary["scenario"]["notes"])
    (entry,) = explain(found, pairs_of(found, ["alpha"]))
    explanation = entry["segments"][0]["explanation"]
    assert explanation["source_jitter_ns"] == 21_000_000
    assert explanation["from_nominal_ns"] == found.outcomes["alpha/publish", "b"].nominal_ns
    alone = summarise(Results(prediction(JITTER.replace("JITTER", "1 ms"))))
    assert all(segment["joined"] is None for segment in alone["flows"][0]["segments"])
    assert not any("joined" in note for note in alone["scenario"]["notes"])


@pytest.mark.parametrize("text", [BRIDGE, JITTER.replace("JITTER", "21 ms")])
def test_admission_and_the_core_say_what_the_prediction_says(text: str) -> None:
    scenario = scenario_of(text)
    flow = replace(scenario.flows[-1], deadline_ns=10**9)
    scenario = replace(scenario, flows=(*scenario.flows[:-1], flow))
    plan = build_plan(scenario)
    found = predict(plan)
    whole = end_to_end(found, flow, "c").bound_ns
    decision, _ = Predictions(scenario, [each.name for each in scenario.flows[:-1]], "bound").ask(flow)
    assert decision.admitted and decision.bounds_ns == {"c": whole}
    task = Task(plan, found)
    options = task.options(set(), "best")
    latencies = task.network().assign(options)["before"]["latencies"]
    told = {wanted["name"]: each["bound_ns"] for wanted, each in zip(options["requirements"], latencies, strict=True)}
    assert told[f"{flow.name} at c"] == whole


def test_a_flow_without_least_distance_may_leave_in_full_segments() -> None:
    plan = build_plan(load(JITTER.replace("JITTER", "1 ms"), {"flows.alpha.pattern": "poisson"}))
    frames = {stream.name: stream.frames_bytes for stream in plan.streams if stream.role != "ack"}
    assert frames["alpha/publish"] == frames["alpha/deliver>c"] == frames["alpha/publish/puback"] == (1538,)


def test_what_lost_its_bound_blocks_with_full_segments() -> None:
    """Above what the slow link carries: its messages wait for each other without end, at their sender too."""
    text = BRIDGE.replace("period: 1 ms", "period: 100 us")
    found = prediction(text)
    assert found.outcomes["alpha/bridge>b2", "b2"].actual_ns is None
    assert found.streams["alpha/bridge>b2"].frames_bytes == (1538,)
    assert bound(found, "urgent/publish", "b2") > 4_302_000 + 1_230_400


def test_a_larger_segment_than_declared_counts_as_several_messages_and_not_as_larger_ones() -> None:
    found = prediction(JITTER.replace("JITTER", "8 ms"))
    declared = bound(found, "alpha/publish", "b")
    size = 2 * found.streams["alpha/publish"].tcp.size_bytes + 90  # type: ignore[union-attr]
    seen = found.observed({"alpha/publish": 12_000_000}, {"alpha/publish": size})["alpha/publish", "b"].actual_ns
    assert seen is not None and seen >= declared + 2 * (size - found.streams["alpha/publish"].largest_frame) * 800
    joined = prediction(JITTER.replace("JITTER", "12 ms"))
    assert joined.streams["alpha/publish"].largest_frame == size
    assert joined.observed({}, {"alpha/publish": size}) == joined.outcomes


def of_bridge(rate: str, size: str, period: str, more: str) -> str:
    text = BRIDGE.replace("10 Mbit/s", rate).replace("size: 100 B, period: 1 ms", f"size: {size}, period: {period}")
    return text.replace("qos: 0, priority: 2", f"{more}, priority: 2")


@pytest.mark.parametrize(
    "text",
    [
        JITTER.replace("JITTER", "12.3457 ms"),
        of_bridge("10 Mbit/s", "219 B", "0.77 ms", "jitter: 568 us, qos: 0"),
        of_bridge("33 Mbit/s", "105 B", "0.77 ms", "jitter: 814 us, qos: 1"),
        of_bridge("7 Mbit/s", "332 B", "2.113 ms", "jitter: 1392 us, qos: 1"),
    ],
)
def test_the_shown_bounds_are_those_that_admission_decides_by(text: str) -> None:
    """Bursts were whole bytes in what is shown, and at links whose bytes take no whole nanoseconds a byte more: a grant had 374 ns less than the
    prediction of what was granted. A burst's time is in whole nanoseconds, so what decides may be one longer."""
    plan = build_plan(scenario_of(text))
    shown, brief = predict(plan), predict(plan, paths=False)
    assert any(stream.joined for stream in shown.streams.values())
    for key, one in shown.outcomes.items():
        other = brief.outcomes[key].actual_ns
        assert (one.actual_ns is None) == (other is None), key
        if one.actual_ns is not None and other is not None:
            assert 0 <= other - one.actual_ns <= 1, key


def test_a_method_for_periods_alone_says_that_messages_may_leave_together() -> None:
    found = prediction(JITTER.replace("JITTER", "21 ms"))
    reason = work_out(found, "trajectory").outcomes["alpha/publish", "b"].reason
    assert reason is not None and "may leave with several messages in one segment" in reason
    assert work_out(found, "holistic").outcomes["alpha/publish", "b"].actual_ns is not None


@pytest.mark.parametrize("seed", range(4))
def test_no_frame_is_later_than_its_bound_where_full_segments_leave_as_often_as_they_may(seed: int) -> None:
    draw = random.Random(seed)
    flows = []
    for number in range(3):
        source, receiver = draw.sample(["a", "c", "d", "e"], 2)
        period, size = draw.choice([1, 2, 4, 8]), draw.choice([24, 60, 200, 700, 1400, 3000])
        jitter = period * draw.choice([0, 1, 2, 3, 9])
        flows.append(
            f"{{name: f{number}, from: {source}, to: {receiver}, size: {size} B, period: {period} ms, jitter: {jitter} ms, "
            f"qos: {draw.randint(0, 2)}, priority: {draw.randint(0, 6)}}}"
        )
    found = prediction(RANDOM.replace("FLOWS", ", ".join(flows)))
    assert any(stream.joined is not None for stream in found.streams.values())
    streams = [
        {
            **stream,
            "release": {"kind": "greedy", "offset_ns": 0, "frames_bytes": [stream["arrival"]["max_frame_bytes"]]},
        }
        if stream["arrival"]["kind"] == "token-bucket"
        else stream
        for stream in found.steady.declaration["streams"]
    ]
    network = Network(found.plan, {**found.steady.declaration, "streams": streams})
    names = list(found.streams.values())
    searched = network.search({"seed": seed, "schedule": [], "evaluations": 20}, lambda share: None)["worst"]
    seen = [((names[each["stream"]].name, each["leaf"]), each["latency"]) for each in searched]
    run = network.simulate({"duration_ns": 200_000_000, "warmup_ns": 0, "seed": seed, "schedule": []})
    seen += [
        ((names[each["stream"]].name, leaf), entry["latency"] and entry["latency"]["max"])
        for each in run["streams"]
        for leaf, entry in enumerate(each["leaves"])
    ]
    bounds = {
        (stream.name, leaf): found.outcomes[stream.name, receiver].actual_ns
        for stream in names
        for leaf, receiver in enumerate(stream.destinations)
    }
    held = [(latency, bounds[key]) for key, latency in seen if latency is not None and bounds[key] is not None]
    assert len(held) > 20 and all(latency <= most for latency, most in held if most is not None)


def test_the_report_says_of_whose_tcp_nothing_is_known() -> None:
    text = JITTER.replace("JITTER", "1 ms")
    assert not any("TCP_NODELAY" in note for note in build_plan(load(text)).notes)
    plan = build_plan(load(text.replace("a: host", "a: {kind: host, tcp: unknown}")))
    (note,) = (note for note in plan.notes if "TCP_NODELAY" in note)
    assert note.startswith("Nothing is known of TCP of a: ")
