"""Multicast between edge networks: group addresses, rendezvous points, trees (MRT-MQTT, section V-B). Pure.

The paper sends a message to a switch that is chosen as rendezvous point (RP), the one with the least average delay to the receivers, and
from there over a tree. Where the way from the RP to a receiver would lead back over the way on which the message came, we let the copy branch
off there already: the detour would only cost bandwidth and time. What results is a tree from the source, and nothing passes a link twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from timebound.control.topology import Link, Topology
from timebound.scenario.framing import ETHERNET
from timebound.stacks.group_address import GROUPS, group_of

__all__ = ["GROUPS", "Tree", "delay_ns", "group_of", "tree"]

FRAME_BYTES = ETHERNET.full
"""Of the largest frame on the wire, whose transmission is part of a link's delay here."""

WORTH = 0.1
"""By this share the average delay must fall before a tree that works moves to another rendezvous point."""


def delay_ns(topology: Topology, link: Link) -> int:
    """The greatest delay of a frame over a link that nobody else uses: transmission, propagation, and the switch at its end."""
    switch = topology.switches.get(link.target)
    sending = -(-FRAME_BYTES * 8_000_000_000 // link.rate_bps)
    return sending + link.delay_ns[1] + (switch.delay_ns[1] if switch else 0)


@dataclass(frozen=True, slots=True)
class Tree:
    """How the frames of one stream are spread: from its source to its receivers, every node reached once."""

    source: str
    rendezvous: str
    """The switch that was chosen; it need not lie on the way to every receiver."""
    links: tuple[str, ...]
    """Names of the links, each behind the one that leads to it."""
    ways: Mapping[str, tuple[str, ...]]
    """Receiver -> links from the source."""
    unreachable: tuple[str, ...] = ()
    """Receivers that no way leads to."""
    delays_ns: Mapping[str, int] = field(default_factory=dict)
    """Receiver -> greatest delay on links that nobody else uses."""

    @property
    def average_ns(self) -> float:
        """Mean of the delays; 0 without receivers."""
        return sum(self.delays_ns.values()) / len(self.delays_ns) if self.delays_ns else 0.0

    def outputs(self, topology: Topology) -> dict[str, tuple[str, ...]]:
        """Node -> links that it sends a copy to, in a fixed order: what a switch's group has as buckets."""
        found: dict[str, list[str]] = {}
        for name in self.links:
            found.setdefault(topology.links[name].source, []).append(name)
        return {node: tuple(sorted(names)) for node, names in found.items()}


def tree(topology: Topology, source: str, receivers: Iterable[str], before: Tree | None = None) -> Tree:
    """The tree from a host to hosts.

    `before` is the tree in use: its rendezvous point is kept unless it is gone, or another one is better by `WORTH`; so a receiver that
    comes or goes moves nobody else without need.

    Raises:
        KeyError: the source is no host of the topology.
    """
    if source not in topology.hosts:
        raise KeyError(source)
    wanted = sorted(set(receivers) - {source})
    there, leads = _reach(topology, source)
    reachable = [name for name in wanted if name in there]
    lost = tuple(name for name in wanted if name not in there)
    if not reachable:
        return Tree(source, "", (), {}, lost)
    switches = [name for name in topology.switches if name in there]
    found = {name: _through(topology, source, name, reachable, leads) for name in sorted(switches)}
    costs = {name: _average(topology, name, reachable) for name in found}
    best = min(found, key=lambda name: (costs[name], there[name], name))
    if before is not None and costs.get(before.rendezvous, float("inf")) <= costs[best] * (1 + WORTH):
        best = before.rendezvous
    chosen = found[best]
    return Tree(source, best, chosen.links, chosen.ways, lost, chosen.delays_ns)


def _reach(topology: Topology, start: str) -> tuple[dict[str, int], dict[str, Link]]:
    """Delay to every node over links that are up and connected switches, and the link that leads there (Dijkstra); ties by name.

    No way leads through a host, nor through a switch that nobody can give rules to.
    """
    leaving: dict[str, list[Link]] = {}
    for name in sorted(topology.links):
        link = topology.links[name]
        switch = topology.switches.get(link.target)
        if link.up and (link.target in topology.hosts if switch is None else switch.connected):
            leaving.setdefault(link.source, []).append(link)
    found: dict[str, int] = {}
    leads: dict[str, Link] = {}
    waiting: list[tuple[int, str, str]] = [(0, start, "")]
    while waiting:
        so_far, node, name = heapq.heappop(waiting)
        if node in found:
            continue
        found[node] = so_far
        if name:
            leads[node] = topology.links[name]
        if node == start or node in topology.switches:
            for out in leaving.get(node, []):
                if out.target not in found:
                    heapq.heappush(waiting, (so_far + delay_ns(topology, out), out.target, out.name))
    return found, leads


def _way(leads: Mapping[str, Link], node: str) -> list[Link]:
    way = []
    while node in leads:
        way.append(leads[node])
        node = leads[node].source
    return way[::-1]


def _average(topology: Topology, rendezvous: str, receivers: list[str]) -> float:
    """Mean delay from a switch to the receivers; infinite where one cannot be reached."""
    found, _ = _reach(topology, rendezvous)
    if any(name not in found for name in receivers):
        return float("inf")
    return sum(found[name] for name in receivers) / len(receivers)


def _through(topology: Topology, source: str, rendezvous: str, receivers: list[str], leads: Mapping[str, Link]) -> Tree:
    """To the rendezvous point and on, without coming back: each receiver's way leaves the common one at the last node that both have."""
    common = _way(leads, rendezvous)
    nodes = [source, *(link.target for link in common)]
    _, onwards = _reach(topology, rendezvous)
    ways: dict[str, tuple[str, ...]] = {}
    for receiver in receivers:
        rest = _way(onwards, receiver)
        met = [place for place, link in enumerate(rest, 1) if link.target in nodes]
        rest = rest[met[-1] :] if met else rest
        branch = nodes.index(rest[0].source) if rest else len(common)
        ways[receiver] = tuple(link.name for link in (*common[:branch], *rest))
    if not _is_tree(topology, ways):
        # Delays that differ by direction can lead two ways to one node: then everybody gets the shortest way from the source.
        ways = {receiver: tuple(link.name for link in _way(leads, receiver)) for receiver in receivers}
    delays = {receiver: sum(delay_ns(topology, topology.links[name]) for name in way) for receiver, way in ways.items()}
    links = dict.fromkeys(name for receiver in sorted(ways) for name in ways[receiver])
    return Tree(source, rendezvous, tuple(links), ways, (), delays)


def _is_tree(topology: Topology, ways: Mapping[str, tuple[str, ...]]) -> bool:
    """Is every node reached over one link, and never from itself? All ways begin at the source."""
    into: dict[str, str] = {}
    for way in ways.values():
        nodes = {topology.links[way[0]].source} if way else set()
        for name in way:
            link = topology.links[name]
            if into.setdefault(link.target, name) != name or link.target in nodes:
                return False
            nodes.add(link.target)
    return True
