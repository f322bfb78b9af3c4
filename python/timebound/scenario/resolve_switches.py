"""Switches with `engine: ovs`, and `network.controller`: what cannot be is reported at its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context
from timebound.scenario.model import Link, Node
from timebound.scenario.model_hardware import Computer
from timebound.scenario.model_switches import Controller
from timebound.scenario.shape_switches import Controller as ControllerShape
from timebound.scenario.tree import Path

if TYPE_CHECKING:
    from timebound.scenario.resolve_nodes import Definition

DELAY_NS = (0, 2_000_000)
"""Declared of a real switch where the scenario states nothing."""
MOST_PORTS = 256
_BRIDGE = re.compile(r"[A-Za-z0-9_-]{1,15}")


def check_engine(definition: Definition, defaults: shape.Defaults, context: Context) -> None:
    """A real switch is a switch, its name can be a bridge's, and its delay is a range."""
    name, node = definition.name, definition.shape
    path = definition.at(context, "engine")
    if node.engine is not None and node.kind != "switch":
        context.error(path, f"engine belongs to switches, and {name!r} is a {node.kind}", "remove engine")
    if node.kind != "switch" or (node.engine or defaults.switch.engine) != "ovs":
        return
    if _BRIDGE.fullmatch(name) is None:
        message = f"{name!r} cannot be the name of a bridge of Open vSwitch"
        context.error(path, message, "give the node at most 15 letters, digits, '-' and '_', or leave engine out")
    delay = node.delay or defaults.switch.delay
    if delay is not None and delay[0] == delay[1]:
        message = f"no real switch always takes the same time, and {name!r} is declared to"
        hint = "state the range that it may take: delay: 0 us..2 ms"
        context.error(definition.at(context, "delay") if node.delay else path, message, hint)
    if node.replication is not None:
        message = f"what {name!r} takes to copy is part of its delay: it is real"
        context.error(definition.at(context, "replication"), message, "remove replication and widen delay")


def resolve_controller(
    stated: ControllerShape | None,
    nodes: Mapping[str, Node],
    links: list[Link],
    machines: tuple[Computer, ...],
    context: Context,
) -> Controller | None:
    """The controller, and what only the whole network shows of its real switches."""
    real = [name for name, node in nodes.items() if node.engine == "ovs"]
    path: Path = ("network", "controller")
    if real and machines:
        message = f"{real[0]!r} is a real switch, and the network is emulated by two machines"
        context.error(("network", "machines"), message, "leave engine: ovs out, or let one machine emulate it all")
    for name in real:
        ports = sum(name in (link.a, link.b) for link in links)
        if ports > MOST_PORTS:
            message = f"{name!r} has {ports} links, and a real switch has at most {MOST_PORTS}"
            context.error(("network", "nodes"), message, "divide it, or leave engine: ovs out")
    if stated is None:
        return None
    if not real:
        message = "there is a controller and no switch that it could control"
        context.error(path, message, "give the switches engine: ovs, or remove controller")
        return None
    if stated.ready_port is not None and stated.ready_file is not None:
        context.error(path, "two conditions for being ready", "state ready-port or ready-file")
    return Controller(
        command=tuple(stated.program),
        environment=dict(stated.env),
        port=stated.port,
        ready_port=stated.ready_port,
        ready_file=stated.ready_file,
        timeout_ns=stated.timeout,
    )
