"""Decisions of the controller's service: when verdicts are written, what is ordered, what a restart finds."""

from __future__ import annotations

from dataclasses import replace

from planner_worlds import MS, Table, cut, line, ring

from timebound.control.controller.channels import FIRST_RETRY_NS, TRANSITIONS, Held
from timebound.control.controller.desk import Desk, Orders, after
from timebound.control.planner import Site
from timebound.control.srt.rows import ChannelState, Outcome, VerdictRow
from timebound.control.srt.store import Delete, Put

S = 1_000_000_000


class Bench:
    """A desk with its table; orders are carried out when told."""

    def __init__(self, table: Table, now: int = 10 * S) -> None:
        self.table, self.now = table, now
        self.desk = Desk(Site(), grace_ns=0)
        self.learn()

    def learn(self) -> None:
        self.desk.know_topology(self.table.network)
        self.desk.know_tables(self.table.world().tables)

    def step(self) -> Orders:
        self.learn()
        orders = self.desk.step(self.now)
        self.table.rows = after(self.table.world().tables, orders.changes)
        return orders

    def prove(self, *names: str) -> Orders:
        for name in names or list(self.desk.held):
            for state in (ChannelState.INSTALLED, ChannelState.PROVEN):
                self.desk.know_channel(name, state, "", self.now)
        return self.step()

    def verdict(self, request: str) -> VerdictRow | None:
        return self.table.rows.verdicts.get(request)


def pair(network: object = None, **asked: object) -> tuple[Bench, str, str]:
    table = Table(network or line())  # type: ignore[arg-type]
    table.manager()
    requests = table.publish(table.connect("h1"), "a", **asked), table.subscribe(table.connect("h2"), "a")
    return Bench(table), *requests


def test_a_grant_is_told_when_all_its_channels_are_proven_and_not_before() -> None:
    bench, publisher, subscriber = pair()
    orders = bench.step()
    assert {row.id for row, _ in orders.install} == {"c1:up", "c1:down", "c2:up", "c2:down"}
    assert bench.verdict(publisher) is None
    bench.prove("c1:up", "c1:down", "c2:up")
    assert bench.verdict(publisher) is None
    bench.prove("c2:down")
    for request in (publisher, subscriber):
        told = bench.verdict(request)
        assert told is not None and told.outcome is Outcome.GRANTED and told.decided_ns == bench.now
    assert {row.state for row in bench.table.rows.channels.values()} == {ChannelState.PROVEN}


def test_a_refusal_is_told_at_once_with_an_offer() -> None:
    bench, publisher, _ = pair(deadline_ns=2 * MS)
    orders = bench.step()
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.REFUSED and told.offer.deadline_ns is not None
    assert not orders.install


def test_nothing_is_ordered_or_written_twice() -> None:
    bench, _, _ = pair()
    bench.step()
    bench.prove()
    again = bench.step()
    assert again.install == [] and again.remove == [] and again.changes == []


def test_a_channel_that_breaks_is_told_and_tried_again_later_and_later() -> None:
    bench, publisher, _ = pair()
    bench.step()
    bench.prove()
    bench.desk.know_channel("c1:up", ChannelState.BROKEN, "no probe came through", bench.now)
    assert not bench.step().install
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.UNAVAILABLE and "no probe came through" in told.reason
    assert bench.desk.next_ns() == bench.now + FIRST_RETRY_NS
    bench.now += FIRST_RETRY_NS
    assert [row.id for row, _ in bench.step().install] == ["c1:up"]
    bench.desk.know_channel("c1:up", ChannelState.BROKEN, "again", bench.now)
    assert bench.desk.next_ns() == bench.now + 2 * FIRST_RETRY_NS
    bench.now += 2 * FIRST_RETRY_NS
    bench.step()
    bench.prove("c1:up")
    assert bench.verdict(publisher).outcome is Outcome.GRANTED  # type: ignore[union-attr]


def test_what_its_last_user_leaves_is_taken_out() -> None:
    bench, publisher, subscriber = pair()
    bench.step()
    bench.prove()
    del bench.table.rows.requests[publisher]
    orders = bench.step()
    # The subscriber waits for another publisher, and needs no channel meanwhile.
    assert set(orders.remove) == {"c1:up", "c1:down", "c2:up", "c2:down"}
    assert Delete("verdicts", publisher) in orders.changes
    assert bench.verdict(subscriber).outcome is Outcome.GRANTED  # type: ignore[union-attr]
    assert bench.table.rows.channels == {}


def test_a_manager_that_is_gone_gives_back_what_its_clients_had() -> None:
    bench, _, _ = pair()
    bench.step()
    bench.prove()
    bench.desk.know_tables(bench.table.world().tables, frozenset())
    orders = bench.desk.step(bench.now)
    assert len(orders.remove) == 4 and sum(isinstance(change, Delete) for change in orders.changes) == 6


def test_a_link_that_goes_moves_its_channels_and_the_grant_stays() -> None:
    bench, publisher, _ = pair(ring())
    bench.step()
    bench.prove()
    way = bench.desk.state.routes["c1"].client
    bench.table.network = cut(bench.table.network, way[1], way[2])
    orders = bench.step()
    moved = {row.id: row.links for row, _ in orders.install}
    assert {"c1:up", "c1:down"} <= moved.keys() and f"{way[1]}->{way[2]}" not in moved["c1:up"]
    assert bench.verdict(publisher).outcome is Outcome.GRANTED  # type: ignore[union-attr]
    bench.table.network = cut(cut(bench.table.network, "s1", "s2"), "s1", "s4")
    bench.step()
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.UNAVAILABLE and "no way" in told.reason


def test_disjoint_ways_are_found_when_nothing_else_is_to_be_done() -> None:
    bench, _, _ = pair(ring())
    bench.step()
    bench.prove()
    backups = {}
    while (orders := bench.desk.idle(bench.now)) is not None:
        backups |= {row.id: backup for row, backup in orders.install}
    assert backups.keys() >= {"c1:up", "c1:down"} and all(backups.values())


def test_what_was_refused_is_granted_when_there_is_room_again() -> None:
    table = Table(line())
    table.manager()
    heavy = table.publish(
        table.connect("h1"), "heavy", size_bytes=9000, deadline_ns=60 * MS, period_ns=30 * MS, priority=6
    )
    small = table.publish(table.connect("h1"), "small", deadline_ns=10 * MS, priority=2)
    bench = Bench(table)
    bench.step()
    assert bench.verdict(small).outcome is Outcome.REFUSED  # type: ignore[union-attr]
    del table.rows.requests[heavy]
    bench.step()
    while bench.desk.idle(bench.now) is not None:
        pass
    bench.prove()
    assert bench.verdict(small).outcome is Outcome.GRANTED  # type: ignore[union-attr]


def test_a_restart_finds_what_the_last_one_left_and_disturbs_nobody() -> None:
    bench, publisher, _ = pair()
    bench.step()
    bench.prove()
    before = dict(bench.table.rows.channels)
    again = Bench(bench.table)
    orders = again.step()
    # The same reservations in the place of themselves: verdicts stand meanwhile.
    assert {row.id for row, _ in orders.install} == before.keys() and orders.remove == []
    assert not [change for change in orders.changes if isinstance(change, Put) and isinstance(change.row, VerdictRow)]
    assert again.verdict(publisher).outcome is Outcome.GRANTED  # type: ignore[union-attr]
    again.prove()
    assert {name: replace(row, changed_ns=0) for name, row in again.table.rows.channels.items()} == {
        name: replace(row, changed_ns=0) for name, row in before.items()
    }


def test_a_restart_waits_for_the_network_before_it_takes_anything_for_lost() -> None:
    bench, publisher, _ = pair()
    bench.step()
    bench.prove()
    network = bench.table.network
    again = Bench(bench.table)
    again.desk.grace_ns = 3 * S
    again.table.network = replace(network, switches={}, links={}, hosts={}, revision=1)
    again.desk = Desk(Site(), grace_ns=3 * S)
    orders = again.step()
    assert not orders.remove and not orders.changes and not again.desk.ready
    again.table.network = network
    assert again.step().install and again.desk.ready
    assert again.verdict(publisher).outcome is Outcome.GRANTED  # type: ignore[union-attr]


def test_nothing_is_taken_for_lost_before_the_table_was_read() -> None:
    bench, _, _ = pair()
    bench.step()
    bench.prove()
    desk = Desk(Site(), grace_ns=0)
    desk.know_topology(bench.table.network)
    orders = desk.step(bench.now)
    assert not desk.ready and not orders.remove and not orders.changes and desk.next_ns() is None
    desk.know_tables(bench.table.world().tables)
    assert not desk.step(bench.now).remove and desk.ready and len(desk.held) == 4


def test_what_an_administrator_takes_back_stays_refused_until_it_is_asked_anew() -> None:
    bench, publisher, _ = pair()
    bench.step()
    bench.prove()
    bench.desk.revoke(publisher, "ann")
    orders = bench.step()
    assert "c1:up" in orders.remove
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.REFUSED and "ann" in told.reason
    while bench.desk.idle(bench.now) is not None:
        pass
    assert bench.verdict(publisher).outcome is Outcome.REFUSED  # type: ignore[union-attr]
    row = bench.table.rows.requests[publisher]
    bench.table.rows.requests[publisher] = replace(row, revision=2)
    bench.step()
    bench.prove()
    assert bench.verdict(publisher).outcome is Outcome.GRANTED  # type: ignore[union-attr]


def test_every_transition_is_one_of_the_table() -> None:
    bench, _, _ = pair()
    row = bench.step().install[0][0]
    for before in ChannelState:
        for told in ChannelState:
            held = Held(replace(row, state=before))
            expected = TRANSITIONS.get((before, told), before)
            assert held.told(told, "", 1).state is expected
