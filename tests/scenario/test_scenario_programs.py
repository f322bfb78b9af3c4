"""`programs` of flows: whose own program takes the place of a built-in client, and what is said where that has no sense."""

from __future__ import annotations

import pytest

from timebound.engine.runs import plan_of
from timebound.scenario import ScenarioError, load

TEXT = """
name: own
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
  nodes: {h1: {kind: host, run: [[app]]}, h2: {kind: host, run: [[app]]}, h3: host, b: {kind: host, run: [[app]]}, s: switch}
  links: [[h1, s], [h2, s], [h3, s], [b, s]]
flows:
  - {name: a, from: h1, to: [h2, h3], topic: t, size: 100 B, period: 20 ms, programs: PROGRAMSMORE}
  - {name: c, from: h3, to: h2, topic: u, size: 50 B, period: 20 ms}
stack: STACK
run: {duration: 1 s}
"""
MQTT = "{mqtt: {broker: b}}"
MOSQUITTOS = "{mqtt: {broker: [{node: b, program: mosquitto}, {node: h3, program: mosquitto}]}}"


def text(programs: str = "[h1, h2]", more: str = "", stack: str = MQTT) -> str:
    return TEXT.replace("PROGRAMS", programs).replace("MORE", more).replace("STACK", stack)


def test_programs_survive_the_round_trip() -> None:
    scenario = load(text())
    assert load(scenario.to_yaml()) == scenario
    assert [flow.programs for flow in scenario.flows] == [("h1", "h2"), ()]


def test_no_built_in_client_is_started_where_a_program_is_named() -> None:
    plan = plan_of(load(text()))
    clients = [(client["name"], client["node"]) for client in plan.clients]
    assert clients == [("a/deliver>h3", "h3"), ("c/publish", "h3"), ("c/deliver>h2", "h2")]
    own = {(m.source_port, m.destination_port, m.own.role) for m in plan.markers if m.own is not None}
    # Of a program any port of its own; the built-in client's is known, and so are its answers.
    assert own == {
        (None, 1883, "source"),
        (1883, None, "answers"),
        (1883, None, "onward"),
        (None, 1883, "answers"),
        (1883, 20_000, "onward"),
    }
    assert plan.clients[0]["role"]["short"] == [{"flow": 0, "payload_bytes": 0, "topic": "t", "own": True}]
    (note,) = [note for note in plan.notes if note.startswith("Programs of the nodes")]
    assert "a (topic t): h1, h2" in note


def test_over_udp_the_port_tells_the_messages() -> None:
    plan = plan_of(load(text(stack="udp")))
    assert [sender["flow"] for sender in plan.udp] == [2]
    assert [receiver["node"] for receiver in plan.udp_receivers] == ["h3", "h2"]
    own = [(m.source_port, m.destination_port) for m in plan.markers if m.own is not None]
    assert own == [(None, 40_000), (None, 40_000)]
    assert any("a (UDP port 40000): h1, h2" in note for note in plan.notes)


def test_the_embedded_broker_is_told_which_messages_bear_no_header() -> None:
    # They were asked of markers that were not there yet, so it added user properties to small messages.
    plan = plan_of(load(text().replace(", programs: [h1, h2]", "").replace("size: 50 B", "size: 5 B")))
    assert plan.programs[0]["argv"][-2:] == ["--short", "u"]
    assert plan_of(load(text())).programs[0]["argv"][-2:] == ["--short", "t"]


@pytest.mark.parametrize(
    ("changed", "said", "at"),
    [
        ({"programs": "h4"}, "unknown node 'h4'", "h4"),
        ({"programs": "b"}, "'b' neither publishes nor receives", "b"),
        # Taken for a number of programs, or for a switch.
        ({"programs": "-1"}, "'-1' names no host of", "-1"),
        ({"programs": "5"}, "'5' names no host of", "5"),
        ({"programs": "true"}, "'true' names no host of", "true"),
        ({"stack": "{mqtt: {broker: b, connections: per-node}}"}, "connections: per-node", "[h1, h2]"),
        ({"stack": "{mqtt-bridged: {broker: b}}"}, "stack mqtt-bridged", "[h1, h2]"),
        ({"stack": "{mqtt: {broker: h1}}"}, "'h1' is the broker's own host", "[h1, h2]"),
        ({"more": ", connection: c"}, "connection of a flow with programs", "c"),
        ({"more": ", start: 2 s"}, "start of a flow with programs", "2 s"),
        (
            {"more": ", via: [h3, b]", "stack": MOSQUITTOS},
            "bridges, and a flow with programs",
            "[h3, b]",
        ),
    ],
)
def test_what_has_no_sense_is_said_at_its_place(changed: dict[str, str], said: str, at: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(text(**changed))
    problem = next(problem for problem in caught.value.problems if said in problem.message)
    line = text(**changed).splitlines()[problem.line - 1]
    assert problem.hint and line[problem.column - 1 :].startswith(at), line[problem.column - 1 :]


def test_flows_on_one_topic_cannot_be_told_apart_by_it() -> None:
    with pytest.raises(ScenarioError, match="several flows have the topic 't'"):
        load(text().replace("topic: u", "topic: t"))


def test_a_host_without_a_program_is_warned_of() -> None:
    (warning,) = load(text("[h1, h3]")).warnings
    assert "'h3' has no program" in warning.message
