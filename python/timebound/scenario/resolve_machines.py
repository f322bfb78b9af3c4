"""`network.machines` -> the two computers of a run, with every contradiction reported at its place."""

from __future__ import annotations

import ipaddress

from timebound.scenario import shape_hardware as shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.model import Link, Node
from timebound.scenario.model_hardware import Computer
from timebound.scenario.tree import Path


def resolve_machines(
    machines: dict[str, shape.Computer], nodes: dict[str, Node], links: list[Link], context: Context
) -> tuple[Computer, ...]:
    """The computers in the order of the file; none where one emulates everything."""
    if not machines:
        return ()
    path: Path = ("network", "machines")
    if len(machines) != 2:
        context.error(path, f"{len(machines)} machines: a network is cut in two or not at all", "name two machines")
        return ()
    owner: dict[str, str] = {}
    found = []
    for name, machine in machines.items():
        here = (*path, name)
        mine = _nodes(name, machine, nodes, owner, here, context)
        found.append(Computer(name=name, address=_address(machine, here, context), nodes=tuple(mine)))
    if found[0].address == found[1].address:
        context.error((*path, found[1].name, "address"), "both machines have this address", "state each machine's own")
    missing = [name for name in nodes if name not in owner]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        context.error(path, f"no machine has {shown}", "every node belongs to one of the two machines")
    elif not context.failed:
        _check_cut(nodes, links, owner, context)
    return tuple(found)


def _nodes(
    name: str,
    machine: shape.Computer,
    nodes: dict[str, Node],
    owner: dict[str, str],
    path: Path,
    context: Context,
) -> list[str]:
    mine = []
    for index, pattern in enumerate(machine.nodes):
        for node in context.expand(pattern, (*path, "nodes", index)):
            if node not in nodes:
                hint = close_to(node, nodes, "declare it under network.nodes")
                context.error((*path, "nodes", index), f"unknown node {node!r}", hint)
            elif node in owner:
                message = f"{node!r} belongs to machine {owner[node]!r} already"
                context.error((*path, "nodes", index), message, "name it once")
            else:
                owner[node] = name
                mine.append(node)
    return mine


def _address(machine: shape.Computer, path: Path, context: Context) -> str:
    try:
        address = ipaddress.IPv4Address(machine.address)
    except ValueError:
        hint = "write the address of the machine on the network between the two, as 192.0.2.1"
        context.error((*path, "address"), f"{machine.address!r} is no IPv4 address", hint)
        return machine.address
    if address.is_multicast or address.is_unspecified:
        context.error((*path, "address"), f"{address} cannot be a machine's", "state its own address")
    return machine.address


def _check_cut(nodes: dict[str, Node], links: list[Link], owner: dict[str, str], context: Context) -> None:
    for index, link in enumerate(links):
        if owner[link.a] == owner[link.b]:
            continue
        place = context.locations[f"links[{index}]"]
        path = f"network.links[{index}]"
        if link.half_duplex or "segment" in (nodes[link.a].kind, nodes[link.b].kind):
            message = f"the shared medium {link.a}-{link.b} lies between two machines"
            context.sources.problem(place, path, message, "cut the network at a full-duplex link")
        elif not link.forward.delay_ns or not link.backward.delay_ns:
            message = f"the link {link.a}-{link.b} lies between two machines and has no delay"
            context.sources.problem(place, path, message, "state a delay longer than that of the network between them")
    for index, node in enumerate(nodes.values()):
        if node.interface is not None and node.interface.use == "device" and node.mac is None:
            message = f"the other machine cannot ask the device behind {node.name!r} for its MAC address"
            place = context.locations[f"nodes[{index}]"]
            context.sources.problem(place, f"network.nodes.{node.name}", message, 'state mac: "02:..."')
