"""`connection` and `after` of flows: who shares a connection, and whose messages a flow passes on."""

from __future__ import annotations

from collections.abc import Sequence

from timebound.scenario.context import Context, close_to
from timebound.scenario.model import Flow, MqttStack, Stack

_SAME = {
    "source": "from",
    "topic": "topic",
    "size_bytes": "size",
    "least_bytes": "least-size",
    "period_ns": "period",
    "jitter_ns": "jitter",
    "pattern": "pattern",
    "start_ns": "start",
}
"""What a flow has in common with the one whose messages it passes on, by the keys of the file."""


def check_shared(flows: Sequence[Flow], stack: Stack, context: Context) -> None:
    """Reports flows that come after none, or not from where that one's messages are, and connections with several owners."""
    if not isinstance(stack, MqttStack):
        return
    named = {flow.name: flow for flow in flows}
    owners: dict[str, tuple[str, str]] = {}
    for index, flow in enumerate(flows):
        if stack.connections == "per-node" and (flow.connection or flow.after):
            key = "connection" if flow.connection else "after"
            _at(context, index, key, f"{key} with connections: per-node", "use connections: per-flow")
            continue
        if flow.multicast:
            _check_multicast(flow, stack, index, context)
        elif flow.sealed:
            _at(
                context,
                index,
                "sealed",
                "sealed without multicast",
                "remove it: what TLS adds to clients' connections is not counted",
            )
        if flow.after is not None:
            _check_after(flow, named, index, context)
        if flow.connection is not None:
            _check_owner(flow, owners, index, context)


def _check_after(flow: Flow, named: dict[str, Flow], index: int, context: Context) -> None:
    before = named.get(flow.after or "")
    if before is None or before is flow:
        hint = close_to(flow.after or "", [name for name in named if name != flow.name], "name another flow")
        _at(context, index, "after", f"there is no flow {flow.after!r} to pass on", hint)
        return
    if before.after is not None and (flow.multicast or not before.multicast):
        _at(context, index, "after", f"{before.name!r} passes on messages itself", f"after: {before.after}")
        return
    for attribute, key in _SAME.items():
        if getattr(flow, attribute) != getattr(before, attribute):
            _at(context, index, "after", f"its {key} differs from that of {before.name!r}", f"use the same {key}")
            return
    if len(flow.services) != 1 or len(before.services) != 1:
        if flow.services and before.services:
            _at(context, index, "after", "its messages take several brokers at once", "name one: broker, or via")
        return
    service = flow.services[0]
    first = service.via[0] if service.via else service.broker
    if flow.multicast or before.multicast:
        _check_place(flow, before, first, index, context)
    elif first != before.services[0].broker:
        text = f"it begins at {first!r}, and the messages of {before.name!r} are at {before.services[0].broker!r}"
        _at(
            context,
            index,
            "after",
            text,
            f"broker: {before.services[0].broker}, or via: [{before.services[0].broker}, ...]",
        )


def _check_multicast(flow: Flow, stack: MqttStack, index: int, context: Context) -> None:
    """It passes on the messages of another flow to brokers, over no connection of a client."""
    known = [broker.node for broker in stack.brokers]
    strangers = [receiver for receiver in flow.receivers if receiver not in known]
    if flow.after is None:
        _at(context, index, "multicast", "multicast without after", "after: the flow whose messages it passes on")
    elif strangers:
        hint = close_to(strangers[0], known, f"brokers of the stack: {', '.join(known)}")
        _at(context, index, "receivers", f"{strangers[0]!r} is no broker of the stack", hint)
    elif flow.connection is not None:
        _at(context, index, "connection", "datagrams to a group are on no connection", "remove it")
    elif len(flow.services) == 1 and (flow.services[0].via or flow.services[0].broker in flow.receivers):
        hint = "broker: the one at which they come in"
        _at(context, index, "services", "messages are multicast by one broker to others", hint)


def _check_place(flow: Flow, before: Flow, first: str, index: int, context: Context) -> None:
    """Between edge networks: messages are multicast from where they come in, and passed on from where they were multicast to."""
    places = before.receivers if before.multicast else (*before.services[0].via, before.services[0].broker)
    if first not in places:
        text = f"it begins at {first!r}, and the messages of {before.name!r} are at {', '.join(map(repr, places))}"
        _at(context, index, "after", text, f"broker: {places[0]}")


def _check_owner(flow: Flow, owners: dict[str, tuple[str, str]], index: int, context: Context) -> None:
    """A connection has one client and one server: a flow that passes messages on has it at its receiver."""
    if len(flow.services) != 1:
        if flow.services:
            _at(context, index, "connection", "a connection to several brokers", "name one: broker, or via")
        return
    service = flow.services[0]
    if flow.after is not None and len(flow.receivers) != 1:
        _at(context, index, "connection", "a connection of several receivers", "make a flow of each")
        return
    server = service.broker if flow.after is not None or not service.via else service.via[0]
    ends = (flow.source if flow.after is None else flow.receivers[0], server)
    assert flow.connection is not None
    first = owners.setdefault(flow.connection, ends)
    if first != ends:
        text = f"connection {flow.connection!r} goes from {ends[0]!r} to {ends[1]!r} here, and from {first[0]!r} to {first[1]!r} before"
        _at(context, index, "connection", text, "choose another name")


def _at(context: Context, index: int, key: str, message: str, hint: str) -> None:
    """At the flow's key where the file has it."""
    context.error_at(f"flows[{index}].{key}", message, hint)
