"""What a channel puts into switches, as values."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.nets import topology
from timebound.control.openflow import rules, states
from timebound.control.openflow.channels import WayError, check_backup, hops_of, mark_of, meter_of, program
from timebound.control.openflow.rules import (
    Bucket,
    Kind,
    Meter,
    Output,
    Rule,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
    channel_cookie,
    difference,
    match,
)
from timebound.control.srt.rows import ChannelRow, ChannelState

RING = topology([(1, 2), (2, 3), (3, 4), (4, 1)], [1, 3])
WAY = ("h1->s1", "s1->s2", "s2->s3", "s3->h2")
BACKUP = ("h1->s1", "s1->s4", "s4->s3", "s3->h2")


def channel(**changes: object) -> ChannelRow:
    row = ChannelRow(
        id="c1",
        connection="k1",
        requests=(),
        protocol="tcp",
        source_address="10.0.0.1",
        source_port=40000,
        destination_address="10.0.0.2",
        destination_port=1883,
        priority=5,
        rate_bps=1_000_001,
        burst_bytes=3001,
        links=WAY,
        bound_ns=1,
        state=ChannelState.PLANNED,
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


def test_the_first_switch_polices_and_marks_and_the_others_take_only_what_is_marked() -> None:
    hops = hops_of(WAY, RING.links)
    made = program(channel(), hops, (), 7, None, lambda port: False)
    (first,) = made.tables[1].rules.values()
    assert made.first == 1 and set(made.tables) == {1, 2, 3}
    assert first.meter == 7 and first.actions == (SetField("ip_dscp", 40), Output(hops[0].out_port))
    assert "ip_dscp" not in dict(first.match)
    assert made.tables[1].meters == {7: Meter(7, 1001, 25)}
    for hop in hops[1:]:
        (later,) = made.tables[hop.switch].rules.values()
        fields = dict(later.match)
        assert (fields["in_port"], fields["ip_dscp"], fields["tcp_dst"]) == (hop.in_port, 40, 1883)
        assert later.meter is None and later.actions == (Output(hop.out_port),)
        assert later.cookie == first.cookie == channel_cookie("c1")


def test_queues_are_chosen_where_they_are_the_switchs_own() -> None:
    hops = hops_of(WAY, RING.links)
    made = program(channel(), hops, (), 2, None, lambda port: port.switch == 2)
    assert next(iter(made.tables[2].rules.values())).actions == (SetQueue(5), Output(hops[1].out_port))
    assert SetQueue(5) not in next(iter(made.tables[3].rules.values())).actions


def test_a_backup_is_in_place_behind_a_group_that_watches_ports() -> None:
    hops, backup = hops_of(WAY, RING.links), hops_of(BACKUP, RING.links)
    check_backup(hops, backup)
    made = program(channel(), hops, backup, 2, 9, lambda port: False)
    (first,) = made.tables[1].rules.values()
    assert first.actions == (SetField("ip_dscp", 40), ToGroup(9))
    assert made.tables[1].groups[9].buckets == tuple(
        Bucket(hop.out_port, (Output(hop.out_port),)) for hop in (hops[0], backup[0])
    )
    assert set(made.tables) == {1, 2, 3, 4}
    assert {dict(rule.match)["in_port"] for rule in made.tables[3].rules.values()} == {
        hops[-1].in_port,
        backup[-1].in_port,
    }


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (("h1->s1",), "at least two links"),
        (("h1->s1", "s1->s9"), "no link 's1->s9' is known"),
        (("s1->s2", "s2->s3"), "begins at a host"),
        (("h1->s1", "s2->s3", "s3->h2"), "do not meet"),
        (("h1->s1", "s1->s2", "s2->s1", "s1->s4", "s4->s3", "s3->h2"), "no switch twice"),
    ],
)
def test_links_that_are_no_way_are_refused_with_the_reason(way: tuple[str, ...], words: str) -> None:
    with pytest.raises(WayError, match=words):
        hops_of(way, RING.links)


def test_a_backup_that_shares_a_link_is_none() -> None:
    hops = hops_of(WAY, RING.links)
    with pytest.raises(WayError, match="shares a link"):
        check_backup(hops, hops)


def test_a_protocol_without_ports_and_a_class_that_is_none_are_refused() -> None:
    hops = hops_of(WAY, RING.links)
    with pytest.raises(ValueError, match="neither tcp nor udp"):
        program(channel(protocol="icmp"), hops, (), 2, None, lambda port: False)
    with pytest.raises(ValueError, match="class 8"):
        program(channel(priority=8), hops, (), 2, None, lambda port: False)
    assert [mark_of(c) for c in range(8)] == [0, 8, 16, 24, 32, 40, 48, 56]


@given(st.integers(1, 10**11), st.integers(0, 10**8))
def test_a_meter_never_has_less_than_its_channel(rate: int, burst: int) -> None:
    meter = meter_of(channel(rate_bps=rate, burst_bytes=burst), 2)
    assert 0 <= meter.rate * 1000 - rate < 1000
    assert 0 <= meter.burst * 1000 - burst * 8 < 1000 or meter.burst == 1


# What is in a switch, and what leads to what is to be -----------------------------------------------------------------------

RULES = st.builds(
    lambda at, out, meter: Rule(50000, match(in_port=at), (Output(out),), channel_cookie("x"), meter),
    st.integers(1, 6),
    st.integers(1, 3),
    st.none() | st.integers(2, 4),
)


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    made = Tables()
    made.add(draw(st.lists(RULES, max_size=6)))
    for rule in made.rules.values():
        if rule.meter is not None:
            made.add(meters=[Meter(rule.meter, draw(st.integers(1, 3)), 1)])
    return made


@given(tables(), tables())
def test_a_difference_leads_from_one_to_the_other_and_never_uses_what_is_not_there(a: Tables, b: Tables) -> None:
    diff = difference(a, b)
    meters = {**a.meters, **{meter.id: meter for meter in (*diff.meters, *diff.changed_meters)}}
    assert not {meter.id for meter in diff.meters} & set(a.meters)
    assert all(rule.meter is None or rule.meter in meters for rule in diff.rules)
    found = {**a.rules, **{rule.key: rule for rule in diff.rules}}
    for rule in diff.stale_rules:
        del found[rule.key]
    used = {rule.meter for rule in found.values()}
    for meter in diff.stale_meters:
        assert meter not in used
        del meters[meter]
    assert (found, meters) == (b.rules, b.meters)
    assert not difference(b, b)
    assert not difference(a, b, remove=False).stale_rules


@given(st.sampled_from(Kind), st.integers(0, 2**40 - 1))
def test_cookies_say_whose_rules_are(kind: Kind, value: int) -> None:
    cookie = rules.cookie(kind, value)
    assert cookie < 2**64 and rules.is_ours(cookie)
    assert (rules.kind_of(cookie), rules.value_of(cookie)) == (kind, value)
    assert rules.kind_of(value) is None


def test_only_a_proof_after_a_confirmation_makes_a_channel_proven() -> None:
    for state, event in itertools.product(ChannelState, states.Event):
        if (state, event) not in states.TRANSITIONS:
            with pytest.raises(states.NoTransitionError):
                states.after(state, event)
        elif states.after(state, event) is ChannelState.PROVEN:
            assert (state, event) == (ChannelState.INSTALLED, states.Event.PROVED)
    reached = {ChannelState.PLANNED}
    for _round in ChannelState:
        reached |= {then for (state, _event), then in states.TRANSITIONS.items() if state in reached}
    assert reached == set(ChannelState)
