"""Assignment from the plan's streams: what one flow is to the core, what stays, and that the prediction confirms what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timebound.engine.assign import Task, assign, overlay
from timebound.engine.endtoend import end_to_end
from timebound.engine.predict import network_of, predict
from timebound.engine.runs import plan_of
from timebound.scenario import Scenario, load

SQUARE = """name: square
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {h[1-5]: host, s[1-4]: switch}
  links: [[h[1-2], s1], [h[3-5], s4], [s1, s2], [s2, s4], [s1, s3], [s3, s4]]
"""
FLOWS = """flows:
  - {name: slow, from: h1, to: h3, size: 1400 B, period: 3 ms, deadline: 20 ms, priority: 6}
  - {name: fast, from: h2, to: h4, size: 300 B, period: 3 ms, jitter: 100 us, deadline: 8 ms, count: 2, priority: 2}
  - {name: calm, from: h2, to: h3, size: 300 B, period: 20 ms, priority: 3}
"""
UDP, MQTT = "stack: {udp: {}}\n", "stack: {mqtt: {broker: h5}}\n"


def scenario(more: str = "", stack: str = UDP, flows: str = FLOWS) -> Scenario:
    return load(SQUARE + flows + stack + more)


@pytest.mark.parametrize("rate", ["10 Mbit/s", "100 Mbit/s"])
@pytest.mark.parametrize("qos", [None, 0, 2])
def test_the_core_judges_as_the_prediction_does(qos: int | None, rate: str) -> None:
    """To the nanosecond, with the jitters of answers, and also where their feedback leaves no bound."""
    flows = FLOWS if qos is None else FLOWS.replace("}", f", qos: {qos}}}")
    text = (SQUARE + flows + (UDP if qos is None else MQTT)).replace("10 Mbit/s", rate)
    scenarios = [load(text)]
    if rate == "100 Mbit/s":
        # The slow network takes hundreds of rounds to find that it has no bounds: judging it once is enough.
        found = assign(scenarios[0], {"priorities", "routes"})
        assert set(found.document["missed"]["after"]) <= set(found.document["missed"]["before"])
        scenarios.append(found.scenario)
    for changed in scenarios:
        plan = plan_of(changed)
        prediction = predict(plan)
        task = Task(plan, prediction)
        options = task.options(set(), "best")
        latencies = task.network().assign(options)["before"]["latencies"]
        assert len(latencies) == len(plan.segments) == 4
        for requirement, latency in zip(options["requirements"], latencies, strict=True):
            name, _, receiver = requirement["name"].rpartition(" at ")
            flow = next(flow for flow in changed.flows if flow.name == name)
            whole = end_to_end(prediction, flow, receiver).bound_ns
            assert latency["bound_ns"] == whole
            assert (whole is None) == bool(latency["reason"])


def test_shorter_deadlines_get_higher_classes_and_a_flow_gets_one_for_all_its_instances() -> None:
    found = assign(scenario(), {"priorities"}, by="deadline-monotonic")
    assert {flow.name: flow.priority for flow in found.scenario.flows} == {
        "slow": 6, "fast[1]": 7, "fast[2]": 7, "calm": 1,
    }  # fmt: skip
    assert found.changes == {"fast": {"priority": 7}, "calm": {"priority": 1}}
    assert found.document["worst_utilisation"]["before"] == found.document["worst_utilisation"]["after"]


def test_ways_are_chosen_per_instance_and_the_busiest_port_is_relieved() -> None:
    found = assign(scenario(), {"routes"})
    before, after = (found.document["worst_utilisation"][side]["utilisation"] for side in ("before", "after"))
    assert after <= before
    routes = found.document["routes"]
    assert routes["movable_after"]["utilisation"] < routes["movable_before"]["utilisation"]
    assert routes["exact"] and routes["all_ways"]
    moved = {name for name, entry in found.changes.items() if "route" in entry}
    assert moved and all("priority" not in entry for entry in found.changes.values())
    for flow in found.scenario.flows:
        assert bool(flow.routes) == (flow.name in moved)
    # What the summary says of the ways is what was assigned.
    for row in found.document["flows"]:
        entry = found.changes.get(row["flow"])
        assert row["after"]["ways"] == (entry["route"] if entry else row["before"]["ways"])


def test_a_stated_way_stays() -> None:
    flows = FLOWS.replace("priority: 6}", "priority: 6, route: [h1, s1, s2, s4, h3]}")
    found = assign(scenario(flows=flows), {"routes"})
    assert found.scenario.flows[0].routes == (("h1", "s1", "s2", "s4", "h3"),)
    assert "slow" not in found.changes


def test_with_mqtt_answers_go_the_way_of_what_they_answer() -> None:
    found = assign(scenario(stack=MQTT), {"routes"})
    (name, way) = next((name, entry["route"][0]) for name, entry in found.changes.items() if "route" in entry)
    paths = predict(plan_of(found.scenario)).network.paths()
    for stream, ends in paths.items():
        if stream.startswith((f"{name}/publish", f"{name}/deliver")):
            for path in ends.values():
                nodes = [path[0].partition("->")[0], *(port.partition("->")[2] for port in path)]
                if {nodes[0], nodes[-1]} == {way[0], way[-1]}:
                    assert nodes in (way, way[::-1])


def test_classes_lie_above_traffic_that_promises_nothing() -> None:
    found = assign(scenario("background: [{kind: tcp, from: h1, to: h3, priority: 3}]\n"), {"priorities"})
    assert found.document["classes"] == [4, 5, 6, 7]
    assert all(flow.priority >= 4 for flow in found.scenario.flows)
    assert found.document["priorities"]["bulk"].startswith("background/tcp")
    assert found.document["missed"]["before"] and not found.document["missed"]["after"]


def test_with_no_class_above_the_bulk_the_classes_stay_and_the_reason_is_told() -> None:
    found = assign(scenario("background: [{kind: tcp, from: h1, to: h3, priority: 7}]\n"), {"priorities"})
    assert found.changes == {} and found.document["classes"] == []
    assert found.document["priorities"]["reason"] == "no class is left to be given"


def test_a_flow_that_promises_nothing_keeps_its_class_and_way() -> None:
    flows = FLOWS + "  - {name: loose, from: h1, to: h4, size: 100 B, period: 5 ms, pattern: poisson, priority: 1}\n"
    found = assign(scenario(flows=flows), {"priorities", "routes"})
    loose = found.scenario.flows[-1]
    assert loose.priority == 1 and loose.routes == ()
    assert found.document["priorities"]["stays"] == ["loose"]
    # The others stay above it.
    assert min(flow.priority for flow in found.scenario.flows[:-1]) >= 2


def test_an_assignment_that_is_there_is_found_and_one_that_is_not_is_explained() -> None:
    """One sink, one source each: exact. The long frames must not wait behind the short ones, whose deadline is shorter."""
    flows = """flows:
  - {name: a, from: h1, to: h2, size: 1000 B, period: 10 ms, deadline: DEADLINE}
  - {name: b, from: h1, to: h2, size: 1000 B, period: 10 ms, deadline: 5 ms}
"""
    network = "name: pair\nnetwork: {defaults: {link: {rate: 10 Mbit/s}}, nodes: {h[1-2]: host}, links: [[h1, h2]]}\n"
    met = assign(load(network + flows.replace("DEADLINE", "4.5 ms") + UDP), {"priorities"}, by="audsley")
    assert met.document["priorities"]["optimal"] and met.document["missed"]["after"] == []
    none = assign(load(network + flows.replace("DEADLINE", "1 ms") + UDP), {"priorities"}, by="audsley")
    assert none.document["priorities"]["optimal"]
    assert none.document["missed"]["after"] == ["a at h2"]
    assert none.document["priorities"]["reason"].startswith("a at h2 has a bound of ")


def test_the_search_ends_with_its_time() -> None:
    told: list[tuple[str, int]] = []
    found = assign(scenario(), {"routes"}, seconds=0.0, tell=lambda phase, analyses: told.append((phase, analyses)))
    assert found.document["stopped"] and told[0][0] == "looking for ways"
    assert found.changes == {}


def test_an_interruption_is_not_swallowed() -> None:
    def interrupted(phase: str, analyses: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assign(scenario(), {"routes"}, tell=interrupted)


def test_the_overlay_is_the_assigned_scenario(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(SQUARE + FLOWS + UDP)
    found = assign(load(base), {"priorities", "routes"})
    over = tmp_path / "over.yaml"
    over.write_text(overlay(found, "base.yaml", "priorities,routes"))
    loaded = load(over)
    assert found.changes and loaded.flows == found.scenario.flows
    assert load(found.scenario.to_yaml()).flows == found.scenario.flows


def test_the_document_is_plain_json_and_the_same_twice() -> None:
    documents: list[dict[str, Any]] = [
        assign(scenario(stack=MQTT), {"priorities", "routes"}).document for _ in range(2)
    ]
    assert json.loads(json.dumps(documents[0])) == documents[0] == documents[1]
    assert documents[0]["missed"]["after"] == [] or len(documents[0]["missed"]["after"]) <= len(
        documents[0]["missed"]["before"]
    )


RING = """name: ring
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}}
  nodes: {"h[1-4]": host, "s[1-4]": switch}
  links: [[h1, s1], [h2, s2], [h3, s3], [h4, s4], [s1, s2], [s2, s3], [s3, s4], [s4, s1]]
flows:
  - {name: f0, from: h2, to: h4, size: 20000 B, period: 5 ms, deadline: 1000 us, priority: 3}
  - {name: f1, from: h1, to: h3, size: 200 B, period: 5 ms, deadline: 300 us, priority: 3}
  - {name: f2, from: h2, to: h1, size: 6000 B, period: 10 ms, deadline: 1000 us, priority: 2}
stack: udp
"""


@pytest.mark.parametrize("slow", ["s1, s2", "s2, s3", "s3, s4", "s4, s1"])
def test_new_ways_make_no_flow_that_misses_its_deadline_later_still(slow: str) -> None:
    found = assign(load(RING.replace(f"[{slow}]", f"{{between: [{slow}], rate: 10 Mbit/s}}")), {"routes"})
    for old, new in zip(found.before["flows"], found.after["flows"], strict=True):
        then, now, deadline = old["end_to_end_us"]["bound"], new["end_to_end_us"]["bound"], new["deadline_us"]
        assert now is not None and (now <= deadline or now <= then), new["flow"]


def test_the_core_takes_no_ways_that_raise_a_bound_that_is_missed_already() -> None:
    plan = plan_of(load(RING.replace("[s4, s1]", "{between: [s4, s1], rate: 10 Mbit/s}")))
    options = Task(plan, predict(plan)).options({"routes"}, "best")
    found = network_of(plan).assign(options)
    for wanted, before, after in zip(
        options["requirements"], found["before"]["latencies"], found["after"]["latencies"], strict=True
    ):
        assert after["bound_ns"] <= max(before["bound_ns"], wanted["deadline_ns"]), wanted["name"]
