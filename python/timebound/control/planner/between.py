"""What is reserved between edge networks, as rows: groups, and channels of the managers' own connections.

Reports, joins and releases go over TCP, one connection for each class from a group's origin to each member; messages that were lost
are sent again by UDP to one manager alone. Ports that the managers choose themselves are 0 in these channels (any): the first switch tells
their frames by the mark of the class as well, which managers write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from timebound.control.enforcer import GroupOrder
from timebound.control.planner.demand import Demand
from timebound.control.planner.groups import Need, group_id, member_of, named, pair_of, sends
from timebound.control.planner.judge import Judged
from timebound.control.planner.layout import Pair
from timebound.control.planner.loads import Load, links_of
from timebound.control.planner.state import Group, State
from timebound.control.planner.world import Ends, World
from timebound.control.srt.rows import ChannelRow, ChannelState, GroupRow, Side

KINDS = ("tcp-to", "tcp-from", "udp")
"""From an origin to a member's port, back from there, and what is sent again."""


def add(
    world: World, state: State, judged: Judged, groups: dict[str, GroupOrder], channels: dict[str, ChannelRow]
) -> None:
    """Adds the groups of a state, and the channels that they need."""
    prediction = judged.prediction
    if prediction is None or not judged.layout.groups:
        return
    flows = {f"flows[{index}]": flow.name for index, flow in enumerate(judged.layout.scenario.flows)}
    hosts = {short: name for name, short in world.names.items()}
    managers = {host: name for name, host in reversed(list(world.peers.items()))}
    data: dict[str, Load] = {}
    control: dict[tuple[str, str, int, str], Load] = {}
    bounds: dict[str, int | None] = {}
    for flow, group in judged.layout.groups.items():
        span, before = judged.groups[flow], bounds.get(group.id, 0)
        bounds[group.id] = None if span is None or before is None else max(span, before)
    for stream in prediction.streams.values():
        found = judged.layout.groups.get(flows[prediction.plan.origins[stream.name]])
        if found is None:
            continue
        if stream.role == "data":
            data.setdefault(found.id, Load()).add(prediction, stream)
        else:
            # Group hosts are those of its managers; of several managers on one host the members decide.
            here = {host: name for name, host in (*found.members, (found.origin, found.tree.source))}
            source, target = hosts[stream.source], hosts[stream.destinations[0]]
            ends = here.get(source, managers[source]), here.get(target, managers[target])
            kind = KINDS[0] if ends[0] == found.origin else KINDS[1]
            control.setdefault((*ends, found.priority, kind), Load()).add(prediction, stream)
    again: dict[tuple[str, str, int], Load] = {}
    for group in sorted(
        {group.id: group for group in judged.layout.groups.values()}.values(), key=lambda group: group.id
    ):
        groups[group.id] = _order(world, judged, group, data[group.id], bounds[group.id])
        if any(flow.qos for flow in judged.layout.scenario.flows if judged.layout.groups.get(flow.name) is group):
            for member in group.managers:
                load = again.setdefault((group.origin, member, group.priority), Load(priority=group.priority))
                load.rate_bps += data[group.id].rate_bps
                # Each group's sender paces what it sends again by a burst of its own, and they may all do so at once.
                load.burst_bytes += data[group.id].sent(world.site)
                load.other_ns = max(load.other_ns, data[group.id].data_ns)
    for (source, target, priority, kind), load in sorted(control.items()):
        _channel(world, state, source, target, priority, kind, load, channels)
    for (source, target, priority), load in sorted(again.items()):
        _channel(world, state, source, target, priority, KINDS[2], load, channels)


def _order(world: World, judged: Judged, group: Group, load: Load, bound_ns: int | None) -> GroupOrder:
    publishers = [
        pair.publisher.request
        for name, pair in judged.layout.pairs.items()
        if pair.subscriber is None and judged.layout.groups.get(f"{name}/multicast") == group
    ]
    origin = world.tables.managers[group.origin]
    reached = {name for _, host in group.members for name in group.tree.ways[host]}
    row = GroupRow(
        id=group.id,
        origin=group.origin,
        request=min(publishers),
        topic=group.topic,
        priority=group.priority,
        address=group.address,
        members=group.managers,
        rate_bps=load.rate_bps,
        burst_bytes=load.sent(world.site),
        bound_ns=bound_ns,
        links=tuple(name for name in group.tree.links if name in reached),
        state=ChannelState.PLANNED,
    )
    assert origin.peer_address is not None and world.peer_port is not None
    return GroupOrder(
        row=row, source_address=origin.peer_address, port=world.peer_port, burst_bytes=load.burst(world.site)
    )


def _channel(
    world: World,
    state: State,
    source: str,
    target: str,
    priority: int,
    kind: str,
    load: Load,
    channels: dict[str, ChannelRow],
) -> None:
    pair = pair_of(source, target)
    way = state.peers.get(pair)
    if way is None or len(way) < 2:
        return
    rows, port = world.tables.managers, world.peer_port
    ends = rows[source].peer_address, rows[target].peer_address
    assert ends[0] is not None and ends[1] is not None and port is not None
    name = peer_channel_id(source, target, priority, kind)
    channels[name] = ChannelRow(
        id=name,
        connection=named(pair),
        requests=(),
        protocol=kind.partition("-")[0],
        source_address=ends[0],
        source_port=port if kind == "tcp-from" else 0,
        destination_address=ends[1],
        destination_port=0 if kind == "tcp-from" else port,
        priority=priority,
        rate_bps=load.rate_bps,
        burst_bytes=load.burst(world.site),
        links=links_of(world, way if pair[0] == source else way[::-1]),
        bound_ns=load.data_ns or load.other_ns,
        state=ChannelState.PLANNED,
    )


def peer_channel_id(source: str, target: str, priority: int, kind: str) -> str:
    """The id of a channel between two managers; the same whenever they need one."""
    return f"{named((source, target))}:{priority}:{kind}"


def of_pair(
    world: World, judged: Judged, pair: Pair, groups: Mapping[str, GroupOrder], channels: Mapping[str, ChannelRow]
) -> Iterator[str]:
    """The groups and channels between networks that a flow's messages go over."""
    group = judged.layout.between.get(pair.flow)
    member = None if group is None else member_of(world, pair.ends.system)
    if group is None or member is None or group.id not in groups:
        return
    yield group.id
    there, back = (group.origin, member), (member, group.origin)
    for ends, kind in ((there, KINDS[0]), (back, KINDS[1]), (there, KINDS[2])):
        name = peer_channel_id(*ends, group.priority, kind)
        if name in channels:
            yield name


def trouble(world: World, state: State, wanted: Mapping[str, Need], demand: Demand) -> str:
    """Why a request's messages to or from other networks are not guaranteed; nothing if they are, or if there are none. `wanted`: the state's `needs`."""
    connection = world.tables.connections.get(demand.connection)
    ends = world.ends(demand.connection)
    if connection is None or not isinstance(ends, Ends):
        return ""
    found = world.trouble(connection.manager)
    if found:
        return found
    if not world.peers or not world.tables.managers[connection.manager].network:
        return ""
    if demand.side is Side.SUBSCRIBE:
        if member_of(world, ends.system) is None:
            return "messages from other networks come without guarantee: no manager that takes part in multicast is on its broker's host"
        return ""
    if not sends(world, demand, ends):
        return "messages to other networks go without guarantee: clients reach its manager at another host than its peers do"
    id = group_id(connection.manager, demand.topic)
    if id not in wanted:
        return ""
    lost = wanted[id].members.keys() - set(state.groups[id].managers if id in state.groups else ())
    return f"there is no way to {', '.join(sorted(lost))} through the network now" if lost else ""
