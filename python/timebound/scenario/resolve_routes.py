"""Stated ways of flows, and classes and ways that were assigned to them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import replace

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.graph import Graph
from timebound.scenario.model import Flow, MqttStack, Stack
from timebound.scenario.resolve_network import Net
from timebound.scenario.tree import Path, Scalar, Sequence, find

Way = tuple[str, ...]


def segments_of(flow: Flow, stack: Stack) -> set[tuple[str, str]]:
    """Between which hosts the frames of a flow travel."""
    if not isinstance(stack, MqttStack):
        return {(flow.source, receiver) for receiver in flow.receivers}
    pairs = set()
    for service in flow.services:
        # Messages that another flow brought to the first broker start there.
        start = () if flow.after is not None else (flow.source,)
        pairs |= set(itertools.pairwise((*start, *service.via, service.broker)))
        pairs |= {(service.broker, receiver) for receiver in service.receivers}
    return {(a, b) for a, b in pairs if a != b}


def resolve_routes(
    flows: Many[Flow],
    ways: Many[Many[str]],
    stack: Stack,
    net: Net,
    graph: Graph,
    path: Path,
    context: Context,
) -> list[Flow]:
    """The instances of a flow with the ways that concern each; what is no way, or a way of none of them, is reported."""
    if not ways or not flows:
        return list(flows)
    segments = [segments_of(flow, stack) for flow in flows]
    known: list[Way] = []
    # A single way may be written without the outer list.
    _, written = find(context.tree, (*path, "route"))
    flat = isinstance(written, Sequence) and bool(written.items) and isinstance(written.items[0], Scalar)
    for index, names in enumerate(ways):
        here: Path = (*path, "route") if flat else (*path, "route", index)
        way = tuple(names)
        if not _is_way(way, net, graph, here, context):
            continue
        ends = (way[0], way[-1])
        if not any(ends in pairs or ends[::-1] in pairs for pairs in segments):
            wanted = sorted(segments[0])
            hint = f"its frames go {', '.join(f'from {a} to {b}' for a, b in wanted[:3])}" if wanted else "remove it"
            context.error(here, f"the flow has nothing to send from {ends[0]!r} to {ends[1]!r}", hint)
        elif any(_same_ends((other[0], other[-1]), ends, flows[0]) for other in known):
            context.error(here, f"a second route between {ends[0]!r} and {ends[1]!r}", "state one")
        else:
            known.append(way)
    return [
        replace(flow, routes=tuple(way for way in known if {(way[0], way[-1]), (way[-1], way[0])} & pairs))
        for flow, pairs in zip(flows, segments, strict=True)
    ]


def _same_ends(ends: tuple[str, str], others: tuple[str, str], flow: Flow) -> bool:
    """A way leads back as well, but brokers that multicast may answer on another one."""
    return ends == others or (ends == others[::-1] and not flow.multicast)


def _is_way(way: Way, net: Net, graph: Graph, path: Path, context: Context) -> bool:
    """From host to host over links, through no other host, and nowhere twice?"""
    whole = "write the route node by node, from host to host"
    if len(way) < 2:
        context.error(path, "a route has two ends", whole)
        return False
    for position, name in enumerate(way):
        here = (*path, position)
        if name not in net.nodes:
            context.error(here, f"unknown node {name!r} in the route", close_to(name, net.nodes, whole))
            return False
        kind, is_end = net.nodes[name].kind, position in (0, len(way) - 1)
        if is_end and kind != "host":
            context.error(here, f"the route ends at the {kind} {name!r}", "begin and end it at hosts")
        elif name in way[:position]:
            context.error(here, f"the route visits {name!r} twice", "go through every node once")
        elif not is_end and kind == "host":
            context.error(
                here, f"the route passes through the host {name!r}", "hosts do not forward: go through switches"
            )
        elif position and name not in graph.neighbours[way[position - 1]]:
            before = way[position - 1]
            near = ", ".join(list(dict.fromkeys(graph.neighbours[before]))[:6])
            context.error(here, f"no link from {before!r} to {name!r}", f"from {before} links lead to {near}")
        else:
            continue
        return False
    return True


def assign(
    flows: list[Flow], entries: Mapping[str, shape.Assigned], stack: Stack, net: Net, graph: Graph, context: Context
) -> list[Flow]:
    """The flows with what the part `assigned` of the scenario gives them: first to whole groups, then to single instances."""
    positions: dict[str, list[int]] = {}
    for index, flow in enumerate(flows):
        for name in {flow.name, flow.group}:
            positions.setdefault(name, []).append(index)
    changed = list(flows)
    instances = {flow.name for flow in flows}
    for name, entry in sorted(entries.items(), key=lambda item: item[0] in instances):
        where = positions.get(name)
        if where is None:
            hint = close_to(name, positions, "name a flow, or an instance of it: alpha, alpha[3]")
            context.key_error(("assigned", name), f"there is no flow {name!r}", hint)
            continue
        if entry.priority is not None and isinstance(stack, MqttStack) and not stack.priorities:
            message = f"a class for {name!r}, and stack: {stack.kind} gives flows none of their own"
            context.error(("assigned", name, "priority"), message, "remove it, or use a stack with priorities")
        elif entry.priority is not None:
            for index in where:
                changed[index] = replace(changed[index], priority=entry.priority)
        if entry.route:
            path: Path = ("assigned", name)
            routed = resolve_routes([changed[index] for index in where], entry.route, stack, net, graph, path, context)
            place, _ = find(context.tree, (*path, "route"))
            for index, flow in zip(where, routed, strict=True):
                changed[index] = flow
                context.locations[f"flows[{index}].routes"] = place
    return changed
