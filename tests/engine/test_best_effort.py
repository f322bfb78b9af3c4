"""The frame that nobody declared: as long as the largest that a host of the network can send, as stated, or none."""

from __future__ import annotations

from typing import Any

import pytest

from timebound.engine import explain
from timebound.engine.admit import admit
from timebound.engine.predict import Prediction, predict
from timebound.scenario import load
from timebound.scenario.problems import ScenarioError
from timebound.stacks import build_plan

TEXT = """
name: blocked
network:
  defaults: {link: {rate: 100 Mbit/s}}
  nodes: {a: host, b: host, d: host, s: switch}
  links: [[a, s], [b, s], [s, d]]
flows: [{name: f, from: a, to: d, size: 100 B, period: 10 ms, priority: 5, deadline: 5 ms}]
stack: udp
run: {duration: 1 s, simulate: {search: 60}}
"""
ALONE_NS = 2 * 13_280
"""166 bytes on the wire, twice at 100 Mbit/s."""


def bound_of(text: str = TEXT, **settings: object) -> tuple[int, Prediction]:
    found = predict(build_plan(load(text, {key.replace("__", "."): value for key, value in settings.items()})))
    [bound] = [outcome.actual_ns for outcome in found.outcomes.values()]
    assert bound is not None
    return bound, found


@pytest.mark.parametrize(
    ("settings", "frame"),
    [
        ({}, 1_538),
        ({"network__nodes__b": "{kind: host, mtu: 9000}"}, 9_038),
        ({"network__defaults__host": "{mtu: 576}"}, 1_538),
        ({"network__defaults__host": "{mtu: 576}", "network__best-effort": "614 B"}, 614),
        ({"network__best-effort": "1542 B"}, 1_542),
        ({"network__best-effort": "1542 B", "network__nodes__b": "{kind: host, mtu: 9000}"}, 1_542),
        ({"network__best-effort": "none"}, 0),
    ],
)
def test_the_undeclared_frame_blocks_for_as_long_as_the_largest_that_a_host_sends(
    settings: dict[str, Any], frame: int
) -> None:
    bound, found = bound_of(**settings)
    assert found.plan.declaration()["best_effort_frame_bytes"] == frame
    assert bound == ALONE_NS + 2 * 80 * frame
    [entry] = explain.explain(found, [("f", "d")])
    blocking = [hop["blocking"] for hop in entry["segments"][0]["explanation"]["hops"]]
    assert [part["time_ns"] for part in blocking] == [80 * frame] * 2
    assert [part["by"] for part in blocking] == ["best-effort" if frame else "nobody"] * 2
    assert [part.get("bytes", 0) for part in blocking] == [frame] * 2


def test_the_search_sends_the_frame_that_the_bounds_assume() -> None:
    jumbo = {"network__nodes__b": "{kind: host, mtu: 9000}"}
    for settings in ({}, jumbo, {"network__best-effort": "none"}):
        bound, found = bound_of(**settings)
        [worst] = found.network.search({"evaluations": 60, "seed": 1})["worst"]
        # Who is in the way may have to start a nanosecond early at each port.
        assert bound - 2 <= worst["latency"] <= bound


def test_admission_refuses_what_a_long_undeclared_frame_makes_late() -> None:
    tight = {"flows.f.deadline": "400 us", "run.simulate.search": 0}
    jumbo = {**tight, "network.nodes.b": "{kind: host, mtu: 9000}"}
    assert [[answer.admitted for answer in admit(load(TEXT, settings))] for settings in (tight, jumbo)] == [
        [True],
        [False],
    ]


def test_an_impossible_undeclared_frame_is_refused_where_it_stands() -> None:
    for size in ("20 B", "10 kB"):
        with pytest.raises(ScenarioError) as caught:
            load(TEXT, {"network.best-effort": size})
        [problem] = caught.value.problems
        assert "on the wire" in problem.message and "84 B to 9300 B" in problem.hint


def test_what_is_stated_of_best_effort_survives_the_resolved_form() -> None:
    for stated in ("none", "1542 B"):
        loaded = load(TEXT, {"network.best-effort": stated})
        assert load(loaded.to_yaml()) == loaded
