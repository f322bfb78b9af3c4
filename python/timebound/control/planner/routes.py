"""Ways through the live network as nodes, in the order in which they are tried, and ways that share no link with another. The search is `control.routing`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from timebound.control import routing
from timebound.control.planner.world import World
from timebound.control.topology import Link

Way = tuple[str, ...]
"""Switches and hosts in order, from host to host."""


def free_bps(world: World, reserved: Mapping[str, int]) -> dict[str, int]:
    """Link -> bit/s that nobody has reserved, at least a twentieth of its rate: a busy link is dear, but not gone. `reserved` by the link's ends
    as scenarios name them."""
    named = world.names
    found = {}
    for name, link in world.two_way.links.items():
        used = reserved.get(f"{named[link.source]}->{named[link.target]}", 0)
        found[name] = max(link.rate_bps - used, link.rate_bps // 20, 1)
    return found


def cost_of(world: World, reserved: Mapping[str, int]) -> routing.Cost:
    """What a link adds to a way, ns: one full frame at the rate that is not reserved, its delay, and the switch behind it."""
    sending = routing.delay_and_free_bandwidth(free_bps(world, reserved))

    def cost(link: Link) -> float:
        switch = world.topology.switches.get(link.target)
        return sending(link) + (0 if switch is None else switch.delay_ns[1])

    return cost


def ways(world: World, source: str, target: str, reserved: Mapping[str, int]) -> Iterator[Way]:
    """All simple ways in the order in which they are to be tried (`routing.ways_to_try`), as many as are asked for."""
    if source == target:
        yield (source,)
        return
    for found in routing.ways_to_try(world.two_way, source, target, cost_of(world, reserved)):
        yield _nodes(world, found)


def cheapest(world: World, source: str, target: str, reserved: Mapping[str, int]) -> Way | None:
    """The way of least cost."""
    if source == target:
        return (source,)
    found = routing.cheapest_way(world.two_way, source, target, cost_of(world, reserved))
    return None if found is None else _nodes(world, found)


def _nodes(world: World, found: routing.Way) -> Way:
    links = world.two_way.links
    return (links[found[0]].source, *(links[name].target for name in found))


def disjoint(world: World, way: Way, reserved: Mapping[str, int]) -> Way | None:
    """The cheapest way between the same hosts that shares no link with `way` in either direction, but those of the hosts; of such ways one that
    shares no switch between the first and the last is taken where there is one."""
    inner = list(itertools.pairwise(way))[1:-1]
    if not inner:
        return None
    without = {world.links[ends].name for pair in inner for ends in (pair, pair[::-1])}
    cost = cost_of(world, reserved)
    for avoided in (way[2:-2], ()):
        found = routing.cheapest_way(world.two_way, way[0], way[-1], cost, without, avoided)
        if found is not None:
            return _nodes(world, found)
    return None


def is_live(world: World, way: Way) -> bool:
    """Are all its links up?"""
    return all(ends in world.links for ends in itertools.pairwise(way))
