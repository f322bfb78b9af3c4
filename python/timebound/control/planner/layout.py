"""Granted requests on the live network as a scenario: what `timebound predict` takes, and what is exported.

A publisher's request is a flow from its client to the broker (over the manager, where that is another host); a subscriber's request is, for each
granted publisher whose topic it matches, a flow that comes `after` it, from the broker to the subscriber's client. Where that is in another edge network, a
flow between them multicasts the messages from manager to managers. Flows on one TCP connection name it
(`connection`). Whoever asked nothing is not in it: the bounds assume best effort at every port anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from timebound.control.planner.demand import Demand
from timebound.control.planner.groups import class_of, group_id, member_of, pair_of, sends, way_of
from timebound.control.planner.routes import Way
from timebound.control.planner.state import Group, State
from timebound.control.planner.topics import bare, matches
from timebound.control.planner.world import Ends, Missing, World, fresh
from timebound.control.srt.rows import Side
from timebound.scenario.model import (
    Broker,
    Direction,
    Flow,
    Impairments,
    Jitter,
    Link,
    MqttStack,
    Node,
    Precision,
    Queue,
    Run,
    Scenario,
    Service,
    Simulate,
)
from timebound.scenario.model_tcp import SOMEBODYS

LONGEST_NAME = 50


@dataclass(frozen=True, slots=True)
class Pair:
    """A flow of the scenario: a publisher's request, and the subscriber's that it serves."""

    flow: str
    publisher: Demand
    subscriber: Demand | None
    ends: Ends
    """Of the subscriber's connection; of the publisher's where there is none."""

    @property
    def connection(self) -> str:
        """Whose part of the way is this flow's own."""
        return (self.subscriber or self.publisher).connection

    @property
    def deadline_ns(self) -> int | None:
        """From the nominal release to the reception, the shorter of both."""
        stated = [asked.deadline_ns for asked in (self.publisher, self.subscriber) if asked is not None]
        return min((deadline for deadline in stated if deadline is not None), default=None)


@dataclass(frozen=True, slots=True)
class Layout:
    """The scenario, and what its flows stand for."""

    scenario: Scenario
    pairs: dict[str, Pair] = field(default_factory=dict)
    """By flow."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Of flows that multicast a publisher's messages."""
    between: dict[str, Group] = field(default_factory=dict)
    """Of flows to subscribers in other networks."""


def matching(world: World, state: State) -> Iterator[tuple[Demand, dict[Demand, Group | None]]]:
    """Every granted subscriber with the granted publishers that it gets messages of, and the group that brings them from another network."""
    publishers: list[tuple[Demand, Ends]] = []
    named: dict[str, list[tuple[Demand, Ends]]] = {}
    for demand in state.of_side(Side.PUBLISH):
        place = world.ends(demand.connection)
        if isinstance(place, Ends):
            publishers.append((demand, place))
            named.setdefault(demand.topic, []).append((demand, place))
    for subscriber in state.of_side(Side.SUBSCRIBE):
        ends = world.ends(subscriber.connection)
        if not isinstance(ends, Ends):
            continue
        wanted = bare(subscriber.topic)
        # Most filters are topics: those need no search.
        wild = "#" in wanted or "+" in wanted
        looked_at = publishers if wild else named.get(wanted, [])
        member = member_of(world, ends.system)
        found: dict[Demand, Group | None] = {}
        for demand, place in looked_at:
            if wild and not matches(wanted, demand.topic):
                continue
            group = None if place.system == ends.system else _group_to(world, state, demand, place, member)
            if place.system == ends.system or group is not None:
                found[demand] = group
        yield subscriber, found


def _group_to(world: World, state: State, publisher: Demand, ends: Ends, member: str | None) -> Group | None:
    """The group that brings a publisher's messages to a manager."""
    if member is None or not sends(world, publisher, ends):
        return None
    group = state.groups.get(group_id(world.tables.connections[publisher.connection].manager, publisher.topic))
    return group if group is not None and member in group.managers else None


def lay_out(world: World, state: State) -> Layout:
    """The scenario of a state. The order in which rows came makes no difference to it."""
    names: dict[str, str] = {}
    for request in sorted(state.granted):
        names[request] = fresh(request, set(names.values()), LONGEST_NAME)
    flows: list[Flow] = []
    pairs: dict[str, Pair] = {}
    groups: dict[str, Group] = {}
    between: dict[str, Group] = {}
    for publisher in state.of_side(Side.PUBLISH):
        ends = world.ends(publisher.connection)
        if isinstance(ends, Missing):
            continue
        name = names[publisher.request]
        flows.append(_publication(world, state, publisher, ends, name))
        pairs[name] = Pair(name, publisher, None, ends)
    for subscriber, publishers in matching(world, state):
        ends = world.ends(subscriber.connection)
        assert isinstance(ends, Ends)
        priority = class_of(subscriber, world.site, list(publishers))
        for publisher, group in publishers.items():
            before = names[publisher.request]
            if group is not None:
                before = f"{before}/multicast"
                if before not in groups:
                    groups[before] = group
                    flows.append(_multicast(world, state, publisher, group, before, names[publisher.request]))
            name = f"{names[publisher.request]}/{names[subscriber.request]}"
            if group is not None:
                between[name] = group
            pair = Pair(name, publisher, subscriber, ends)
            flows.append(_delivery(world, state, pair, before, priority, group))
            pairs[name] = pair
    used = {end for pair in pairs.values() for end in _hosts(world, pair)}
    used |= {host for group in groups.values() for _, host in group.members}
    nodes, links = _network(world, used)
    run = Run(
        duration_ns=10_000_000_000,
        warm_up_ns=1_000_000_000,
        seed=1,
        captures=(),
        simulate=Simulate(duration_ns=10_000_000_000),
        precision=Precision(),
    )
    scenario = Scenario(
        name="granted",
        description="what a controller has granted",
        nodes=nodes,
        links=links,
        flows=tuple(flows),
        stack=MqttStack(brokers=_brokers(world, state, used)),
        background=(),
        events=(),
        run=run,
        framing=world.site.framing,
    )
    return Layout(scenario, pairs, groups, between)


def _hosts(world: World, pair: Pair) -> set[str]:
    return {pair.ends.client, pair.ends.manager, pair.ends.server}


def _publication(world: World, state: State, publisher: Demand, ends: Ends, name: str) -> Flow:
    route = state.routes[publisher.connection]
    named = world.names
    via = () if ends.broker is None else (named[ends.manager],)
    server = named[ends.server]
    return Flow(
        name=name,
        group=name,
        source=named[ends.client],
        receivers=(server,),
        topic=publisher.topic,
        size_bytes=publisher.size_bytes,
        # Nobody keeps a client from publishing less than it asked for.
        least_bytes=0,
        period_ns=publisher.period_ns,
        jitter_ns=publisher.jitter_ns,
        deadline_ns=publisher.deadline_ns,
        priority=class_of(publisher, world.site, []),
        qos=publisher.qos,
        services=(Service(broker=server, receivers=(server,), via=via),),
        routes=tuple(tuple(named[node] for node in way) for way in _stated(route.ways(), ends)),
        connection=publisher.connection,
    )


def _multicast(world: World, state: State, publisher: Demand, group: Group, name: str, after: str) -> Flow:
    """A publisher's messages on their way to other networks: along the tree, and answers on the way between both managers."""
    first = world.ends(publisher.connection)
    assert isinstance(first, Ends)
    named = world.names
    routes: list[Way] = [way_of(world, group.tree, host) for _, host in group.members]
    for member, host in group.members:
        way = state.peers.get(pair_of(group.origin, member))
        if way is not None:
            back = way if way[0] == host else way[::-1]
            routes.append(back)
    return Flow(
        name=name,
        group=name,
        source=named[first.client],
        receivers=tuple(named[host] for _, host in group.members),
        topic=publisher.topic,
        size_bytes=publisher.size_bytes,
        least_bytes=0,
        period_ns=publisher.period_ns,
        jitter_ns=publisher.jitter_ns,
        priority=group.priority,
        qos=publisher.qos,
        services=(Service(broker=named[group.tree.source], receivers=tuple(named[host] for _, host in group.members)),),
        routes=tuple(tuple(named[node] for node in way) for way in routes),
        after=after,
        multicast=True,
        sealed=world.tables.managers[group.origin].peer_sealed,
    )


def _delivery(world: World, state: State, pair: Pair, after: str, priority: int, group: Group | None) -> Flow:
    publisher, ends, named = pair.publisher, pair.ends, world.names
    assert pair.subscriber is not None
    first = world.ends(publisher.connection)
    assert isinstance(first, Ends)
    # What comes from another network is at the broker's own host, where its manager is.
    server, last = named[first.server if group is None else ends.system[0]], named[ends.manager]
    via = () if server == last else (server,)
    ways = [way[::-1] for way in _stated(state.routes[pair.connection].ways(), ends)]
    return Flow(
        name=pair.flow,
        group=pair.flow,
        source=named[first.client],
        receivers=(named[ends.client],),
        topic=publisher.topic,
        size_bytes=publisher.size_bytes,
        least_bytes=0,
        period_ns=publisher.period_ns,
        jitter_ns=publisher.jitter_ns,
        deadline_ns=pair.deadline_ns,
        priority=priority,
        qos=min(publisher.qos, pair.subscriber.qos),
        services=(Service(broker=last, receivers=(named[ends.client],), via=via),),
        routes=tuple(tuple(named[node] for node in way) for way in ways),
        connection=pair.connection,
        after=after,
    )


def _stated(ways: tuple[Way, ...], ends: Ends) -> list[Way]:
    """The ways that a flow states: one for each pair of hosts."""
    return [way for way in (ways[:1] if ends.is_loop else ways) if len(way) > 1]


def _brokers(world: World, state: State, used: set[str]) -> tuple[Broker, ...]:
    """The brokers and managers that granted connections use, each once; of networks of which no message goes anywhere none."""
    found: dict[str, Broker] = {}
    for connection in sorted(state.routes):
        ends = world.ends(connection)
        if isinstance(ends, Missing) or (used and ends.server not in used):
            continue
        row = world.tables.connections[connection]
        server = world.site.server(row.manager)
        node = world.names[ends.server]
        found[node] = Broker(node=node, program=server.program, port=1883, service=server.service)
        if ends.broker is not None:
            manager = world.names[ends.manager]
            found.setdefault(manager, Broker(node=manager, program="manager", service=world.site.manager_service))
    if not found:
        host = next(iter(sorted(world.topology.hosts)), None)
        if host is not None:
            found[host] = Broker(node=world.names[host], service=world.site.default_server.service)
    return tuple(found[node] for node in sorted(found))


def _network(world: World, used: set[str]) -> tuple[tuple[Node, ...], tuple[Link, ...]]:
    """All switches, and the hosts that take part; where none does, all."""
    hosts = used or set(world.topology.hosts)
    named = world.names
    nodes = [
        Node(
            name=named[name],
            kind="switch",
            switching_min_ns=switch.delay_ns[0],
            switching_max_ns=switch.delay_ns[1],
        )
        for name, switch in sorted(world.topology.switches.items())
    ]
    nodes += [
        # Without their addresses: an emulation has a subnet of its own, and bounds do not ask. Their TCP is somebody else's.
        Node(name=named[name], kind="host", mtu=world.site.mtu, tcp=SOMEBODYS)
        for name in sorted(world.topology.hosts)
        if name in hosts
    ]
    known = world.topology.switches.keys() | hosts
    links = [
        Link(
            a=named[a],
            b=named[b],
            forward=_direction(world, a, b),
            backward=_direction(world, b, a),
        )
        for a, b in sorted(world.links)
        if a < b and a in known and b in known
    ]
    return tuple(nodes), tuple(links)


def _direction(world: World, source: str, target: str) -> Direction:
    link = world.links[source, target]
    low, high = link.delay_ns
    queue = Queue() if source in world.topology.switches else Queue(kind=world.site.host_queue)
    spread = Jitter(kind="uniform", max_ns=high - low) if high > low else None
    return Direction(
        rate_bps=link.rate_bps,
        delay_ns=low,
        queue=queue,
        buffer_bytes=world.site.buffer_bytes,
        impairments=Impairments(jitter=spread),
    )
