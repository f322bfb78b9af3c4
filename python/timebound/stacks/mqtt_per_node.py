"""MQTT with one connection per host and broker: all that the host publishes and receives, as most devices do.

Many flows share a connection here, so none can have its own class, and TCP decides what shares a segment: the streams of such a
connection promise nothing but their largest frame, and prediction says so instead of giving a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from timebound.scenario.model import Broker, Flow, MqttStack
from timebound.stacks import release
from timebound.stacks.plan import Marker, Plan, PlanError, Segment, Short, Stream, short
from timebound.stacks.stages import Crossing, Stage, Working
from timebound.stacks.transport import Carried
from timebound.stacks.wire import (
    mqtt_publish,
)

Add = Callable[..., int]
"""Adds a client (node, name, broker, flow, role, start) and returns its port."""


@dataclass(slots=True)
class _Client:
    """What one host does at one broker. Flows come with their position and the number of their leg."""

    node: str
    broker: Broker
    publishes: list[tuple[int, Flow, int]] = field(default_factory=list)
    receives: list[tuple[int, Flow, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.node}@{self.broker.node}"

    @property
    def start_ns(self) -> int:
        """A publisher joins when its flow starts, a host that only receives before the first of its flows."""
        return min(flow.start_ns for _, flow, _ in self.publishes or self.receives)


def lay(plan: Plan, stack: MqttStack, topics: dict[str, str], add: Add) -> None:
    """Adds the scenario's flows as one connection per host and broker.

    Raises:
        PlanError: a host publishes several flows, or what it receives cannot be told apart on one connection.
    """
    brokers = {broker.node: broker for broker in stack.brokers}
    clients: dict[tuple[str, str], _Client] = {}
    for index, flow in enumerate(plan.scenario.flows):
        for service in flow.services:
            broker = brokers[service.broker]
            leg = plan.leg(flow.name, service.receivers)
            plan.role(flow.source, "publisher")
            source = clients.setdefault((flow.source, broker.node), _Client(flow.source, broker))
            source.publishes.append((index, flow, leg))
            for receiver in service.receivers:
                plan.role(receiver, "subscriber")
                target = clients.setdefault((receiver, broker.node), _Client(receiver, broker))
                target.receives.append((index, flow, leg))
                segments = plan.segments.setdefault((flow.name, receiver), [])
                way = plan.ways.setdefault((flow.name, receiver), [])
                if flow.source != broker.node:
                    segments.append(Segment("publish", f"{source.name}/up", flow.source, broker.node))
                    way.append(Stage("network", "publish", (Crossing(f"{source.name}/up", broker.node),)))
                # What shares a connection has no bounds, so there is no arrival curve for the broker's server.
                way.append(Stage("broker", broker.node, (Working(broker.node, None),)))
                if receiver != broker.node:
                    segments.append(Segment("deliver", f"{target.name}/down", broker.node, receiver))
                    way.append(Stage("network", "deliver", (Crossing(f"{target.name}/down", receiver),)))
    for client in clients.values():
        _lay_client(plan, stack, client, topics, add)
    plan.notes.append(
        "Every host has one connection to its broker for all that it publishes and receives. Flows on one connection share its "
        "TCP segments and its class, so their streams are declared by their largest frames alone and have no bounds."
    )


def _lay_client(plan: Plan, stack: MqttStack, client: _Client, topics: dict[str, str], add: Add) -> None:
    first, flow, _ = (client.publishes or client.receives)[0]
    if len(client.publishes) > 1:
        message = f"{client.node!r} publishes {len(client.publishes)} flows on its one connection"
        raise PlanError(f"flows[{client.publishes[1][0]}].source", message, "use connections: per-flow, or other hosts")
    role = _role(plan, client, topics)
    port = add(client.node, client.name, client.broker, flow, role, client.start_ns)
    if client.node == client.broker.node:
        return
    sizes = {
        direction: _size(stack, flows, topics)
        for direction, flows in (("up", client.publishes), ("down", client.receives))
    }
    mean_gap = _mean_gap([flow for _, flow, _ in client.publishes + client.receives])
    priority = max(flow.priority for _, flow, _ in client.publishes + client.receives)
    ends = {"up": (client.node, client.broker.node), "down": (client.broker.node, client.node)}
    mtu = min(plan.scenario.node(node).mtu for node in ends["up"])
    for direction, (source, target) in ends.items():
        frames = {
            # Messages, and a broker's answers, share segments when they meet.
            "control": plan.wire.packet(mtu),
            "ack": plan.wire.ack,
            "join": max([plan.wire.handshake, *plan.wire.tcp(_join_bytes(client, topics), mtu)]),
        }
        size = sizes[direction]
        if size is not None:
            frames[""] = plan.wire.packet(mtu)
            sent = client.publishes if direction == "up" else client.receives
            for _, sent_flow, _ in sent:
                carried = Carried(f"{client.name}/{direction}", len(plan.wire.tcp(size[0], mtu)), sent_flow.period_ns)
                plan.carry(client.name, source, target, carried)
        for part, frame in frames.items():
            name = f"{client.name}/{direction}" + (f"-{part}" if part else "")
            role_of: dict[str, Literal["data", "ack", "control"]] = {"": "data", "ack": "ack"}
            plan.add(
                f"flows[{first}]",
                Stream(
                    name=name,
                    source=source,
                    destinations=(target,),
                    priority=priority,
                    role=role_of.get(part, "control"),
                    frames_bytes=(frame,),
                    period_ns=None,
                    release={"kind": "poisson", "mean_gap_ns": mean_gap, "frame_bytes": frame},
                ),
            )
        sent = client.publishes if direction == "up" else client.receives
        shorts = tuple(known for _, flow, leg in sent for known in short(leg, flow.size_bytes, topics[flow.name]))
        _mark(plan, client, direction, port, size, shorts)
    if len(client.receives) > 1:
        plan.shared.add(f"{client.name}/down")


def _role(plan: Plan, client: _Client, topics: dict[str, str]) -> dict[str, object]:
    publish: dict[str, object] = {}
    subscribe: dict[str, object] = {}
    for _, flow, leg in client.publishes:
        publish = {
            "topic": topics[flow.name],
            "qos": flow.qos,
            "flow": leg,
            "payload_bytes": flow.size_bytes,
            "content": release.content(flow),
            "release": release.emulated(flow, plan.scenario.run.seed),
        }
    if client.receives:
        legs = [leg for _, _, leg in client.receives]
        subscribe = {
            "filter": _filter(plan, client, topics),
            "qos": max(flow.qos for _, flow, _ in client.receives),
            "flow": legs[0],
            "more_flows": legs[1:],
            "short": [
                known.plan()
                for _, flow, leg in client.receives
                for known in short(leg, flow.size_bytes, topics[flow.name])
            ],
            "receiver": plan.host_numbers()[client.node],
        }
    if publish and subscribe:
        return {"kind": "both", "publish": publish, "subscribe": subscribe}
    return {"kind": "publish", **publish} if publish else {"kind": "subscribe", **subscribe}


def _filter(plan: Plan, client: _Client, topics: dict[str, str]) -> str:
    """The one filter that lets in what the host receives and nothing else."""
    if len(client.receives) == 1:
        return topics[client.receives[0][1].name]
    index, flow, _ = client.receives[0]
    below = sum(other.topic == flow.topic for other in plan.scenario.flows)
    if below != len(client.receives) or any(other.topic != flow.topic for _, other, _ in client.receives):
        message = f"{client.node!r} receives {len(client.receives)} flows that no single topic filter names"
        hint = "give them one topic that it receives all flows of, or use connections: per-flow"
        raise PlanError(f"flows[{index}].topic", message, hint)
    return f"{flow.topic}/#"


def _size(stack: MqttStack, flows: list[tuple[int, Flow, int]], topics: dict[str, str]) -> tuple[int, int] | None:
    """Bytes of a message on this connection and of its header; None where there are no messages."""
    found = {
        mqtt_publish(topics[flow.name], flow.size_bytes, flow.qos, stack.version == "5"): index
        for index, flow, _ in flows
    }
    if len(found) > 1:
        raise PlanError(
            f"flows[{max(found.values())}].size_bytes",
            "messages of several sizes share a connection: they could not be told apart on the wire",
            "give them one size, or use connections: per-flow",
        )
    return next(iter(found), None)


def _join_bytes(client: _Client, topics: dict[str, str]) -> int:
    """Payload of the largest packet with which a client joins: CONNECT (client identifier of 8 bytes) or SUBSCRIBE."""
    longest = max((len(topics[flow.name].encode()) for _, flow, _ in client.receives), default=0)
    return max(2 + 15 + 2 + 8, 5 + 2 + longest + 2)


def _mean_gap(flows: list[Flow]) -> int:
    """Mean time between frames of all these flows together, for the simulator."""
    gaps = [
        (flow.trace_ns[-1] - flow.trace_ns[0]) / (len(flow.trace_ns) - 1)
        if flow.pattern == "trace" and len(flow.trace_ns) > 1
        else float(flow.period_ns)
        for flow in flows
    ]
    return max(1, round(1 / sum(1 / max(gap, 1.0) for gap in gaps)))


def _mark(
    plan: Plan, client: _Client, direction: str, port: int, size: tuple[int, int] | None, shorts: tuple[Short, ...]
) -> None:
    ours, theirs = (plan.addresses[client.node], port), (plan.addresses[client.broker.node], client.broker.port)
    source, destination = (ours, theirs) if direction == "up" else (theirs, ours)
    name = f"{client.name}/{direction}"
    plan.markers.append(
        Marker(
            source=source[0],
            destination=destination[0],
            protocol="tcp",
            source_port=source[1],
            destination_port=destination[1],
            data=name if size is not None else f"{name}-control",
            ack=f"{name}-ack",
            control=f"{name}-control" if size is not None else None,
            header=None if size is None else (size[1], size[0]),
            short=shorts,
            rewrite_dscp=True,
            join=(client.name, f"{name}-join") if client.start_ns else None,
        )
    )
