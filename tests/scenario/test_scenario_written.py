"""Names that look like numbers, truth values or nothing stay what was written."""

from __future__ import annotations

import pytest
import yaml

from timebound.scenario import load
from timebound.scenario.emit import to_yaml
from timebound.scenario.model import Scenario

LOOKS = (
    *("10", "010", "8", "08", "0x10", "16", "1e3", "1000", "1_000", "0o17", "0b1", "yes", "no", "on", "off"),
    *("true", "True", "null", "1.0", "1", "2026-01-01"),
)


def scenario(flow: str, rest: str = "", overrides: dict[str, object] | None = None) -> Scenario:
    nodes = ", ".join(f"{name}: host" for name in LOOKS)
    links = ", ".join(f"[{name}, s]" for name in LOOKS)
    network = f"network: {{nodes: {{{nodes}, s: switch}}, links: [{links}]}}"
    return load(f"name: n\n{network}\nflows:\n- {{size: 100 B, period: 10 ms, {flow}}}\nstack: udp\n{rest}", overrides)


def test_a_flow_from_08_to_010_is_not_one_from_8_to_10() -> None:
    flow = scenario("name: a, from: 08, to: 010").flows[0]
    assert (flow.source, flow.receivers) == ("08", ("010",))


@pytest.mark.parametrize("name", LOOKS)
def test_a_name_stays_as_it_is_written(name: str) -> None:
    other = "1_000" if name != "1_000" else "0o17"
    found = scenario(f"name: {name}, topic: {name}, from: {name}, to: [{other}], route: [{name}, s, {other}]")
    flow = found.flows[0]
    assert (flow.name, flow.source, flow.topic, flow.routes) == (name, name, name, ((name, "s", other),))
    assert {(link.a, link.b) for link in found.links} == {(each, "s") for each in LOOKS}
    assert [node.name for node in found.nodes] == [*LOOKS, "s"]


def test_names_of_brokers_templates_conditions_and_parts_of_commands_stay() -> None:
    found = load(
        """
name: 010
parameters: {who: 010}
conditions: {08: {delay: 7 us}}
network:
  templates: {1e1: {kind: host, env: {A: 1e3, B: 010, C: true}, files: {/a: 0644}, run: [ping, -c, 010, 1.50]}}
  nodes: {010: {template: 1e1}, 10: {clone-of: 010, hostname: 0x1}, s: switch}
  links: [[010, s], {between: [10, s], conditions: 08}]
flows: {1.0: {from: "${who}", to: 10, size: 100 B, period: 10 ms, connection: 1.50, priority: 3}}
stack: {mqtt: {broker: 010, version: 5}}
at: {1 s: {link 010-s: down}}
"""
    )
    first, second = found.nodes[:2]
    assert found.name == "010"
    assert (first.name, second.name, second.hostname) == ("010", "10", "0x1")
    assert first.environment == {"A": "1e3", "B": "010", "C": "true"}
    assert first.files[0].content == "0644"
    assert first.programs[0].command == ("ping", "-c", "010", "1.50")
    assert found.links[1].forward.delay_ns == 7000
    flow = found.flows[0]
    assert (flow.name, flow.source, flow.connection, flow.priority) == ("1.0", "010", "1.50", 3)
    assert found.stack.brokers[0].node == "010"


def test_an_override_is_read_as_the_file_is() -> None:
    flow = scenario("name: a, from: 8, to: 10", overrides={"flows.a.from": "08", "flows.a.to": "[010]"}).flows[0]
    assert (flow.source, flow.receivers) == ("08", ("010",))


def test_nothing_is_still_nothing() -> None:
    flow = scenario("name: a, from: 8, to: 10, topic: null, offset: ~, qos: 0").flows[0]
    assert flow.topic == "a"


def test_other_readers_of_a_resolved_scenario_see_the_same_names() -> None:
    text = to_yaml(scenario("name: 010, from: 08, to: [010, null, yes]"))
    plain = yaml.safe_load(text)
    assert list(plain["network"]["nodes"]) == [*LOOKS, "s"]
    flow = plain["flows"][0]
    assert (flow["name"], flow["from"]) == ("010", "08")
    assert flow["to"] in (["010", "null", "yes"], ["yes", "010", "null"])
    assert load(text).flows == load(text.replace('"', "'")).flows
