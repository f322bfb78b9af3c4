"""A broker in each edge network: who uses which, what stacks make of the same flows, and what cannot be."""

from __future__ import annotations

import pytest
from scenario_helpers import problems

from timebound.scenario import load
from timebound.scenario.model import MqttStack

TEXT = """name: networks
network:
  defaults: {switch: {engine: ENGINE}}
  nodes: {p: host, b1: host, q: host, b2: host, r: host, s[1-2]: switch}
  links: [[p, s1], [b1, s1], [q, s1], [b2, s2], [r, s2], [s1, s2]]
flows:
  - {name: alpha, from: p, to: [q, r], size: 100 B, period: 10 ms, deadline: 10 ms, priority: 5, qos: 1, count: 2}
  - {name: beta, from: r, to: q, size: 100 B, period: 10 ms, deadline: 10 ms, priority: 4}
stack: STACK
"""


def text(stack: str = "{mqtt-bridged: {broker: [b1, b2]}}", engine: str = "fabric") -> str:
    return TEXT.replace("STACK", stack).replace("ENGINE", engine)


def ways(written: str) -> dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Flow -> brokers on the way of each part, and its receivers."""
    return {
        flow.name: [((*service.via, service.broker), service.receivers) for service in flow.services]
        for flow in load(written).flows
    }


def test_a_publisher_uses_the_broker_of_its_network_and_receivers_theirs() -> None:
    found = ways(text())
    assert found["alpha[1]"] == found["alpha[2]"] == [(("b1",), ("q",)), (("b1", "b2"), ("r",))]
    assert found["beta"] == [(("b2", "b1"), ("q",))]


@pytest.mark.parametrize(
    ("stack", "engine"),
    [
        ("{mqtt: {broker: [b1, b2]}}", "fabric"),
        ("{mqtt: {broker: b1}}", "fabric"),
        ("{mqtt-bridged: {broker: [b1, b2]}}", "fabric"),
        ("{mqtt-bridged: {broker: [b1, b2], priorities: false}}", "ovs"),
        ("{mqtt-bridged: {broker: b1}}", "fabric"),
        ("{rt-mqtt: {broker: b1}}", "ovs"),
        ("{mrt-mqtt: {broker: [b1, b2]}}", "ovs"),
        ("{mrt-mqtt: {broker: [b1, b2]}}", "fabric"),
        ("{dm-mqtt: {broker: [b1, b2]}}", "ovs"),
    ],
)
def test_only_the_line_of_the_stack_changes(stack: str, engine: str) -> None:
    loaded = load(text(stack, engine))
    assert isinstance(loaded.stack, MqttStack) and loaded.stack.kind == stack[1:].partition(":")[0]
    assert [flow.name for flow in loaded.flows] == ["alpha[1]", "alpha[2]", "beta"]
    assert load(loaded.to_yaml()) == loaded


def test_hosts_of_a_broker_use_it_wherever_they_are() -> None:
    stated = "{mqtt-bridged: {broker: [{node: b1, hosts: [q, r]}, {node: b2, hosts: p}]}}"
    assert ways(text(stated))["alpha[1]"] == [(("b2", "b1"), ("q", "r"))]
    assert ways(text("{mqtt: {broker: [{node: b1, hosts: r}, b2]}}"))["alpha[1]"] == [(("b1",), ("q", "r"))]


def test_without_priorities_every_flow_is_best_effort() -> None:
    for kind in ("mqtt", "mqtt-bridged"):
        loaded = load(text(f"{{{kind}: {{broker: [b1, b2], priorities: false}}}}"))
        assert {flow.priority for flow in loaded.flows} == {0}
        assert {flow.priority for flow in load(text(f"{{{kind}: {{broker: [b1, b2]}}}}")).flows} == {4, 5}


def test_brokers_with_bridges_are_mosquitto() -> None:
    stack = load(text()).stack
    assert isinstance(stack, MqttStack)
    assert [broker.program for broker in stack.brokers] == ["mosquitto", "mosquitto"]
    plain = load(text("{mqtt: {broker: [b1, b2]}}")).stack
    assert isinstance(plain, MqttStack) and plain.brokers[0].program == "embedded"


BRIDGED = "{mqtt-bridged: {broker: "


@pytest.mark.parametrize(
    ("stack", "path", "message"),
    [
        (BRIDGED + "[{node: b1, program: embedded}, b2]}}", "stack.mqtt-bridged.broker[0].program", "knows no bridges"),
        (
            "{mrt-mqtt: {broker: [{node: b1, program: embedded}, b2]}}",
            "stack.mrt-mqtt.broker[0].program",
            "as a client",
        ),
        ("{mrt-mqtt: {broker: [{node: b1, program: manager}, b2]}}", "stack.mrt-mqtt.broker[0].program", "anyway"),
        (BRIDGED + "[b1, b2], connections: per-node}}", "stack.mqtt-bridged.connections", "per-node"),
        (BRIDGED + "[{node: b1, hosts: p}, {node: b2, hosts: p}]}}", "stack.mqtt-bridged.broker[1].hosts", "already"),
        (BRIDGED + "[{node: b1, hosts: x9}, b2]}}", "stack.mqtt-bridged.broker[0].hosts[0]", "unknown node 'x9'"),
        (BRIDGED + "[{node: b1, hosts: s1}, b2]}}", "stack.mqtt-bridged.broker[0].hosts[0]", "is a switch"),
        (BRIDGED + "[b1, b1]}}", "stack.mqtt-bridged.broker[1].node", "two brokers"),
        ("{rt-mqtt: {broker: b1, priorities: false}}", "stack.rt-mqtt.priorities", "tells rt-mqtt"),
        ("{dm-mqtt: {broker: b1, priorities: true}}", "stack.dm-mqtt.priorities", "tells dm-mqtt"),
        ("{mrt-mqtt: {broker: [b1, b2], version: 3.1.1}}", "stack.mrt-mqtt.version", "no user properties"),
    ],
)
def test_what_cannot_be_is_told_at_its_place(stack: str, path: str, message: str) -> None:
    found = problems(text(stack, "ovs"))
    assert any(problem.path == path and message in problem.message and problem.hint for problem in found), found


@pytest.mark.parametrize("key", ["via: [b1, b2]", "connection: c1", "after: beta"])
def test_ways_by_hand_belong_to_plain_mqtt(key: str) -> None:
    found = problems(text().replace("deadline: 10 ms, priority: 5", f"{key}, priority: 5"))
    assert any(p.path == f"flows[0].{key.partition(':')[0]}" and "networks" in p.message for p in found), found


def test_a_class_is_not_assigned_where_there_are_none() -> None:
    stack = "{mqtt-bridged: {broker: [b1, b2], priorities: false}}"
    found = problems(text(stack) + "assigned: {beta: {priority: 6}}\n")
    assert [problem.path for problem in found] == ["assigned.beta.priority"]


def test_what_asks_for_no_channel_stays_in_its_network() -> None:
    found = problems(text("{mrt-mqtt: {broker: [b1, b2]}}").replace("deadline: 10 ms, priority: 4", "priority: 4"))
    assert [problem.path for problem in found] == ["flows[1].to"] and "asks for no channel" in found[0].message


def test_channels_of_dm_mqtt_have_one_class() -> None:
    loaded = load(text("{dm-mqtt: {broker: [b1, b2]}}"))
    assert {flow.priority for flow in loaded.flows} == {4} and all(flow.asks for flow in loaded.flows)
