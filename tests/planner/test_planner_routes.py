"""Ways of the planner: in the order of the paper's bucket weights, round what is reserved, and apart from each other."""

from __future__ import annotations

import itertools

import pytest
from planner_worlds import Table, ring, topology

from timebound.control import routing
from timebound.control.planner.routes import cost_of, disjoint, ways


def test_ways_are_tried_by_bucket_weight_and_busy_links_lose_it() -> None:
    world = Table(ring(5)).world()
    for reserved in ({}, {"s1->s2": 9_000_000}):
        weighted = routing.weighted_ways(world.topology, "h1", "h2", cost_of(world, reserved))
        assert sum(way.bucket_weight for way in weighted) == pytest.approx(10.0)
        tried = list(ways(world, "h1", "h2", reserved))
        assert [list(itertools.pairwise(way)) for way in tried] == [
            [(world.topology.links[name].source, world.topology.links[name].target) for name in way.links]
            for way in weighted
        ]
        assert ("s1", "s2") in itertools.pairwise(tried[0]) if not reserved else tried[0][1:3] == ("s1", "s5")


def test_networks_with_more_ways_than_can_be_weighed_give_the_cheapest_first() -> None:
    names = [f"s{number}" for number in range(1, 8)]
    network = topology(names, {"h1": "s1", "h2": "s7", "m": "s3"}, itertools.combinations(names, 2))
    world = Table(network).world()
    assert len(routing.all_simple_ways(network, "h1", "h2")) > routing.MOST_WEIGHTED
    first = list(itertools.islice(ways(world, "h1", "h2", {}), 6))
    assert first[0] == ("h1", "s1", "s7", "h2") and len(set(first)) == 6
    costs = [sum(cost_of(world, {})(world.links[ends]) for ends in itertools.pairwise(way)) for way in first]
    assert costs == sorted(costs)


def test_a_disjoint_way_shares_no_link_and_where_it_can_no_switch() -> None:
    world = Table(ring(4)).world()
    way = ("h1", "s1", "s2", "h2")
    assert disjoint(world, way, {}) == ("h1", "s1", "s4", "s3", "s2", "h2")
    assert (
        disjoint(Table(topology(["s1", "s2"], {"h1": "s1", "h2": "s2", "m": "s1"}, [("s1", "s2")])).world(), way, {})
        is None
    )
