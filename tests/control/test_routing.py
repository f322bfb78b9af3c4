"""Ways through a network, against the paper's example and against trying all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.nets import topology
from timebound.control import routing
from timebound.control.routing import (
    all_simple_ways,
    bucket_weights,
    cheapest_way,
    cheapest_ways,
    delay_and_free_bandwidth,
    disjoint_pair,
    path_weight,
    weighted_ways,
)
from timebound.control.topology import Link, Topology


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Up to six switches with a host at the first and at the last, links with random delays, some of them parallel."""
    count = draw(st.integers(2, 6))
    pairs = list(itertools.combinations(range(1, count + 1), 2))
    links = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=9))
    delays = {(a, b): draw(st.integers(1, 9)) * 1000 for link in set(links) for a, b in (link, link[::-1])}
    return topology(links, [1, count], delays=delays)


def delay(link: Link) -> float:
    return float(link.delay_ns[1])


def nodes_of(net: Topology, way: tuple[str, ...]) -> list[str]:
    return [net.links[way[0]].source, *(net.links[name].target for name in way)]


def brute_force(net: Topology) -> set[tuple[str, ...]]:
    """Grows every way link by link."""
    complete, growing = set(), {(name,) for name, link in net.links.items() if link.source == "h1"}
    while growing:
        complete |= {way for way in growing if net.links[way[-1]].target == "h2"}
        growing = {
            (*way, name)
            for way in growing
            for name, link in net.links.items()
            if link.source == net.links[way[-1]].target
            and link.target not in nodes_of(net, way)
            and link.source != "h2"
        }
    return complete


def test_the_worked_example_of_the_paper() -> None:
    net = topology([(1, 2), (1, 3), (3, 2)], [1, 2])
    short, long = weighted_ways(net, "h1", "h2")
    assert (short.links, long.links) == (
        ("h1->s1", "s1->s2", "s2->h2"),
        ("h1->s1", "s1->s3", "s3->s2", "s2->h2"),
    )
    assert (short.path_weight, long.path_weight) == (3, 4)
    assert (round(short.bucket_weight, 2), round(long.bucket_weight, 2)) == (5.71, 4.29)


@given(st.lists(st.floats(0.001, 1e9), min_size=2, max_size=20))
def test_bucket_weights_are_shares_of_what_others_cost(weights: list[float]) -> None:
    buckets = bucket_weights(weights)
    assert all(0 <= bucket < 10 for bucket in buckets)
    assert math.isclose(sum(buckets), 10 * (len(weights) - 1), rel_tol=1e-9)
    order = sorted(range(len(weights)), key=lambda i: weights[i])
    assert all(buckets[a] >= buckets[b] for a, b in itertools.pairwise(order))


def test_bucket_weights_of_one_way_and_of_nonsense() -> None:
    assert bucket_weights([3.0]) == (0.0,)
    assert bucket_weights([]) == ()
    with pytest.raises(ValueError, match="not negative"):
        bucket_weights([1.0, -1.0])


@settings(max_examples=80, deadline=None)
@given(networks())
def test_all_simple_ways_are_all_there_are(net: Topology) -> None:
    ways = all_simple_ways(net, "h1", "h2")
    assert set(ways) == brute_force(net)
    assert len(ways) == len(set(ways))
    assert [len(way) for way in ways] == sorted(len(way) for way in ways)


@settings(max_examples=80, deadline=None)
@given(networks(), st.integers(1, 6))
def test_the_k_cheapest_ways_are_the_cheapest_of_all(net: Topology, k: int) -> None:
    every = sorted(path_weight(net, way, delay) for way in brute_force(net))
    found = cheapest_ways(net, "h1", "h2", k, delay)
    assert [path_weight(net, way, delay) for way in found] == every[:k]
    assert len(set(found)) == len(found)
    assert all(len(set(nodes_of(net, way))) == len(way) + 1 for way in found)
    assert cheapest_way(net, "h1", "h2", delay) == (found[0] if found else None)


def shared(net: Topology, a: tuple[str, ...], b: tuple[str, ...], *, switches: bool) -> set[object]:
    """What two ways share beyond both hosts and their switches; a link is the same in both directions."""
    if switches:
        return set(nodes_of(net, a)[2:-2]) & set(nodes_of(net, b)[2:-2]) | set(a[1:-1]) & set(b[1:-1])
    cables = [{frozenset((net.links[n].out, net.links[n].into)) for n in way[1:-1]} for way in (a, b)]
    return set(cables[0] & cables[1])


@settings(max_examples=150, deadline=None)
@given(networks(), st.booleans())
def test_a_disjoint_pair_is_disjoint_and_the_cheapest(net: Topology, switches: bool) -> None:
    ways = brute_force(net)
    costs = [
        path_weight(net, a, delay) + path_weight(net, b, delay)
        for a, b in itertools.combinations(sorted(ways), 2)
        if not shared(net, a, b, switches=switches)
    ]
    pair = disjoint_pair(net, "h1", "h2", delay, switches=switches)
    if pair is None:
        assert not costs
        return
    assert set(pair) <= ways
    assert not shared(net, *pair, switches=switches)
    assert sum(path_weight(net, way, delay) for way in pair) == min(costs)
    assert path_weight(net, pair[0], delay) <= path_weight(net, pair[1], delay)


def test_the_cheapest_way_is_not_always_one_of_the_pair() -> None:
    """A greedy search would take it and find nothing beside."""
    links = [(1, 2), (2, 3), (3, 6), (1, 4), (4, 3), (2, 5), (5, 6)]
    delays = {pair: 5000 for link in links for pair in (link, link[::-1])}
    delays |= {(1, 2): 1, (2, 3): 1, (3, 6): 1}
    net = topology(links, [1, 6], delays=delays)
    assert cheapest_way(net, "h1", "h2", delay) == ("h1->s1", "s1->s2", "s2->s3", "s3->s6", "s6->h2")
    pair = disjoint_pair(net, "h1", "h2", delay)
    assert pair is not None
    assert {way[1:-1] for way in pair} == {("s1->s2", "s2->s5", "s5->s6"), ("s1->s4", "s4->s3", "s3->s6")}


def test_no_way_leads_through_a_host_or_over_what_is_down() -> None:
    net = topology([(1, 2), (1, 3), (3, 2)], [1, 2, 3])
    assert len(all_simple_ways(net, "h1", "h2")) == 2
    down = dataclasses.replace(net.links["s1->s2"], up=False)
    net = dataclasses.replace(net, links={**net.links, "s1->s2": down})
    assert [len(way) for way in all_simple_ways(net, "h1", "h2")] == [4]
    gone = dataclasses.replace(net.switches["s3"], connected=False)
    net = dataclasses.replace(net, switches={**net.switches, "s3": gone})
    assert all_simple_ways(net, "h1", "h2") == []
    assert cheapest_way(net, "h1", "h2") is None


def test_full_links_are_on_no_way_and_narrow_ones_cost_more() -> None:
    net = topology([(1, 2), (1, 3), (3, 2)], [1, 2])
    direct = ("h1->s1", "s1->s2", "s2->h2")
    assert cheapest_way(net, "h1", "h2", delay_and_free_bandwidth({})) == direct
    narrow = delay_and_free_bandwidth({"s1->s2": 1_000_000.0})
    around = ("h1->s1", "s1->s3", "s3->s2", "s2->h2")
    assert cheapest_ways(net, "h1", "h2", 5, narrow) == [around, direct]
    assert cheapest_ways(net, "h1", "h2", 5, delay_and_free_bandwidth({"s1->s2": 0.0})) == [around]


def test_a_search_can_be_ended_and_costs_must_be_positive() -> None:
    full = topology(list(itertools.combinations(range(1, 9), 2)), [1, 8])
    assert len(all_simple_ways(full, "h1", "h2", most=50)) == 50
    with pytest.raises(ValueError, match="must be positive"):
        routing.cheapest_way(full, "h1", "h2", lambda link: 0.0)


def test_a_long_line_needs_no_deep_stack() -> None:
    net = topology([(n, n + 1) for n in range(1, 3000)], [1, 3000])
    assert [len(way) for way in all_simple_ways(net, "h1", "h2")] == [3001]
