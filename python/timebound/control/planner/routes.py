"""Ways through the live network, cheapest first, and ways that share no link with another."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping

from timebound.control.planner.world import World
from timebound.control.topology import Link

Way = tuple[str, ...]
"""Switches and hosts in order, from host to host."""
_FRAME_BITS = 1538 * 8
"""A full Ethernet frame on the wire: what every port is charged for."""


def cost_ns(world: World, link: Link, reserved: Mapping[str, int]) -> int:
    """What a link adds to a way: one full frame at the rate that is not reserved (so busy links are dearer), its delay, and the switch behind it."""
    free = max(link.rate_bps - reserved.get(link.name, 0), link.rate_bps // 20, 1)
    switch = world.topology.switches.get(link.target)
    return _FRAME_BITS * 1_000_000_000 // free + link.delay_ns[1] + (0 if switch is None else switch.delay_ns[1])


def cheapest(
    world: World,
    source: str,
    target: str,
    reserved: Mapping[str, int],
    without: frozenset[tuple[str, str]] = frozenset(),
    avoided: frozenset[str] = frozenset(),
) -> Way | None:
    """The way of least cost that takes none of some links and passes none of some nodes (Dijkstra); hosts do not forward."""
    if source == target:
        return (source,)
    best: dict[str, int] = {source: 0}
    queue: list[tuple[int, int, Way]] = [(0, 0, (source,))]
    while queue:
        cost, hops, way = heapq.heappop(queue)
        node = way[-1]
        if node == target:
            return way
        if cost > best.get(node, cost) or (node != source and node in world.topology.hosts):
            continue
        for neighbour in world.neighbours.get(node, ()):
            if (node, neighbour) in without or neighbour in avoided:
                continue
            total = cost + cost_ns(world, world.links[node, neighbour], reserved)
            if total < best.get(neighbour, total + 1):
                best[neighbour] = total
                heapq.heappush(queue, (total, hops + 1, (*way, neighbour)))
    return None


def ways(world: World, source: str, target: str, reserved: Mapping[str, int]) -> Iterator[Way]:
    """All simple ways in order of cost (Yen 1971), as many as are asked for."""
    first = cheapest(world, source, target, reserved)
    if first is None:
        return
    found, candidates, seen = [first], [(0, first)][:0], {first}
    yield first
    while True:
        last = found[-1]
        for index in range(len(last) - 1):
            root = last[: index + 1]
            taken = frozenset((way[index], way[index + 1]) for way in found if way[: index + 1] == root)
            spur = cheapest(world, root[-1], target, reserved, taken, frozenset(root[:-1]))
            if spur is None:
                continue
            way = root[:-1] + spur
            if way not in seen:
                seen.add(way)
                heapq.heappush(candidates, (way_cost(world, way, reserved), way))
        if not candidates:
            return
        found.append(heapq.heappop(candidates)[1])
        yield found[-1]


def way_cost(world: World, way: Way, reserved: Mapping[str, int]) -> int:
    """Sum over its links, ns."""
    return sum(cost_ns(world, world.links[ends], reserved) for ends in itertools.pairwise(way))


def disjoint(world: World, way: Way, reserved: Mapping[str, int]) -> Way | None:
    """The cheapest way between the same hosts that shares no link with `way` in either direction, but those of the hosts; of such ways one that
    shares no switch between the first and the last is taken where there is one."""
    inner = list(itertools.pairwise(way))[1:-1]
    if not inner:
        return None
    without = frozenset(inner) | {ends[::-1] for ends in inner}
    apart = cheapest(world, way[0], way[-1], reserved, without, frozenset(way[2:-2]))
    return apart or cheapest(world, way[0], way[-1], reserved, without)


def is_live(world: World, way: Way) -> bool:
    """Are all its links up?"""
    return all(ends in world.links for ends in itertools.pairwise(way))
