"""A state of the core that streams join and leave: the numbers of the prediction, and answers that can be relied on."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from timebound.engine.admission import Admission
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
