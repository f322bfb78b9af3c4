"""Decisions of the planner on small networks: what is granted, what is refused and why, and what follows from rows that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_worlds import MS, Table, cut, line, ring, topology

from timebound.control.planner import (
    Server,
    Site,
    State,
    answers,
    decide,
    keep_up,
    offer_for,
    restore,
    with_backup,
)
from timebound.control.planner.topics import matches
from timebound.control.srt.rows import ChannelState, Outcome, VerdictRow
from timebound.engine.runs import figures_only
from timebound.scenario import load
from timebound.scenario.framing import Framing


def pair(**asked: object) -> tuple[Table, str, str]:
    """A publisher and a subscriber across three switches."""
    table = Table(line())
    table.manager()
    return (
        table,
        table.publish(table.connect("h1"), "plant/a", **asked),
        table.subscribe(table.connect("h2"), "plant/#"),
    )


def test_a_publisher_and_its_subscriber_are_granted_with_the_bound_of_predict() -> None:
    table, publisher, subscriber = pair()
    world = table.world()
    decided = decide(world, State(), [publisher, subscriber])
    assert not decided.refused
    rows = answers(world, decided.state)
    exported = load(decided.state.judged.layout.scenario.to_yaml())  # type: ignore[union-attr]
    flows = {flow["flow"]: flow for flow in figures_only(exported, {"predict"})["flows"]}
    whole = flows[f"{publisher}/{subscriber}"]["end_to_end_us"]["bound"] * 1000
    assert rows.verdicts[publisher].bound_ns == rows.verdicts[subscriber].bound_ns == pytest.approx(whole)
    assert {row.outcome for row in rows.verdicts.values()} == {Outcome.GRANTED}
    assert all(flow["verdict"] == "met" for flow in flows.values())


def test_every_direction_of_a_connection_has_a_channel_in_its_class() -> None:
    table, publisher, subscriber = pair(priority=5)
    world = table.world()
    rows = answers(world, decide(world, State(), [publisher, subscriber]).state)
    assert {name: row.links for name, row in rows.channels.items()} == {
        "c1:up": ("h1->s1", "s1->s2", "s2->m"),
        "c1:down": ("m->s2", "s2->s1", "s1->h1"),
        "c2:up": ("h2->s3", "s3->s2", "s2->m"),
        "c2:down": ("m->s2", "s2->s3", "s3->h2"),
    }
    assert {row.priority for row in rows.channels.values()} == {5}
    up = rows.channels["c1:up"]
    assert (up.source_address, up.source_port, up.destination_address, up.destination_port) == (
        "10.0.0.1", 30_001, "10.0.0.3", 1883,
    )  # fmt: skip
    # 100 B of payload, room for properties, headers, and preamble: every 20 ms, and acknowledgements.
    assert 356 * 8 * 50 < up.rate_bps < 500 * 8 * 50 + 100_000
    assert up.burst_bytes > 1538 and up.bound_ns <= 20 * MS
    assert rows.needs[publisher] == ("c1:down", "c1:up", "c2:down", "c2:up")


def test_bounds_count_the_framing_and_meters_what_they_see_of_it() -> None:
    """A tag lengthens every frame on the links; the switch that polices a channel sees the frames of the host, without it."""
    found = []
    for framing in (Framing(), Framing(("vlan",))):
        table, publisher, subscriber = pair(priority=5)
        table.site = Site(framing=framing)
        world = table.world()
        decided = decide(world, State(), [publisher, subscriber])
        judged = decided.state.judged
        assert judged is not None and load(judged.layout.scenario.to_yaml()).framing == framing
        rows = answers(world, decided.state)
        found.append((rows.channels["c1:up"], rows.verdicts[publisher]))
    (plain, before), (tagged, after) = found
    assert (tagged.rate_bps, tagged.burst_bytes) == (plain.rate_bps, plain.burst_bytes)
    assert before.bound_ns is not None and after.bound_ns is not None and after.bound_ns > before.bound_ns
    assert tagged.bound_ns > plain.bound_ns


def test_a_deadline_that_cannot_be_kept_is_refused_with_whose_where_and_by_how_much() -> None:
    table, publisher, _ = pair(deadline_ns=2 * MS)
    world = table.world()
    refused = decide(world, State(), [publisher]).refused[publisher]
    assert refused.outcome is Outcome.REFUSED
    assert "more than its deadline of 2 ms" in refused.reason and "from the publisher to the broker" in refused.reason


def test_a_message_beyond_ten_segments_counts_the_rounds_of_somebody_elses_window() -> None:
    # By their frames alone 30 kB every second would be there within 60 ms; a real client's TCP sends ten segments and waits.
    table, publisher, _ = pair(size_bytes=30_000, period_ns=1000 * MS, deadline_ns=60 * MS)
    world = table.world()
    refused = decide(world, State(), [publisher]).refused[publisher]
    assert refused.outcome is Outcome.REFUSED and "more than its deadline of 60 ms" in refused.reason
    table, publisher, _ = pair(size_bytes=30_000, period_ns=1000 * MS, deadline_ns=300 * MS)
    assert publisher not in decide(table.world(), State(), [publisher]).refused


def test_who_would_break_another_is_refused_and_the_other_keeps_its_promise() -> None:
    table, publisher, subscriber = pair(deadline_ns=13 * MS, priority=2)
    world = table.world()
    first = decide(world, State(), [publisher, subscriber])
    assert not first.refused
    heavy = table.publish(
        table.connect("h1"), "bulk", size_bytes=9000, period_ns=20 * MS, deadline_ns=20 * MS, priority=6
    )
    world = table.world()
    second = decide(world, first.state, [heavy])
    assert "'plant/a'" in second.refused[heavy].reason and "deadline of 13 ms" in second.refused[heavy].reason
    assert second.state.granted.keys() == first.state.granted.keys()
    assert (
        answers(world, second.state).verdicts[publisher].bound_ns
        == answers(table.world(), first.state).verdicts[publisher].bound_ns
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"deadline_ns": 2 * MS},
        {"deadline_ns": 4 * MS, "priority": 6},
        {"size_bytes": 13_000, "period_ns": 8 * MS, "deadline_ns": 60 * MS},
    ],
)
def test_what_is_offered_is_admitted_when_asked_for(asked: dict[str, object]) -> None:
    table, publisher, _ = pair(**asked)
    world = table.world()
    decided = decide(world, State(), [publisher])
    offer = offer_for(world, decided.state, decided.refused[publisher])
    assert offer.deadline_ns is not None or offer.period_ns is not None
    row = table.rows.requests[publisher]
    for key in ("deadline_ns", "period_ns"):
        value = getattr(offer, key)
        if value is not None:
            table.rows.requests[publisher] = replace(row, requirements=replace(row.requirements, **{key: value}))
            world = table.world()
            assert not decide(world, State(), [publisher]).refused, (key, value)


def test_the_smallest_deadline_is_the_smallest() -> None:
    table, publisher, _ = pair(deadline_ns=3 * MS, priority=6)
    world = table.world()
    offer = offer_for(world, State(), decide(world, State(), [publisher]).refused[publisher])
    assert offer.deadline_ns is not None
    row = table.rows.requests[publisher]
    table.rows.requests[publisher] = replace(
        row, requirements=replace(row.requirements, deadline_ns=offer.deadline_ns - 2000)
    )
    assert decide(table.world(), State(), [publisher]).refused


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"period_ns": None}, "rt-period"),
        ({"size_bytes": None}, "rt-size"),
        ({"priority": 7}, "the network's own"),
        ({"priority": 0}, "best effort"),
        ({"size_bytes": 2**40}, "larger"),
    ],
)
def test_what_is_unclear_is_refused_with_what_to_add(asked: dict[str, object], word: str) -> None:
    table, publisher, _ = pair(**asked)
    refused = decide(table.world(), State(), [publisher]).refused[publisher]
    assert refused.outcome is Outcome.REFUSED and word in refused.reason


def test_bandwidth_and_size_stand_for_a_period_and_a_transmission_time_for_a_size() -> None:
    table, publisher, _ = pair(period_ns=None, deadline_ns=20 * MS, bandwidth_bps=(0, 40_000))
    decided = decide(table.world(), State(), [publisher])
    assert decided.state.granted[publisher].period_ns == 20 * MS
    table, publisher, _ = pair(size_bytes=None, transmission_ns=400_000)
    site = table.site
    # 500 bytes at 10 Mbit/s, less all headers of a PUBLISH of QoS 1.
    found = decide(table.world(), State(), [publisher]).state.granted[publisher].size_bytes - site.properties_bytes
    assert 390 <= found <= 500 - 38 - 52


def test_topics_of_one_connection_share_its_highest_class_and_are_told() -> None:
    table = Table(line())
    table.manager()
    connection = table.connect("h1")
    slow = table.publish(connection, "slow", priority=2)
    fast = table.publish(connection, "fast", priority=5)
    other = table.publish(table.connect("h2"), "other", priority=3)
    world = table.world()
    rows = answers(world, decide(world, State(), [slow, fast, other]).state)
    assert [rows.verdicts[name].priority for name in (slow, fast, other)] == [5, 5, 3]
    assert rows.verdicts[slow].shared_with == ("fast",) and rows.verdicts[fast].shared_with == ("slow",)
    assert "class 5" in rows.verdicts[slow].reason and rows.verdicts[fast].reason == ""
    assert rows.channels["c1:up"].requests == (slow, fast)


def test_messages_that_may_share_a_segment_are_declared_as_large_as_it_can_be() -> None:
    table = Table(line())
    table.manager()
    connection = table.connect("h1")
    requests = [table.publish(connection, f"t{number}", size_bytes=100) for number in range(3)]
    world = table.world()
    judged = decide(world, State(), requests).state.judged
    assert judged is not None
    frames = {stream.frames_bytes for stream in judged.declared if stream.role == "data"}
    alone = 38 + 52 + 356
    assert len(frames) == 1 and 3 * 356 < next(iter(frames))[0] < 3 * alone


def test_a_way_that_is_gone_is_left_for_another_and_what_fits_nowhere_is_told() -> None:
    table = Table(ring())
    table.manager()
    requests = [table.publish(table.connect("h1"), "a"), table.subscribe(table.connect("h2"), "a")]
    world = table.world()
    state = decide(world, State(), requests).state
    way = state.routes["c1"].client
    table.network = cut(table.network, way[1], way[2])
    world = table.world()
    kept = keep_up(world, state)
    assert kept.displaced and requests[0] in kept.displaced
    again = decide(world, kept.state, kept.displaced)
    assert not again.refused and again.state.routes["c1"].client != way
    for a, b in (("s1", "s2"), ("s1", "s4")):
        table.network = cut(table.network, a, b)
    world = table.world()
    kept = keep_up(world, again.state)
    last = decide(world, kept.state, kept.displaced)
    assert last.refused[requests[0]].outcome is Outcome.UNAVAILABLE and "no way" in last.refused[requests[0]].reason


def test_a_disjoint_way_is_kept_ready_and_taken() -> None:
    table = Table(ring())
    table.manager()
    publisher = table.publish(table.connect("h1"), "a")
    world = table.world()
    state = with_backup(world, decide(world, State(), [publisher]).state, "c1")
    route = state.routes["c1"]
    assert route.client_backup is not None and not set(route.client[1:-1][1:-1]) & set(route.client_backup[2:-2])
    assert answers(world, state).backups.keys() == {"c1:up", "c1:down"}
    table.network = cut(table.network, route.client[1], route.client[2])
    kept = keep_up(table.world(), state)
    assert not kept.displaced and kept.state.routes["c1"].client == route.client_backup


def test_withdrawing_restores() -> None:
    table, publisher, subscriber = pair()
    world = table.world()
    before = decide(world, State(), [publisher, subscriber]).state
    more = table.publish(table.connect("h2"), "more", priority=6)
    grown = decide(table.world(), before, [more]).state
    del table.rows.requests[more]
    kept = keep_up(table.world(), grown)
    assert kept.released == (more,) and kept.state == before
    assert answers(table.world(), kept.state) == answers(world, before)


def test_a_changed_request_is_decided_anew() -> None:
    table, publisher, _ = pair()
    state = decide(table.world(), State(), [publisher]).state
    row = table.rows.requests[publisher]
    table.rows.requests[publisher] = replace(
        row, revision=2, requirements=replace(row.requirements, period_ns=10 * MS, deadline_ns=10 * MS)
    )
    kept = keep_up(table.world(), state)
    assert kept.released == (publisher,)
    again = decide(table.world(), kept.state, [publisher])
    assert answers(table.world(), again.state).verdicts[publisher].revision == 2


def test_a_state_comes_back_from_its_rows() -> None:
    table, publisher, subscriber = pair()
    world = table.world()
    state = decide(world, State(), [publisher, subscriber]).state
    rows = answers(world, state)
    for verdict in rows.verdicts.values():
        table.put(verdict)
    for channel in rows.channels.values():
        table.put(replace(channel, state=ChannelState.PROVEN))
    found = restore(table.world())
    assert found == State(state.granted, state.routes)
    table.put(VerdictRow(id=publisher, revision=7, outcome=Outcome.GRANTED, reason="", priority=3, bound_ns=1))
    assert publisher not in restore(table.world()).granted


def test_a_client_that_is_nowhere_is_unavailable() -> None:
    table, publisher, _ = pair()
    row = table.rows.connections["c1"]
    table.rows.connections["c1"] = replace(row, client_address="192.0.2.9")
    refused = decide(table.world(), State(), [publisher]).refused[publisher]
    assert refused.outcome is Outcome.UNAVAILABLE and "192.0.2.9" in refused.reason


def test_a_manager_apart_from_its_broker_has_both_legs_planned() -> None:
    table = Table(line(hosts={"h1": "s1", "h2": "s3", "m": "s2", "b": "s3"}))
    table.manager(broker="b")
    requests = [
        table.publish(table.connect("h1", broker="b"), "a", deadline_ns=40 * MS, period_ns=40 * MS),
        table.subscribe(table.connect("h2", broker="b"), "a"),
    ]
    world = table.world()
    decided = decide(world, State(), requests)
    assert not decided.refused
    rows = answers(world, decided.state)
    assert rows.channels.keys() == {
        f"{c}:{part}" for c in ("c1", "c2") for part in ("up", "down", "leg-up", "leg-down")
    }
    assert rows.channels["c1:leg-up"].links == ("m->s2", "s2->s3", "s3->b")
    exported = load(decided.state.judged.layout.scenario.to_yaml())  # type: ignore[union-attr]
    assert exported == decided.state.judged.layout.scenario  # type: ignore[union-attr]
    whole = next(flow for flow in figures_only(exported, {"predict"})["flows"] if "/" in flow["flow"])
    assert [part["name"] for part in whole["end_to_end_us"]["parts"]] == [
        "publish", "m", "bridge", "b", "bridge", "m", "deliver",
    ]  # fmt: skip


def test_a_client_on_the_managers_host_needs_no_channel() -> None:
    table = Table(line())
    table.manager()
    publisher = table.publish(table.connect("m"), "a")
    world = table.world()
    decided = decide(world, State(), [publisher])
    assert not decided.refused and answers(world, decided.state).channels == {}


def test_an_overloaded_broker_is_a_reason() -> None:
    table, publisher, _ = pair(period_ns=MS, deadline_ns=20 * MS)
    assert table.site.default_server.service is not None
    slow = replace(table.site.default_server.service, message_ns=5 * MS)
    table.site = Site(default_server=Server(service=slow))
    assert "broker m needs" in decide(table.world(), State(), [publisher]).refused[publisher].reason


def test_what_a_site_keeps_for_itself_is_not_reserved() -> None:
    table, publisher, _ = pair(size_bytes=5000, period_ns=10 * MS, deadline_ns=40 * MS)
    assert not decide(table.world(), State(), [publisher]).refused
    table.site = Site(reservable=0.2)
    assert "may be" in decide(table.world(), State(), [publisher]).refused[publisher].reason


def test_the_cheaper_way_is_taken_and_a_longer_one_where_that_is_full() -> None:
    network = topology(
        ["s1", "s2", "s3"],
        {"h1": "s1", "h2": "s1", "m": "s2"},
        [("s1", "s2"), ("s1", "s3"), ("s3", "s2")],
        rate_bps=5_000_000,
    )
    network = replace(
        network,
        links={
            name: replace(link, rate_bps=20_000_000) if "h" in name or "m" in name else link
            for name, link in network.links.items()
        },
    )
    table = Table(network)
    table.manager()
    requests = [
        table.publish(table.connect(host), f"t/{host}", size_bytes=6000, period_ns=18 * MS, deadline_ns=60 * MS)
        for host in ("h1", "h2")
    ]
    decided = decide(table.world(), State(), requests)
    assert not decided.refused
    assert {len(route.client) for route in decided.state.routes.values()} == {4, 5}


@pytest.mark.parametrize(
    ("topic_filter", "topic", "found"),
    [
        ("a/b", "a/b", True), ("a/+", "a/b", True), ("a/+", "a/b/c", False), ("#", "a/b", True), ("a/#", "a", True),
        ("+/b", "a/b", True), ("#", "$SYS/x", False), ("+/x", "$SYS/x", False), ("$SYS/#", "$SYS/x", True),
        ("$share/g/a/+", "a/b", True), ("a", "a/b", False), ("a/b", "a", False), ("+", "", True),
    ],
)  # fmt: skip
def test_filters_match_topics_as_the_standard_says(topic_filter: str, topic: str, found: bool) -> None:
    assert matches(topic_filter, topic) is found


def test_hosts_may_have_any_address() -> None:
    network = line()
    hosts = {
        name: replace(host, address=f"192.168.7.{number}")
        for number, (name, host) in enumerate(network.hosts.items(), 1)
    }
    table = Table(replace(network, hosts=hosts))
    table.manager()
    publisher = table.publish(table.connect("h1"), "a")
    assert not decide(table.world(), State(), [publisher]).refused


def test_channels_of_one_class_have_the_class_that_scenarios_assume() -> None:
    from timebound.control.planner import site
    from timebound.scenario import resolve_reserved

    assert site.ONE_CLASS == resolve_reserved.ONE_CLASS
