"""Predictions: answers take over the jitter of what they answer, and the first cause of a missing bound is named."""

from __future__ import annotations

from timebound.engine.predict import Prediction, predict
from timebound.scenario import load
from timebound.stacks import build_plan

TEXT = """
name: two
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows: [{name: alpha, from: a, to: c, size: 100 B, period: 10 ms, jitter: 1 ms, qos: 1}]
stack: {mqtt: {broker: b}}
"""


def prediction(more: str = "", **overrides: str) -> Prediction:
    return predict(build_plan(load(TEXT + more, overrides)))


def test_a_broker_forwards_with_the_jitter_of_what_arrives() -> None:
    found = prediction()
    arrival = found.outcomes["alpha/publish", "b"]
    assert arrival.nominal_ns is not None and arrival.best_ns is not None
    deliver = found.streams["alpha/deliver>c"]
    assert deliver.follows is not None
    assert deliver.jitter_ns == arrival.nominal_ns - arrival.best_ns + deliver.follows.extra_ns


def test_no_fragmented_message_is_whole_before_all_of_it_passed_a_link() -> None:
    found = predict(build_plan(load(TEXT.replace("size: 100 B", "size: 20 kB"))))
    outcome, frames = found.outcomes["alpha/publish", "b"], found.streams["alpha/publish"].frames_bytes
    assert len(frames) > 10 and outcome.best_ns is not None
    # Two links of 100 Mbit/s: a byte takes 80 ns, and the first frame there is the least one.
    assert outcome.best_ns == 2 * (min(frames) * 80 + 5_000) + 10_000
    assert outcome.whole_ns == outcome.best_ns + (sum(frames) - min(frames)) * 80


def test_acknowledgements_come_with_one_period_more_jitter_than_their_data() -> None:
    found = prediction()
    arrival = found.outcomes["alpha/publish", "b"]
    assert arrival.nominal_ns is not None and arrival.best_ns is not None
    assert found.streams["alpha/publish/ack"].jitter_ns == arrival.nominal_ns - arrival.best_ns + 10_000_000


def test_larger_observed_jitters_raise_the_bound_and_smaller_ones_do_not_lower_it() -> None:
    found = prediction(
        "background: [{kind: burst, from: a, to: c, size: 1000 B, frames: 3, period: 5 ms, priority: 1}]\n"
    )
    key = ("alpha/publish", "b")
    declared = found.outcomes[key].actual_ns
    # Jitter of the burst that shares the class: more of its frames can come together.
    more = found.observed({stream.name: stream.jitter_ns + 20_000_000 for stream in found.streams.values()})
    less = found.observed(dict.fromkeys(found.streams, 0))
    assert declared is not None and more[key].actual_ns is not None
    assert more[key].actual_ns > declared and less[key].actual_ns == declared


def test_larger_observed_frames_raise_the_bounds_of_all_whose_way_they_share() -> None:
    found = prediction(
        "background: [{kind: burst, from: a, to: c, size: 1000 B, frames: 3, period: 5 ms, priority: 1}]\n"
    )
    declared = {name: max(stream.frames_bytes) for name, stream in found.streams.items()}
    assert found.observed({}, declared) == found.outcomes
    more = found.observed({}, {**declared, "alpha/publish": 1538})
    keys = [("alpha/publish", "b"), *(key for key in found.outcomes if key[0].startswith("background"))]
    assert len(keys) == 2
    for key in keys:
        before, after = found.outcomes[key].actual_ns, more[key].actual_ns
        assert before is not None and after is not None and after > before
    # Of the stream itself at least what its larger frame takes at both ports more.
    own = more[keys[0]].actual_ns, found.outcomes[keys[0]].actual_ns
    assert own[0] is not None and own[1] is not None
    assert own[0] - own[1] >= 2 * (1538 - declared["alpha/publish"]) * 80


def test_conditions_that_change_during_the_run_leave_no_bound() -> None:
    found = prediction("at: {1 s: {link a-s: {rate: 50 Mbit/s}}}\n")
    outcome = found.outcomes["alpha/publish", "b"]
    assert outcome.kind == "unsupported" and outcome.actual_ns is None
    assert outcome.reason is not None and "the conditions of port" in outcome.reason and "change" in outcome.reason


def test_a_flow_without_least_distance_has_no_bound_and_neither_have_its_answers() -> None:
    found = prediction(**{"flows.alpha.pattern": "poisson"})
    assert {outcome.kind for outcome in found.outcomes.values()} == {"no-finite-bound"}


def test_predictions_are_the_same_each_time() -> None:
    assert prediction().outcomes == prediction().outcomes


def test_answers_whose_feedback_grows_for_ever_have_no_bound_and_break_nothing_off() -> None:
    """Once the jitters passed what a declaration may state, and the core refused them as if the user had written them."""
    flow = "{name: alpha, from: a, to: c, size: 1400 B, period: 3 ms, jitter: 1 ms, qos: 2, count: 2}"
    text = TEXT.replace("{name: alpha, from: a, to: c, size: 100 B, period: 10 ms, jitter: 1 ms, qos: 1}", flow)
    kinds = set()
    for rate in (*range(6, 16), 100):
        found = predict(build_plan(load(text.replace("100 Mbit/s", f"{rate} Mbit/s"))))
        kinds |= {outcome.kind for outcome in found.outcomes.values()}
        assert all((outcome.actual_ns is None) == (outcome.reason is not None) for outcome in found.outcomes.values())
    assert kinds == {"bound", "no-finite-bound"}
