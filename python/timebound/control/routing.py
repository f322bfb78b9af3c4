"""Ways through a network: all of them with the weights of RT-MQTT, the k cheapest, two that share no link or switch. Pure.

A way is a tuple of names of links (`topology.Link.name`) from a host to a host. Only links that are up, between switches that are
connected, are taken, and no way leads through a third host. Costs are positive floats of any unit. Equal costs are ordered by number of links, then by
names, so that the same topology always gives the same ways.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from timebound.control.disjoint import Arc, two_disjoint
from timebound.control.topology import Link, Topology
from timebound.scenario.framing import ETHERNET

Way = tuple[str, ...]
Cost = Callable[[Link], float]
Adjacency = Mapping[str, Sequence[Link]]

MOST_BUCKET_WEIGHT = 10.0
"""RT-MQTT, eq. 1: bucket weights are at least 0 and below this."""
MOST_WEIGHTED = 64
"""Between two hosts that have more ways than this, they are not all looked at: their number grows exponentially with the network."""


def one_per_link(link: Link) -> float:
    """The cost of the paper's worked example (table 1): the weight of a way is its number of links."""
    return 1.0


def delay_and_free_bandwidth(free_bps: Mapping[str, float], frame_bytes: int = ETHERNET.full) -> Cost:
    """Cost in ns: propagation at its greatest, and the time of one frame (wire bytes) at the rate that is still free on the link.

    `free_bps` by name of link; a link that is not in it is free entirely. A link with nothing free costs infinity, and is on no way.
    """

    def cost(link: Link) -> float:
        free = free_bps.get(link.name, float(link.rate_bps))
        if free <= 0:
            return math.inf
        return link.delay_ns[1] + frame_bytes * 8 * 1e9 / free

    return cost


def usable(topology: Topology, source: str, target: str) -> dict[str, list[Link]]:
    """Links by the node that they leave, as far as a way from `source` to `target` may take them."""
    adjacency: dict[str, list[Link]] = {}
    for _name, link in sorted(topology.links.items()):
        if link.up and _passes(topology, link.source, source) and _passes(topology, link.target, target):
            adjacency.setdefault(link.source, []).append(link)
    return adjacency


def _passes(topology: Topology, node: str, end: str) -> bool:
    switch = topology.switches.get(node)
    return node == end if switch is None else switch.connected


def all_simple_ways(topology: Topology, source: str, target: str, *, most: int | None = None) -> list[Way]:
    """Every way without a node twice, found depth-first (RT-MQTT, section IV-B), those with fewest links first.

    Their number grows exponentially with the network: `most` ends the search (then not necessarily the shortest are among them); for
    larger networks there is `cheapest_ways`.
    """
    adjacency = usable(topology, source, target)
    found: list[Way] = []
    for way in _depth_first(adjacency, source, target):
        if most is not None and len(found) == most:
            break
        found.append(way)
    return sorted(found, key=lambda way: (len(way), way))


def _depth_first(adjacency: Adjacency, source: str, target: str) -> Iterator[Way]:
    """Without recursion: a way may be longer than Python's stack is deep."""
    if source == target:
        return
    visited, way = {source}, list[Link]()
    stack = [iter(adjacency.get(source, ()))]
    while stack:
        link = next(stack[-1], None)
        if link is None:
            stack.pop()
            if way:
                visited.discard(way.pop().target)
        elif link.target == target:
            yield (*(step.name for step in way), link.name)
        elif link.target not in visited:
            visited.add(link.target)
            way.append(link)
            stack.append(iter(adjacency.get(link.target, ())))


def path_weight(topology: Topology, way: Way, cost: Cost = one_per_link) -> float:
    """pw: the sum of the costs of a way's links."""
    return sum(cost(topology.links[name]) for name in way)


def bucket_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """bw(L) = (1 - pw(L) / sum of all pw) * 10 (RT-MQTT, eq. 1): the cheaper a way, the greater its weight.

    Weights of 3 and 4 give 5.71 and 4.29. A single way has the weight 0, and so have ways whose weights are all 0.
    """
    total = math.fsum(weights)
    if any(weight < 0 or not math.isfinite(weight) for weight in weights):
        raise ValueError("path weights must be finite and not negative")
    if total == 0:
        return tuple(0.0 for _ in weights)
    return tuple((1 - weight / total) * MOST_BUCKET_WEIGHT for weight in weights)


@dataclass(frozen=True, slots=True)
class WeightedWay:
    """A way with its weights."""

    links: Way
    path_weight: float
    bucket_weight: float


def weighted_ways(topology: Topology, source: str, target: str, cost: Cost = one_per_link) -> list[WeightedWay]:
    """All simple ways with path and bucket weights, the greatest bucket weight first."""
    return _weighted(topology, all_simple_ways(topology, source, target), cost)


def ways_to_try(topology: Topology, source: str, target: str, cost: Cost = one_per_link) -> Iterator[Way]:
    """Ways in the order in which a reservation tries them: by bucket weight (RT-MQTT, eq. 1), the greatest first, where there are up to
    `MOST_WEIGHTED`; in larger networks the cheapest first, as many as are asked for."""
    few = all_simple_ways(topology, source, target, most=MOST_WEIGHTED + 1)
    if len(few) > MOST_WEIGHTED:
        yield from by_cost(topology, source, target, cost)
    else:
        yield from (way.links for way in _weighted(topology, few, cost))


def _weighted(topology: Topology, ways: Sequence[Way], cost: Cost) -> list[WeightedWay]:
    costs = [path_weight(topology, way, cost) for way in ways]
    usable_ways = [(way, weight) for way, weight in zip(ways, costs, strict=True) if math.isfinite(weight)]
    buckets = bucket_weights([weight for _way, weight in usable_ways])
    weighted = [WeightedWay(way, weight, bucket) for (way, weight), bucket in zip(usable_ways, buckets, strict=True)]
    # Path weights decide between bucket weights that rounding makes equal.
    return sorted(weighted, key=lambda way: (-way.bucket_weight, way.path_weight, len(way.links), way.links))


def cheapest_way(
    topology: Topology,
    source: str,
    target: str,
    cost: Cost = one_per_link,
    without: Collection[str] = (),
    avoided: Collection[str] = (),
) -> Way | None:
    """The cheapest way (Dijkstra) that takes none of the links `without` and passes none of the nodes `avoided`, or `None`."""
    return _dijkstra(usable(topology, source, target), source, target, cost, without, avoided)


def cheapest_ways(topology: Topology, source: str, target: str, k: int, cost: Cost = one_per_link) -> list[Way]:
    """The `k` cheapest simple ways, the cheapest first."""
    return list(itertools.islice(by_cost(topology, source, target, cost), max(0, k)))


def by_cost(topology: Topology, source: str, target: str, cost: Cost = one_per_link) -> Iterator[Way]:
    """All simple ways, the cheapest first, each worked out when it is asked for (Yen 1971)."""
    adjacency = usable(topology, source, target)
    first = _dijkstra(adjacency, source, target, cost)
    if first is None:
        return
    found = [first]
    yield first
    candidates: list[tuple[float, int, Way]] = []
    seen = {first}
    while True:
        for way in _deviations(topology, adjacency, target, found, cost):
            if way not in seen:
                seen.add(way)
                heapq.heappush(candidates, (path_weight(topology, way, cost), len(way), way))
        if not candidates:
            return
        found.append(heapq.heappop(candidates)[2])
        yield found[-1]


def _deviations(
    topology: Topology, adjacency: Adjacency, target: str, found: Sequence[Way], cost: Cost
) -> Iterator[Way]:
    """For every node of the last way found: the cheapest way that leaves all found ones there."""
    last = found[-1]
    passed: set[str] = set()
    for index, name in enumerate(last):
        spur, root = topology.links[name].source, last[:index]
        banned = {way[index] for way in found if way[:index] == root and len(way) > index}
        rest = _dijkstra(adjacency, spur, target, cost, banned, passed)
        if rest is not None:
            yield root + rest
        passed.add(spur)


def _dijkstra(
    adjacency: Adjacency,
    source: str,
    target: str,
    cost: Cost,
    banned_links: Collection[str] = (),
    banned_nodes: Collection[str] = (),
) -> Way | None:
    heap: list[tuple[float, int, Way, str]] = [(0.0, 0, (), source)]
    done: set[str] = set()
    while heap:
        spent, length, way, node = heapq.heappop(heap)
        if node in done:
            continue
        if node == target and length:
            return way
        done.add(node)
        for link in adjacency.get(node, ()):
            if link.name in banned_links or link.target in done or link.target in banned_nodes:
                continue
            price = _price(link, cost)
            if price < math.inf:
                heapq.heappush(heap, (spent + price, length + 1, (*way, link.name), link.target))
    return None


def _price(link: Link, cost: Cost) -> float:
    price = cost(link)
    if not price > 0:
        raise ValueError(f"the cost of {link.name} is {price}: costs must be positive")
    return price


def disjoint_pair(
    topology: Topology, source: str, target: str, cost: Cost = one_per_link, *, switches: bool = True
) -> tuple[Way, Way] | None:
    """Two ways that share neither link nor (with `switches`) switch between the switches of both hosts, of least total cost; the cheaper first.

    The links of the hosts themselves are on both: a host has one. `None` where there are no two, or both hosts are at one switch.
    (Suurballe 1974; found as two augmentations of a flow, as Bhandari does.)
    """
    adjacency = usable(topology, source, target)
    head, tail = _only(adjacency.get(source, ())), _only(_into(adjacency, target))
    if head is None or tail is None or head.target == tail.source:
        return None
    arcs: list[Arc] = []
    for links in adjacency.values():
        for link in links:
            if link.source != source and link.target != target:
                price = _price(link, cost)
                if price < math.inf:
                    arcs.append(Arc(link.source, link.target, price, link.name))
    pair = two_disjoint(arcs, head.target, tail.source, nodes=switches)
    if pair is None:
        return None
    ways = [(head.name, *inner, tail.name) for inner in pair]
    ways.sort(key=lambda way: (path_weight(topology, way, cost), len(way), way))
    return ways[0], ways[1]


def _only(links: Sequence[Link]) -> Link | None:
    return links[0] if len(links) == 1 else None


def _into(adjacency: Adjacency, target: str) -> list[Link]:
    return [link for links in adjacency.values() for link in links if link.target == target]
