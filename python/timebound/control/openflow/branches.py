"""What a multicast tree is in switches: a rule at each, with a group of type ALL where it branches, and a meter at the first. Pure.

As with channels (`channels`), the first switch polices and marks, and later ones take only frames with the mark that come in from the switch before them in
the tree. So a frame can neither go round nor get anywhere twice, whatever rules of an older tree are still there beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from timebound.control.enforcer import GroupOrder
from timebound.control.openflow.channels import (
    Hop,
    Hops,
    Program,
    WayError,
    flow_match,
    flow_of,
    is_group,
    mark_of,
    meter_of,
    sending,
)
from timebound.control.openflow.rules import (
    ANY_PORT,
    Action,
    Bucket,
    Group,
    Priority,
    Rule,
    SetField,
    Tables,
    ToGroup,
    channel_cookie,
)
from timebound.control.srt.rows import ChannelRow
from timebound.control.topology import Link, PortId


@dataclass(frozen=True, slots=True)
class Branch:
    """A switch of a tree."""

    switch: int
    in_port: int
    out_ports: tuple[int, ...]
    """In order."""
    depth: int
    """0 at the first."""


@dataclass(frozen=True, slots=True)
class Branches:
    """A tree by its switches."""

    switches: tuple[Branch, ...]
    """The first one first, and then by depth."""
    ways: tuple[Hops, ...]
    """To each host at the end of it."""


def branches_of(names: tuple[str, ...], links: Mapping[str, Link]) -> Branches:
    """Raises `WayError` where links are unknown, or are no tree from a host to hosts."""
    missing = [name for name in names if name not in links]
    if missing:
        raise WayError(f"no link {missing[0]!r} is known")
    tree = [links[name] for name in names]
    into = {link.target: link for link in tree}
    roots = [link for link in tree if link.out is None]
    ends = [link for link in tree if link.into is None]
    if len(into) != len(tree) or len(roots) != 1 or not ends or roots[0].source in into:
        raise WayError("these links are no tree from one host")
    ways: list[Hops] = []
    outs: dict[tuple[int, int, int], set[int]] = {}
    used: set[str] = set()
    for end in sorted(ends, key=lambda link: link.name):
        way = [end]
        while way[-1].source in into and len(way) <= len(tree):
            way.append(into[way[-1].source])
        if way[-1] is not roots[0]:
            raise WayError(f"nothing leads to {end.name}")
        way.reverse()
        used |= {link.name for link in way}
        ways.append(_hops(way))
        for depth, hop in enumerate(ways[-1]):
            outs.setdefault((depth, hop.switch, hop.in_port), set()).add(hop.out_port)
    if len(used) != len(tree):
        raise WayError(f"{sorted(link.name for link in tree if link.name not in used)[0]} leads to no host")
    switches = tuple(
        Branch(switch, in_port, tuple(sorted(ports)), depth) for (depth, switch, in_port), ports in sorted(outs.items())
    )
    return Branches(switches, tuple(ways))


def _hops(way: list[Link]) -> Hops:
    hops: list[Hop] = []
    for before, behind in itertools.pairwise(way):
        if before.into is None or behind.out is None or before.into.switch != behind.out.switch:
            raise WayError(f"{before.name} and {behind.name} do not meet at a switch")
        hops.append(Hop(before.into.switch, before.into.number, behind.out.number))
    return tuple(hops)


def as_channel(order: GroupOrder) -> ChannelRow:
    """A group's frames as those of a channel from a port that may be any: what rules and probes are about."""
    row = order.row
    if not is_group(row.address):
        raise ValueError(f"{row.address} is no multicast address")
    return ChannelRow(
        id=row.id,
        connection=row.origin,
        requests=(row.request,),
        protocol="udp",
        source_address=order.source_address,
        source_port=0,
        destination_address=row.address,
        destination_port=order.port,
        priority=row.priority,
        rate_bps=row.rate_bps,
        burst_bytes=order.burst_bytes,
        links=row.links,
        bound_ns=row.bound_ns or 0,
        state=row.state,
    )


def program(
    order: GroupOrder,
    branches: Branches,
    numbers: Mapping[int, tuple[int, int | None]],
    queued: Callable[[PortId], bool],
) -> Program:
    """`numbers`: meter (of the first switch) and group (where it branches) by switch."""
    channel = as_channel(order)
    mark, owner, flow = mark_of(channel.priority), channel_cookie(channel.id), flow_of(channel)
    tables: dict[int, Tables] = {}
    for branch in branches.switches:
        part = Tables()
        copies = [sending(PortId(branch.switch, port), channel.priority, queued) for port in branch.out_ports]
        actions: tuple[Action, ...] = copies[0]
        meter, group = numbers[branch.switch]
        if len(copies) > 1:
            if group is None:
                raise ValueError("a switch that branches needs a group")
            part.add(groups=[Group(group, tuple(Bucket(ANY_PORT, copy) for copy in copies), all=True)])
            actions = (ToGroup(group),)
        first = branch.depth == 0
        if first:
            part.add(meters=[meter_of(channel, meter)])
            actions = (SetField("ip_dscp", mark), *actions)
        wanted = flow_match(flow, branch.in_port, None if first else mark)
        part.add([Rule(Priority.CHANNEL, wanted, actions, owner, meter if first else None)])
        tables[branch.switch] = part
    return Program(branches.switches[0].switch, tables)
