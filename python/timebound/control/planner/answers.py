"""A state as rows of the table: channels to install, and what each request is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from timebound.control.enforcer import GroupOrder
from timebound.control.planner import between
from timebound.control.planner.groups import Need, needs
from timebound.control.planner.judge import Judged
from timebound.control.planner.layout import Pair
from timebound.control.planner.loads import Load, links_of
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
    groups: dict[str, GroupOrder] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Granted request -> channels and groups on the ways of its flows."""


def answers(world: World, state: State) -> Answers:
    """The rows of a state that has its prediction (`decide` leaves it there)."""
    judged = state.judged
    if judged is None:
        return Answers()
    loads = _loads(world, judged)
    found = Answers()
    between.add(world, state, judged, found.groups, found.channels)
    for connection in sorted(state.routes):
        _add_channels(world, state, connection, loads, found)
    wanted = needs(world, state)
    for request, demand in sorted(state.granted.items()):
        pairs = [pair for pair in judged.layout.pairs.values() if demand in (pair.publisher, pair.subscriber)]
        needed = {name for pair in pairs for name in _channels_of(pair, found.channels)}
        needed |= {
            name for pair in pairs for name in between.of_pair(world, judged, pair, found.groups, found.channels)
        }
        found.needs[request] = tuple(sorted(needed))
        found.verdicts[request] = _verdict(world, state, wanted, judged, request, pairs, loads)
    return found


def _verdict(
    world: World,
    state: State,
    wanted: Mapping[str, Need],
    judged: Judged,
    request: str,
    pairs: list[Pair],
    loads: Mapping[tuple[str, str], Load],
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
    trouble = between.trouble(world, state, wanted, demand)
    if trouble:
        told.append(trouble)
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


def _loads(world: World, judged: Judged) -> dict[tuple[str, str], Load]:
    """What each (connection, part) carries, by the streams of the prediction."""
    prediction = judged.prediction
    found: dict[tuple[str, str], Load] = {}
    if prediction is None:
        return found
    flows = {f"flows[{index}]": flow.name for index, flow in enumerate(judged.layout.scenario.flows)}
    for stream in prediction.streams.values():
        pair = judged.layout.pairs.get(flows[prediction.plan.origins[stream.name]])
        part = None if pair is None else _part(world, pair, stream)
        if pair is not None and part is not None and stream.period_ns is not None:
            found.setdefault((pair.connection, part), Load()).add(prediction, stream)
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
    world: World, state: State, connection: str, loads: Mapping[tuple[str, str], Load], found: Answers
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
            burst_bytes=load.burst(world.site),
            links=links_of(world, way),
            bound_ns=load.data_ns or load.other_ns,
            state=ChannelState.PLANNED,
        )
        if backup is not None:
            found.backups[name] = links_of(world, backup)


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
