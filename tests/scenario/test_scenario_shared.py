"""`connection` and `after` of flows: what fits together, and what is said where it does not."""

from __future__ import annotations

import pytest

from timebound.engine.runs import figures_only, plan_of
from timebound.scenario import ScenarioError, load

TEXT = """
name: shared
network:
  defaults: {{link: {{rate: 10 Mbit/s, delay: 5 us}}, switch: {{delay: 10 us}}}}
  nodes: {{h1: host, h2: host, m: host, b: host, s: switch}}
  links: [[h1, s], [h2, s], [m, s], [b, s]]
flows:
  - {{name: a, from: h1, to: m, size: 100 B, period: 20 ms, deadline: 20 ms, priority: 4, connection: c1{a}}}
  - {{name: b, from: h1, to: m, size: 50 B, period: 20 ms, deadline: 20 ms, priority: 2, connection: c1}}
  - {{name: a to h2, from: h1, to: h2, topic: a, size: {size}, period: 20 ms, deadline: 30 ms, priority: 3, after: {after}{d}}}
stack: {stack}
run: {{duration: 1 s}}
"""


def text(a: str = "", d: str = "", size: str = "100 B", after: str = "a", stack: str = "{mqtt: {broker: m}}") -> str:
    return TEXT.format(a=a, d=d, size=size, after=after, stack=stack)


def test_shared_connections_and_flows_that_pass_on_survive_the_round_trip() -> None:
    scenario = load(text())
    assert load(scenario.to_yaml()) == scenario
    assert [flow.connection for flow in scenario.flows] == ["c1", "c1", None]


def test_each_direction_has_the_highest_class_of_its_flows() -> None:
    plan = plan_of(load(text()))
    classes = {stream.name: stream.priority for stream in plan.streams}
    assert classes["b/publish"] == classes["a/publish"] == classes["b/publish/ack"] == 4
    assert classes["a to h2/deliver>h2"] == 3
    names = [stream.name for stream in plan.streams if "keep-alive-there" in stream.name]
    assert names == ["a/publish/keep-alive-there", "a to h2/deliver>h2/keep-alive-there"]


def test_what_is_passed_on_counts_from_the_first_release_over_all_parts() -> None:
    flows = {flow["flow"]: flow for flow in figures_only(load(text()), {"predict"})["flows"]}
    parts = [part["name"] for part in flows["a to h2"]["end_to_end_us"]["parts"]]
    assert parts == ["publish", "m", "deliver"]
    assert flows["a to h2"]["end_to_end_us"]["bound"] > flows["a"]["end_to_end_us"]["bound"]


def test_a_flow_that_passes_on_adds_no_second_publisher() -> None:
    plan = plan_of(load(text()))
    assert not [stream.name for stream in plan.streams if stream.name.startswith("a to h2/publish")]


@pytest.mark.parametrize(
    ("changed", "said", "column"),
    [
        ({"after": "nobody"}, "there is no flow 'nobody'", "after"),
        ({"size": "99 B"}, "its size differs from that of 'a'", "after"),
        ({"d": ", connection: c1"}, "goes from 'h2' to 'm' here, and from 'h1' to 'm' before", "connection"),
        ({"stack": "{udp: {}}"}, "connection works with MQTT alone", "connection"),
        ({"a": ", after: b"}, "passes on messages itself", "after"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(changed: dict[str, str], said: str, column: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        load(text(**changed))
    problem = next(problem for problem in raised.value.problems if said in problem.message)
    assert problem.line > 1 and problem.path.endswith(column) and problem.hint
