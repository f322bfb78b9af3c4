"""Groups between edge networks: who is in them, what is promised over them, and what follows from members and links that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from group_worlds import networks, subscribe_at
from planner_worlds import MS, Table, cut

from timebound.control.planner import (
    Site,
    State,
    answers,
    decide,
    group_id,
    judge,
    keep_up,
    offer_for,
    restore,
    settled,
)
from timebound.control.planner.between import peer_channel_id
from timebound.control.srt.rows import ChannelState, Outcome
from timebound.engine.runs import figures_only
from timebound.scenario import load


def test_a_publisher_and_subscribers_of_two_other_networks_get_a_group_with_the_bound_of_predict() -> None:
    table = networks()
    publisher = table.publish(
        table.connect("h1", "m1", "m1"), "plant/a", deadline_ns=80 * MS, qos=1, period_ns=100 * MS
    )
    near, far = subscribe_at(table, 2, "plant/#", qos=1), subscribe_at(table, 3, "plant/a", qos=1)
    world = table.world()
    decided = decide(world, State(), [publisher, near, far])
    assert not decided.refused
    rows = answers(world, decided.state)
    (order,) = rows.groups.values()
    assert (order.row.id, order.row.origin, order.row.request, order.row.topic) == (
        "group:m1:plant/a",
        "m1",
        publisher,
        "plant/a",
    )
    assert order.row.members == ("m2", "m3") and order.row.state is ChannelState.PLANNED
    assert order.source_address == table.network.hosts["m1"].address and order.port == 1884
    assert set(order.row.links) >= {"m1->s1", "s2->m2", "s3->m3"} and len(order.row.links) == 5
    exported = load(decided.state.judged.layout.scenario.to_yaml())  # type: ignore[union-attr]
    flows = {flow["flow"]: flow for flow in figures_only(exported, {"predict"})["flows"]}
    whole = {name: flows[f"{publisher}/{name}"]["end_to_end_us"]["bound"] * 1000 for name in (near, far)}
    assert rows.verdicts[publisher].bound_ns == pytest.approx(max(whole.values()))
    assert rows.verdicts[far].bound_ns == pytest.approx(whole[far])
    assert order.row.bound_ns is not None and 0 < order.row.bound_ns < max(whole.values())
    assert order.row.id in rows.needs[publisher] and order.row.id in rows.needs[near]


def test_what_the_sender_paces_by_fits_the_meters_of_the_group_and_of_what_is_sent_again() -> None:
    table = networks(site=Site(meter_slack_bytes=5_000))
    for topic in ("a", "b"):
        table.publish(table.connect("h1", "m1", "m1"), topic, qos=1, period_ns=100 * MS, deadline_ns=80 * MS)
        subscribe_at(table, 2, topic, qos=1)
    world = table.world()
    rows = answers(world, decide(world, State(), list(table.rows.requests)).state)
    groups = [order.row for order in rows.groups.values()]
    assert len(groups) == 2 and len({row.priority for row in groups}) == 1
    for order in rows.groups.values():
        # The slack is for switches that see frames late, not for more of them.
        assert order.burst_bytes == order.row.burst_bytes + 5_000
        assert order.row.burst_bytes > 1_538
    again = rows.channels[peer_channel_id("m1", "m2", groups[0].priority, "udp")]
    assert again.rate_bps == sum(row.rate_bps for row in groups)
    assert again.burst_bytes >= sum(row.burst_bytes for row in groups) + 5_000


def test_managers_get_channels_for_what_they_tell_each_other_where_they_do() -> None:
    table = networks()
    at_once = table.publish(table.connect("h1", "m1", "m1"), "fast", qos=0)
    subscribe_at(table, 2, "fast")
    world = table.world()
    requests = list(table.rows.requests)
    rows = answers(world, decide(world, State(), requests).state)
    assert rows.groups and not [name for name in rows.channels if name.startswith("peers:")], (
        "QoS 0 is not acknowledged"
    )
    sure = table.publish(table.connect("h1", "m1", "m1"), "sure", qos=1, period_ns=100 * MS, deadline_ns=80 * MS)
    subscribe_at(table, 2, "sure", qos=1)
    world = table.world()
    rows = answers(world, decide(world, State(), list(table.rows.requests)).state)
    priority = rows.groups["group:m1:sure"].row.priority
    between = {name: row for name, row in rows.channels.items() if name.startswith("peers:")}
    assert set(between) == {
        f"peers:m1>m2:{priority}:tcp-to",
        f"peers:m2>m1:{priority}:tcp-from",
        f"peers:m1>m2:{priority}:udp",
    }
    to = between[f"peers:m1>m2:{priority}:tcp-to"]
    assert (to.source_port, to.destination_port, to.protocol) == (0, 1884, "tcp")
    back = between[f"peers:m2>m1:{priority}:tcp-from"]
    assert (back.source_port, back.destination_port) == (1884, 0)
    assert {name for name in rows.needs[sure] if name[:5] in ("peers", "group")} == {"group:m1:sure", *between}
    assert {name for name in rows.needs[at_once] if name[:5] in ("peers", "group")} == {"group:m1:fast"}


def test_a_group_keeps_its_id_address_and_tree_while_members_come_and_go_and_goes_with_the_last() -> None:
    table = networks()
    publisher = table.publish(table.connect("h1", "m1", "m1"), "t")
    first = subscribe_at(table, 2, "t")
    world = table.world()
    alone = decide(world, State(), [publisher, first]).state
    second = subscribe_at(table, 3, "t")
    both = decide(table.world(), alone, [second]).state
    before, after = alone.groups["group:m1:t"], both.groups["group:m1:t"]
    assert (before.managers, after.managers) == (("m2",), ("m2", "m3"))
    assert (before.address, before.priority, before.tree.ways["m2"]) == (
        after.address,
        after.priority,
        after.tree.ways["m2"],
    )
    del table.rows.requests[first]
    left = keep_up(table.world(), both).state
    assert left.groups["group:m1:t"].managers == ("m3",) and left.groups["group:m1:t"].address == after.address
    del table.rows.requests[second]
    empty = keep_up(table.world(), left).state
    assert not empty.groups and not empty.peers and publisher in empty.granted
    rows = answers(table.world(), settled(table.world(), empty))
    assert not rows.groups and not [name for name in rows.channels if name.startswith("peers:")]


def test_publishers_of_one_topic_at_one_manager_share_a_group_and_those_of_others_do_not() -> None:
    table = networks()
    for host, manager in (("h1", "m1"), ("h1", "m1"), ("h3", "m3")):
        table.publish(table.connect(host, manager, manager), "t", deadline_ns=80 * MS, period_ns=100 * MS)
    subscribe_at(table, 2, "t")
    world = table.world()
    rows = answers(world, decide(world, State(), list(table.rows.requests)).state)
    shared, single = rows.groups["group:m1:t"], rows.groups["group:m3:t"]
    assert shared.row.request == "r1" and shared.row.rate_bps == 2 * single.row.rate_bps
    assert shared.row.address != single.row.address


def test_networks_that_are_the_same_or_none_exchange_nothing() -> None:
    for name in ("", "1"):
        table = networks()
        table.rows.managers["m2"] = replace(table.rows.managers["m2"], network=name)
        table.publish(table.connect("h1", "m1", "m1"), "t")
        subscribe_at(table, 2, "t")
        world = table.world()
        decided = decide(world, State(), list(table.rows.requests))
        assert not decided.refused and not decided.state.groups


def test_a_deadline_that_holds_at_home_but_not_in_another_network_refuses_the_subscriber_and_offers_what_holds() -> (
    None
):
    table = networks()
    publisher = table.publish(table.connect("h1", "m1", "m1"), "t", deadline_ns=17 * MS)
    home = table.subscribe(table.connect("h1", "m1", "m1"), "t")
    world = table.world()
    state = decide(world, State(), [publisher, home]).state
    assert state.granted.keys() == {publisher, home}
    far = subscribe_at(table, 3, "t", deadline_ns=5 * MS)
    world = table.world()
    decided = decide(world, state, [far])
    refused = decided.refused[far]
    assert refused.outcome is Outcome.REFUSED and "5 ms" in refused.reason
    assert decided.state == state and not decided.state.groups
    offer = offer_for(world, state, refused)
    assert offer.deadline_ns is not None and 5 * MS < offer.deadline_ns < 17 * MS
    row = table.rows.requests[far]
    table.rows.requests[far] = replace(row, requirements=replace(row.requirements, deadline_ns=offer.deadline_ns))
    after = decide(table.world(), state, [far]).state
    assert far in after.granted and after.groups["group:m1:t"].managers == ("m3",)


def test_a_tree_goes_another_way_when_a_link_fails_and_what_has_none_is_told() -> None:
    table = networks()
    publisher = table.publish(table.connect("h1", "m1", "m1"), "t")
    subscribe_at(table, 2, "t"), subscribe_at(table, 3, "t")
    world = table.world()
    state = decide(world, State(), list(table.rows.requests)).state
    used = next(name for name in state.groups["group:m1:t"].tree.links if name.startswith("s1->"))
    a, b = used.split("->")
    table.network = cut(table.network, a, b)
    kept = keep_up(table.world(), state)
    assert not kept.displaced
    moved = kept.state.groups["group:m1:t"]
    assert used not in moved.tree.links and moved.managers == ("m2", "m3")
    assert moved.address == state.groups["group:m1:t"].address
    for other in ("s1", "s2"):
        table.network = cut(table.network, "s3", other)
    rest = keep_up(table.world(), kept.state).state
    groups = answers(table.world(), settled(table.world(), rest)).groups
    assert all("m3" not in order.row.members for order in groups.values())
    told = answers(table.world(), settled(table.world(), rest)).verdicts[publisher].reason
    assert "there is no way to" in told and "m3" in told


def test_a_controller_that_returns_finds_its_groups_in_the_table_as_they_were() -> None:
    table = networks()
    table.publish(table.connect("h1", "m1", "m1"), "t", qos=1, period_ns=100 * MS, deadline_ns=80 * MS)
    subscribe_at(table, 2, "t", qos=1), subscribe_at(table, 3, "t", qos=1)
    world = table.world()
    state = decide(world, State(), list(table.rows.requests)).state
    rows = answers(world, state)
    for row in (*rows.verdicts.values(), *rows.channels.values(), *(order.row for order in rows.groups.values())):
        table.put(row)
    again = settled(table.world(), restore(table.world()))
    assert answers(table.world(), again) == rows


def test_what_a_manager_lacks_for_groups_is_told_to_its_clients() -> None:
    table = networks()
    rows = table.rows.managers
    rows["m2"] = replace(rows["m2"], peer_port=1999)
    rows["m3"] = replace(rows["m3"], peer_address="10.9.9.9")
    table.publish(table.connect("h1", "m1", "m1"), "t")
    odd, lost = subscribe_at(table, 2, "t"), subscribe_at(table, 3, "t")
    world = table.world()
    verdicts = answers(world, decide(world, State(), list(table.rows.requests)).state).verdicts
    assert "peer port 1999" in verdicts[odd].reason or "peer port 1884" in verdicts[lost].reason
    assert "has not been seen" in verdicts[lost].reason or "peer port" in verdicts[lost].reason


def test_tls_between_managers_is_part_of_what_is_reserved_and_who_has_none_is_told() -> None:
    def sealed(table: Table, *names: str) -> None:
        for name in names:
            table.rows.managers[name] = replace(table.rows.managers[name], peer_sealed=True)

    rates = []
    for names in ((), ("m1", "m2", "m3")):
        table = networks()
        sealed(table, *names)
        table.publish(table.connect("h1", "m1", "m1"), "t", qos=1, size_bytes=100)
        subscribe_at(table, 2, "t", qos=1)
        world = table.world()
        rows = answers(world, decide(world, State(), list(table.rows.requests)).state)
        (group,) = rows.groups.values()
        back = [row for row in rows.channels.values() if row.id.endswith(":tcp-from")]
        rates.append((group.row.rate_bps, group.row.burst_bytes, sum(row.rate_bps for row in back)))
    assert all(more > less for less, more in zip(*rates, strict=True)), rates
    table = networks()
    sealed(table, "m1", "m3")
    table.publish(table.connect("h1", "m1", "m1"), "t")
    odd = subscribe_at(table, 2, "t")
    world = table.world()
    rows = answers(world, decide(world, State(), list(table.rows.requests)).state)
    assert "has no TLS for others" in rows.verdicts[odd].reason and not rows.groups


def test_without_priorities_everything_has_one_class_and_deadlines_are_kept_all_the_same() -> None:
    table = networks(site=Site(priorities=False))
    hasty = table.publish(table.connect("h1", "m1", "m1"), "hasty", deadline_ns=15 * MS, priority=6)
    slow = table.publish(table.connect("h1", "m1", "m1"), "slow", deadline_ns=400 * MS, period_ns=400 * MS)
    subscribe_at(table, 2, "#")
    world = table.world()
    decided = decide(world, State(), list(table.rows.requests))
    rows = answers(world, decided.state)
    classes = {row.priority for row in rows.channels.values()} | {order.row.priority for order in rows.groups.values()}
    assert classes == {4} and {rows.verdicts[name].priority for name in rows.verdicts} == {4}
    assert hasty in decided.state.granted or "15 ms" in decided.refused[hasty].reason
    assert slow in decided.state.granted
    fresh = judge(world, replace(decided.state, judged=None))
    assert fresh.holds


def test_no_topic_makes_the_id_of_another_group_or_of_a_channel() -> None:
    ids = [group_id(origin, topic) for origin in ("a", "a:b", "a>b", "group") for topic in ("c", "b:c", "up", ":c")]
    assert len(set(ids)) == len(ids)
    channel = peer_channel_id("a", "b", 4, "udp")
    assert not any(
        group_id(origin, topic) == channel for origin in ("a", "peers") for topic in ("b:4:udp", "a>b:4:udp")
    )
