"""Profiles of brokers: what is asked for, how costs are fitted, and that they cover what was measured."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.engine.broker_fit import Burst, CellSamples, Costs, fit, least_squares, quantiles
from timebound.engine.broker_profile import ALONE, BURSTS, Cell, ProfilingError, Request, _cell, _scenario
from timebound.scenario import load
from timebound.stacks import build_plan

TRUE = Costs(latency_ns=40_000, message_ns=12_000, copy_ns=5_000, byte_ps=400, acknowledgement_ns=3_000)


def served(cell: CellSamples, arrivals: list[int], draw: random.Random) -> Burst:
    """A server with the costs `TRUE` works on these arrivals; every copy leaves up to the latency later."""
    free, times = 0, []
    for came in arrivals:
        free = max(free, came) + TRUE.work_ns(cell)
        times.append((came, free + draw.randrange(TRUE.latency_ns)))
    return Burst(tuple(times))


def cell(size: int, qos: int, fan_out: int, draw: random.Random) -> CellSamples:
    bare = CellSamples(size, size + 12, qos, fan_out, (), (), ())
    return CellSamples(
        size,
        size + 12,
        qos,
        fan_out,
        first_ns=(1,),
        alone=tuple(served(bare, [index * 10**7], draw) for index in range(20)),
        bursts=tuple(served(bare, [index * 100 for index in range(60)], draw) for _ in range(4)),
    )


def cells(seed: int) -> list[CellSamples]:
    draw = random.Random(seed)
    return [cell(size, qos, fan, draw) for size in (64, 1024, 4096) for qos in (0, 1, 2) for fan in (1, 2, 8)]


@pytest.mark.parametrize("seed", range(5))
def test_the_costs_of_a_server_are_found_again(seed: int) -> None:
    found = fit(cells(seed))
    assert found.message_ns == pytest.approx(TRUE.message_ns, rel=0.25)
    assert found.copy_ns == pytest.approx(TRUE.copy_ns, rel=0.25)
    assert found.byte_ps == pytest.approx(TRUE.byte_ps, rel=0.25)
    assert found.acknowledgement_ns == pytest.approx(TRUE.acknowledgement_ns, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_was_measured_lies_above_the_fitted_server(seed: int) -> None:
    measured = cells(seed)
    found = fit(measured)
    for each in measured:
        # The very figure that a profile shows, of an even number of bursts the larger of the middle two.
        assert found.work_ns(each) >= _cell(each, found)["back_to_back"]["median_ns"]
        for burst in (*each.alone, *each.bursts):
            assert burst.lateness(found.work_ns(each)) <= found.latency_ns


def test_the_work_per_message_is_what_the_broker_was_busy_for() -> None:
    # 100 for the first; then 30 and 40 while the next waits, then 50 after a pause.
    times = ((0, 100), (10, 130), (20, 170), (500, 550))
    assert Burst(times).work_each() == (100 + 30 + 40 + 50) / 4
    assert Burst(tuple(reversed(times))).work_each() == 55
    # All of it done before anything is sent: not nothing for all but the first.
    assert Burst(((0, 90), (10, 90), (20, 90))).work_each() == 30
    assert Burst(((5, 25),)).work_each() == 20


def test_the_median_that_is_shown_is_the_one_that_the_costs_cover() -> None:
    """Four bursts with work 10, 20, 40, 80 us each: between the middle two lie figures that nobody measured."""
    bursts = tuple(Burst(((0, work),)) for work in (10_000, 20_000, 40_000, 80_000))
    only = CellSamples(64, 80, 0, 1, (1,), bursts, bursts)
    costs = fit([only])
    shown = _cell(only, costs)
    assert shown["back_to_back"]["median_ns"] == 40_000 <= shown["fitted_work_ns"]
    assert shown["fitted_work_ns"] <= 40_100


def test_lateness_is_counted_against_the_server_and_not_against_the_arrival() -> None:
    burst = Burst(((0, 30), (0, 60), (0, 95)))
    assert (burst.lateness(30), burst.lateness(0), burst.lateness(40)) == (5, 95, 0)


def test_times_before_the_end_of_the_warm_up_are_covered_like_any_other() -> None:
    assert Burst(((-500, -400),)).lateness(30) == 70


def test_a_cost_is_never_negative() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert least_squares(rows, np.array([30.0, 20.0, 10.0])) == (20.0, 0.0)
    assert least_squares(rows, np.array([0.0, 0.0, 0.0])) == (0.0, 0.0)
    assert least_squares(rows, np.array([3.0, 5.0, 7.0])) == pytest.approx((1.0, 2.0))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9)), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_times_have_a_fit_that_covers_them(bursts: list[list[tuple[int, int]]]) -> None:
    each = CellSamples(
        64, 80, 1, 2, (1,), tuple(Burst((pair,)) for pair in bursts[0]), tuple(Burst(tuple(b)) for b in bursts)
    )
    found = fit([each])
    assert min(found.latency_ns, found.message_ns, found.copy_ns, found.byte_ps, found.acknowledgement_ns) >= 0
    for burst in (*each.alone, *each.bursts):
        assert burst.lateness(found.work_ns(each)) <= found.latency_ns


def test_quantiles_are_measured_values() -> None:
    assert quantiles([5, 1, 3]) == {"count": 3, "median_ns": 3, "p99_ns": 5, "max_ns": 5}
    assert quantiles(list(range(1001))) == {"count": 1001, "median_ns": 500, "p99_ns": 990, "max_ns": 1000}


@pytest.mark.parametrize(
    "request_",
    [
        Request("embedded", sizes=()),
        Request("embedded", sizes=tuple(range(100, 200))),
        Request("embedded", sizes=(23,)),
        Request("embedded", sizes=(10**6,)),
        Request("embedded", qos=(3,)),
        Request("embedded", fan_outs=(0,)),
        Request("embedded", fan_outs=(65,)),
    ],
)
def test_what_cannot_be_measured_is_refused(request_: Request) -> None:
    with pytest.raises(ProfilingError) as caught:
        request_.cells()
    assert caught.value.code == 2 and caught.value.hint


def test_every_cell_is_alone_on_the_network_in_its_time() -> None:
    request = Request("mosquitto")
    plan = build_plan(load(_scenario(request, request.cells()) + "\n"))
    ends = 0
    for flow, each in zip(plan.scenario.flows, request.cells(), strict=True):
        assert len(flow.trace_ns) == ALONE + BURSTS * each.burst and len(flow.receivers) == each.fan_out
        assert flow.trace_ns[0] >= ends
        ends = flow.trace_ns[-1] + 30_000_000
    assert plan.scenario.run.duration_ns >= ends and plan.scenario.run.duration_ns < 15 * 10**9
    assert Cell(4096, 0, 1).burst == 4 and Cell(64, 0, 1).burst == 25
