"""Flows of a scenario that ask to join, from Python and from the command line: the culprit by name, what would still fit, the numbers of the prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_admission import TEXT

from timebound.cli.app import execute
from timebound.engine.admission import Admission
from timebound.engine.admit import FlowAnswer, admit, risks
from timebound.engine.endtoend import end_to_end
from timebound.engine.judged import Judged, Predictions, least
from timebound.engine.predict import predict
from timebound.engine.runs import plan_of
from timebound.scenario import load
from timebound.scenario.model import Flow, Scenario
from timebound.scenario.model_media import TokenBucket
from timebound.scenario.problems import ScenarioError
from timebound.stacks import Plan

SCENARIO = load(TEXT)
MQTT = load(
    TEXT.replace("stack: {udp: {}}", "stack: {mqtt: {broker: d}}")
    .replace("from: b, to: d", "from: b, to: a")
    .replace("deadline: 600 us", "deadline: 2 ms")
    .replace("deadline: 8 ms", "deadline: 5 ms, qos: 1")
)


@pytest.fixture
def plan() -> Plan:
    return plan_of(SCENARIO)


def test_the_refused_flow_learns_who_would_suffer_and_what_would_fit(plan: Plan) -> None:
    (answer,) = admit(SCENARIO, ("image",))
    assert not answer.admitted
    ((stream, decision),) = answer.decisions.items()
    breach = decision.breaches[0]
    assert (breach["kind"], breach["receiver"]) == ("deadline", "c")
    assert breach["stream"].startswith("drive") and breach["name"] in {"s->t", "t->c"}
    assert breach["bound_ns"] == breach["deadline_ns"] + breach["excess_ns"] and breach["growth_ns"] > 0
    fits = answer.alternatives[stream]
    # Below the drive it only blocks it with one frame; nothing else has a deadline that it breaks.
    assert fits.lowest_class == 0 and fits.smallest_period_ns is None
    lower = next(replace(found, priority=0) for found in plan.streams if found.name == stream)
    others = [found for found in plan.streams if found.name != stream]
    assert Admission(plan, others).add(lower).admitted


def test_what_is_said_to_fit_is_admitted_and_a_nanosecond_less_is_not(plan: Plan) -> None:
    (answer,) = admit(SCENARIO, ("state",))
    assert not answer.admitted, "the image delays it beyond its deadline"
    (fits,) = answer.alternatives.values()
    assert fits.smallest_deadline_ns is not None and fits.smallest_deadline_ns > 8_000_000
    state = next(stream for stream in plan.streams if stream.name.startswith("state"))
    there = Admission(plan, [stream for stream in plan.streams if stream is not state])
    assert there.ask(replace(state, deadline_ns=fits.smallest_deadline_ns)).admitted
    assert not there.ask(replace(state, deadline_ns=fits.smallest_deadline_ns - 1)).admitted


def _bounds(scenario: Scenario, flows: set[str]) -> dict[tuple[str, str], int | None]:
    """What a prediction of these flows alone says of their whole ways."""
    kept = tuple(flow for flow in scenario.flows if flow.name in flows)
    prediction = predict(plan_of(replace(scenario, flows=kept)))
    return {
        (flow.name, receiver): end_to_end(prediction, flow, receiver).bound_ns
        for flow in kept
        for receiver in flow.receivers
    }


def _admitted(answers: list[FlowAnswer]) -> set[str]:
    return {answer.flow for answer in answers if answer.admitted}


def test_flows_through_a_broker_have_the_bounds_of_the_prediction() -> None:
    for order in permutations(("drive", "state", "image")):
        answers = list(admit(MQTT, order))
        there: set[str] = set()
        for answer in answers:
            assert answer.method == "bound"
            bounds = _bounds(MQTT, there | {answer.flow})
            late = [
                flow.name
                for flow in MQTT.flows
                for receiver in flow.receivers
                if flow.deadline_ns is not None and (bounds.get((flow.name, receiver), 0) or 10**18) > flow.deadline_ns
                if flow.name in there | {answer.flow}
            ]
            (decision,) = answer.decisions.values()
            assert decision.admitted == answer.admitted == (not late)
            assert sorted(breach["flow"] for breach in decision.breaches) == sorted(late)
            if answer.admitted:
                there.add(answer.flow)
                own = {receiver: bound for (flow, receiver), bound in bounds.items() if flow == answer.flow}
                assert decision.bounds_ns == own
                assert all("without the own time of broker d" in said for said in answer.rests_on.values())
        assert _admitted(answers) == ({"drive", "state"} if order[0] != "image" else {"image"})


def test_who_is_refused_learns_the_port_where_a_bound_grows_most() -> None:
    (answer,) = admit(MQTT, ("image",))
    (decision,) = answer.decisions.values()
    assert not answer.admitted and decision.total == 2
    without, with_all = _bounds(MQTT, {"drive", "state"}), _bounds(MQTT, {"drive", "state", "image"})
    for breach, text in zip(decision.breaches, decision.texts, strict=True):
        key = breach["flow"], breach["receiver"]
        assert (breach["before_ns"], breach["bound_ns"]) == (without[key], with_all[key])
        assert breach["excess_ns"] == breach["bound_ns"] - breach["deadline_ns"] > 0
        assert breach["where"].startswith("port ") and 0 < breach["growth_ns"] <= breach["bound_ns"]
        assert breach["where"] in text and breach["flow"] in text
    assert decision.breaches[0]["excess_ns"] >= decision.breaches[1]["excess_ns"]


def _changed(scenario: Scenario, name: str, **fields: Any) -> Scenario:
    flows = tuple(replace(flow, **fields) if flow.name == name else flow for flow in scenario.flows)
    return replace(scenario, flows=flows)


def test_what_is_said_to_fit_is_admitted_through_a_broker_too() -> None:
    two = replace(MQTT, flows=MQTT.flows[:2])
    for name in ("drive", "state"):
        (answer,) = admit(two, (name,))
        fits = answer.alternatives[name]
        period, deadline, lowest = fits.smallest_period_ns, fits.smallest_deadline_ns, fits.lowest_class
        assert period is not None and deadline is not None and lowest is not None

        def admits(**fields: Any) -> bool:
            (answer,) = admit(_changed(two, name, **fields), (name,))  # noqa: B023
            return answer.admitted

        assert admits(period_ns=period) and not admits(period_ns=period - period // 500)
        assert admits(deadline_ns=deadline) and not admits(deadline_ns=deadline - 1)
        assert admits(priority=lowest) and not any(admits(priority=number) for number in range(lowest))
    (answer,) = admit(MQTT, ("image",))
    assert answer.alternatives["image"].lowest_class == 0
    assert answer.alternatives["image"].smallest_period_ns is None, "one image delays the drive beyond its deadline"


def test_the_largest_rate_of_a_token_bucket_is_admitted() -> None:
    text = TEXT.replace("size: 60000 B, period: 20 ms, priority: 7", "size: 1000 B, priority: 2, deadline: 5 ms, "
                        "token-bucket: {rate: 1 Mbit/s, burst: 3 KiB}")  # fmt: skip
    scenario = load(text)
    (answer,) = admit(scenario, ("image",), method="bound")
    rate = answer.alternatives["image"].largest_rate_bps
    assert answer.admitted and rate is not None and 80_000_000 < rate < 100_000_000
    assert answer.alternatives["image"].smallest_period_ns is None
    bucket = scenario.flows[2].token_bucket
    assert isinstance(bucket, TokenBucket)

    def admits(rate_bps: int) -> bool:
        changed = _changed(scenario, "image", token_bucket=replace(bucket, rate_bps=rate_bps))
        (answer,) = admit(changed, ("image",), method="bound")
        return answer.admitted

    assert admits(rate) and not admits(rate + rate // 500)


def test_the_bounds_that_count_can_be_chosen() -> None:
    by_state, by_prediction = list(admit(SCENARIO)), list(admit(SCENARIO, method="bound"))
    assert {answer.method for answer in by_state} == {"port-by-port"}
    assert {answer.method for answer in by_prediction} == {"bound"}
    for one, other in zip(by_state, by_prediction, strict=True):
        assert other.admitted or not one.admitted
        if one.admitted and other.admitted:
            (fast,), (whole,) = one.decisions.values(), other.decisions.values()
            for receiver, bound in whole.bounds_ns.items():
                assert bound is not None and bound <= (fast.bounds_ns[receiver] or 0)


def test_a_flow_of_several_receivers_joins_as_a_whole() -> None:
    scenario = load(TEXT.replace("to: d, size: 400 B", "to: [c, d], size: 400 B"))
    scenario = replace(scenario, flows=scenario.flows[:2])
    (answer,) = admit(scenario, ("state",))
    assert answer.admitted and len(answer.decisions) == 2 and answer.method == "port-by-port"
    deadline = answer.alternatives["state"].smallest_deadline_ns
    assert deadline == max(max(bounds.bounds_ns.values(), default=0) or 0 for bounds in answer.decisions.values())  # type: ignore[type-var]
    (answer,) = admit(_changed(scenario, "state", deadline_ns=(deadline or 0) - 1), ("state",))
    assert not answer.admitted and answer.alternatives["state"].smallest_deadline_ns == deadline


def test_what_a_port_carried_in_time_beside_an_overload_it_still_carries() -> None:
    text = TEXT.replace("deadline: 600 us", "deadline: 1 ms") + (
        "background:\n  - {kind: udp, from: b, to: c, rate: 150 Mbit/s, size: 1000 B}\n"
    )
    scenario = load(text)
    scenario = replace(scenario, flows=scenario.flows[:2])
    (answer,) = admit(scenario, ("drive",), method="bound")
    assert answer.admitted, "it is above the background, which overloads the link by itself"
    lower = _changed(scenario, "drive", priority=0)
    (answer,) = admit(lower, ("drive",), method="bound")
    ((_, decision),) = answer.decisions.items()
    assert not answer.admitted and decision.breaches[0]["bound_ns"] is None
    assert "utilisation" in decision.texts[0] and answer.alternatives["drive"].lowest_class == 1


def test_an_overload_is_refused_through_a_broker_too() -> None:
    """Answers to what has no bound promise nothing; the port is full all the same."""
    scenario = _changed(_changed(MQTT, "drive", deadline_ns=None), "state", deadline_ns=None)
    flooded = _changed(scenario, "state", period_ns=40_000, jitter_ns=0)
    (answer,) = admit(flooded, ("state",))
    ((_, decision),) = answer.decisions.items()
    assert not answer.admitted and {breach["kind"] for breach in decision.breaches} == {"overload"}
    least = answer.alternatives["state"].smallest_period_ns
    assert least is not None and least > 40_000
    ports = predict(plan_of(_changed(scenario, "state", period_ns=least, jitter_ns=0))).ports
    assert max(port["utilisation"]["value"] for port in ports) < 1
    (busiest, *_) = sorted((port["utilisation"]["value"] for port in predict(plan_of(flooded)).ports), reverse=True)
    assert busiest == max(breach["utilisation"]["value"] for breach in decision.breaches) > 1


def test_an_overload_is_refused_also_where_nobody_has_a_deadline() -> None:
    scenario = _changed(_changed(SCENARIO, "drive", deadline_ns=None), "state", deadline_ns=None)
    flooded = _changed(scenario, "image", period_ns=1_000_000, priority=0)
    answers = {answer.flow: answer for answer in admit(flooded, method="bound")}
    assert not answers["image"].admitted
    ((_, decision),) = answers["image"].decisions.items()
    assert {breach["kind"] for breach in decision.breaches} == {"overload"}
    assert decision.breaches[0]["utilisation"]["value"] >= 1
    assert answers["image"].alternatives["image"].smallest_period_ns is not None


def test_queues_count_where_they_are_asked_for() -> None:
    scenario = load(
        TEXT.replace("link: {rate: 100 Mbit/s, delay: 5 us}", "link: {rate: 100 Mbit/s, delay: 5 us, buffer: 20000 B}")
    )
    scenario = _changed(_changed(scenario, "drive", deadline_ns=None), "state", deadline_ns=None)
    (answer,) = admit(scenario, ("image",), method="bound")
    assert answer.admitted
    (answer,) = admit(scenario, ("image",), method="bound", check_buffers=True)
    ((_, decision),) = answer.decisions.items()
    assert not answer.admitted and {breach["kind"] for breach in decision.breaches} == {"buffer"}
    assert "could overflow" in decision.texts[0]


@pytest.mark.parametrize(
    "link",
    [
        "queue: {drr: {classes: {3: 3 KiB}}}",
        "duplex: half",
        "tdma: {cycle: 1 ms, slots: {a: [{at: 0 ms, length: 500 us}], b: [{at: 500 us, length: 500 us}]}}",
    ],
)
def test_ports_that_a_state_does_not_cover_are_left_to_predictions(link: str) -> None:
    flow = "  - {name: x, from: a, to: b, size: 100 B, period: 2 ms, priority: 3, deadline: 2 ms}\n"
    scenario = load(
        f"name: n\nnetwork:\n  nodes: {{a: host, b: host}}\n  links: [{{between: [a, b], {link}}}]\nflows:\n{flow}stack: {{udp: {{}}}}\n"
    )
    (answer,) = admit(scenario)
    ((_, decision),) = answer.decisions.items()
    assert answer.admitted and answer.method == "bound"
    assert decision.bounds_ns == {"b": _bounds(scenario, {"x"})["x", "b"]}
    plan = plan_of(scenario)
    state = Admission(plan, [])
    assert state.uncovered() and not state.add(plan.streams[0]).admitted
    assert Admission(plan_of(SCENARIO), []).uncovered() == []


def test_what_fits_a_flow_of_several_receivers_counts_queues_too() -> None:
    scenario = load(
        TEXT.replace("to: d, size: 400 B", "to: [c, d], size: 400 B").replace(
            "delay: 5 us}", "delay: 5 us, buffer: 800 B}"
        )
    )
    scenario = replace(scenario, flows=scenario.flows[:2])
    (answer,) = admit(scenario, ("state",), check_buffers=True)
    assert not answer.admitted, "two of its frames may wait at its host"
    fits = answer.alternatives["state"]
    assert (fits.smallest_period_ns, fits.smallest_deadline_ns, fits.lowest_class) == (None, None, None)
    (answer,) = admit(scenario, ("state",))
    assert answer.admitted
    (risk,) = risks(scenario, [answer])
    assert "the queue of class 3 at port b->s may need" in risk and "messages can be lost" in risk


CHAIN = """
name: chain
network:
  nodes: {a: host, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows:
  - {name: first, from: a, to: b, size: 100 B, period: 20 ms, priority: 5, deadline: 15 ms}
  - {name: second, from: a, to: c, size: 100 B, period: 20 ms, priority: 5, deadline: 15 ms, topic: first, after: first}
stack: {mqtt: {broker: b}}
"""


def test_who_passes_on_messages_comes_after_them() -> None:
    scenario = load(CHAIN)
    answers = list(admit(scenario))
    assert [(answer.flow, answer.admitted) for answer in answers] == [("first", True), ("second", True)]
    with pytest.raises(ScenarioError, match="would be there before it") as caught:
        list(admit(scenario, ("first",)))
    assert caught.value.problems[0].line == 8 and "name both, first first" in caught.value.problems[0].hint
    with pytest.raises(ScenarioError, match="would be there before it"):
        list(admit(scenario, ("second", "first")))
    refused = list(admit(_changed(scenario, "first", deadline_ns=1), ("first", "second")))
    assert not any(answer.admitted for answer in refused)
    ((_, decision),) = refused[1].decisions.items()
    assert decision.texts == ("flow 'second' passes on messages of 'first', which is not there",)


def test_a_stack_that_cannot_be_laid_is_an_error_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(
        TEXT.replace("size: 60000 B, period: 20 ms", "size: 60 B, token-bucket: {rate: 1 Mbit/s, burst: 20 B}")
    )
    assert execute(["admit", str(path)]) == 2
    said = capsys.readouterr().err
    assert "never lets a message pass" in said and "cell.yaml:10:" in said


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_joining_one_after_another_is_as_predicting_all_at_once(data: st.DataObject) -> None:
    """The order does not matter, and nothing of a decision stays behind for the next."""
    hosts = ("a", "b", "c", "d")
    flows = []
    for number in range(data.draw(st.integers(2, 6))):
        source, receiver = data.draw(st.permutations(hosts))[:2]
        flows.append(
            f"  - {{name: f{number}, from: {source}, to: {receiver}, size: {data.draw(st.integers(32, 3000))} B, "
            f"period: {data.draw(st.sampled_from((1, 2, 5, 10)))} ms, jitter: {data.draw(st.sampled_from((0, 300, 2000)))} us, "
            f"priority: {data.draw(st.integers(0, 7))}, qos: {data.draw(st.integers(0, 2))}}}"
        )
    head, _ = TEXT.split("flows:")
    scenario = load(head + "flows:\n" + "\n".join(flows) + "\nstack: {mqtt: {broker: d}}\n")
    method: Any = data.draw(st.sampled_from(("bound", "port-by-port")))
    state = Predictions(scenario, (), method)
    for flow in data.draw(st.permutations(scenario.flows)):
        state.add(flow)
    once = Predictions(scenario, [flow.name for flow in state.now.flows], method)
    assert _of(once.now) == _of(state.now)


def _of(judged: Judged) -> dict[tuple[str, str], int | None]:
    return {key: way.bound_ns for key, way in judged.ways.items()}


@given(turn=st.integers(1, 10**15), first=st.integers(1, 10**15))
def test_bisection_finds_the_turn_in_few_steps(turn: int, first: int) -> None:
    asked = []

    def admits(value: int) -> bool:
        asked.append(value)
        return value >= turn

    found = least(first, 10**15, admits)
    assert found is not None and turn <= found and (found - turn) * 999 <= turn
    assert len(asked) <= 64
    assert least(first, 10**15, lambda value: False) is None


def test_a_change_of_a_flow_that_is_there_is_asked_about_without_it() -> None:
    state = Predictions(MQTT, ["drive", "state"], "bound")
    drive: Flow = MQTT.flows[0]
    before = _of(state.now)
    decision, _ = state.ask(replace(drive, period_ns=drive.period_ns // 4, deadline_ns=1_500_000))
    assert decision.admitted and _of(state.now) == before
    decision, _ = state.ask(replace(drive, deadline_ns=before["drive", "c"]))
    assert decision.admitted and decision.bounds_ns == {"c": before["drive", "c"]}
    assert not state.ask(replace(drive, deadline_ns=(before["drive", "c"] or 0) - 1))[0].admitted


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cell.yaml"
    path.write_text(TEXT)
    return str(path)


def test_the_command_says_who_joins_and_why_not(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["admit", file]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "drive: admitted" and "state: admitted" in said and "image: REFUSED" in said
    assert any("could miss its deadline of" in line and "grows most at port" in line for line in said)
    assert execute(["admit", file, "drive", "--set", "flows.image.priority=0"]) == 0


def test_the_command_prints_json_and_nothing_else(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["admit", file, "drive", "--json"]) == 1
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    assert flow["flow"] == "drive" and not flow["admitted"]
    (decision,) = flow["decisions"].values()
    assert decision["breaches"][0]["kind"] == "deadline" and decision["total"] == 2
    assert [breach["stream"].split("/")[0] for breach in decision["breaches"]] == ["drive", "state"]


def test_what_is_admitted_and_can_be_lost_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(TEXT.replace("delay: 5 us}", "delay: 5 us, buffer: 400 B}"))
    assert execute(["admit", str(path), "state", "--set", "flows.image.size=100 B"]) == 0
    said = capsys.readouterr().out
    assert "state: admitted" in said and "messages can be lost (--buffers refuses that)" in said
    assert execute(["admit", str(path), "state", "--set", "flows.image.size=100 B", "--buffers"]) == 1
    assert "messages can be lost" not in capsys.readouterr().out


def test_an_unknown_flow_is_an_error_with_the_known_ones(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["admit", file, "drvie"]) == 2
    message = capsys.readouterr().err
    assert "there is no flow 'drvie'" in message and "drive, state, image" in message and "cell.yaml" in message
