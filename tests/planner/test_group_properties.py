"""Whoever joins and leaves in whatever networks: no state that was admitted has a bound above a deadline when it is analysed afresh."""

from __future__ import annotations

from dataclasses import replace

from group_worlds import networks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_worlds import MS, Table, cut

from timebound.control.planner import Site, State, answers, decide, judge, keep_up, needs, settled
from timebound.scenario import load

FEW = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
TIMES = st.sampled_from([10, 20, 50, 100, 300])


@st.composite
def asked(draw: st.DrawFn, table: Table) -> str:
    """One more request of somebody in some network."""
    network = draw(st.integers(1, 3))
    manager = f"m{network}"
    connection = table.connect(f"{draw(st.sampled_from('hg'))}{network}", manager, manager)
    topic = draw(st.sampled_from(["a", "b/1", "b/2"]))
    if draw(st.booleans()):
        return table.publish(
            connection, topic, period_ns=draw(TIMES) * MS, deadline_ns=draw(TIMES) * MS, qos=draw(st.integers(0, 2)),
            size_bytes=draw(st.sampled_from([10, 300, 2500])),
        )  # fmt: skip
    deadline = draw(st.one_of(st.none(), TIMES.map(lambda value: value * MS)))
    return table.subscribe(
        connection, draw(st.sampled_from([topic, "b/#", "#"])), deadline_ns=deadline, qos=draw(st.integers(0, 2))
    )


def holds(table: Table, state: State) -> None:
    """By an analysis that knows nothing of how the state came about; the export is the same scenario; groups are what is needed, as trees."""
    world = table.world()
    fresh = judge(world, replace(state, judged=None))
    assert fresh.holds, [(bound.pair.flow, bound.bound_ns, bound.reason) for bound in fresh.breaches()]
    assert all(span is not None for span in fresh.groups.values())
    if fresh.layout.scenario.flows:
        assert load(fresh.layout.scenario.to_yaml()) == fresh.layout.scenario
    wanted = needs(world, state)
    assert state.groups.keys() <= wanted.keys()
    assert len({group.address for group in state.groups.values()}) == len(state.groups)
    for id, group in state.groups.items():
        assert dict(group.members).items() <= wanted[id].members.items()
        into = [world.topology.links[name].target for name in group.tree.links]
        assert len(into) == len(set(into)), "every node is reached once"
        assert all(world.topology.links[name].up for name in group.tree.links)
    rows = answers(world, settled(world, state))
    assert {order.row.id: order.row.members for order in rows.groups.values()} == {
        id: group.managers for id, group in state.groups.items()
    }
    for row in rows.channels.values():
        assert row.rate_bps > 0 and row.burst_bytes > 0 and all(name in world.topology.links for name in row.links)


@FEW
@given(st.data())
def test_no_admitted_state_has_a_bound_above_a_deadline_while_members_come_and_go(data: st.DataObject) -> None:
    table = networks(
        rate_bps=data.draw(st.sampled_from([5_000_000, 100_000_000])), site=Site(priorities=data.draw(st.booleans()))
    )
    state = State()
    for _ in range(data.draw(st.integers(2, 7))):
        step = data.draw(st.sampled_from(["ask", "ask", "ask", "leave", "cut"]))
        if step == "leave" and table.rows.requests:
            table.rows.requests.pop(data.draw(st.sampled_from(sorted(table.rows.requests))))
        elif step == "cut":
            a, b = data.draw(st.sampled_from([("s1", "s2"), ("s2", "s3"), ("s1", "s3")]))
            table.network = cut(table.network, a, b)
        else:
            data.draw(asked(table))
        kept = keep_up(table.world(), replace(state, judged=None))
        new = [name for name in table.rows.requests if name not in kept.state.granted]
        decided = decide(table.world(), kept.state, new)
        state = decided.state
        holds(table, state)
