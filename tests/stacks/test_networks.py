"""Messages between edge networks: what of them crosses the network where brokers are bridged."""

from __future__ import annotations

from timebound.engine.predict import predict
from timebound.engine.runs import plan_of
from timebound.scenario import load
from timebound.stacks import Plan

TEXT = """
name: networks
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {p: host, b1: host, q: host, b2: host, r[1-2]: host, b3: host, t: host, s[1-3]: switch}
  links: [[p, s1], [b1, s1], [q, s1], [b2, s2], [r[1-2], s2], [b3, s3], [t, s3], [s1, s2], [s2, s3]]
flows:
  - {name: alpha, from: p, to: [q, r1, r2, t], topic: t/alpha, size: 1000 B, period: 10 ms, jitter: 1 ms, priority: 5, qos: 1}
  - {name: beta, from: t, to: q, topic: t/beta, size: 200 B, period: 20 ms, priority: 4, qos: 2}
stack: STACK
run: {duration: 1 s}
"""
BRIDGED = "{mqtt-bridged: {broker: [b1, b2, b3]}}"


def plan(stack: str = BRIDGED) -> Plan:
    return plan_of(load(TEXT.replace("STACK", stack)))


def names(found: Plan, flow: str, receiver: str) -> list[tuple[str, str, str]]:
    return [(part.name, part.source, part.destination) for part in found.segments[flow, receiver]]


def test_a_message_is_published_once_and_bridged_once_to_each_other_network() -> None:
    found = plan()
    assert names(found, "alpha", "q") == [("publish", "p", "b1"), ("deliver", "b1", "q")]
    assert names(found, "alpha", "r2") == [("publish", "p", "b1"), ("bridge", "b1", "b2"), ("deliver", "b2", "r2")]
    assert names(found, "alpha", "t") == [("publish", "p", "b1"), ("bridge", "b1", "b3"), ("deliver", "b3", "t")]
    assert names(found, "beta", "q") == [("publish", "t", "b3"), ("bridge", "b3", "b1"), ("deliver", "b1", "q")]
    assert sum(client["role"]["kind"] == "publish" for client in found.clients) == 2
    assert [leg.receivers for leg in found.legs] == [("q", "r1", "r2", "t"), ("q",)], "one sender, one number"


def test_each_bridge_has_its_own_listener_and_connection() -> None:
    found = plan()
    lines = found.files["broker-b1.conf"].splitlines()
    assert [line.split()[1].split(":")[0] for line in lines if line.startswith("address ")] == [
        found.addresses["b2"],
        found.addresses["b3"],
    ]
    ports = {marker.destination_port for marker in found.markers if marker.source_port is None}
    assert len(ports) == 3
    waiting = {program["name"] for program in found.programs if program["name"].endswith("-bridges")}
    assert waiting == {"broker-b1-bridges", "broker-b3-bridges"}


def test_a_network_gets_one_copy_and_every_port_before_it_carries_no_more() -> None:
    """Two other networks want alpha: over s1-s2 go two copies, over s2-s3 one; with plain MQTT p itself sends three."""

    def load_of(found: Plan, port: str) -> float:
        return next(entry["utilisation"]["value"] for entry in predict(found).ports if entry["name"] == port)

    bridged, copies = plan(), plan("{mqtt: {broker: [b1, b2, b3]}}")
    assert 2.9 < load_of(copies, "p->s1") / load_of(bridged, "p->s1") < 3.1
    assert load_of(bridged, "s1->s2") > 1.7 * load_of(bridged, "s2->s3")


def test_every_part_of_the_way_has_a_bound_and_their_sum_is_the_figure() -> None:
    prediction = predict(plan())
    for (flow, receiver), parts in prediction.plan.segments.items():
        bounds = [prediction.segment(part).actual_ns for part in parts]
        assert None not in bounds, (flow, receiver)
