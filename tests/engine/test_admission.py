"""Admission from Python and from the command line: the numbers of the prediction, the culprit by name, what would still fit."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from timebound.cli.app import execute
from timebound.engine.admission import Admission, admit
from timebound.engine.methods import work_out
from timebound.engine.predict import predict
from timebound.scenario import load
from timebound.scenario.problems import ScenarioError
from timebound.stacks import Plan, build_plan

TEXT = """
name: cell
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, d: host, s: switch, t: switch}
  links: [[a, s], [b, s], [s, t], [t, c], [t, d]]
flows:
  - {name: drive, from: a, to: c, size: 100 B, period: 2 ms, priority: 6, deadline: 600 us}
  - {name: state, from: b, to: d, size: 400 B, period: 5 ms, jitter: 1 ms, priority: 3, deadline: 8 ms}
  - {name: image, from: b, to: c, size: 60000 B, period: 20 ms, priority: 7}
stack: {udp: {}}
"""


@pytest.fixture
def plan() -> Plan:
    return build_plan(load(TEXT))


def test_what_joins_has_the_bounds_of_the_prediction(plan: Plan) -> None:
    prediction = predict(plan)
    found = work_out(prediction, "port-by-port").outcomes
    state = Admission(plan, [])
    for stream in plan.streams:
        free = replace(stream, deadline_ns=None)
        assert state.add(free).admitted
    assert state.names() == sorted(stream.name for stream in plan.streams)
    for stream in plan.streams:
        bounds = state.bounds_ns(stream.name)
        assert bounds == {receiver: found[stream.name, receiver].nominal_ns for receiver in stream.destinations}
        assert all(bounds.values())
        for receiver, bound in bounds.items():
            assert prediction.outcomes[stream.name, receiver].nominal_ns <= bound


def test_the_refused_flow_learns_who_would_suffer_and_what_would_fit(plan: Plan) -> None:
    (answer,) = admit(plan, ("image",))
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
    (answer,) = admit(plan, ("state",))
    assert not answer.admitted, "the image delays it beyond its deadline"
    (fits,) = answer.alternatives.values()
    assert fits.smallest_deadline_ns is not None and fits.smallest_deadline_ns > 8_000_000
    state = next(stream for stream in plan.streams if stream.name.startswith("state"))
    there = Admission(plan, [stream for stream in plan.streams if stream is not state])
    assert there.ask(replace(state, deadline_ns=fits.smallest_deadline_ns)).admitted
    assert not there.ask(replace(state, deadline_ns=fits.smallest_deadline_ns - 1)).admitted


def test_a_change_is_taken_or_leaves_everything_as_it_was(plan: Plan) -> None:
    drive, other, image = plan.streams
    state = Admission(plan, [drive, other])
    before = {name: state.bounds_ns(name) for name in state.names()}
    assert not state.change(other.name, replace(image, name="larger")).admitted
    assert {name: state.bounds_ns(name) for name in state.names()} == before
    faster = replace(other, name=other.name, jitter_ns=0)
    assert state.change(other.name, faster).admitted
    assert state.bounds_ns(other.name)["d"] < before[other.name]["d"]  # type: ignore[operator]
    state.remove(drive.name)
    with pytest.raises(KeyError):
        state.remove(drive.name)
    with pytest.raises(KeyError):
        state.bounds_ns(drive.name)


def test_an_answer_need_not_wait_for_the_bounds(plan: Plan) -> None:
    drive, state, image = plan.streams
    ahead, twin = Admission(plan, [drive]), Admission(plan, [drive])
    for stream in (state, image, replace(image, name="small", priority=0)):
        answer, with_bounds = ahead.decide(stream), twin.add(stream)
        assert (answer.admitted, answer.breaches) == (with_bounds.admitted, with_bounds.breaches)
        assert answer.bounds_ns == {}
    assert ahead.names() == twin.names()
    ahead.remove(state.name)
    twin.remove(state.name)
    assert not ahead.is_settled, "nobody has asked for a bound"
    ahead.settle()
    assert ahead.is_settled
    assert [ahead.bounds_ns(name) for name in ahead.names()] == [twin.bounds_ns(name) for name in twin.names()]
    with pytest.raises(ScenarioError, match="is there already"):
        ahead.decide(drive)


def test_a_stream_that_cannot_be_is_an_error_with_its_place(plan: Plan) -> None:
    drive = plan.streams[0]
    state = Admission(plan, plan.streams)
    with pytest.raises(ScenarioError, match="is there already"):
        state.add(drive)
    with pytest.raises(ScenarioError, match='unknown node "nowhere"'):
        state.add(replace(drive, name="lost", destinations=("nowhere",)))
    assert state.names() == sorted(stream.name for stream in plan.streams)


def test_what_no_scenario_says_is_an_error_too(plan: Plan) -> None:
    drive, state, _ = plan.streams
    with pytest.raises(ScenarioError, match="duplicate stream"):
        Admission(plan, [drive, drive])
    there = Admission(plan, [drive])
    for wrong in ({"period_ns": -1}, {"jitter_ns": -5}, {"deadline_ns": -1}):
        for call in (there.add, there.decide, there.ask):
            with pytest.raises(ScenarioError, match="invalid value"):
                call(replace(state, **wrong))  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        there.change("nobody", state)
    with pytest.raises(KeyError):
        there.alternatives(state, "nobody")
    assert there.names() == [drive.name]


def test_threads_may_share_a_state(plan: Plan) -> None:
    drive = replace(plan.streams[0], deadline_ns=None, period_ns=100_000_000)
    state = Admission(plan, [])

    def work(number: int) -> None:
        for turn in range(20):
            assert state.add(replace(drive, name=f"{number}.{turn}")).admitted
            if turn % 2:
                state.remove(f"{number}.{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(state.names()) == 40


def test_streams_that_answer_others_are_refused_with_their_place() -> None:
    text = TEXT.replace("stack: {udp: {}}", "stack: {mqtt: {broker: d}}").replace("from: b, to: d", "from: b, to: a")
    with pytest.raises(ScenarioError, match="answer others") as caught:
        admit(build_plan(load(text)), ("drive",))
    assert caught.value.problems[0].line > 0


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


def test_an_unknown_flow_is_an_error_with_the_known_ones(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["admit", file, "drvie"]) == 2
    message = capsys.readouterr().err
    assert "there is no flow 'drvie'" in message and "drive, state, image" in message and "cell.yaml" in message
