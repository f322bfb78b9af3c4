"""Multicast between edge networks: what of a message crosses the network, who waits for whom, and bounds that the simulator does not exceed."""

from __future__ import annotations

import json

import pytest

from timebound.engine.predict import predict
from timebound.engine.progress import SILENT
from timebound.engine.runs import plan_of
from timebound.engine.simulate import simulate
from timebound.scenario import load
from timebound.stacks import Plan
from timebound.stacks.group_address import group_of
from timebound.stacks.peers import HEADER_BYTES, PART_BYTES
from timebound.stacks.wire import ETHERNET, mqtt_publish

TEXT = """
name: groups
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {SWITCH}}
  nodes: {p: host, b1: host, q: host, b2: host, r[1-2]: host, b3: host, t: host, s[1-3]: switch}
  links: [[p, s1], [b1, s1], [q, s1], [b2, s2], [r[1-2], s2], [b3, s3], [t, s3], [s1, s2], [s2, s3]]
flows:
  - {name: alpha, from: p, to: [q, r1, r2, t], topic: t/alpha, size: 1429 B, period: 15 ms, jitter: 1 ms, deadline: 15 ms, priority: 5, qos: QOS}
  - {name: beta, from: t, to: q, topic: t/beta, size: 200 B, period: 20 ms, deadline: 20 ms, priority: 4, qos: QOS}
  - {name: gamma, from: q, to: p, topic: t/gamma, size: 1000 B, period: 5 ms, deadline: 5 ms, priority: 3}
stack: {STACK: {broker: BROKERS}}
run: {duration: 1 s, simulate: {duration: 1 s, search: 200}}
"""
NAMED = "[b1, b2, b3]"
TIMED = "[b1, {node: b2, service: {latency: 200 us, per-message: 20 us, per-copy: 10 us}}, b3]"


def plan(qos: int = 1, stack: str = "mrt-mqtt", brokers: str = NAMED, switch: str = "delay: 10..20 us") -> Plan:
    text = TEXT.replace("STACK", stack).replace("QOS", str(qos)).replace("BROKERS", brokers).replace("SWITCH", switch)
    return plan_of(load(text))


def parts(found: Plan, flow: str, receiver: str) -> list[tuple[str, str, str]]:
    return [(part.name, part.source, part.destination) for part in found.segments[flow, receiver]]


def test_one_stream_goes_to_all_other_networks_and_local_traffic_stays() -> None:
    found = plan()
    assert parts(found, "alpha", "q") == [("publish", "p", "b1"), ("deliver", "b1", "q")]
    assert parts(found, "alpha", "r2") == [("publish", "p", "b1"), ("multicast", "b1", "b2"), ("deliver", "b2", "r2")]
    assert parts(found, "alpha", "t") == [("publish", "p", "b1"), ("multicast", "b1", "b3"), ("deliver", "b3", "t")]
    streams = {stream.name: stream for stream in found.streams}
    assert streams["alpha/multicast"].destinations == ("b2", "b3")
    assert not any(name.startswith("gamma/multicast") for name in streams)


def test_a_message_becomes_the_datagrams_of_the_peer_protocol() -> None:
    """32 bytes before each part of at most 1360; the PUBLISH has no packet identifier."""
    streams = {stream.name: stream for stream in plan().streams}
    size = mqtt_publish("t/alpha", 1429, 0, True)[0]
    assert streams["alpha/multicast"].frames_bytes == (
        ETHERNET.datagram(HEADER_BYTES + PART_BYTES),
        ETHERNET.datagram(HEADER_BYTES + size - PART_BYTES),
    )


@pytest.mark.parametrize(("qos", "answer"), [(1, "puback"), (2, "pubrec")])
def test_the_publisher_is_answered_when_every_network_has_the_message(qos: int, answer: str) -> None:
    prediction = predict(plan(qos))
    follows = prediction.streams[f"alpha/publish/{answer}"].follows
    assert follows is not None
    assert [other.stream for other in follows.also] == ["alpha/multicast/taken<b2", "alpha/multicast/taken<b3"]
    waiting = prediction.streams[f"alpha/publish/{answer}"].jitter_ns
    for other in follows.also:
        outcome = prediction.outcomes[str(other.stream), other.destination]
        assert outcome.nominal_ns is not None and outcome.best_ns is not None
        assert waiting >= outcome.nominal_ns - outcome.best_ns + other.extra_ns
    assert ("alpha/multicast/release>b2" in prediction.streams) == (qos == 2)


def test_without_acknowledgements_nothing_comes_back() -> None:
    found = plan(0)
    assert not [stream.name for stream in found.streams if "/multicast/" in stream.name]
    assert parts(found, "beta", "q") == [("publish", "t", "b3"), ("multicast", "b3", "b1"), ("deliver", "b1", "q")]


@pytest.mark.parametrize("stack", ["mrt-mqtt", "dm-mqtt"])
@pytest.mark.parametrize(("qos", "brokers"), [(0, NAMED), (1, NAMED), (1, TIMED), (2, TIMED)])
def test_no_simulated_frame_is_later_than_its_bound(stack: str, qos: int, brokers: str) -> None:
    prediction = predict(plan(qos, stack, brokers))
    found = simulate(prediction, SILENT)
    assert found.worst_ns
    bounded = 0
    for key, worst in found.worst_ns.items():
        bound = prediction.outcomes[key].actual_ns
        if bound is not None:
            bounded += 1
            assert worst <= bound, key
    assert bounded > 10
    assert prediction.outcomes["alpha/multicast", "b3"].actual_ns is not None


def test_channels_without_priorities_share_one_class() -> None:
    assert {stream.priority for stream in plan(stack="dm-mqtt").streams} == {4}
    assert {stream.priority for stream in plan().streams} == {3, 4, 5}


def test_frames_of_a_group_are_known_by_its_address() -> None:
    found = plan()
    marker = next(marker for marker in found.markers if marker.data == "alpha/multicast")
    assert marker.destination == group_of("t/alpha", 5) and marker.destination_port == 1884
    # First byte, two bytes of length and the topic, no properties; then the payload, in two datagrams.
    assert marker.header == (HEADER_BYTES + 1 + 2 + 7 + 1, 1429 + 11 + 2 * HEADER_BYTES)
    back = [marker for marker in found.markers if marker.data == "alpha/multicast/arrived<b2"]
    assert {(m.source_port, m.destination_port) for m in back} == {(None, 1884), (1884, None)}
    assert {m.protocol for m in back} == {"tcp"}


def test_managers_are_told_their_network_and_the_controller_whether_classes_count() -> None:
    for stack, counts in (("mrt-mqtt", True), ("dm-mqtt", False)):
        found = plan(stack=stack, switch="engine: ovs, delay: 0 us..2 ms")
        manager = json.loads(found.files["manager-b2.yaml"])
        assert manager["network"] == "b2" and manager["peer"] == {"address": found.addresses["b2"], "port": 1884}
        planning = json.loads(found.files["controller.yaml"])["planning"]
        assert planning.get("priorities", True) is counts


def test_without_real_switches_there_is_nothing_to_reserve_in() -> None:
    found = plan()
    assert found.unemulated is not None and "engine: ovs" in found.unemulated
    assert plan(switch="engine: ovs, delay: 0 us..2 ms").unemulated is None
