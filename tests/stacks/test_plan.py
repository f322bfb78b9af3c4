"""Plans: every connection is declared in both directions, and nothing is declared twice."""

from __future__ import annotations

import json

import pytest

from timebound import _core
from timebound.engine.runs import check
from timebound.scenario import ScenarioError, load
from timebound.stacks import Plan, build_plan

SCENARIO = """
name: small
network:
  defaults: {{link: {{rate: 100 Mbit/s, delay: 5 us}}, switch: {{delay: 10..20 us}}}}
  nodes: {{a: host, b: host, c: host, d: host, s: switch}}
  links: [["a", s], ["b", s], ["c", s], ["d", s]]
flows:
  - {{name: alpha, from: a, to: [c, d], topic: t/alpha, size: {size} B, period: 10 ms, jitter: 1 ms, priority: 5, qos: {qos}}}
stack: {stack}
run: {{duration: 1 s, warm-up: 0 s, seed: 1}}
"""


def plan_of(stack: str = "{mqtt: {broker: b}}", qos: int = 1, size: int = 100) -> Plan:
    return build_plan(load(SCENARIO.format(stack=stack, qos=qos, size=size)))


def names(plan: Plan) -> set[str]:
    return {stream.name for stream in plan.streams}


@pytest.mark.parametrize(
    ("qos", "answers"),
    [(0, {"ack", "keep-alive-there", "keep-alive-back"}), (1, {"ack", "puback", "puback/ack"}),
     (2, {"ack", "pubrec", "pubrec/ack", "pubrel", "pubrel/ack", "pubcomp", "pubcomp/ack"})],
)  # fmt: skip
def test_a_connection_declares_what_its_quality_of_service_sends(qos: int, answers: set[str]) -> None:
    prefix = "alpha/publish"
    assert names(plan_of(qos=qos)) >= {prefix} | {f"{prefix}/{answer}" for answer in answers}
    sent = {name.removeprefix(f"{prefix}/") for name in names(plan_of(qos=qos)) if name.startswith(f"{prefix}/")}
    assert sent == answers


def test_every_answer_leaves_where_what_it_answers_arrives() -> None:
    plan = plan_of(qos=2)
    streams = {stream.name: stream for stream in plan.streams}
    for stream in plan.streams:
        if stream.follows is not None:
            assert stream.source == stream.follows.destination
            assert stream.follows.destination in streams[stream.follows.stream].destinations


def test_markers_name_declared_streams_of_their_own_direction() -> None:
    for stack in ("{mqtt: {broker: b}}", "{mqtt: {broker: c}}", "{udp: {multicast: true}}", "{udp: {}}"):
        plan = plan_of(stack, qos=0 if "udp" in stack else 2)
        streams = {stream.name: stream for stream in plan.streams}
        seen = set()
        for marker in plan.markers:
            key = (marker.source, marker.destination, marker.protocol, marker.source_port, marker.destination_port)
            assert key not in seen
            seen.add(key)
            for name in filter(None, (marker.data, marker.ack, marker.control)):
                assert plan.addresses[streams[name].source] == marker.source


def test_a_receiver_on_the_brokers_host_needs_no_second_segment() -> None:
    plan = plan_of("{mqtt: {broker: c}}")
    assert [segment.name for segment in plan.segments["alpha", "c"]] == ["publish"]
    assert [segment.name for segment in plan.segments["alpha", "d"]] == ["publish", "deliver"]


def test_a_publisher_on_the_brokers_host_needs_no_first_segment() -> None:
    plan = plan_of("{mqtt: {broker: a}}")
    assert [segment.name for segment in plan.segments["alpha", "c"]] == ["deliver"]


def test_flows_that_share_a_topic_publish_below_it() -> None:
    text = SCENARIO.format(stack="{mqtt: {broker: b}}", qos=0, size=100).replace("priority: 5", "priority: 5, count: 3")
    topics = [
        client["role"]["topic"] for client in build_plan(load(text)).clients if client["role"]["kind"] == "publish"
    ]
    assert topics == ["t/alpha/1", "t/alpha/2", "t/alpha/3"]


def test_multicast_is_one_stream_for_all_receivers() -> None:
    plan = plan_of("{udp: {multicast: true}}", qos=0)
    assert [stream.destinations for stream in plan.streams] == [("c", "d")]
    assert plan.markers[0].destination.startswith("239.192.")


def test_large_messages_become_several_frames() -> None:
    stream = next(stream for stream in plan_of(size=3000).streams if stream.name == "alpha/publish")
    assert len(stream.frames_bytes) == 3 and stream.frames_bytes[:2] == (1538, 1538)


def test_all_plans_compile() -> None:
    for stack in ("{mqtt: {broker: b}}", "{mqtt: {broker: a}}", "{mqtt: {broker: c}}", "{udp: {multicast: true}}"):
        for qos in (0,) if "udp" in stack else (0, 1, 2):
            _core.Network(json.dumps(plan_of(stack, qos).declaration()))


def test_addresses_that_clash_are_refused_with_their_place() -> None:
    text = SCENARIO.format(stack="{udp: {}}", qos=0, size=100).replace(
        "a: host, b: host", "a: {kind: host, address: 10.0.0.9}, b: {kind: host, address: 10.0.0.9}"
    )
    with pytest.raises(ScenarioError, match=r"5:72: 10.0.0.9 belongs to"):
        load(text)


def test_addresses_outside_the_subnet_are_refused_with_their_place() -> None:
    text = SCENARIO.format(stack="{udp: {}}", qos=0, size=100).replace("a: host", "a: {kind: host, address: 10.1.0.9}")
    with pytest.raises(ScenarioError, match=r"5:36: 10.1.0.9 lies outside"):
        check(load(text))
