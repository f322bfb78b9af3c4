"""Multicast between edge networks: which groups the granted requests need, and the trees that they have (MRT-MQTT, section V-B).

A group carries the messages of one topic from one manager, in the highest class of its publishers there, to one manager of each broker of another network
that has a granted subscriber of it. It is there with the first pair of publisher and subscriber and gone with the last. Its id is made of origin
and topic, so it stays the same while members come and go.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

from timebound.control.planner.demand import Demand
from timebound.control.planner.routes import Way, cheapest, free_bps, is_live
from timebound.control.planner.site import Site
from timebound.control.planner.state import Group, State
from timebound.control.planner.topics import bare, matches
from timebound.control.planner.world import Ends, World
from timebound.control.srt.rows import GroupRow, Side
from timebound.control.topology import Topology
from timebound.control.trees import Tree, group_of, tree


@dataclass(slots=True)
class Need:
    """Who needs a group."""

    origin: str
    topic: str
    publishers: list[Demand]
    members: dict[str, str] = field(default_factory=dict)
    """Manager -> its host."""


def class_of(demand: Demand, site: Site, publishers: list[Demand]) -> int:
    """The class that a request has by itself; a subscriber without wishes has that of its publishers."""
    if demand.priority is not None:
        return demand.priority
    if demand.deadline_ns is not None:
        return site.class_of(demand.deadline_ns)
    return max((class_of(publisher, site, []) for publisher in publishers), default=site.lowest)


def group_id(origin: str, topic: str) -> str:
    """The same whenever this manager needs a group for this topic, and no other's. Topics are what clients choose: no group's id is a channel's."""
    return f"group:{quote(origin, safe='')}:{topic}"


def member_of(world: World, system: tuple[str, int]) -> str | None:
    """The manager that takes messages from other networks to a broker, which must be on its host."""
    systems = world.systems
    return next((name for name, host in world.peers.items() if systems[name] == system and system[0] == host), None)


def sends(world: World, publisher: Demand, ends: Ends) -> bool:
    """Does the publisher's manager multicast?"""
    return world.peers.get(world.tables.connections[publisher.connection].manager) == ends.manager


def needs(world: World, state: State) -> dict[str, Need]:
    """The groups that granted requests need, by id."""
    if not world.peers:
        return {}
    found: dict[str, Need] = {}
    for publisher in state.of_side(Side.PUBLISH):
        ends = world.ends(publisher.connection)
        if isinstance(ends, Ends) and sends(world, publisher, ends):
            origin = world.tables.connections[publisher.connection].manager
            need = found.setdefault(group_id(origin, publisher.topic), Need(origin, publisher.topic, []))
            need.publishers.append(publisher)
    named: dict[str, list[Need]] = {}
    for need in found.values():
        named.setdefault(need.topic, []).append(need)
    for subscriber in state.of_side(Side.SUBSCRIBE):
        ends = world.ends(subscriber.connection)
        member = member_of(world, ends.system) if isinstance(ends, Ends) else None
        if member is None:
            continue
        wanted = bare(subscriber.topic)
        wild = "#" in wanted or "+" in wanted
        for need in found.values() if wild else named.get(wanted, []):
            if world.apart(need.origin, member) and (not wild or matches(wanted, need.topic)):
                need.members[member] = world.peers[member]
    return {id: need for id, need in found.items() if need.members}


def grouped(world: World, state: State, reserved: Mapping[str, int] | None = None) -> State:
    """The state with the groups that it needs. Trees that work stay as they are; others are those of least delay, or with `reserved` (link by its
    ends -> bit/s) of least delay at the rates that are free, also in the place of those that work."""
    wanted = needs(world, state)
    network = world.two_way if reserved is None else _free(world, reserved)
    groups: dict[str, Group] = {}
    for id in sorted(wanted):
        taken = {group.address for other, group in {**state.groups, **groups}.items() if other != id}
        found = _group(world, network, id, wanted[id], state.groups.get(id), taken, anew=reserved is not None)
        if found is not None:
            groups[id] = found
    peers = _peers(world, state, groups)
    if groups == state.groups and peers == state.peers:
        return state
    return replace(state, groups=groups, peers=peers, judged=None)


def _group(
    world: World, network: Topology, id: str, need: Need, old: Group | None, taken: set[str], *, anew: bool
) -> Group | None:
    """`None`: no member can be reached."""
    source = world.peers[need.origin]
    members = tuple(sorted((name, host) for name, host in need.members.items() if host != source))
    before = old.tree if old is not None and old.tree.source == source else None
    if before is None or anew or old is None or old.members != members or not _works(world, before):
        before = tree(network, source, [host for _, host in members], before)
    members = tuple((name, host) for name, host in members if host in before.ways)
    if not members:
        return None
    priority = max(class_of(publisher, world.site, []) for publisher in need.publishers)
    same = old is not None and old.priority == priority and old.address not in taken
    address = old.address if old is not None and same else group_of(need.topic, priority, taken)
    return Group(id, need.origin, need.topic, priority, address, before, members)


def _works(world: World, found: Tree) -> bool:
    up = world.two_way.links
    return all(name in up for name in found.links)


def _free(world: World, reserved: Mapping[str, int]) -> Topology:
    """The network with the rates that nobody has reserved."""
    free = free_bps(world, reserved)
    links = {name: replace(link, rate_bps=free[name]) for name, link in world.two_way.links.items()}
    return replace(world.two_way, links=links)


def way_of(world: World, found: Tree, host: str) -> Way:
    """Nodes from the tree's source to a receiver."""
    return (found.source, *(world.topology.links[name].target for name in found.ways[host]))


def _peers(world: World, state: State, groups: Mapping[str, Group]) -> dict[tuple[str, str], Way]:
    """Ways of the managers' TCP connections."""
    pairs = {pair_of(group.origin, name) for group in groups.values() for name in group.managers}
    found: dict[tuple[str, str], Way] = {}
    for pair in sorted(pairs):
        ends = world.peers[pair[0]], world.peers[pair[1]]
        old = state.peers.get(pair)
        way = (
            old if old is not None and (old[0], old[-1]) == ends and is_live(world, old) else cheapest(world, *ends, {})
        )
        if way is not None:
            found[pair] = way
    return found


def named(pair: tuple[str, str]) -> str:
    """Two managers as one text (`ChannelRow.connection` of what they tell each other)."""
    return "peers:" + ">".join(quote(name, safe="") for name in pair)


def _pair_named(text: str) -> tuple[str, str] | None:
    first, arrow, second = text.removeprefix("peers:").partition(">")
    pair = unquote(first), unquote(second)
    return pair if arrow and named(pair) == text else None


def pair_of(a: str, b: str) -> tuple[str, str]:
    """Two managers in order."""
    return (a, b) if a < b else (b, a)


# From rows ------------------------------------------------------------------------------------------------------------------------


def restored(world: World) -> dict[str, Group]:
    """Groups as the table tells of them; what does not fit the network any more is left out, and planned anew."""
    found: dict[str, Group] = {}
    for id, row in sorted(world.tables.groups.items()):
        group = _restored(world, row)
        if group is not None and id == group_id(row.origin, row.topic):
            found[id] = group
    return found


def _restored(world: World, row: GroupRow) -> Group | None:
    links = [world.two_way.links.get(name) for name in row.links]
    source = world.peers.get(row.origin)
    into = {link.target: link for link in links if link is not None}
    members = tuple((name, world.peers[name]) for name in row.members if world.peers.get(name) in into)
    if source is None or not members or None in links:
        return None
    ways = {}
    for _, host in members:
        way: list[str] = []
        node = host
        while node != source and node in into and len(way) <= len(links):
            way.append(into[node].name)
            node = into[node].source
        if node != source:
            return None
        ways[host] = tuple(reversed(way))
    hosts = [host for _, host in members]
    # Its rendezvous point is not in the row: the best one now, which keeps the tree where nothing has changed.
    rendezvous = tree(world.two_way, source, hosts).rendezvous
    return Group(
        row.id, row.origin, row.topic, row.priority, row.address, Tree(source, rendezvous, row.links, ways), members
    )


def restored_peers(world: World) -> dict[tuple[str, str], Way]:
    """Ways of managers' TCP connections by their channels."""
    found: dict[tuple[str, str], Way] = {}
    for row in world.tables.channels.values():
        pair = _pair_named(row.connection)
        if pair is None or pair[0] not in world.peers or pair[1] not in world.peers:
            continue
        first, second = pair
        links = [world.two_way.links.get(name) for name in row.links]
        if row.source_address != world.tables.managers[first].peer_address:
            continue
        way = (world.peers[first], *(link.target for link in links if link is not None))
        joined = all(a is not None and b is not None and a.target == b.source for a, b in itertools.pairwise(links))
        if joined and None not in links and way[-1] == world.peers[second]:
            found[first, second] = way
    return found
