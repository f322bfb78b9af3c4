"""Groups between edge networks in the controller's service: what managers are shown while members come and go, links fail and it restarts."""

from __future__ import annotations

from dataclasses import replace

from group_worlds import networks, subscribe_at
from planner_worlds import MS, cut
from test_desk import Bench

from timebound.control.controller.desk import Desk
from timebound.control.controller.metrics import Metrics
from timebound.control.controller.view import view
from timebound.control.planner import Site
from timebound.control.srt.rows import ChannelState, GroupRow, Outcome
from timebound.control.srt.store import Delete

GROUP = "group:m1:t"


def pair() -> tuple[Bench, str, str]:
    """A publisher in network 1, a subscriber in network 2."""
    table = networks()
    publisher = table.publish(table.connect("h1", "m1", "m1"), "t", deadline_ns=80 * MS, period_ns=100 * MS)
    return Bench(table), publisher, subscribe_at(table, 2, "t")


def shown(bench: Bench) -> GroupRow:
    return bench.table.rows.groups[GROUP]


def proven(bench: Bench) -> None:
    bench.prove(*bench.desk.held, *bench.desk.groups)


def test_a_grant_waits_for_the_group_and_the_row_is_usable_with_the_proof() -> None:
    bench, publisher, subscriber = pair()
    orders = bench.step()
    assert [order.row.id for order in orders.groups] == [GROUP]
    assert shown(bench).state is ChannelState.PLANNED
    bench.prove(*bench.desk.held)
    assert bench.verdict(publisher) is None
    proven(bench)
    assert shown(bench).state is ChannelState.PROVEN and shown(bench).members == ("m2",)
    for request in (publisher, subscriber):
        verdict = bench.verdict(request)
        assert verdict is not None and verdict.outcome is Outcome.GRANTED
    assert not bench.step().changes, "nothing is written twice"


def test_a_new_member_is_named_when_its_branch_is_proven_and_one_that_leaves_at_once() -> None:
    bench, publisher, first = pair()
    bench.step()
    proven(bench)
    second = subscribe_at(bench.table, 3, "t")
    orders = bench.step()
    assert orders.groups[0].row.members == ("m2", "m3")
    assert shown(bench).members == ("m2",) and shown(bench).state is ChannelState.PROVEN
    bench.desk.know_channel(GROUP, ChannelState.INSTALLED, "", bench.now)
    bench.step()
    assert shown(bench).members == ("m2",)
    proven(bench)
    assert shown(bench).members == ("m2", "m3")
    verdict = bench.verdict(second)
    assert verdict is not None and verdict.outcome is Outcome.GRANTED
    bench.table.rows.requests.pop(first)
    orders = bench.step()
    assert shown(bench).members == ("m3",) and shown(bench).state is ChannelState.PROVEN
    assert orders.groups[0].row.members == ("m3",)
    bench.table.rows.requests.pop(second)
    orders = bench.step()
    assert GROUP in orders.remove and GROUP not in bench.table.rows.groups
    granted = bench.verdict(publisher)
    assert granted is not None and granted.outcome is Outcome.GRANTED


def test_while_a_reservation_changes_the_lesser_one_is_shown() -> None:
    bench, _, _ = pair()
    bench.step()
    proven(bench)
    held = bench.desk.groups[GROUP]
    was = held.row
    assert was.rate_bps and was.burst_bytes
    order = replace(held.order, row=replace(was, rate_bps=was.rate_bps * 2, burst_bytes=was.burst_bytes - 1))
    changed = held.ordered(order, 7)
    assert changed.shown is not None and changed.shown.state is ChannelState.PROVEN
    assert (changed.shown.rate_bps, changed.shown.burst_bytes) == (was.rate_bps, was.burst_bytes - 1)
    done = changed.told(ChannelState.INSTALLED, "", 8).told(ChannelState.PROVEN, "", 9)
    assert done.shown is not None
    assert (done.shown.rate_bps, done.shown.burst_bytes) == (was.rate_bps * 2, was.burst_bytes - 1)


def test_a_broken_tree_is_used_no_longer_until_another_is_proven() -> None:
    bench, publisher, _ = pair()
    bench.step()
    proven(bench)
    used = next(name for name in shown(bench).links if name.startswith("s1->"))
    bench.desk.know_channel(GROUP, ChannelState.BROKEN, "a link is down", bench.now)
    bench.step()
    assert shown(bench).state is ChannelState.BROKEN
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.UNAVAILABLE and "a link is down" in told.reason
    a, b = used.split("->")
    bench.table.network = cut(bench.table.network, a, b)
    orders = bench.step()
    assert orders.groups and used not in orders.groups[0].row.links
    assert shown(bench).state is ChannelState.PLANNED
    proven(bench)
    assert shown(bench).state is ChannelState.PROVEN and used not in shown(bench).links
    told = bench.verdict(publisher)
    assert told is not None and told.outcome is Outcome.GRANTED


def test_people_and_programs_see_groups() -> None:
    bench, _, _ = pair()
    bench.step()
    proven(bench)
    (seen,) = view(bench.desk, bench.now, connected=True)["groups"]
    assert (seen["id"], seen["members"], seen["state"]) == (GROUP, ("m2",), ChannelState.PROVEN)
    assert seen["shown"]["members"] == ("m2",) and seen["reason"] == ""
    assert [manager["trouble"] for manager in view(bench.desk, bench.now, connected=True)["managers"]] == ["", "", ""]
    rows = bench.table.rows.managers
    rows["m3"] = replace(rows["m3"], peer_port=1999)
    bench.step()
    troubles = {row["id"]: row["trouble"] for row in view(bench.desk, bench.now, connected=True)["managers"]}
    assert "has peer port 1999, and the others 1884" in troubles["m3"] and not troubles["m1"]
    metrics = Metrics()
    metrics.show(bench.desk, True)
    text = metrics.text().decode()
    assert (
        'timebound_controller_groups{state="proven"} 1.0' in text and "timebound_controller_group_members 1.0" in text
    )


def test_what_cannot_be_proven_is_tried_again() -> None:
    bench, _, _ = pair()
    bench.step()
    bench.desk.know_channel(GROUP, ChannelState.BROKEN, "no probe came through", bench.now)
    assert not bench.step().groups
    due = bench.desk.next_ns()
    assert due is not None
    bench.now = due
    assert [order.row.id for order in bench.step().groups] == [GROUP]


def test_a_controller_that_returns_keeps_groups_in_use_and_takes_out_what_nobody_needs() -> None:
    bench, _, _ = pair()
    bench.step()
    proven(bench)
    before = shown(bench)
    stray = GroupRow(
        id="m9>gone", origin="m9", request="r", topic="gone", priority=1, address="239.194.9.9", members=("m2",), rate_bps=1, bound_ns=None,
        links=(), state=ChannelState.PROVEN,
    )  # fmt: skip
    bench.table.rows.groups[stray.id] = stray
    bench.desk = Desk(Site(), grace_ns=0)
    orders = bench.step()
    assert stray.id in orders.remove and Delete("groups", stray.id) in orders.changes
    (again,) = orders.groups
    assert (again.row.links, again.row.address, again.row.members) == (before.links, before.address, before.members)
    assert shown(bench).state is ChannelState.PROVEN, "managers go on sending while it is proven anew"
