"""What a multicast tree is in switches: every member gets one copy, and whatever half of a change is made, nothing goes round or into a branch that is not there."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.group_helpers import ADDRESS
from tests.control.nets import topology
from timebound.control.enforcer import GroupOrder
from timebound.control.openflow.branches import Branches, as_channel, branches_of, program
from timebound.control.openflow.channels import WayError, first_mark
from timebound.control.openflow.multicast import levels
from timebound.control.openflow.rules import Output, Rule, SetField, SetQueue, Tables, ToGroup
from timebound.control.srt.rows import ChannelState, GroupRow
from timebound.control.topology import PortId, Topology
from timebound.control.trees import tree

MEMBERS = ["h2", "h3", "h4", "h5"]


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Up to six switches that hang together, links of random delays, a host (h1) that sends and four that may hear."""
    count = draw(st.integers(1, 6))
    pairs = {(draw(st.integers(1, number - 1)), number) for number in range(2, count + 1)}
    if count > 2:
        pairs |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(range(1, count + 1), 2))), max_size=5)))
    delays = {ends: draw(st.integers(1, 99)) * 10_000 for a, b in pairs for ends in ((a, b), (b, a))}
    homes = draw(st.lists(st.integers(1, count), min_size=5, max_size=5))
    return topology(sorted(pairs), homes, delays=delays)


def order(links: tuple[str, ...]) -> GroupOrder:
    row = GroupRow(
        id="g", origin="m1", request="r", topic="t", priority=5, address=ADDRESS, members=("m2",), rate_bps=1_000_000, bound_ns=1, links=links,
        state=ChannelState.PLANNED,
    )  # fmt: skip
    return GroupOrder(row=row, source_address="10.0.0.1", port=1884, burst_bytes=2000)


def programmed(links: tuple[str, ...], net: Topology) -> tuple[Branches, dict[int, Tables]]:
    branches = branches_of(links, net.links)
    numbers = {branch.switch: (2, 1 if len(branch.out_ports) > 1 else None) for branch in branches.switches}
    return branches, dict(program(order(links), branches, numbers, lambda port: port.switch % 2 == 0).tables)


def outputs(rule: Rule, tables: Tables) -> list[int]:
    """Ports that a frame leaves by."""
    found = []
    for action in rule.actions:
        if isinstance(action, ToGroup):
            group = tables.groups[action.group]
            assert group.all
            found += [step.port for bucket in group.buckets for step in bucket.actions if isinstance(step, Output)]
        elif isinstance(action, Output):
            found.append(action.port)
    return found


def delivered(net: Topology, switches: dict[int, Tables]) -> Counter[str]:
    """How often each host gets a frame of h1. Raises where it goes round, or comes to a switch that has no rule for it."""
    into = {(link.out.switch, link.out.number): link for link in net.links.values() if link.out is not None}
    start = next(link for link in net.links.values() if link.source == "h1")
    assert start.into is not None
    found: Counter[str] = Counter()

    def come(at: PortId, passed: frozenset[PortId]) -> None:
        assert at not in passed, "it goes round"
        tables = switches.get(at.switch, Tables())
        rules = [rule for rule in tables.rules.values() if dict(rule.match)["in_port"] == at.number]
        assert len(rules) == 1, f"no rule at {at}"
        marked = dict(rules[0].match).get("ip_dscp")
        assert (marked is None) is (at == start.into), "what is not marked comes from the host alone"
        for port in outputs(rules[0], tables):
            link = into[at.switch, port]
            if link.into is None:
                found[link.target] += 1
            else:
                come(link.into, passed | {at})

    come(start.into, frozenset())
    return found


@given(
    networks(),
    st.sets(st.sampled_from(MEMBERS), min_size=1),
    st.sets(st.sampled_from(MEMBERS), min_size=1),
    st.randoms(use_true_random=False),
)
def test_a_tree_reaches_every_member_once_while_it_is_changed_into_another(
    net: Topology, before: set[str], after: set[str], chance: object
) -> None:
    first = tree(net, "h1", before)
    second = tree(net, "h1", after, first)
    _, old = programmed(first.links, net)
    branches, new = programmed(second.links, net)
    assert delivered(net, old) == dict.fromkeys(before, 1)
    now = {switch: Tables(dict(part.rules), dict(part.meters), dict(part.groups)) for switch, part in old.items()}
    grows = set(first.links) <= set(second.links)
    for level in levels(branches):
        chance.shuffle(level)  # type: ignore[attr-defined]
        for branch in level:
            part, share = now.setdefault(branch.switch, Tables()), new[branch.switch]
            part.add(share.rules.values(), share.meters.values(), share.groups.values())
            heard = delivered(net, now)
            assert heard.keys() <= before | after
            if grows:
                assert all(heard[member] == 1 for member in before), "who stays notices nothing of who joins"
    for switch in list(now):
        now[switch] = new.get(switch, Tables())
    assert delivered(net, now) == dict.fromkeys(after, 1)


def test_the_first_switch_polices_and_marks_and_every_copy_chooses_its_queue() -> None:
    net = topology([(1, 2), (2, 3)], [1, 2, 3])
    _, tables = programmed(tree(net, "h1", ["h2", "h3"]).links, net)
    (first,) = tables[1].rules.values()
    assert first.meter in tables[1].meters and SetField("ip_dscp", 40) in first.actions
    (group,) = tables[2].groups.values()
    assert all(bucket.actions[0] == SetQueue(5) for bucket in group.buckets), "its ports have queues of their own"
    matched = dict(first.match)
    assert "udp_src" not in matched and matched["udp_dst"] == 1884 and matched["ipv4_dst"] == ADDRESS
    assert first_mark(as_channel(order(()))) is None


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ((), "no tree"),
        (("h1->s1", "s1->s2"), "no tree"),
        (("h1->s1", "s1->s2", "s2->h2", "s2->s3"), "leads to no host"),
        (("h1->s1", "s2->h2"), "nothing leads to"),
        (("h1->s1", "h3->s3", "s1->s2", "s2->h2"), "no tree"),
        (("h1->s1", "s1->s2", "s2->s1", "s2->h2"), "no tree"),
    ],
)
def test_links_that_are_no_tree_are_told(links: tuple[str, ...], said: str) -> None:
    net = topology([(1, 2), (2, 3)], [1, 2, 3])
    with pytest.raises(WayError, match=said):
        branches_of(links, net.links)
