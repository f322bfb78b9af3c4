"""Stated ways of flows, and the part `assigned`: what they mean, where they end up, and what is no way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_helpers import problems

from timebound.engine.predict import predict
from timebound.scenario import Scenario, ScenarioError, load
from timebound.stacks import PlanError, build_plan

SQUARE = """name: square
network:
  nodes: {h[1-4]: host, s[1-4]: switch}
  links: [[h1, s1], [h2, s1], [h3, s4], [h4, s4], [s1, s2], [s2, s4], [s1, s3], [s3, s4]]
"""
UDP = SQUARE + "stack: {udp: {}}\n"
MQTT = SQUARE + "stack: {mqtt: {broker: h3}}\n"
LONG = ("h1", "s1", "s3", "s4", "h4")


def flows(more: str, text: str = UDP, head: str = "name: alpha, from: h1, to: h4") -> str:
    return f"{text}flows:\n  - {{{head}, size: 100 B, period: 10 ms, {more}}}\n"


def routes(scenario: Scenario) -> dict[str, tuple[tuple[str, ...], ...]]:
    return {flow.name: flow.routes for flow in scenario.flows}


@pytest.mark.parametrize("written", ["[h1, s1, s3, s4, h4]", "[[h1, s1, s3, s4, h4]]"])
def test_a_way_is_a_list_of_nodes_or_a_list_of_such_lists(written: str) -> None:
    assert routes(load(flows(f"route: {written}"))) == {"alpha": (LONG,)}


def test_ways_go_to_the_instances_whose_frames_go_there() -> None:
    text = flows("route: [[h1, s1, s3, s4, h4], [h2, s1, s3, s4, h4]]", head="name: alpha, from: h[1-2], to: [h3, h4]")
    assert routes(load(text)) == {
        "alpha[1]": (LONG,),
        "alpha[2]": (("h2", "s1", "s3", "s4", "h4"),),
    }


def test_with_mqtt_a_way_leads_to_the_broker_or_from_it_in_either_direction() -> None:
    scenario = load(flows("route: [[h3, s4, s3, s1, h1], [h3, s4, h4]]", MQTT))
    (alpha,) = scenario.flows
    assert alpha.routes == (("h3", "s4", "s3", "s1", "h1"), ("h3", "s4", "h4"))
    assert alpha.way("h1", "h3") == ("h1", "s1", "s3", "s4", "h3")
    assert alpha.way("h3", "h1") == ("h3", "s4", "s3", "s1", "h1")
    assert alpha.way("h1", "h4") is None


@pytest.mark.parametrize(
    ("route", "message", "hint"),
    [
        ("[h1, s1, s5, s4, h4]", "unknown node 's5' in the route", "from host to host"),
        ("[h1]", "a route has two ends", "from host to host"),
        ("[s1, s3, s4, h4]", "the route ends at the switch 's1'", "at hosts"),
        ("[h1, s1, s3, s4]", "the route ends at the switch 's4'", "at hosts"),
        ("[h1, s1, s2, s1, s3, s4, h4]", "the route visits 's1' twice", "every node once"),
        ("[h1, s1, h2, s1, s3, s4, h4]", "the route passes through the host 'h2'", "do not forward"),
        ("[h1, s1, s4, h4]", "no link from 's1' to 's4'", "from s1 links lead to h1, h2, s2, s3"),
        ("[h2, s1, s3, s4, h4]", "the flow has nothing to send from 'h2' to 'h4'", "from h1 to h4"),
        ("[[h1, s1, s3, s4, h4], [h1, s1, s2, s4, h4]]", "a second route between 'h1' and 'h4'", "state one"),
        ("[h1, 3]", "unknown node '3' in the route", "did you mean"),
        ("[h1, {}]", "expected a text, found a mapping", "write a text"),
    ],
)
def test_what_is_no_way_of_the_flow_is_refused_with_its_place(route: str, message: str, hint: str) -> None:
    (problem,) = problems(flows(f"route: {route}"))
    assert message in problem.message and hint in problem.hint
    # Line and column of the node that is wrong, or of the way itself.
    at = problem.source_line[problem.column - 1 :]
    named = [word for word in message.split("'") if word in ("s1", "s2", "s3", "s4", "s5", "h2")][-1:]
    assert problem.line == 7 and at.startswith(named[0] if named and "nothing" not in message else ("[", "3", "h1"))


def test_what_is_assigned_counts_in_place_of_what_flows_state_and_instances_over_groups() -> None:
    text = flows("count: 2, priority: 3, route: [h1, s1, s2, s4, h4]")
    scenario = load(
        text + 'assigned:\n  "alpha[2]": {priority: 6, route: [h1, s1, s3, s4, h4]}\n  alpha: {priority: 5}\n'
    )
    assert [flow.priority for flow in scenario.flows] == [5, 6]
    assert routes(scenario) == {"alpha[1]": (("h1", "s1", "s2", "s4", "h4"),), "alpha[2]": (LONG,)}


def test_ways_assigned_to_a_group_go_to_the_instances_whose_frames_go_there() -> None:
    text = flows("priority: 3", head="name: alpha, from: h[1-2], to: h4")
    scenario = load(text + "assigned: {alpha: {route: [[h2, s1, s3, s4, h4], [h1, s1, s3, s4, h4]]}}\n")
    assert routes(scenario) == {"alpha[1]": (LONG,), "alpha[2]": (("h2", "s1", "s3", "s4", "h4"),)}


def test_an_overlay_includes_a_scenario_and_assigns(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(flows("priority: 3"))
    over = tmp_path / "over.yaml"
    over.write_text("include: base.yaml\nassigned: {alpha: {priority: 7}}\n")
    (alpha,) = load(over).flows
    assert alpha.priority == 7


@pytest.mark.parametrize(
    ("assigned", "message", "hint"),
    [
        ("{alhpa: {priority: 3}}", "there is no flow 'alhpa'", "did you mean 'alpha'?"),
        ("{alpha: {priority: 9}}", "9 is out of range", "at most 7"),
        ("{alpha: {prio: 3}}", "unknown key 'prio'", "priority"),
        ("{alpha: {route: [h1, s1, s4, h4]}}", "no link from 's1' to 's4'", "links lead to"),
    ],
)
def test_what_cannot_be_assigned_is_refused_with_its_place(assigned: str, message: str, hint: str) -> None:
    (problem,) = problems(flows("priority: 3") + f"assigned: {assigned}\n")
    assert message in problem.message and hint in problem.hint
    assert problem.line == 8 and problem.column > 10


def test_ways_survive_the_resolved_form() -> None:
    text = flows("count: 2, route: [[h3, s4, s3, s1, h1], [h3, s4, h4]]", MQTT)
    scenario = load(text + 'assigned: {"alpha[1]": {priority: 6}}\n')
    assert load(scenario.to_yaml()) == scenario


NAMES = st.sampled_from(["h1", "h2", "h3", "h4", "s1", "s2", "s3", "s4"])
INNER = st.sampled_from([["s1", "s2", "s4"], ["s1", "s3", "s4"], ["s4", "s3", "s1"], ["s1", "s4"]])
SENSIBLE = st.builds(lambda a, inner, b: [a, *inner, b], NAMES, INNER, NAMES)
WAYS = st.lists(st.one_of(SENSIBLE, st.lists(NAMES, max_size=6)), max_size=3)


@settings(max_examples=300, deadline=None)
@given(WAYS, WAYS, st.sampled_from(["{udp: {}}", "{udp: {multicast: true}}", "{mqtt: {broker: h3}}"]))
def test_any_ways_are_either_refused_with_a_place_or_those_that_frames_go(
    stated: list[list[str]], assigned: list[list[str]], stack: str
) -> None:
    text = flows(
        f"priority: 3, route: {stated}", SQUARE + f"stack: {stack}\n", "name: alpha, from: h[1-2], to: [h3, h4]"
    )
    try:
        scenario = load(text + (f"assigned: {{alpha: {{route: {assigned}}}}}\n" if assigned else ""))
        paths = predict(build_plan(scenario)).network.paths()
    except ScenarioError as error:
        assert all(problem.line and problem.hint for problem in error.problems)
        return
    except PlanError as error:
        assert "multicast" in stack and error.path.endswith(".routes")
        return
    assert load(scenario.to_yaml()) == scenario
    for flow in scenario.flows:
        mine = [path for name in paths if name.startswith(flow.name) for path in paths[name].values()]
        for way in flow.routes:
            ports = [f"{a}->{b}" for a, b in itertools.pairwise(way)]
            back = [f"{b}->{a}" for a, b in itertools.pairwise(way)][::-1]
            assert ports in mine or back in mine
