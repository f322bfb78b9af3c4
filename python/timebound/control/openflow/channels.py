"""What a channel is in switches: rules by 5-tuple, a meter and perhaps a group at its first switch. Pure.

The first switch tells its frames by 5-tuple and port, polices and marks them; every later switch takes only frames with that mark, so that nothing
unpoliced ever enters the channel's queues, in whatever order rules appear. Frames of the same 5-tuple that come in elsewhere are best effort.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from timebound.control.openflow.frames import ETH_IPV4, TCP, UDP, FiveTuple
from timebound.control.openflow.rules import (
    Action,
    Bucket,
    Group,
    Match,
    Meter,
    Output,
    Priority,
    Rule,
    SetField,
    SetQueue,
    Tables,
    ToGroup,
    channel_cookie,
    match,
)
from timebound.control.srt.rows import ChannelRow
from timebound.control.topology import Link, PortId, Topology

CLASSES = 8


class WayError(ValueError):
    """Links that are no way from a host to a host, or a backup that is none."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A switch of a way, and the ports at which frames come and go."""

    switch: int
    in_port: int
    out_port: int

    @property
    def out(self) -> PortId:
        """Where frames are queued."""
        return PortId(self.switch, self.out_port)


Hops = tuple[Hop, ...]


def mark_of(priority: int) -> int:
    """DSCP of a class: class selector code points (RFC 2474, section 4.2.2)."""
    if not 0 <= priority < CLASSES:
        raise ValueError(f"class {priority} is not one of 0 to {CLASSES - 1}")
    return 8 * priority


def hops_of(names: tuple[str, ...], links: Mapping[str, Link]) -> Hops:
    """The switches of a way. Raises `WayError` where its links do not join, or do not lead from a host to a host."""
    if len(names) < 2:
        raise WayError("a way has at least two links: from a host to a switch, from a switch to a host")
    missing = [name for name in names if name not in links]
    if missing:
        raise WayError(f"no link {missing[0]!r} is known")
    way = [links[name] for name in names]
    if way[0].out is not None or way[-1].into is not None:
        raise WayError("a way begins at a host and ends at a host")
    hops: list[Hop] = []
    for before, behind in itertools.pairwise(way):
        if before.into is None or behind.out is None or before.into.switch != behind.out.switch:
            raise WayError(f"{before.name} and {behind.name} do not meet at a switch")
        hops.append(Hop(before.into.switch, before.into.number, behind.out.number))
    if len({hop.switch for hop in hops}) != len(hops):
        raise WayError("a way passes no switch twice")
    return tuple(hops)


def known_links(topology: Topology) -> dict[str, Link]:
    """Links by name, and by the name that they have where links are parallel, which stays when the other one comes or goes."""
    named = dict(topology.links)
    for link in topology.links.values():
        if link.out is not None and link.into is not None:
            ports = topology.ports
            named.setdefault(f"{link.source}.{ports[link.out].name}->{link.target}.{ports[link.into].name}", link)
    return named


def check_backup(hops: Hops, backup: Hops) -> None:
    """Raises `WayError` unless the backup begins and ends where the way does and shares no port with it in between."""
    if not backup:
        return
    ends = (hops[0].switch, hops[0].in_port, hops[-1].switch, hops[-1].out_port)
    if ends != (backup[0].switch, backup[0].in_port, backup[-1].switch, backup[-1].out_port):
        raise WayError("the backup does not begin and end where the way does")
    if {hop.out for hop in hops[:-1]} & {hop.out for hop in backup[:-1]}:
        raise WayError("the backup shares a link with the way")


def flow_of(channel: ChannelRow) -> FiveTuple:
    """The frames of a channel. Raises `ValueError` for a protocol other than `tcp` and `udp`."""
    protocol = {"tcp": TCP, "udp": UDP}.get(channel.protocol)
    if protocol is None:
        raise ValueError(f"protocol {channel.protocol!r} is neither tcp nor udp")
    ends = (channel.source_address, channel.source_port, channel.destination_address, channel.destination_port)
    return FiveTuple(protocol, *ends)


def flow_match(flow: FiveTuple, in_port: int, mark: int | None) -> Match:
    """Frames of a flow that come in at a port; with `mark` only those that have it."""
    layer = "tcp" if flow.protocol == TCP else "udp"
    fields: dict[str, int | str] = {
        "in_port": in_port,
        "eth_type": ETH_IPV4,
        "ip_proto": flow.protocol,
        "ipv4_src": flow.source,
        "ipv4_dst": flow.destination,
    }
    ports = {f"{layer}_src": flow.source_port, f"{layer}_dst": flow.destination_port}
    fields |= {name: port for name, port in ports.items() if port}
    if mark is not None:
        fields["ip_dscp"] = mark
    return match(**fields)


def first_mark(channel: ChannelRow) -> int | None:
    """The mark that frames must have already when they come from their host. Where a port may be any the class is what tells them apart: connections
    of two managers in several classes have the same addresses and port."""
    is_open = 0 in (channel.source_port, channel.destination_port) and not is_group(channel.destination_address)
    return mark_of(channel.priority) if is_open else None


def is_group(address: str) -> bool:
    """Is it an IPv4 multicast address?"""
    return ipaddress.IPv4Address(address).is_multicast


def meter_of(channel: ChannelRow, id: int) -> Meter:
    """OpenFlow counts in kbit/s and kbit: both are rounded up, so that what keeps to the channel's rate never exceeds the meter's."""
    return Meter(id, math.ceil(channel.rate_bps / 1000), max(1, math.ceil(channel.burst_bytes * 8 / 1000)))


@dataclass(frozen=True, slots=True)
class Program:
    """What a channel puts into each switch."""

    first: int
    tables: Mapping[int, Tables]
    """By datapath id."""


def program(
    channel: ChannelRow, hops: Hops, backup: Hops, meter: int, group: int | None, queued: Callable[[PortId], bool]
) -> Program:
    """`meter`, `group` (needed with a backup): ids at the first switch. `queued`: are a port's queues the switch's own, so that a queue is to be chosen?"""
    mark, owner, flow = mark_of(channel.priority), channel_cookie(channel.id), flow_of(channel)
    tables: dict[int, Tables] = {}
    for hop in (*hops[1:], *backup[1:]):
        rule = Rule(
            Priority.CHANNEL,
            flow_match(flow, hop.in_port, mark),
            sending(hop.out, channel.priority, queued),
            owner,
        )
        tables.setdefault(hop.switch, Tables()).add([rule])
    first = Tables(meters={meter: meter_of(channel, meter)})
    send = sending(hops[0].out, channel.priority, queued)
    if backup:
        if group is None:
            raise ValueError("a channel with a backup needs a group")
        buckets = [Bucket(hop.out_port, sending(hop.out, channel.priority, queued)) for hop in (hops[0], backup[0])]
        first.add(groups=[Group(group, tuple(buckets))])
        send = (ToGroup(group),)
    first.add(
        [
            Rule(
                Priority.CHANNEL,
                flow_match(flow, hops[0].in_port, first_mark(channel)),
                (SetField("ip_dscp", mark), *send),
                owner,
                meter,
            )
        ]
    )
    tables[hops[0].switch] = first
    return Program(hops[0].switch, tables)


def sending(out: PortId, priority: int, queued: Callable[[PortId], bool]) -> tuple[Action, ...]:
    """Out of a port in the queue of a class."""
    return (SetQueue(priority), Output(out.number)) if queued(out) else (Output(out.number),)
