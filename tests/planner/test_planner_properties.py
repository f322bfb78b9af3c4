"""Whatever is asked in whatever network: nothing granted ever leaves a granted flow above its deadline, by a prediction that knows nothing of the planner."""

from __future__ import annotations

import importlib
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_worlds import MS, Table, topology

from timebound.control.planner import State, answers, decide, judge, keep_up, offer_for
from timebound.engine.runs import figures_only
from timebound.scenario import load

FEW = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, list[str]]:
    """Up to five switches that hang together, hosts anywhere, connections with several topics and filters, requests from easy to impossible."""
    count = draw(st.integers(1, 5))
    names = [f"s{number}" for number in range(1, count + 1)]
    cables = {(names[draw(st.integers(0, index - 1))], names[index]) for index in range(1, count)}
    for _ in range(draw(st.integers(0, 3))):
        a, b = sorted((draw(st.sampled_from(names)), draw(st.sampled_from(names))))
        if a != b:
            cables.add((a, b))
    hosts = {f"h{number}": draw(st.sampled_from(names)) for number in range(4)} | {
        "m": draw(st.sampled_from(names)),
        "b": names[-1],
    }
    rate = draw(st.sampled_from([2_000_000, 10_000_000, 100_000_000]))
    table = Table(
        topology(
            names, hosts, sorted(cables), rate_bps=rate, delay_ns=draw(st.sampled_from([(0, 0), (5_000, 500_000)]))
        )
    )
    broker = draw(st.sampled_from([None, None, "b"]))
    table.manager(broker=broker)
    connections = [
        table.connect(draw(st.sampled_from(sorted(hosts))), broker=broker) for _ in range(draw(st.integers(1, 4)))
    ]
    times = st.sampled_from([2, 5, 10, 20, 50, 200])
    optional = st.one_of(st.none(), st.integers(1, 6))
    requests = []
    for _ in range(draw(st.integers(1, 7))):
        connection = draw(st.sampled_from(connections))
        if draw(st.booleans()):
            topic = draw(st.sampled_from(["a", "b/1", "b/2"]))
            asked = {
                "period_ns": draw(times) * MS,
                "deadline_ns": draw(st.one_of(st.none(), times.map(lambda value: value * MS))),
                "size_bytes": draw(st.sampled_from([0, 100, 1300, 4000])),
                "priority": draw(optional),
                "qos": draw(st.integers(0, 2)),
            }
            requests.append(table.publish(connection, topic, **asked))
        else:
            deadline = draw(st.one_of(st.none(), times.map(lambda value: value * MS)))
            requests.append(
                table.subscribe(
                    connection,
                    draw(st.sampled_from(["a", "b/#", "#", "b/1"])),
                    deadline_ns=deadline,
                    priority=draw(optional),
                    qos=draw(st.integers(0, 2)),
                )
            )
    return table, requests


def promises(table: Table, state: State, *, many: bool = False) -> None:
    """An independent prediction of the exported file: same bounds, or where there are `many` flows none that is larger; every deadline kept."""
    judged = state.judged
    if judged is None or not judged.bounds:
        return
    scenario = load(judged.layout.scenario.to_yaml())
    assert scenario == judged.layout.scenario
    flows = figures_only(scenario, {"predict"})["flows"]
    assert {flow["flow"] for flow in flows} == judged.bounds.keys()
    for flow in flows:
        bound = flow["end_to_end_us"]["bound"]
        mine = judged.bounds[flow["flow"]].bound_ns
        assert bound is not None and mine is not None
        assert bound * 1000 - mine < 1
        assert many or mine - bound * 1000 < 1
        assert flow["verdict"] == "met", flow
        assert flow["deadline_us"] is None or bound <= flow["deadline_us"]


@FEW
@given(tables())
def test_nothing_granted_is_ever_above_its_deadline(given_: tuple[Table, list[str]]) -> None:
    table, requests = given_
    world = table.world()
    state = State()
    for request in requests:
        decided = decide(world, state, [request])
        assert (request in decided.state.granted) is (request not in decided.refused)
        assert decided.state.granted.keys() >= state.granted.keys()
        state = decided.state
    promises(table, state)
    rows = answers(world, state)
    assert rows.verdicts.keys() == state.granted.keys()
    for channel in rows.channels.values():
        ends = [world.topology.links[name] for name in channel.links]
        assert all(a.target == b.source for a, b in itertools.pairwise(ends))
        assert 1 <= channel.priority <= 6 and channel.rate_bps > 0 and channel.burst_bytes > 0


@FEW
@given(tables())
def test_where_there_are_many_flows_nothing_is_promised_that_a_prediction_does_not_hold(
    given_: tuple[Table, list[str]],
) -> None:
    """Their bounds are those port by port, which are larger: fewer may be granted, and never more."""
    table, requests = given_
    world = table.world()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("timebound.control.planner.judge"), "MANY", 0)
        state = decide(world, State(), requests).state
    promises(table, state, many=True)


@FEW
@given(tables())
def test_all_at_once_is_as_one_after_the_other(given_: tuple[Table, list[str]]) -> None:
    table, requests = given_
    table.site = replace(table.site, candidates=1)
    world = table.world()
    state, refused = State(), set()
    for request in requests:
        decided = decide(world, state, [request])
        state, refused = decided.state, refused | decided.refused.keys()
    together = decide(world, State(), requests)
    assert together.refused.keys() == refused
    assert together.state.granted.keys() == state.granted.keys()


@FEW
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_is_nobodys_business(given_: tuple[Table, list[str]], chance: random.Random) -> None:
    table, requests = given_
    first = decide(table.world(), State(), requests)
    for name in ("requests", "connections", "managers"):
        rows = list(getattr(table.rows, name).items())
        chance.shuffle(rows)
        setattr_of(table, name, dict(rows))
    second = decide(table.world(), State(), requests)
    assert first.state == second.state and first.refused.keys() == second.refused.keys()
    assert answers(table.world(), first.state) == answers(table.world(), second.state)


def setattr_of(table: Table, name: str, rows: dict[str, object]) -> None:
    """A table's rows in another order."""
    table.rows = replace(table.rows, **{name: rows})


@FEW
@given(tables(), st.data())
def test_withdrawing_gives_back_exactly_what_was_taken(given_: tuple[Table, list[str]], data: st.DataObject) -> None:
    table, requests = given_
    world = table.world()
    state = decide(world, State(), requests).state
    if not state.granted:
        return
    gone = data.draw(st.sampled_from(sorted(state.granted)))
    row = table.rows.requests.pop(gone)
    kept = keep_up(table.world(), state)
    assert kept.released == (gone,) and not kept.displaced
    fresh = judge(table.world(), State(kept.state.granted, kept.state.routes))
    assert kept.state.judged is not None
    assert {name: bound.bound_ns for name, bound in fresh.bounds.items()} == {
        name: bound.bound_ns for name, bound in kept.state.judged.bounds.items()
    }
    promises(table, kept.state)
    table.rows.requests[gone] = row
    again = decide(table.world(), kept.state, [gone])
    assert gone in again.state.granted


@FEW
@given(tables())
def test_offers_are_admitted_when_asked_for(given_: tuple[Table, list[str]]) -> None:
    table, requests = given_
    world = table.world()
    decided = decide(world, State(), requests)
    for name, refused in list(decided.refused.items())[:2]:
        offer = offer_for(world, decided.state, refused)
        row = table.rows.requests[name]
        for key in ("deadline_ns", "period_ns"):
            value = getattr(offer, key)
            if value is None:
                continue
            asked = replace(row.requirements, **{key: value})
            table.rows.requests[name] = replace(row, requirements=asked)
            again = decide(table.world(), decided.state, [name])
            assert name in again.state.granted, (key, value, again.refused[name].reason)
            table.rows.requests[name] = row
