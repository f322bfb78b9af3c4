"""`stack: rt-mqtt`, `dm-mqtt` and `mrt-mqtt`: what it needs of network and brokers, reported at its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timebound.scenario import shape
from timebound.scenario.context import Context
from timebound.scenario.model import MqttStack, Stack
from timebound.scenario.model_switches import Controller
from timebound.scenario.tree import Path

if TYPE_CHECKING:
    from timebound.scenario.resolve_network import Net

MOST_URGENT = 6
"""The highest class that a controller gives away (`control.planner.site`)."""
CONTROLLER_FILE = "controller.yaml"
"""In the run folder; `stacks.reserved` writes it."""
ONE_CLASS = 4
"""Of all channels of `dm-mqtt`, as the controller gives it (`control.planner.site`)."""
CONTROLLER = Controller(command=("timebound", "controller", f"{{run}}/{CONTROLLER_FILE}"))


def default_controller(stack: Stack, net: Net) -> Controller | None:
    """Where channels are reserved in real switches and nothing else is stated, our own controller decides."""
    real = any(node.engine == "ovs" for node in net.nodes.values())
    return CONTROLLER if real and isinstance(stack, MqttStack) and stack.reserved else None


def check_reserved(stack: MqttStack, net: Net, context: Context) -> None:
    """Real switches to reserve in, MQTT 5 to ask with, a connection for each flow, brokers that somebody can stand before."""
    if stack.version != "5":
        message = f"MQTT {stack.version} has no user properties to ask for a channel with"
        context.error(("stack", stack.kind, "version"), message, "leave version out, or use stack: {mqtt: ...}")
    if stack.connections != "per-flow":
        message = "the unit of a reservation is the connection, and here flows share them"
        context.error(("stack", stack.kind, "connections"), message, "leave connections out")
    for index, broker in enumerate(stack.brokers):
        if broker.program == "manager":
            message = f"a manager stands before the broker of {broker.node!r} anyway"
            context.error(("stack", stack.kind, "broker", index, "program"), message, "program: mosquitto, or embedded")
    if stack.kind != "rt-mqtt":
        # Bounds and simulation need no real switch; an emulation says that it does.
        return
    switches = [node for node in net.nodes.values() if node.kind == "switch"]
    plain = [node.name for node in switches if node.engine != "ovs"]
    if plain or not switches:
        message = f"{plain[0]!r} is no real switch" if plain else "there is no switch to reserve anything in"
        hint = "network: {defaults: {switch: {engine: ovs}}} makes all of them real"
        context.error(("stack", stack.kind), message, hint)


def asks(flow: shape.Flow) -> bool:
    """Do the flow's clients ask for a channel? (`Flow.asks` of the model.)"""
    return flow.reserve and flow.deadline is not None and flow.priority > 0


def check_asking(flow: shape.Flow, reserved: bool, kind: str, path: Path, context: Context) -> None:
    """What a flow may state beside channels, and what only with them. `kind`: of the stack."""
    if not reserved:
        if not flow.reserve:
            context.error((*path, "reserve"), "nothing is reserved here anyway", "use stack: {rt-mqtt: ...}")
        return
    for key, stated in (
        ("via", flow.via),
        ("connection", flow.connection),
        ("after", flow.after),
        ("multicast", flow.multicast),
        ("start", flow.start),
    ):
        if stated:
            context.error((*path, key), f"{key} beside channels", f"remove {key}, or use stack: {{mqtt: ...}}")
    if asks(flow) and kind != "dm-mqtt" and flow.priority > MOST_URGENT:
        message = f"class {flow.priority} is the network's own, and no channel has it"
        context.error((*path, "priority"), message, f"priority: 1 to {MOST_URGENT}, or reserve: false")
    if asks(flow) and (flow.pattern == "poisson" or flow.token_bucket is not None):
        context.error(path, "a channel needs a least time between messages", "pattern: sporadic, or reserve: false")
