"""Stops, starts and pauses of nodes by schedule: `at: {5 s: {node h[1-3]: stop}}`.

The table is that of `crates/live/src/lifecycle.rs`, which a test compares with this one.
"""

from __future__ import annotations

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.fields import to_key
from timebound.scenario.model import NodeEvent, NodeOrder
from timebound.scenario.names import split_names
from timebound.scenario.resolve_network import Net
from timebound.scenario.tree import Path

TRANSITIONS: dict[tuple[str, NodeOrder], str] = {
    ("running", "stop"): "stopped",
    ("running", "restart"): "running",
    ("running", "pause"): "paused",
    ("stopped", "start"): "running",
    ("stopped", "restart"): "running",
    ("paused", "stop"): "stopped",
    ("paused", "restart"): "running",
    ("paused", "resume"): "running",
}
"""(state, order) -> state. What is not here is refused. Every node is `running` at the start."""


def is_node_target(target: str) -> bool:
    """Does a key of `at` mean nodes rather than a link?"""
    return target.split(" ", 1)[0] == "node"


def resolve_node_events(
    at: dict[str, dict[str, shape.Change]], times: dict[int, str], net: Net, context: Context
) -> tuple[NodeEvent, ...]:
    """One event per node and order, by time; an order that the node's state does not allow is an error at its place."""
    states: dict[str, str] = {}
    events: list[NodeEvent] = []
    for time, key in sorted(times.items()):
        ordered: set[str] = set()
        for target, change in at[key].items():
            if not is_node_target(target):
                continue
            path: Path = ("at", key, target)
            order = _order(change, path, context)
            for node in _hosts(target, net, path, context):
                if node in ordered:
                    context.key_error(path, f"two orders for {node!r} at the same time", "give it one")
                    continue
                ordered.add(node)
                if order is None:
                    continue
                state = states.get(node, "running")
                after = TRANSITIONS.get((state, order))
                if after is None:
                    allowed = " or ".join(known for known, asked in TRANSITIONS if asked == order)
                    hint = f"{order} is for a node that is {allowed}"
                    context.key_error(path, f"{order} of {node!r}, which is {state} then", hint)
                    continue
                states[node] = after
                context.remember(f"node_events[{len(events)}]", path)
                events.append(NodeEvent(at_ns=time, node=node, order=order))
    return tuple(events)


def _order(change: shape.Change, path: Path, context: Context) -> NodeOrder | None:
    others = sorted(to_key(name) for name in change.model_fields_set - {"state"})
    if others:
        hint = "write node h1: stop; conditions are those of a link: link h1-s1"
        context.error((*path, others[0]), f"{others[0]} has no meaning for a node", hint)
    if change.state is None:
        if not others:
            context.key_error(path, "no order", "write node h1: stop (or start, restart, pause, resume)")
        return None
    return change.state


def _hosts(target: str, net: Net, path: Path, context: Context) -> list[str]:
    """The hosts that `node h[1-3]` means."""
    written = target.partition(" ")[2].strip()
    if not written:
        context.key_error(path, f"{target!r} names no node", "write node h1, or node h[1-3]")
        return []
    found: list[str] = []
    for part in split_names(written):
        for name in context.expand(part, path, key=True):
            node = net.nodes.get(name)
            if node is None:
                context.key_error(path, f"unknown node {name!r}", close_to(name, net.nodes, "name a host"))
            elif node.kind != "host":
                hint = "name a host; a link is taken down with link a-b: {up: false}"
                context.key_error(path, f"{name!r} is a {node.kind}, and only hosts can be stopped or paused", hint)
            else:
                found.append(name)
    return found
