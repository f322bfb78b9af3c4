"""The cells as scenarios: who publishes when, over which connection, with which payload."""

from __future__ import annotations

import itertools
import xml.dom.minidom
from collections import Counter
from pathlib import Path

import pytest

from timebound.reproduce.scalability.cells import (
    SETTLED_NS,
    Cell,
    joins,
    receiver_of,
    releases,
    scenario_of,
)
from timebound.reproduce.scalability.experiment import cells_of
from timebound.scenario import ScenarioError, load
from timebound.stacks import PlanError, build_plan


def cell(scenario: int, qos: int = 1, clients: int = 8) -> Cell:
    return Cell(scenario=scenario, qos=qos, clients=clients, join_ns=100_000_000, hold_ns=2_000_000_000)


@pytest.mark.parametrize("scenario", [1, 2])
def test_a_hundred_messages_a_second_come_from_those_that_have_joined(scenario: int) -> None:
    one = cell(scenario)
    times, starts = releases(one), joins(one)
    everything = sorted(time for list_ in times for time in list_)
    assert all(after - before == 10_000_000 for before, after in itertools.pairwise(everything))
    assert everything[-1] >= one.duration_ns - 10_000_000
    for number, list_ in enumerate(times):
        assert list_ == sorted(set(list_)) and all(time >= starts[number] + SETTLED_NS for time in list_)
        if scenario == 2:
            partner = starts[receiver_of(number, one.clients)]
            assert all(time >= partner + SETTLED_NS for time in list_)
    late = Counter(number for number, list_ in enumerate(times) for time in list_ if time >= one.all_joined_ns)
    assert len(late) == one.clients, "once all have joined, all are drawn"
    assert releases(one) == times and releases(cell(scenario, qos=2)) == times, "the same at every QoS level"


def test_scenario_1_has_one_connection_per_node_and_the_xml_payload() -> None:
    plan = build_plan(scenario_of(cell(1)))
    by_node = Counter(client["node"] for client in plan.clients)
    assert by_node == {"utility": 1, **{f"meter{number}": 1 for number in range(1, 9)}}
    (subscriber,) = [client for client in plan.clients if client["node"] == "utility"]
    assert subscriber["role"]["filter"] == "meter/#" and len(subscriber["role"]["more_flows"]) == 7
    publisher = plan.clients[0]["role"]
    assert publisher["payload_bytes"] == 717 and len(publisher["content"].encode()) == 717 - 24
    assert xml.dom.minidom.parseString(publisher["content"]).documentElement.tagName == "MeterUpdate"
    assert [client["connect_at_ns"] for client in plan.clients if client["node"] != "utility"] == joins(cell(1))


def test_scenario_2_maps_clients_one_to_one() -> None:
    plan = build_plan(scenario_of(cell(2)))
    assert len(plan.clients) == 8
    roles = [client["role"] for client in plan.clients]
    assert all(role["kind"] == "both" for role in roles)
    topics = [role["publish"]["topic"] for role in roles]
    assert sorted(role["subscribe"]["filter"] for role in roles) == sorted(topics) and len(set(topics)) == 8
    assert all(role["subscribe"]["filter"] != role["publish"]["topic"] for role in roles)
    assert len({len(topic) for topic in topics}) == 1, "of one length, so that messages are of one size"


def test_the_short_form_and_the_full_one() -> None:
    short = cells_of(350, (1, 2), (0, 1, 2), full=False)
    assert len(short) == 6 and sum(one.duration_ns for one in short) < 180e9
    assert {one.hold_ns for one in cells_of(350, (1,), (0,), full=True)} == {900_000_000_000}
    with pytest.raises(ValueError, match="351 clients"):
        scenario_of(cell(1, clients=351))


TEXT = """name: joins
network: {nodes: {a: host, b: host, c: host, s: switch}, links: [[a, s], [b, s], [c, s]]}
flows:
  - {name: x, from: a, to: c, topic: t, size: 100 B, period: 50 ms, priority: 3, qos: 1, MORE}
stack: {mqtt: {broker: b, STACK}}
run: {duration: 2 s, warm-up: 0 s}
"""


def test_instances_join_one_after_another_and_what_they_send_to_join_is_declared() -> None:
    plan = build_plan(load(TEXT.replace("MORE", "count: 3, start: 200 ms, join: 50 ms").replace("STACK", "version: 5")))
    starts = {client["name"]: client["connect_at_ns"] for client in plan.clients}
    assert starts["x[1]/publish"] == starts["x[1]/deliver>c"] == 200_000_000
    assert starts["x[3]/publish"] == 300_000_000
    joins_declared = {stream.name for stream in plan.streams if "/join-from-" in stream.name}
    assert {"x[1]/publish/join-from-a", "x[1]/publish/join-from-b"} <= joins_declared and len(joins_declared) == 12
    releases_of = {client["name"]: client["role"]["release"] for client in plan.clients if "release" in client["role"]}
    assert all(
        starts[name] <= release["offset_ns"] < starts[name] + 50_000_000 for name, release in releases_of.items()
    )


def test_a_flow_that_does_not_join_is_as_before() -> None:
    plan = build_plan(load(TEXT.replace("MORE", "count: 1").replace("STACK", "version: 5")))
    assert all(client["connect_at_ns"] is None for client in plan.clients)
    assert not any("join" in stream.name for stream in plan.streams)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("join: 50 ms", "join without start"),
        ("content: no-such-file.xml", "no text that can be read"),
    ],
)
def test_bad_words_about_joining_and_content_are_told_with_their_place(more: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        load(TEXT.replace("MORE", more).replace("STACK", "version: 5"))
    assert caught.value.problems[0].line == 4


def test_joining_belongs_to_mqtt(tmp_path: Path) -> None:
    text = TEXT.replace("MORE", "start: 1 s").replace("stack: {mqtt: {broker: b, STACK}}", "stack: {udp: {}}")
    with pytest.raises(ScenarioError, match="start works with MQTT alone"):
        load(text)


def test_a_host_with_two_flows_on_one_connection_is_refused() -> None:
    with pytest.raises(PlanError, match="publishes 2 flows"):
        build_plan(load(TEXT.replace("MORE", "count: 2").replace("STACK", "connections: per-node")))


def test_the_resolved_scenario_loads_to_an_equal_one(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("some words")
    file = tmp_path / "joins.yaml"
    file.write_text(TEXT.replace("MORE", "start: 1 s, content: words.txt").replace("STACK", "clients: per-node"))
    one = load(file)
    assert load(one.to_yaml()) == one
