"""The fixed point of answers' jitters: bounds where small steps follow each other for long, the same ones as without shortcuts, and safe."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from timebound.engine import settling
from timebound.engine.causes import Causes
from timebound.engine.orders import Orders
from timebound.engine.outcome import Outcome
from timebound.engine.predict import Prediction, predict
from timebound.engine.servers import Servers
from timebound.engine.together import Together
from timebound.engine.windows import Windows
from timebound.scenario import load
from timebound.stacks import Plan, Stream, build_plan

# No port has more than 55 %; neither had bounds within 200 rounds of one link of the chains each.
FEEDBACK = """
name: feedback
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us, queue: strict-priority, buffer: 4 MiB}, switch: {delay: 5 us}}
  nodes: {h1: host, h2: host, h3: host, h4: host, h5: host, s1: switch, s2: switch, s3: switch}
  links:
    - [s1, s2]
    - [s2, s3]
    - [h1, s2]
    - [h2, s2]
    - [h3, s1]
    - [h4, s2]
    - [h5, s1]
flows:
  - {name: f0, from: h2, to: h3, size: 5397 B, period: 86.3 ms, qos: 2, priority: 3}
  - {name: f1, from: h5, to: h2, size: 39122 B, period: 82.8 ms, qos: 2, priority: 7}
  - {name: f2, from: h2, to: h5, size: 13702 B, period: 201.6 ms, qos: 1, priority: 3}
stack: {mqtt: {broker: h3}}
"""
STAIRS = """
name: stairs
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us, queue: strict-priority, buffer: 4 MiB}, switch: {delay: 5 us}}
  nodes: {h1: host, h2: host, h3: host, h4: host, h5: host, s1: switch, s2: switch}
  links:
    - [s1, s2]
    - [h1, s1]
    - [h2, s1]
    - [h3, s2]
    - [h4, s1]
    - [h5, s1]
flows:
  - {name: f0, from: h3, to: h5, size: 44481 B, period: 10.0 ms, qos: 2, priority: 3}
  - {name: f1, from: h1, to: h4, size: 63 B, period: 10.0 ms, qos: 2, priority: 5}
  - {name: f2, from: h1, to: h4, size: 543 B, period: 23.4 ms, qos: 1, priority: 3}
  - {name: f3, from: h3, to: h1, size: 74 B, period: 266.9 ms, qos: 1, priority: 3}
  - {name: f4, from: h3, to: h4, size: 345 B, period: 10.0 ms, qos: 1, priority: 5}
stack: {mqtt: {broker: h2}}
"""
ENDLESS = """
name: endless
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us, queue: strict-priority, buffer: 4 MiB}, switch: {delay: 5 us}}
  nodes: {h1: host, h2: host, h3: host, h4: host, s1: switch, s2: switch, s3: switch}
  links:
    - [s1, s2]
    - [s2, s3]
    - [h1, s3]
    - [h2, s1]
    - [h3, s1]
    - [h4, s1]
flows:
  - {name: f0, from: h4, to: h2, size: 29 B, period: 14.5 ms, qos: 2, priority: 4}
  - {name: f1, from: h4, to: h1, size: 45 B, period: 10.0 ms, qos: 2, priority: 3}
  - {name: f2, from: h3, to: h4, size: 54585 B, period: 140.1 ms, qos: 2, priority: 3}
  - {name: f3, from: h1, to: h4, size: 6083 B, period: 26.5 ms, qos: 2, priority: 3}
stack: {mqtt: {broker: h2}}
"""
PLAIN = """
name: plain
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
  nodes: {a: host, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows:
  - {name: large, from: a, to: c, size: 20 kB, period: 150 ms, qos: 2}
  - {name: small, from: c, to: a, size: 100 B, period: 20 ms, qos: 2}
  - {name: urgent, from: a, to: c, size: 60 B, period: 30 ms, qos: 1, priority: 5}
stack: {mqtt: {broker: b}}
"""


def predicted(text: str) -> Prediction:
    return predict(build_plan(load(text)), paths=False)


def link_by_link(
    plan: Plan, servers: Servers, streams: Mapping[str, Stream], outcomes: settling.Outcomes, jitters: Mapping[str, int]
) -> dict[str, int | Outcome]:
    return {name: settling._arrival(plan, servers, streams[name], outcomes) for name in jitters}


@pytest.mark.parametrize("text", [FEEDBACK, STAIRS], ids=["feedback", "stairs"])
def test_what_creeps_up_by_small_steps_has_bounds_in_the_end(text: str) -> None:
    found = predicted(text)
    assert [outcome.reason for outcome in found.outcomes.values() if outcome.actual_ns is None] == []
    assert found.rounds < settling.MOST_ROUNDS


@pytest.mark.parametrize("text", [FEEDBACK, STAIRS, PLAIN], ids=["feedback", "stairs", "plain"])
def test_no_answer_is_later_than_what_its_bound_was_worked_out_for(text: str) -> None:
    found = predicted(text)
    for stream in found.streams.values():
        if stream.follows is not None and stream.follows.stream is not None:
            before = found.outcomes[stream.follows.stream, stream.follows.destination]
            assert before.nominal_ns is not None and before.best_ns is not None
            assert stream.jitter_ns >= before.nominal_ns - before.best_ns + stream.follows.extra_ns


@pytest.mark.parametrize("text", [FEEDBACK, PLAIN], ids=["feedback", "plain"])
def test_shortcuts_lead_to_where_steps_alone_lead(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = predicted(text)
    monkeypatch.setattr(settling, "MOST_ROUNDS", 2000)
    monkeypatch.setattr(settling, "PATIENCE", 2000)
    monkeypatch.setattr(settling, "_arrivals", link_by_link)
    slow = predicted(text)
    assert found.rounds < slow.rounds / 2
    for key, outcome in slow.outcomes.items():
        assert outcome.actual_ns is not None and found.outcomes[key].actual_ns == outcome.actual_ns
        assert found.outcomes[key].nominal_ns == outcome.nominal_ns


def test_a_chain_of_answers_is_gone_through_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = predicted(PLAIN).rounds
    monkeypatch.setattr(settling, "_arrivals", link_by_link)
    assert rounds < predicted(PLAIN).rounds / 2


def test_a_point_that_is_too_high_comes_down_unless_it_was_asked_for() -> None:
    plan = build_plan(load(PLAIN))
    found = predict(plan, paths=False)
    high = {name: stream.jitter_ns + 30_000_000 for name, stream in found.streams.items() if stream.follows}
    streams = found.streams
    search = settling.Settling(plan, Together.of(streams), Causes(Orders(), streams), "bound")
    point, _ = search.settle(found.steady, streams, settling.Point(dict(high), Servers(plan), Windows.of(plan)))
    assert point.jitters == {name: found.streams[name].jitter_ns for name in high}
    # What begins at jitters that are known is to be no lower than what begins at nothing.
    asked = predict(plan, high, paths=False)
    assert all(asked.streams[name].jitter_ns >= jitter for name, jitter in high.items())


def test_what_grows_for_ever_is_known_by_its_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ENDLESS
    found = predicted(text)
    said = [outcome.reason for outcome in found.outcomes.values() if outcome.reason]
    assert found.rounds < 40 and any("grow without end, since answers make each other later" in each for each in said)
    # The same streams have bounds as where jitters grow to the longest time there is.
    monkeypatch.setattr(settling, "FAR", 10**12)
    slow = predicted(text)
    assert slow.rounds > found.rounds
    assert {key for key, outcome in slow.outcomes.items() if outcome.reason} == {
        key for key, outcome in found.outcomes.items() if outcome.reason
    }
