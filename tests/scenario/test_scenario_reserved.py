"""`stack: rt-mqtt`: what it needs, what its flows may state, and what they resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_helpers import problems

from timebound.scenario import load
from timebound.stacks import build_plan

TEXT = """name: reserved
network:
  defaults: {switch: {engine: ovs}}
  nodes: {h[1-3]: host, s1: switch}
  links: [[h1, s1], [h2, s1], [h3, s1]]
flows:
  - {name: asks, from: h1, to: h3, size: 100 B, period: 10 ms, jitter: 1 ms, deadline: 20 ms, priority: 5, qos: 1}
  - {name: silent, from: h1, to: h3, size: 100 B, period: 10 ms, deadline: 20 ms, priority: 5, reserve: false}
  - {name: idle, from: h1, to: h3, size: 100 B, period: 10 ms, priority: 5}
stack: {rt-mqtt: {broker: h2}}
"""


def test_who_asks_for_nothing_is_best_effort() -> None:
    loaded = load(TEXT)
    assert [(flow.name, flow.asks, flow.priority) for flow in loaded.flows] == [
        ("asks", True, 5),
        ("silent", False, 0),
        ("idle", False, 0),
    ]
    assert load(loaded.to_yaml()) == loaded


def test_clients_say_what_they_need() -> None:
    plan = build_plan(load(TEXT))
    clients = {client["name"]: client for client in plan.clients}
    asked = dict(clients["asks/publish"]["user_properties"])
    assert asked == {
        "rt-topic": "asks",
        "rt-deadline": "20000000 ns",
        "rt-priority": "5",
        "rt-period": "10000000 ns",
        "rt-jitter": "1000000 ns",
        "rt-size": "100 B",
        "rt-qos": "1",
    }
    subscriber = clients["asks/deliver>h3"]
    assert dict(subscriber["role"]["user_properties"]) == {"rt-deadline": "20000000 ns", "rt-priority": "5"}
    assert (subscriber["user_properties"], subscriber["dscp"]) == ([], 40)
    assert clients["silent/publish"]["user_properties"] == [] and clients["silent/publish"]["dscp"] == 0
    assert not any(marker.rewrite_dscp for marker in plan.markers), "switches and managers mark, not we"


def test_programs_are_those_of_a_plant() -> None:
    plan = build_plan(load(TEXT))
    names = [(program["name"], program["node"]) for program in plan.programs]
    assert names == [
        ("table", ".switches"),
        ("controller", ".switches"),
        ("controller-ready", ".switches"),
        ("broker-h2", "h2"),
        ("manager-h2", "h2"),
        ("manager-h2-ready", "h2"),
    ]
    assert {"controller.yaml", "manager-h2.yaml", "site.yaml"} <= set(plan.files)


def test_the_files_of_the_programs_are_what_these_accept(tmp_path: Path) -> None:
    pytest.importorskip("structlog")
    from timebound.control.controller.configuration import read as read_controller
    from timebound.control.manager.configuration import load as load_manager

    folder = tmp_path
    (folder / "logs").mkdir()
    for name, text in build_plan(load(TEXT)).files.items():
        (folder / name).write_text(text)
    controller = read_controller(folder / "controller.yaml")
    assert [switch.name for switch in controller.switches.switches] == ["s1"]
    assert {node.address for node in controller.switches.nodes if node.kind == "host"} == {
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
    }
    manager, _ = load_manager(folder / "manager-h2.yaml")
    assert manager.core["listeners"][0]["address"] == "10.0.0.2"


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("{switch: {engine: ovs}}", "{}", "stack.rt-mqtt", "'s1' is no real switch"),
        ("{broker: h2}", "{broker: h2, version: 3.1.1}", "stack.rt-mqtt.version", "no user properties"),
        ("{broker: h2}", "{broker: h2, connections: per-node}", "stack.rt-mqtt.connections", "unit of a reservation"),
        ("{broker: h2}", "{broker: {node: h2, program: manager}}", "stack.rt-mqtt.broker[0].program", "anyway"),
        ("qos: 1}", "qos: 1, pattern: poisson}", "flows[0]", "least time between messages"),
        ("qos: 1}", "qos: 1, start: 1 s}", "flows[0].start", "beside channels"),
        ("priority: 5, qos: 1}", "priority: 7, qos: 1}", "flows[0].priority", "the network's own"),
        ("{rt-mqtt: {broker: h2}}", "{mqtt: {broker: h2}}", "flows[1].reserve", "nothing is reserved"),
    ],
)
def test_what_cannot_be_is_told_at_its_place(old: str, new: str, path: str, message: str) -> None:
    assert old in TEXT
    found = problems(TEXT.replace(old, new))
    assert any(problem.path == path and message in problem.message for problem in found), found
