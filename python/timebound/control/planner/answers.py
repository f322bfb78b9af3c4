"""A state as rows of the table: channels to install, and what each request is told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from timebound.control.planner.judge import Judged
from timebound.control.planner.layout import Pair
from timebound.control.planner.routes import Way
from timebound.control.planner.state import State
from timebound.control.planner.world import Ends, World
from timebound.control.srt.rows import ChannelRow, ChannelState, ConnectionRow, Outcome, Side, VerdictRow
from timebound.stacks import Stream

PARTS = ("up", "down", "leg-up", "leg-down")
"""A connection has a channel in each direction, and as many between its manager and broker where these are apart."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a state means for the outside. Times at which rows change are the caller's to fill in."""

    verdicts: dict[str, VerdictRow] = field(default_factory=dict)
    """Of granted requests, true as soon as the channels that they need are proven."""
    channels: dict[str, ChannelRow] = field(default_factory=dict)
    backups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Channel -> links of its disjoint way."""
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Granted request -> channels on the ways of its flows."""


@dataclass(slots=True)
class _Load:
    """What one channel carries."""

    rate_bps: int = 0
    burst_bytes: int = 0
    data_ns: int = 0
    other_ns: int = 0
    priority: int = 0


def answers(world: World, state: State) -> Answers:
    """The rows of a state that has its prediction (`decide` leaves it there)."""
    judged = state.judged
    if judged is None:
        return Answers()
    loads = _loads(world, judged)
    found = Answers()
    for connection in sorted(state.routes):
        _add_channels(world, state, connection, loads, found)
    for request, demand in sorted(state.granted.items()):
        pairs = [pair for pair in judged.layout.pairs.values() if demand in (pair.publisher, pair.subscriber)]
        found.needs[request] = tuple(sorted({name for pair in pairs for name in _channels_of(pair, found.channels)}))
        found.verdicts[request] = _verdict(state, judged, request, pairs, loads)
    return found


def _verdict(
    state: State, judged: Judged, request: str, pairs: list[Pair], loads: Mapping[tuple[str, str], _Load]
) -> VerdictRow:
    demand = state.granted[request]
    side = "up" if demand.side is Side.PUBLISH else "down"
    others = [other for other in state.on(demand.connection) if other.side is demand.side and other.request != request]
    whole = [pair for pair in pairs if pair.subscriber is not None] or pairs
    bounds = [judged.bounds[pair.flow].bound_ns for pair in whole]
    own = demand.priority
    load = loads.get((demand.connection, side))
    told: list[str] = []
    if demand.derived:
        told.append("the deadline is the period, as none is stated")
    if demand.side is Side.SUBSCRIBE and not pairs:
        told.append("no publisher with a guarantee has a topic that matches yet: its channel comes with the first")
    if load is not None and own is not None and load.priority > own:
        told.append(f"in class {load.priority}, the highest of its connection, not {own}")
    return VerdictRow(
        id=request,
        revision=demand.revision,
        outcome=Outcome.GRANTED,
        reason="; ".join(told),
        priority=load.priority if load is not None and load.priority else (own or 0),
        bound_ns=max((bound for bound in bounds if bound is not None), default=None),
        shared_with=tuple(sorted({other.topic for other in others})),
    )


def _channels_of(pair: Pair, channels: Mapping[str, ChannelRow]) -> list[str]:
    """The channels of both connections of a flow's whole way."""
    connections = {pair.connection, pair.publisher.connection}
    return [name for connection in connections for part in PARTS if (name := channel_id(connection, part)) in channels]


def channel_id(connection: str, part: str) -> str:
    """The id of a channel; ids of connections are never used again, so these are not either."""
    return f"{connection}:{part}"


def _loads(world: World, judged: Judged) -> dict[tuple[str, str], _Load]:
    """What each (connection, part) carries, by the streams of the prediction."""
    prediction = judged.prediction
    found: dict[tuple[str, str], _Load] = {}
    if prediction is None:
        return found
    flows = {f"flows[{index}]": flow.name for index, flow in enumerate(judged.layout.scenario.flows)}
    for stream in prediction.streams.values():
        pair = judged.layout.pairs[flows[prediction.plan.origins[stream.name]]]
        part = _part(world, pair, stream)
        if part is None or stream.period_ns is None:
            continue
        load = found.setdefault((pair.connection, part), _Load())
        outcome = prediction.outcomes[stream.name, stream.destinations[0]]
        jitter = stream.jitter_ns if outcome.nominal_ns is None else outcome.nominal_ns - (outcome.best_ns or 0)
        size = sum(stream.frames_bytes)
        load.rate_bps += -(-size * 8_000_000_000 // stream.period_ns)
        # Within no time at all: what the jitter lets come together, at the end of the way and so at every switch before it.
        load.burst_bytes += size * (1 + -(-max(0, jitter) // stream.period_ns))
        load.priority = max(load.priority, stream.priority)
        if stream.role == "data":
            load.data_ns = max(load.data_ns, outcome.nominal_ns or 0)
        else:
            load.other_ns = max(load.other_ns, outcome.actual_ns or 0)
    return found


def _part(world: World, pair: Pair, stream: Stream) -> str | None:
    """Which channel of the flow's connection a stream travels in."""
    ends = world.ends(pair.connection)
    if not isinstance(ends, Ends):
        return None
    named = world.names
    client, manager = named[ends.client], named[ends.manager]
    ways = {(client, manager): "up", (manager, client): "down"}
    if ends.broker is not None:
        broker = named[ends.broker]
        ways |= {(manager, broker): "leg-up", (broker, manager): "leg-down"}
    return ways.get((stream.source, stream.destinations[0]))


def _add_channels(
    world: World, state: State, connection: str, loads: Mapping[tuple[str, str], _Load], found: Answers
) -> None:
    row = world.tables.connections.get(connection)
    if row is None:
        return
    route = state.routes[connection]
    requests = tuple(demand.request for demand in state.on(connection))
    for part, way, backup in _ways(route.client, route.leg, route.client_backup, route.leg_backup):
        load = loads.get((connection, part))
        if load is None or len(way) < 2:
            continue
        source, destination = _sockets(row, part)
        name = channel_id(connection, part)
        found.channels[name] = ChannelRow(
            id=name,
            connection=connection,
            requests=requests,
            protocol="tcp",
            source_address=source[0],
            source_port=source[1],
            destination_address=destination[0],
            destination_port=destination[1],
            priority=load.priority,
            rate_bps=load.rate_bps,
            # One full frame more: a segment that is sent again is no reason to lose the next one.
            burst_bytes=load.burst_bytes + world.site.mtu + 38 + world.site.meter_slack_bytes,
            links=_links(world, way),
            bound_ns=load.data_ns or load.other_ns,
            state=ChannelState.PLANNED,
        )
        if backup is not None:
            found.backups[name] = _links(world, backup)


def _ways(
    client: Way, leg: Way | None, client_backup: Way | None, leg_backup: Way | None
) -> list[tuple[str, Way, Way | None]]:
    """Part, way and disjoint way of every channel, in the direction of its frames."""

    def back(way: Way | None) -> Way | None:
        return None if way is None else way[::-1]

    found = [("up", client, client_backup), ("down", client[::-1], back(client_backup))]
    if leg is not None:
        found += [("leg-up", leg, leg_backup), ("leg-down", leg[::-1], back(leg_backup))]
    return found


def _sockets(row: ConnectionRow, part: str) -> tuple[tuple[str, int], tuple[str, int]]:
    if part.startswith("leg") and row.broker_leg is not None:
        here = (row.broker_leg[0], row.broker_leg[1]), (row.broker_leg[2], row.broker_leg[3])
    else:
        here = (row.client_address, row.client_port), (row.manager_address, row.manager_port)
    return here if part.endswith("up") else here[::-1]


def _links(world: World, way: Way) -> tuple[str, ...]:
    return tuple(world.links[ends].name for ends in itertools.pairwise(way))
