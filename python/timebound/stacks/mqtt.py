"""MQTT over TCP: one connection per flow instance and broker, one per flow instance and receiver.

What a connection puts on the wire, per message: PUBLISH one way (one or more segments); for QoS 1 a PUBACK, for QoS 2
PUBREC, PUBREL and PUBCOMP; and TCP acknowledgements against every stream of segments.

Why an acknowledgement stream has the period of its data and a jitter of the data's arrival plus one period: a pure ACK
acknowledges everything that has arrived when it is sent, so between two of them at least one new segment arrives. In
any window there is thus at most one ACK more than segments that arrived in it, and "one more" is one period of jitter.
Where the delayed-ACK time is shorter than the period, an ACK is never later than that, which is the smaller jitter.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial

from timebound.scenario.model import Broker, Flow, MqttStack
from timebound.stacks import mqtt_per_node, release
from timebound.stacks.plan import Follows, Marker, Plan, Segment, Stream
from timebound.stacks.wire import (
    DELAYED_ACK_NS,
    IPV4_HEADER,
    MQTT_ACKNOWLEDGEMENT,
    MQTT_PING,
    TCP_ACK_WIRE,
    TCP_HANDSHAKE_WIRE,
    TCP_HEADER,
    mqtt_publish,
    tcp_frames,
    wire_bytes,
)

FIRST_CLIENT_PORT = 20_000
KEEP_ALIVE_S = 60
BROKER_JITTER_NS = 5_000_000
"""Declared: a broker answers or forwards within this much more than its least time. Checked against what was measured."""
HOST_JITTER_NS = 1_000_000
"""Declared: a client answers (PUBACK, PUBREL) within this much more than its least time."""


def lay(plan: Plan, stack: MqttStack) -> None:
    """Adds the scenario's flows as MQTT connections, and the brokers as programs."""
    brokers = {broker.node: broker for broker in stack.brokers}
    for broker in stack.brokers:
        plan.role(broker.node, "broker")
        _add_broker(plan, broker)
    ports: Counter[str] = Counter()
    if stack.connections == "per-node":
        # Of one length, so that all messages on a connection are of one size.
        mqtt_per_node.lay(plan, stack, topics_of(plan, padded=True), partial(_add_client, plan, stack, ports))
        return
    topics = topics_of(plan)
    for index, flow in enumerate(plan.scenario.flows):
        for service in flow.services:
            connection = _Connection(
                plan=plan,
                stack=stack,
                flow=flow,
                origin=f"flows[{index}]",
                topic=topics[flow.name],
                broker=brokers[service.broker],
                leg=plan.leg(flow.name, service.receivers),
                several=len(flow.services) > 1,
            )
            arrives = connection.publish(ports)
            for receiver in service.receivers:
                connection.deliver(receiver, arrives, ports)
    plan.notes.append(
        "Every flow instance has its own connection to the broker and from it to each receiver; the unit of a reservation is "
        f"the connection. Declared beyond the flows: a broker answers within {BROKER_JITTER_NS / 1e6:g} ms, a client within "
        f"{HOST_JITTER_NS / 1e6:g} ms of its fastest answer; TCP sends at most one acknowledgement per segment. A bound "
        "holds while nothing is lost or retransmitted."
    )


def topics_of(plan: Plan, *, padded: bool = False) -> dict[str, str]:
    """Flow name -> topic. Flows that name the same topic publish below it, each on its own (a connection carries one flow)."""
    users = Counter(flow.topic for flow in plan.scenario.flows)
    numbers: Counter[str] = Counter()
    topics: dict[str, str] = {}
    for flow in plan.scenario.flows:
        numbers[flow.topic] += 1
        width = len(str(users[flow.topic])) if padded else 1
        topics[flow.name] = flow.topic if users[flow.topic] == 1 else f"{flow.topic}/{numbers[flow.topic]:0{width}}"
    return topics


def _add_broker(plan: Plan, broker: Broker) -> None:
    name = f"broker-{broker.node}"
    if broker.program == "embedded":
        argv = [sys.executable, "-m", "timebound.node", "broker", "--bind", "0.0.0.0", "--port", str(broker.port)]
    else:
        configuration = f"{name}.conf"
        plan.files[configuration] = "\n".join(
            [
                f"listener {broker.port} 0.0.0.0",
                "allow_anonymous true",
                "persistence false",
                # Without it Nagle's algorithm holds back messages for up to 40 ms.
                "set_tcp_nodelay true",
                "max_queued_messages 100000",
                "max_inflight_messages 0",
                # Stay who we are: in the run's own user namespace there is nobody else.
                "user root",
                "log_dest stdout",
                "",
            ]
        )
        argv = ["mosquitto", "-c", configuration]
    plan.programs.append(
        {
            "name": name,
            "node": broker.node,
            "argv": argv,
            "essential": True,
            "ready": {"tcp_port": broker.port, "timeout_ms": 15_000},
        }
    )


def _add_client(
    plan: Plan,
    stack: MqttStack,
    ports: Counter[str],
    node: str,
    name: str,
    broker: Broker,
    flow: Flow,
    role: dict[str, object],
    start_ns: int,
) -> int:
    """Adds a client that belongs to `flow`; its local port."""
    port = FIRST_CLIENT_PORT + ports[node]
    ports[node] += 1
    plan.clients.append(
        {
            "name": name,
            "node": node,
            # Letters and digits alone: brokers may refuse anything else (MQTT 5.0, section 3.1.3.1).
            "client_id": f"tb{len(plan.clients):06d}",
            "protocol": 5 if stack.version == "5" else 4,
            "broker": plan.addresses[broker.node],
            "port": broker.port,
            "local_address": plan.addresses[node],
            "local_port": port,
            "dscp": flow.priority * release.DSCP_PER_CLASS,
            "keep_alive_s": KEEP_ALIVE_S,
            "connect_at_ns": start_ns or None,
            "role": role,
        }
    )
    return port


@dataclass(frozen=True, slots=True)
class _Connection:
    """Lays one flow over one broker."""

    plan: Plan
    stack: MqttStack
    flow: Flow
    origin: str
    topic: str
    broker: Broker
    leg: int
    several: bool

    def publish(self, ports: Counter[str]) -> Follows | None:
        """The publisher's connection; what the broker's answers follow, None when it needs no network."""
        plan, flow, broker = self.plan, self.flow, self.broker
        plan.role(flow.source, "publisher")
        name = f"{flow.name}/publish@{broker.node}" if self.several else f"{flow.name}/publish"
        port = self._client(
            ports,
            flow.source,
            name,
            {
                "kind": "publish",
                "topic": self.topic,
                "qos": flow.qos,
                "flow": self.leg,
                "payload_bytes": flow.size_bytes,
                "content": release.content(flow),
                "release": release.emulated(flow, plan.scenario.run.seed),
            },
        )
        if flow.source == broker.node:
            return None
        follows = self._exchange(name, flow.source, broker.node, HOST_JITTER_NS, BROKER_JITTER_NS, None)
        self._mark(name, flow.source, broker.node, port, broker.port, towards_broker=True)
        return follows

    def deliver(self, receiver: str, arrives: Follows | None, ports: Counter[str]) -> None:
        """The connection of one subscriber."""
        plan, flow, broker = self.plan, self.flow, self.broker
        plan.role(receiver, "subscriber")
        name = f"{flow.name}/deliver>{receiver}"
        port = self._client(
            ports,
            receiver,
            name,
            {
                "kind": "subscribe",
                "filter": self.topic,
                "qos": flow.qos,
                "flow": self.leg,
                "receiver": plan.host_numbers()[receiver],
            },
        )
        segments = plan.segments.setdefault((flow.name, receiver), [])
        if arrives is not None:
            segments.append(Segment("publish", arrives.stream, flow.source, broker.node))
        if receiver != broker.node:
            segments.append(Segment("deliver", name, broker.node, receiver))
            self._exchange(name, broker.node, receiver, BROKER_JITTER_NS, HOST_JITTER_NS, arrives or "source")
            self._mark(name, broker.node, receiver, broker.port, port, towards_broker=False)

    def _client(self, ports: Counter[str], node: str, name: str, role: dict[str, object]) -> int:
        return _add_client(self.plan, self.stack, ports, node, name, self.broker, self.flow, role, self.flow.start_ns)

    def _message(self) -> tuple[int, int]:
        return mqtt_publish(self.topic, self.flow.size_bytes, self.flow.qos, self.stack.version == "5")

    def _mtu(self, *nodes: str) -> int:
        """The smaller MTU of both ends decides the segment size that TCP agrees on."""
        self.plan.check_segments(self.origin, *nodes)
        return self.plan.mtu(*nodes)

    def _exchange(
        self,
        name: str,
        sender: str,
        receiver: str,
        sender_jitter: int,
        receiver_jitter: int,
        after: Follows | str | None,
    ) -> Follows:
        """The streams of one connection that carries PUBLISH from `sender` to `receiver`."""
        frames = tuple(tcp_frames(self._message()[0], self._mtu(sender, receiver)))
        if after is None:
            self._stream(name, sender, receiver, "data", frames, None, jitter=self.flow.jitter_ns)
        elif isinstance(after, Follows):
            self._stream(name, sender, receiver, "data", frames, (after.stream, after.destination, sender_jitter))
        else:
            self._stream(name, sender, receiver, "data", frames, None, jitter=self.flow.jitter_ns + sender_jitter)
        acknowledgement = tuple(tcp_frames(MQTT_ACKNOWLEDGEMENT))
        last, at, other = name, receiver, sender
        names = {0: (), 1: ("puback",), 2: ("pubrec", "pubrel", "pubcomp")}[self.flow.qos]
        self._acknowledge(f"{name}/ack", last, at, other, len(frames))
        for step in names:
            answer = f"{name}/{step}"
            jitter = receiver_jitter if at == receiver else sender_jitter
            self._stream(answer, at, other, "control", acknowledgement, (last, at, jitter))
            last, at, other = answer, other, at
            self._acknowledge(f"{answer}/ack", last, at, other, 1)
        if self.flow.qos == 0 or self.flow.period_ns > KEEP_ALIVE_S * 500_000_000:
            self._keep_alive(name, sender, receiver)
        return Follows(stream=name, destination=receiver, extra_ns=0)

    def _acknowledge(self, name: str, acknowledged: str, at: str, to: str, segments: int) -> None:
        extra = min(self.flow.period_ns, DELAYED_ACK_NS)
        self._stream(name, at, to, "ack", (TCP_ACK_WIRE,) * segments, (acknowledged, at, extra))

    def _keep_alive(self, name: str, sender: str, receiver: str) -> None:
        """PINGREQ and PINGRESP, each with the acknowledgement of the other, both ways: whoever is the client."""
        ping = wire_bytes(IPV4_HEADER + TCP_HEADER + MQTT_PING)
        for source, target, direction in ((sender, receiver, "there"), (receiver, sender, "back")):
            self.plan.add(
                self.origin,
                Stream(
                    name=f"{name}/keep-alive-{direction}",
                    source=source,
                    destinations=(target,),
                    priority=self.flow.priority,
                    role="control",
                    frames_bytes=(ping, TCP_ACK_WIRE),
                    period_ns=KEEP_ALIVE_S * 1_000_000_000,
                    jitter_ns=1_000_000_000,
                    release={"kind": "periodic", "offset_ns": None},
                ),
            )

    def _join(self, name: str, sender: str, receiver: str) -> dict[str, tuple[str, str]]:
        """A client that joins during the run: SYN, CONNECT and SUBSCRIBE with their answers and acknowledgements, once."""
        topic = len(self.topic.encode())
        packet = wire_bytes(IPV4_HEADER + TCP_HEADER + max(2 + 15 + 2 + 8, 5 + 2 + topic + 2))
        run = self.plan.scenario.run
        found = {}
        for source, target in ((sender, receiver), (receiver, sender)):
            stream = f"{name}/join-from-{source}"
            found[source] = (name, stream)
            self.plan.add(
                self.origin,
                Stream(
                    name=stream,
                    source=source,
                    destinations=(target,),
                    priority=self.flow.priority,
                    role="control",
                    frames_bytes=(TCP_HANDSHAKE_WIRE, packet, packet, *[TCP_ACK_WIRE] * 4),
                    period_ns=run.warm_up_ns + run.duration_ns,
                    release={"kind": "periodic", "offset_ns": self.flow.start_ns},
                ),
            )
        return found

    def _stream(
        self,
        name: str,
        source: str,
        target: str,
        role: str,
        frames: tuple[int, ...],
        after: tuple[str, str, int] | None,
        *,
        jitter: int = 0,
    ) -> None:
        flow = self.flow
        bounded = release.is_bounded(flow)
        pattern = release.simulated(flow, max(frames))
        if after is not None and pattern["kind"] == "periodic":
            pattern = {"kind": "periodic", "offset_ns": None}
        self.plan.add(
            self.origin,
            Stream(
                name=name,
                source=source,
                destinations=(target,),
                priority=flow.priority,
                role="data" if role == "data" else "ack" if role == "ack" else "control",
                frames_bytes=frames if bounded else (max(frames),),
                period_ns=flow.period_ns if bounded else None,
                jitter_ns=jitter,
                release=pattern,
                deadline_ns=flow.deadline_ns if role == "data" else None,
                follows=Follows(stream=after[0], destination=after[1], extra_ns=after[2])
                if after is not None and bounded
                else None,
            ),
        )

    def _mark(self, name: str, sender: str, receiver: str, port: int, peer_port: int, *, towards_broker: bool) -> None:
        """The 5-tuples of both directions. The broker cannot mark its packets by topic: the first port does it."""
        addresses, qos = self.plan.addresses, self.flow.qos
        size, offset = self._message()
        joins = self._join(name, sender, receiver) if self.flow.start_ns else {}
        self.plan.markers.append(
            Marker(
                source=addresses[sender],
                destination=addresses[receiver],
                protocol="tcp",
                source_port=port,
                destination_port=peer_port,
                data=name,
                ack={0: f"{name}/keep-alive-there", 1: f"{name}/puback/ack", 2: f"{name}/pubrec/ack"}[qos],
                control={0: f"{name}/keep-alive-there", 1: None, 2: f"{name}/pubrel"}[qos],
                header=(offset, size),
                rewrite_dscp=not towards_broker,
                join=joins.get(sender),
            )
        )
        self.plan.markers.append(
            Marker(
                source=addresses[receiver],
                destination=addresses[sender],
                protocol="tcp",
                source_port=peer_port,
                destination_port=port,
                data={0: f"{name}/keep-alive-back", 1: f"{name}/puback", 2: f"{name}/pubrec"}[qos],
                ack=f"{name}/ack",
                control=f"{name}/pubcomp" if qos == 2 else None,
                rewrite_dscp=towards_broker,
                join=joins.get(receiver),
            )
        )
