"""What one MQTT connection puts on the wire, per message: PUBLISH one way (one or more segments); for QoS 1 a PUBACK, for QoS 2 PUBREC,
PUBREL and PUBCOMP; and TCP acknowledgements against every stream of segments.

Why an acknowledgement stream has the period of its data and a jitter of the data's arrival plus one period: a pure ACK
acknowledges everything that has arrived when it is sent, so between two of them at least one new segment arrives. In
any window there is thus at most one ACK more than segments that arrived in it, and "one more" is one period of jitter.
Where the delayed-ACK time is shorter than the period, an ACK is never later than that, which is the smaller jitter.

Every MQTT packet that reaches a broker with a known service time is also a `Packet` of that broker's server, and what the broker sends
because of it follows *through* it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from timebound.scenario.model import Broker, Flow, MqttStack
from timebound.stacks import release
from timebound.stacks.joined import Packets
from timebound.stacks.plan import Follows, Marker, Own, Plan, Segment, Short, Stream, short
from timebound.stacks.shared import FROM_RECEIVER, FROM_SENDER, SharedConnection, SharedDirection
from timebound.stacks.stages import Crossing, Packet, Stage, Step, Waiting, Working
from timebound.stacks.transport import Carried
from timebound.stacks.wire import (
    DELAYED_ACK_NS,
    MQTT_ACKNOWLEDGEMENT,
    MQTT_LEAST_ACKNOWLEDGEMENT,
    MQTT_PING,
    mqtt_publish,
)

KEEP_ALIVE_S = 60
BROKER_JITTER_NS = 5_000_000
"""Declared: a broker without known service times answers or forwards within this much more than its least time. Checked against what
was measured."""
HOST_JITTER_NS = 1_000_000
"""Declared: a client answers (PUBACK, PUBREL) within this much more than its least time."""
BRIDGE_HOLD_NS = 50_000_000
"""Declared: mosquitto leaves Nagle's algorithm on for its bridges (RFC 1122, section 4.2.3.4), so a message can wait until the one before is
acknowledged: the delayed-ACK time of 40 ms, and the way there and back."""
FIRST_ACKNOWLEDGED = {0: "keep-alive-there", 1: "puback/ack", 2: "pubrec/ack"}
"""By QoS: to what a segment without payload from the sender of messages belongs."""
ANSWERS = {0: (), 1: ("puback",), 2: ("pubrec", "pubrel", "pubcomp")}


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What makes a broker send the copies of a message: a stream that arrives there (None: a client on its own host), and its packet."""

    stream: str | None
    broker: str
    packet: str | None
    way: tuple[Stage, ...]
    """From the nominal release to the broker's being done with it."""
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message at a broker (or manager)."""

    forwarded: Forwarded
    """What it sends to subscribers and over bridges because of it."""
    published: Forwarded
    """What it sends as soon as the PUBLISH is there. Of QoS 2 the other comes later."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection; `broker` is None for a client."""

    node: str
    broker: Broker | None = None

    @property
    def jitter_ns(self) -> int:
        return HOST_JITTER_NS if self.broker is None else BROKER_JITTER_NS


def _is_bridge(sender: End, receiver: End) -> bool:
    """Do two brokers talk? A manager speaks what its clients speak."""
    programs = [end.broker.program for end in (sender, receiver) if end.broker is not None]
    return len(programs) == 2 and "manager" not in programs


@dataclass(frozen=True, slots=True)
class Connection:
    """Lays one way of a flow, over one broker or several."""

    plan: Plan
    stack: MqttStack
    flow: Flow
    origin: str
    topic: str
    leg: int
    client: Callable[..., int]
    """Adds a client and returns its port: `client(node, name, broker, flow, role, start_ns)`."""
    several: bool
    shared: SharedConnection | None = None
    """What else travels on its clients' connection."""

    def publish(self, broker: Broker, copies: int, at_once: int = 0) -> Arrived:
        """The publisher's connection to a broker that sends so many copies on, and so many `at_once`, when the PUBLISH is there."""
        plan, flow = self.plan, self.flow
        plan.role(flow.source, "publisher")
        name = f"{flow.name}/publish@{broker.node}" if self.several else f"{flow.name}/publish"
        port = (
            None
            if flow.is_own
            else self._client(
                broker,
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
        )
        if flow.source == broker.node:
            return self._local_publisher(name, broker, copies, at_once)
        there, here = End(flow.source), End(broker.node, broker)
        self._exchange(name, there, here, None, copies, at_once)
        self._mark(name, flow.source, broker.node, port, broker.port, towards_broker=True)
        return self._arrived(name, there, here, "publish", ((), ()))

    def bridge(
        self, before: Broker, after: Broker, port: int, copies: int, arrived: Forwarded, at_once: int = 0
    ) -> Arrived:
        """A connection that the broker `before` opens to a listener of `after`, which sends so many copies on."""
        name = f"{self.flow.name}/bridge>{after.node}"
        there, here = End(before.node, before), End(after.node, after)
        # A manager sends at once, and knows its own port no better.
        held_ns = 0 if "manager" in (before.program, after.program) else BRIDGE_HOLD_NS
        self._exchange(name, there, here, arrived, copies, at_once, held_ns=held_ns)
        self._mark(name, before.node, after.node, None, port, towards_broker=False)
        way = (*arrived.way, Stage("hold", "bridge", (Waiting(held_ns),))) if held_ns else arrived.way
        return self._arrived(name, there, here, "bridge", (way, arrived.segments))

    def deliver(self, broker: Broker, receiver: str, arrived: Forwarded) -> None:
        """The connection of one subscriber."""
        plan, flow = self.plan, self.flow
        plan.role(receiver, "subscriber")
        name = f"{flow.name}/deliver>{receiver}"
        port = (
            None
            if receiver in flow.programs
            else self._client(
                broker,
                receiver,
                name,
                {
                    "kind": "subscribe",
                    "filter": self.topic,
                    "qos": flow.qos,
                    "flow": self.leg,
                    "short": self._without_header(),
                    "receiver": plan.host_numbers()[receiver],
                },
            )
        )
        segments, way = list(arrived.segments), list(arrived.way)
        if receiver == broker.node:
            self._local_receiver(name, broker, arrived)
        else:
            segment = Segment("deliver", name, broker.node, receiver)
            segments.append(segment)
            way.append(Stage("network", segment.name, (Crossing(name, receiver),)))
            self._exchange(name, End(broker.node, broker), End(receiver), arrived, 0)
            self._mark(name, broker.node, receiver, broker.port, port, towards_broker=False)
        plan.segments[flow.name, receiver] = segments
        plan.ways[flow.name, receiver] = way

    def _client(self, broker: Broker, node: str, name: str, role: dict[str, object]) -> int:
        return self.client(node, name, broker, self.flow, role, self.flow.start_ns)

    def _without_header(self) -> list[dict[str, object]]:
        """What a built-in subscriber knows of messages that bear no header of ours."""
        known = (
            (Short(self.leg, 0, self.topic),) if self.flow.is_own else short(self.leg, self.flow.size_bytes, self.topic)
        )
        return [{**each.plan(), "own": self.flow.is_own} for each in known]

    def _message(self, *, bridged: bool = False, least: bool = False) -> tuple[int, int]:
        """Bytes of the PUBLISH (of the `least` one) and where its payload starts. Bridges speak MQTT 3.1.1, whatever the clients speak."""
        version5 = self.stack.version == "5" and not bridged
        payload = self.flow.size_bytes
        if least and self.flow.least_bytes is not None:
            payload = self.flow.least_bytes
        return mqtt_publish(self.topic, payload, self.flow.qos, version5)

    def _is_known(self, *nodes: str) -> bool:
        """Is the TCP of all these ours? Then its segments have the timestamp option, no more and no less."""
        return all(self.plan.scenario.node(node).sender.known for node in nodes)

    def _mtu(self, *nodes: str) -> int:
        """The smaller MTU of both ends decides the segment size that TCP agrees on."""
        self.plan.check_segments(self.origin, *nodes)
        return self.plan.mtu(*nodes)

    def _exchange(
        self,
        name: str,
        sender: End,
        receiver: End,
        after: Forwarded | None,
        copies: int,
        at_once: int = 0,
        *,
        held_ns: int = 0,
    ) -> None:
        """The streams of one connection that carries PUBLISH from `sender` to `receiver`, and the packets that brokers at its ends get.

        `after` is what makes a broker send; `copies` is how many the receiver, if it is a broker, sends on, `at_once` how many beside these when the
        PUBLISH is there.
        """
        qos = self.flow.qos
        bridged = _is_bridge(sender, receiver)
        size, least = self._message(bridged=bridged)[0], self._message(bridged=bridged, least=True)[0]
        mtu = self._mtu(sender.node, receiver.node)
        frames = tuple(self.plan.wire.tcp(size, mtu))
        forward, backward = self._directions()
        known = self._is_known(sender.node, receiver.node)
        together = size
        gathers = self._gathers(sender) or held_ns > 0
        if forward is not None and forward.batch_bytes is not None:
            frames, together = forward.message_frames(size, mtu, self.plan.wire), forward.batch_bytes
        elif gathers:
            together = size + self._beside(sender_of_messages=True)
            frames = tuple(self.plan.wire.tcp(together, mtu))
        is_exact = known and together == size == least
        smallest = None if is_exact else self.plan.wire.least_of_message(least, together, mtu, known=known)
        if after is None:
            self._stream(
                name,
                sender.node,
                receiver.node,
                "data",
                frames,
                None,
                sender.node,
                jitter=self.flow.jitter_ns,
                packets=self._packets(name, sender, (least, size), mtu, known=known, gathers=gathers),
                smallest=smallest,
            )
        else:
            follows = Follows(
                stream=after.stream,
                destination=after.broker,
                extra_ns=sender.jitter_ns + held_ns,
                through=after.packet,
                held_ns=held_ns,
            )
            # Nothing on the network to take the jitter from: a publisher on the broker's own host.
            jitter = self.flow.jitter_ns + sender.jitter_ns + held_ns if follows.is_nothing else 0
            self._stream(
                name,
                sender.node,
                receiver.node,
                "data",
                frames,
                follows,
                sender.node,
                jitter=jitter,
                packets=self._packets(name, sender, (least, size), mtu, known=known, gathers=gathers),
                smallest=smallest,
            )
        answers: dict[str, tuple[int, ...]] = {}
        gathering: dict[str, bool] = {}
        for end, way in ((sender, forward), (receiver, backward)):
            is_sender = end is sender
            gathering[end.node] = gathers if is_sender else self._gathers(end)
            # Of a sender those that leave without a message: with one they are in its frames.
            beside = MQTT_ACKNOWLEDGEMENT + MQTT_PING if is_sender else self._beside(sender_of_messages=False)
            said = max(MQTT_ACKNOWLEDGEMENT, beside) if gathering[end.node] else MQTT_ACKNOWLEDGEMENT
            alone = tuple(self.plan.wire.tcp(said))
            answers[end.node] = alone if way is None else way.answer_frames(alone, mtu, self.plan.wire)
        acknowledges = self.plan.wire.least_segment(MQTT_LEAST_ACKNOWLEDGEMENT, known=known)
        last, at, other = name, receiver, sender
        self._acknowledge(f"{name}/ack", last, at, other, len(frames), sender.node)
        self._carry(name, name, sender, receiver, len(frames))
        packet = self._packet(name, at, self._publish_work(at.broker, copies, at_once))
        for step in ANSWERS[qos]:
            answer = f"{name}/{step}"
            follows = Follows(stream=last, destination=at.node, extra_ns=at.jitter_ns, through=packet)
            self._stream(
                answer,
                at.node,
                other.node,
                "control",
                answers[at.node],
                follows,
                sender.node,
                packets=self._packets(
                    name,
                    at,
                    (MQTT_LEAST_ACKNOWLEDGEMENT, MQTT_ACKNOWLEDGEMENT),
                    mtu,
                    known=known,
                    gathers=gathering[at.node],
                ),
                smallest=acknowledges,
            )
            last, at, other = answer, other, at
            self._acknowledge(f"{answer}/ack", last, at, other, 1, sender.node)
            self._carry(name, answer, other, at, 1)
            packet = self._packet(answer, at, self._answer_work(at.broker, step, copies))
        silent = qos == 0 or self.flow.period_ns > KEEP_ALIVE_S * 500_000_000
        if silent if self.shared is None else self.shared.first == self.flow.name:
            self._keep_alive(name, sender, receiver, held_ns)

    def _gathers(self, end: End) -> bool:
        """Does it write packets of whatever kinds at once? A manager passes on what it has read in one piece, and of somebody else's programs nothing is
        known; clients and brokers of ours write every packet by itself."""
        is_manager = end.broker is not None and (end.broker.program == "manager" or self.stack.reserved)
        return is_manager or not self._is_known(end.node)

    def _packets(
        self, name: str, source: End, sizes: tuple[int, int], mtu: int, *, known: bool, gathers: bool
    ) -> Packets:
        """What leaves in segments of the connection `name`, or of that which several flows share; `sizes`: of the least packet and of the largest."""
        shared = self.shared is not None and self.shared.is_shared
        connection = f"connection {self.flow.connection}" if shared else name
        return Packets(
            direction=f"{connection} from {source.node}",
            size_bytes=sizes[1],
            least_bytes=sizes[0],
            mtu=mtu,
            known=known,
            wire=self.plan.wire,
            gathers=gathers or shared,
        )

    def _beside(self, *, sender_of_messages: bool) -> int:
        """Bytes of all that one end of the connection sends beside messages, one packet of each kind."""
        kinds = FROM_SENDER if sender_of_messages else FROM_RECEIVER
        return kinds[self.flow.qos] * MQTT_ACKNOWLEDGEMENT + MQTT_PING

    def _directions(self) -> tuple[SharedDirection | None, SharedDirection | None]:
        """What travels with the flow's messages, and with their answers, on a shared connection. All messages of a flow that publishes go
        towards the broker, all those of one that passes them on away from it, also between a manager and its broker."""
        if self.shared is None:
            return None, None
        ways = (self.shared.up, self.shared.down)
        return ways if self.flow.after is None else ways[::-1]

    def _class(self, source: str, sender: str) -> int:
        """The class of frames from `source` where messages come from `sender`."""
        forward, backward = self._directions()
        way = forward if source == sender else backward
        return self.flow.priority if way is None else way.priority

    def _publish_work(self, broker: Broker | None, copies: int, at_once: int = 0) -> int:
        """A PUBLISH of QoS 2 is kept until its PUBREL comes, which then has the copies sent."""
        if broker is None or broker.service is None:
            return 0
        return broker.service.publish_ns(self._message()[0], at_once + (0 if self.flow.qos == 2 else copies))

    def _answer_work(self, broker: Broker | None, step: str, copies: int) -> int:
        if broker is None or broker.service is None:
            return 0
        forwards = broker.service.forward_ns(self._message()[0], copies) if step == "pubrel" else 0
        return broker.service.acknowledgement_ns + forwards

    def _packet(
        self,
        name: str,
        at: End,
        work_ns: int,
        *,
        local: bool = False,
        after: str | None = None,
        extra_ns: int = 0,
        period_ns: int | None = None,
    ) -> str | None:
        """Notes that the packets of the stream `name` reach the broker `at`; their name, None where it has no service times."""
        if at.broker is None or at.broker.service is None:
            return None
        bounded = release.is_bounded(self.flow)
        packet = Packet(
            name=f"{name}@{at.node}",
            broker=at.node,
            flow=self.flow.name,
            work_ns=work_ns,
            period_ns=period_ns or (self.flow.period_ns if bounded else None),
            stream=None if local else name,
            after=after,
            extra_ns=extra_ns,
        )
        self.plan.packets[packet.name] = packet
        return packet.name

    def _arrived(
        self,
        name: str,
        sender: End,
        broker: End,
        segment_name: str,
        before: tuple[tuple[Stage, ...], tuple[Segment, ...]],
    ) -> Arrived:
        """What a broker sends on follows the PUBLISH, or of QoS 2 its PUBREL."""
        node = broker.node
        segment = Segment("bridge" if segment_name == "bridge" else "publish", name, sender.node, node)
        way = [*before[0], Stage("network", segment.name, (Crossing(name, node),))]
        segments = (*before[1], segment)
        packet = self._known(name, broker)
        published = Forwarded(name, node, packet, (*way, Stage("broker", node, (Working(node, packet),))), segments)
        trigger = name
        if self.flow.qos == 2:
            trigger = f"{name}/pubrel"
            answer: Step = (
                Waiting(HOST_JITTER_NS)
                if sender.broker is None
                else Working(sender.node, self._known(f"{name}/pubrec", sender))
            )
            steps = (
                Working(node, self._known(name, broker)),
                Crossing(f"{name}/pubrec", sender.node),
                answer,
                Crossing(trigger, node),
            )
            way.append(Stage("handshake", node, steps))
        packet = self._known(trigger, broker)
        way.append(Stage("broker", node, (Working(node, packet),)))
        return Arrived(Forwarded(trigger, node, packet, tuple(way), segments), published)

    def _program(self, node: str) -> str | None:
        return next((broker.program for broker in self.stack.brokers if broker.node == node), None)

    def _known(self, stream: str, at: End) -> str | None:
        name = f"{stream}@{at.node}"
        return name if name in self.plan.packets else None

    def _local_publisher(self, name: str, broker: Broker, copies: int, at_once: int) -> Arrived:
        """A publisher on the broker's own host: nothing crosses the network, and its packets come within the host's time."""
        here = End(broker.node, broker)
        extra = self.flow.jitter_ns + HOST_JITTER_NS
        packet = self._packet(name, here, self._publish_work(broker, copies, at_once), local=True, extra_ns=extra)
        known = packet is not None
        steps: list[Step] = [Waiting(extra if known else self.flow.jitter_ns), Working(broker.node, packet)]
        published = Forwarded(None, broker.node, packet, (Stage("broker", broker.node, tuple(steps)),), ())
        if self.flow.qos == 2:
            work = self._answer_work(broker, "pubrel", copies)
            packet = self._packet(f"{name}/pubrel", here, work, local=True, after=packet, extra_ns=HOST_JITTER_NS)
            steps += [Waiting(HOST_JITTER_NS), Working(broker.node, packet)]
        return Arrived(
            Forwarded(None, broker.node, packet, (Stage("broker", broker.node, tuple(steps)),), ()), published
        )

    def _local_receiver(self, name: str, broker: Broker, arrived: Forwarded) -> None:
        """The answers of a receiver on the broker's own host are work as well."""
        after = arrived.packet
        for step in ANSWERS[self.flow.qos]:
            if step == "pubrel":
                continue
            work = self._answer_work(broker, step, 0)
            end = End(broker.node, broker)
            after = self._packet(f"{name}/{step}", end, work, local=True, after=after, extra_ns=HOST_JITTER_NS)

    def _carry(self, name: str, stream: str, sender: End, receiver: End, segments: int) -> None:
        """The window of the connection `name` (or of the one that several flows share) holds these segments until they are acknowledged."""
        connection = name if self.shared is None else f"connection {self.flow.connection}"
        carried = Carried(stream, segments, self.flow.period_ns)
        self.plan.carry(connection, sender.node, receiver.node, carried, f"{stream}/ack")

    def _acknowledge(self, name: str, acknowledged: str, at: End, to: End, segments: int, sender: str) -> None:
        extra = min(self.flow.period_ns, DELAYED_ACK_NS)
        follows = Follows(stream=acknowledged, destination=at.node, extra_ns=extra)
        smallest = self.plan.wire.least_segment(0, known=self._is_known(at.node, to.node))
        self._stream(
            name, at.node, to.node, "ack", (self.plan.wire.ack,) * segments, follows, sender, smallest=smallest
        )

    def _keep_alive(self, name: str, sender: End, receiver: End, held_ns: int) -> None:
        """PINGREQ and PINGRESP, each with the acknowledgement of the other, both ways: whoever is the client."""
        ping = self.plan.wire.segment(MQTT_PING)
        period = KEEP_ALIVE_S * 1_000_000_000
        known = self._is_known(sender.node, receiver.node)
        for source, target, direction in ((sender, receiver, "there"), (receiver, sender, "back")):
            stream = f"{name}/keep-alive-{direction}"
            self.plan.add(
                self.origin,
                Stream(
                    name=stream,
                    source=source.node,
                    destinations=(target.node,),
                    priority=self._class(source.node, sender.node),
                    role="control",
                    frames_bytes=(ping, self.plan.wire.ack),
                    period_ns=period,
                    jitter_ns=1_000_000_000,
                    smallest_frame=None if known else self.plan.wire.least_segment(0, known=False),
                    tcp=self._packets(
                        name,
                        source,
                        (MQTT_PING, MQTT_PING),
                        self._mtu(source.node, target.node),
                        known=known,
                        gathers=self._gathers(source) or (source is sender and held_ns > 0),
                    ),
                    release={"kind": "periodic", "offset_ns": None},
                ),
            )
            service = None if target.broker is None else target.broker.service
            if service is not None:
                self._packet(stream, target, service.acknowledgement_ns, period_ns=period)

    def _join(self, name: str, sender: str, receiver: str) -> dict[str, tuple[str, str]]:
        """A client that joins during the run: SYN, CONNECT and SUBSCRIBE with their answers and acknowledgements, once."""
        topic = len(self.topic.encode())
        wire = self.plan.wire
        packet = wire.segment(max(2 + 15 + 2 + 8, 5 + 2 + topic + 2))
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
                    priority=self._class(source, sender),
                    role="control",
                    frames_bytes=(wire.handshake, packet, packet, *[wire.ack] * 4),
                    # Not all of its packets are as long as the longest, and some go without an acknowledgement of their own.
                    smallest_frame=wire.least_segment(0, known=self._is_known(source, target)),
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
        after: Follows | None,
        sender: str,
        *,
        jitter: int = 0,
        packets: Packets | None = None,
        smallest: int | None = None,
    ) -> None:
        """`jitter` is that of the start; one that follows another gets the rest from it. `smallest`: the least frame that it may really be."""
        flow = self.flow
        bounded = release.is_bounded(flow)
        # Without a least distance any number can leave in one segment.
        largest = max(frames) if packets is None else packets.wire.packet(packets.mtu)
        pattern = release.simulated(flow, frames)
        if after is not None and pattern["kind"] == "periodic":
            pattern = {"kind": "periodic", "offset_ns": None}
        self.plan.add(
            self.origin,
            Stream(
                name=name,
                source=source,
                destinations=(target,),
                priority=self._class(source, sender),
                role="data" if role == "data" else "ack" if role == "ack" else "control",
                frames_bytes=frames if bounded else (largest,),
                period_ns=flow.period_ns if bounded else None,
                jitter_ns=jitter,
                release=pattern,
                deadline_ns=flow.deadline_ns if role == "data" else None,
                smallest_frame=smallest,
                tcp=packets,
                follows=after if bounded and after is not None and not after.is_nothing else None,
                one_at_a_time=bounded and role != "ack" and self.shared is not None and self.shared.is_shared,
            ),
        )

    def _mark(
        self, name: str, sender: str, receiver: str, port: int | None, peer_port: int | None, *, towards_broker: bool
    ) -> None:
        """The 5-tuples of both directions. The broker cannot mark its packets by topic: the first port does it (with channels: manager and switches)."""
        addresses, qos = self.plan.addresses, self.flow.qos
        own, answers = self._own(receiver, towards_broker=towards_broker)
        # Beside programs the bridge alone chooses its own port.
        between_brokers = (
            own is None and port is None and "manager" not in (self._program(sender), self._program(receiver))
        )
        size, offset = self._message(bridged=between_brokers)
        joins = self._join(name, sender, receiver) if self.flow.start_ns else {}
        self.plan.markers.append(
            Marker(
                source=addresses[sender],
                destination=addresses[receiver],
                protocol="tcp",
                source_port=port,
                destination_port=peer_port,
                data=name,
                # A program may ask for answers that are not declared; what it says to those is not declared either.
                ack=None if own is not None and qos == 0 else f"{name}/{FIRST_ACKNOWLEDGED[qos]}",
                control={0: f"{name}/keep-alive-there", 1: None, 2: f"{name}/pubrel"}[qos],
                header=(offset, size),
                short=() if own is not None else short(self.leg, self.flow.size_bytes, self.topic),
                own=own,
                rewrite_dscp=(not towards_broker or own is not None) and not self.stack.reserved,
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
                own=answers,
                rewrite_dscp=(towards_broker or answers is not None) and not self.stack.reserved,
                join=joins.get(receiver),
            )
        )

    def _own(self, receiver: str, *, towards_broker: bool) -> tuple[Own | None, Own | None]:
        """How messages on this connection and answers to them are told, where a program has a part in it."""
        flow, version5 = self.flow, self.stack.version == "5"
        answers = Own(self.leg, "answers", qos=flow.qos, version5=version5)
        if towards_broker:
            return (Own(self.leg, "source", self.topic, flow.qos, version5), answers) if flow.is_own else (None, None)
        is_program = receiver in flow.programs
        if not is_program and not flow.is_own:
            return None, None
        size = None if flow.is_own else flow.size_bytes
        # A built-in client's port is known, and its answers by that.
        return Own(self.leg, "onward", self.topic, flow.qos, version5, size), answers if is_program else None
