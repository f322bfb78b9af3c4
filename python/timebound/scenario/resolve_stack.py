"""`stack` -> brokers and the edge networks that they serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.graph import Graph
from timebound.scenario.model import Broker, MqttStack, Stack, UdpStack
from timebound.scenario.resolve_broker import resolve_service
from timebound.scenario.resolve_reserved import ONE_CLASS, asks, check_reserved
from timebound.scenario.shape_stack import Broker as BrokerShape
from timebound.scenario.shape_stack import Mqtt as MqttShape
from timebound.scenario.shape_stack import MqttKind
from timebound.scenario.shape_stack import Stack as StackShape
from timebound.scenario.tree import Path

if TYPE_CHECKING:
    from timebound.scenario.resolve_network import Net

BETWEEN_NETWORKS = ("mqtt-bridged", "dm-mqtt", "mrt-mqtt")
"""Stacks with a broker in each edge network: publishers use the broker of theirs."""


def resolve_hosts(names: list[str], net: Net, path: Path, context: Context) -> list[str]:
    """The hosts that a list of names and ranges means; unknown ones, other nodes and repetitions are reported."""
    hosts: list[str] = []
    for index, text in enumerate(names):
        here: Path = (*path, index)
        for name in context.expand(text, here):
            node = net.nodes.get(name)
            if node is None:
                hint = close_to(name, net.nodes, "declare it under network.nodes")
                context.error(here, f"unknown node {name!r}", hint)
                break
            if node.kind != "host":
                context.error(here, f"{name!r} is a {node.kind}", "messages start and end at hosts")
                break
            hosts.append(name)
    twice = next((name for name in hosts if hosts.count(name) > 1), None) if len(set(hosts)) < len(hosts) else None
    if twice is not None:
        context.error(path, f"{twice!r} is named twice", "name every host once")
    return list(dict.fromkeys(hosts))


def resolve_stack(stack: StackShape, net: Net, context: Context) -> Stack:
    """The stack with its brokers."""
    named = stack.mqtt_stack()
    if named is None:
        return UdpStack(multicast=stack.udp is not None and stack.udp.multicast)
    key, said = named
    found = MqttStack(
        brokers=tuple(_brokers(key, said, net, context)),
        version=said.version,
        clients=said.clients,
        connections=said.connections,
        priorities=said.priorities is not False and key != "dm-mqtt",
        kind=key,
    )
    if found.reserved:
        if said.priorities is not None:
            other = "dm-mqtt" if key != "dm-mqtt" else "mrt-mqtt"
            message = f"whether flows have priorities is what tells {key} from others"
            context.error(
                ("stack", key, "priorities"), message, f"leave priorities out, or use stack: {{{other}: ...}}"
            )
        check_reserved(found, net, context)
    if key == "mqtt-bridged" and said.connections == "per-node" and len(found.brokers) > 1:
        message = "bridges with connections: per-node, where flows share a connection and bridges have one for each"
        context.error(("stack", key, "connections"), message, "leave connections out")
    return found


def _brokers(key: MqttKind, said: MqttShape, net: Net, context: Context) -> list[Broker]:
    brokers: list[Broker] = []
    owners: dict[str, str] = {}
    for index, broker in enumerate(said.broker):
        here: Path = ("stack", key, "broker", index)
        for name in resolve_hosts([broker.node], net, (*here, "node"), context):
            if any(other.node == name for other in brokers):
                context.error((*here, "node"), f"two brokers on {name!r}", "name every host once")
                continue
            program = _program(key, broker, here, len(said.broker), context)
            brokers.append(
                Broker(
                    node=name,
                    program=program,
                    port=broker.port,
                    service=resolve_service(broker, program, here, context),
                    hosts=_hosts(broker, name, owners, net, (*here, "hosts"), context),
                )
            )
    return brokers


def _program(
    key: MqttKind, broker: BrokerShape, path: Path, brokers: int, context: Context
) -> Literal["embedded", "mosquitto", "manager"]:
    """Which broker it is. Only mosquitto knows bridges, and takes the client identifiers of managers, which have strokes in them."""
    if key not in BETWEEN_NETWORKS:
        return broker.program or "embedded"
    wrong = "knows no bridges" if key == "mqtt-bridged" else "refuses the manager as a client"
    # A manager in place of a broker is refused with every reserved stack.
    if (broker.program == "embedded" and brokers > 1) or (broker.program == "manager" and key == "mqtt-bridged"):
        message = f"the broker on {broker.node!r} is {broker.program}, which {wrong}"
        context.error((*path, "program"), message, "program: mosquitto, or leave it out")
    return broker.program or "mosquitto"


def _hosts(
    broker: BrokerShape, node: str, owners: dict[str, str], net: Net, path: Path, context: Context
) -> tuple[str, ...]:
    if broker.hosts is None:
        return ()
    found = resolve_hosts(broker.hosts, net, path, context)
    for name in found:
        first = owners.setdefault(name, node)
        if first != node:
            context.error(path, f"{name!r} is a host of broker {first!r} already", "a host has one broker")
    return tuple(found)


class Homes:
    """Which broker a host uses: the one whose `hosts` name it, else the nearest (fewest links, ties by their order)."""

    def __init__(self, brokers: Sequence[Broker], graph: Graph) -> None:
        self.hops = [(broker.node, graph.hops(broker.node)) for broker in brokers]
        self.stated = {host: broker.node for broker in brokers for host in broker.hosts}

    @property
    def known(self) -> list[str]:
        """The brokers in their order."""
        return [broker for broker, _ in self.hops]

    def of(self, host: str) -> str | None:
        """Its broker; `None` where no broker can be reached."""
        if host in self.stated:
            return self.stated[host]
        reachable = [(hops[host], index) for index, (_, hops) in enumerate(self.hops) if host in hops]
        return self.hops[min(reachable)[1]][0] if reachable else None


def class_of(flow: shape.Flow, stack: Stack) -> int:
    """The class of a flow's frames with this stack."""
    if not isinstance(stack, MqttStack):
        return flow.priority
    if stack.reserved:
        return (flow.priority if stack.priorities else ONE_CLASS) if asks(flow) else 0
    return flow.priority if stack.priorities else 0
