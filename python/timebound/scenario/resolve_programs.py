"""`programs` of flows: hosts whose own program publishes or receives the messages, in place of a built-in client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.model import Flow, MqttStack, Stack
from timebound.scenario.resolve_network import Net
from timebound.scenario.resolve_stack import resolve_hosts
from timebound.scenario.tree import Path

NO_NAME = re.compile(r"[-+]?[0-9]*\.?[0-9]+|true|false")
"""What somebody writes who takes the key for a number of programs, or for a switch."""


def named_programs(
    flow: shape.Flow, sources: Sequence[str], receivers: Sequence[str], net: Net, path: Path, context: Context
) -> set[str]:
    """The hosts that the key names, each an end of the flow."""
    if not flow.programs:
        return set()
    here: Path = (*path, "programs")
    ends = [*sources, *receivers]
    hint = f"name hosts of from and to whose own program is the client: {', '.join(ends[:5])}"
    for index, text in enumerate(flow.programs):
        if NO_NAME.fullmatch(text) and text not in net.nodes:
            context.error((*here, index), f"{text!r} names no host of {flow.name!r}", hint)
            return set()
    named = resolve_hosts(flow.programs, net, here, context)
    for name in named:
        if name not in ends:
            hint = close_to(name, ends, f"name hosts of from and to: {', '.join(ends[:5])}")
            context.error(here, f"{name!r} neither publishes nor receives messages of {flow.name!r}", hint)
    return set(named)


def check_programs(flows: Sequence[Flow], stack: Stack, net: Net, context: Context, *, several_machines: bool) -> None:
    """Reports flows of programs whose messages could not be measured, or that ask for what only a built-in client does."""
    if not any(flow.programs for flow in flows):
        return
    topics = Counter(flow.topic for flow in flows if flow.after is None)
    for index, flow in enumerate(flows):
        if not flow.programs:
            continue
        if several_machines:
            hint = "emulate it on one machine, or use built-in clients"
            _at(context, index, "programs", "programs of flows, and a network on two machines", hint)
        elif isinstance(stack, MqttStack):
            _check_stack(flow, stack, index, context)
            if flow.is_own and topics[flow.topic] > 1:
                message = f"several flows have the topic {flow.topic!r}, and a program's messages are told by it"
                _at(context, index, "topic", message, "give each a topic of its own")
        _check_hosts(flow, net, index, context)


def _check_stack(flow: Flow, stack: MqttStack, index: int, context: Context) -> None:
    if stack.kind != "mqtt" or stack.connections == "per-node":
        what = f"stack {stack.kind}" if stack.kind != "mqtt" else "connections: per-node"
        hint = "use stack: {mqtt: ...} with connections: per-flow, or built-in clients"
        _at(context, index, "programs", f"programs of flows with {what}, where they are not measured", hint)
        return
    for key, stated in (("connection", flow.connection), ("after", flow.after)):
        if stated is not None:
            _at(context, index, key, f"{key} of a flow with programs", "remove it: a program's connections are its own")
    if any(service.via for service in flow.services):
        _at(context, index, "services", "bridges, and a flow with programs", "name one broker, or use built-in clients")
    if flow.is_own and len(flow.services) > 1:
        message = "its receivers have several brokers, and a program publishes at one"
        _at(context, index, "services", message, f"broker: {flow.services[0].broker}")
    for service in flow.services:
        for name in flow.programs:
            if name == service.broker and (name == flow.source or name in service.receivers):
                message = f"{name!r} is the broker's own host: what a program there sends or gets crosses no network"
                _at(context, index, "programs", message, "run the program on another host, or use the built-in client")


def _check_hosts(flow: Flow, net: Net, index: int, context: Context) -> None:
    if flow.start_ns:
        _at(context, index, "start_ns", "start of a flow with programs", "state it of the program: run: [{start: ...}]")
    if flow.is_own and flow.content is not None:
        _at(context, index, "content", "content of a message that a program writes", "remove it")
    for name in flow.programs:
        node = net.nodes[name]
        if node.is_external:
            hint = "remove it from programs: what it sends and receives is measured on the wire anyway"
            _at(context, index, "programs", f"{name!r} has no built-in clients", hint)
        elif not node.programs:
            context.warn_at(
                f"flows[{index}].programs",
                f"{name!r} has no program that would publish or receive messages of {flow.name!r}",
                "give it a run:, or start one with timebound exec",
            )


def _at(context: Context, index: int, key: str, message: str, hint: str) -> None:
    """At the flow's key where the file has it."""
    context.error_at(f"flows[{index}].{key}", message, hint)
