"""Stated ways in plans: every stream of the flow goes there, answers come back by the same nodes, nothing else is moved."""

from __future__ import annotations

import pytest

from timebound.engine.predict import predict
from timebound.engine.progress import SILENT
from timebound.engine.simulate import simulate
from timebound.scenario import load
from timebound.stacks import Plan, PlanError, build_plan

TEXT = """name: square
network:
  nodes: {h[1-4]: host, s[1-4]: switch}
  links:
    - [h1, s1]
    - [h2, s1]
    - [h3, s4]
    - [h4, s4]
    - [s1, s2]
    - [s2, s4]
    - {between: [s1, s3], delay: 1 ms}
    - [s3, s4]
run: {duration: 1 s, simulate: {search: 20}}
"""


OTHER = "  - {name: other, from: h2, to: h4, size: 100 B, period: 10 ms}\n"


def plan(flow: str, stack: str, other: str = OTHER) -> Plan:
    return build_plan(load(f"{TEXT}stack: {stack}\nflows:\n  - {{size: 100 B, period: 10 ms, {flow}}}\n{other}"))


def test_all_streams_of_a_connection_go_the_stated_way_and_back() -> None:
    found = plan("name: alpha, from: h1, to: h4, qos: 2, route: [h1, s1, s3, s4, h3]", "{mqtt: {broker: h3}}")
    prediction = predict(found)
    paths = prediction.network.paths()
    there, back = ["h1->s1", "s1->s3", "s3->s4", "s4->h3"], ["h3->s4", "s4->s3", "s3->s1", "s1->h1"]
    moved = {name for name in paths if name.startswith("alpha/publish")}
    assert {"alpha/publish", "alpha/publish/ack", "alpha/publish/pubrel", "alpha/publish/pubcomp"} <= moved
    for name in moved:
        (path,) = paths[name].values()
        assert path in (there, back)
    assert paths["alpha/publish"]["h3"] == there and paths["alpha/publish/ack"]["h1"] == back
    assert paths["alpha/deliver>h4"]["h4"] == ["h3->s4", "s4->h4"]
    others = [path for name in paths if name.startswith("other") for path in paths[name].values()]
    assert others and all("s3" not in port for path in others for port in path)


def test_the_simulator_goes_the_stated_way_within_the_bound() -> None:
    found = plan("name: alpha, from: h1, to: h4, priority: 3, route: [h1, s1, s3, s4, h4]", "{udp: {}}")
    prediction = predict(found)
    outcome = prediction.outcomes["alpha/direct", "h4"]
    worst = simulate(prediction, SILENT).worst_ns["alpha/direct", "h4"]
    # The detour alone takes 1 ms.
    assert outcome.best_ns is not None and outcome.actual_ns is not None and worst is not None
    assert 1_000_000 < outcome.best_ns <= worst <= outcome.actual_ns


def test_a_group_has_a_way_to_each_receiver_or_to_none() -> None:
    head = "name: alpha, from: h1, to: [h3, h4]"
    ways = "[h1, s1, s3, s4, h3], [h1, s1, s3, s4, h4]"
    stack = "{udp: {multicast: true}}"
    (stream,) = (s for s in plan(f"{head}, route: [{ways}]", stack).streams if s.name.startswith("alpha"))
    assert stream.route == (("h1", "s1", "s3", "s4", "h3"), ("h1", "s1", "s3", "s4", "h4"))
    with pytest.raises(PlanError) as error:
        plan(f"{head}, route: [h1, s1, s3, s4, h3]", stack)
    assert error.value.path == "flows[0].routes" and "'h4' has no route" in error.value.message
    # Without a group each receiver has a stream of its own.
    alone = {s.destinations: s.route for s in plan(f"{head}, route: [h1, s1, s3, s4, h3]", "{udp: {}}").streams}
    assert alone[("h3",)] == (("h1", "s1", "s3", "s4", "h3"),) and alone[("h4",)] is None


def test_flows_on_shared_connections_have_no_ways() -> None:
    with pytest.raises(PlanError, match="connections: per-node"):
        plan(
            "name: alpha, from: h1, to: h4, route: [h1, s1, s3, s4, h3]",
            "{mqtt: {broker: h3, connections: per-node}}",
            other="",
        )
