"""Messages between edge networks (MRT-MQTT, section V): from one manager to several by UDP multicast, each of which hands them to its own broker.

What a message puts on the wire (`crates/protocol/src/peer`): datagrams with a header each, to the group; of QoS 1 and 2, over the TCP connection of
each pair of managers, a report when datagrams have arrived and another when the member's broker has taken the message, and of QoS 2 the release
of the message. The publisher's PUBACK (PUBREC) waits for the reports of all members. Nothing here is sent again: bounds hold while nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from timebound.scenario.model import Broker
from timebound.stacks import release
from timebound.stacks.joined import Packets
from timebound.stacks.mqtt_connection import BROKER_JITTER_NS, HOST_JITTER_NS, Arrived, Connection, Forwarded
from timebound.stacks.plan import Follows, PlanError, Segment, Stream
from timebound.stacks.stages import Crossing, Packet, Slowest, Stage, Step, Waiting, Working
from timebound.stacks.wire import DELAYED_ACK_NS, Wire, mqtt_publish

PART_BYTES = 1_360
"""Most of a message that one datagram carries, so that it fits into an Ethernet frame (`peer::PART`)."""
HEADER_BYTES = 32
"""Before that part (`peer::datagram::HEADER`)."""
REPORT_BYTES = 41
"""What a member says of arrived and taken messages: length, kind, stream, next, beyond, taken (`peer::control::Arrived`)."""
RELEASE_BYTES = 13
"""Length, kind, key (`peer::control::Control::Release`)."""
SEALED_BYTES = 28
"""By so much a sealed datagram is longer (`peer::seal::OVERHEAD`)."""
RECORD_BYTES = 22
"""Of a TLS 1.3 record around one report: header, type and tag (RFC 8446, section 5.2)."""
REASONS = {1: "puback", 2: "pubrec"}
"""The answer to a publisher that waits until every member has taken its message."""


def datagrams(message_bytes: int, wire: Wire, *, sealed: bool = False) -> tuple[int, ...]:
    """Wire sizes of the datagrams of a PUBLISH packet of so many bytes."""
    whole, rest = divmod(message_bytes, PART_BYTES)
    header = HEADER_BYTES + (SEALED_BYTES if sealed else 0)
    return tuple(wire.datagram(header + part) for part in [PART_BYTES] * whole + ([rest] if rest else []))


def least_datagram(least_bytes: int, largest_bytes: int, wire: Wire, *, sealed: bool = False) -> int:
    """Wire size of the least datagram of PUBLISH packets of `least_bytes` to `largest_bytes`."""
    header = HEADER_BYTES + (SEALED_BYTES if sealed else 0)
    return wire.datagram(header + (least_bytes if largest_bytes <= PART_BYTES else 1))


def message_bytes(topic: str, payload_bytes: int) -> int:
    """The PUBLISH packet between managers: MQTT 5, without packet identifier."""
    return mqtt_publish(topic, payload_bytes, 0, True)[0]


def lay(
    connection: Connection,
    origin: Broker,
    members: Iterable[tuple[Broker, int]],
    arrived: Mapping[tuple[str, str], Arrived],
) -> dict[tuple[str, str], Arrived]:
    """Adds the datagrams and answers of one flow. `members`: brokers, and how many copies each sends on; `arrived`: where messages are, by flow and broker.

    Returns where they are then, and what of `arrived` has changed: of QoS 2 the origin's broker may pass a message on only when its publisher
    releases it, and so after all members have taken it.

    Raises:
        PlanError: a publisher of QoS 2 on the origin's own host.
    """
    flow = connection.flow
    assert flow.after is not None
    group = Group(connection, origin, arrived[flow.after, origin.node].published)
    found = {(flow.name, node): there for node, there in group.lay(list(members)).items()}
    if flow.qos < 2:
        return found
    if group.published.stream is None:
        message = f"{flow.after!r} publishes with QoS 2 on the host of the broker {origin.node!r} that multicasts its messages"
        raise PlanError(connection.origin, message, "use QoS 0 or 1, or another host")
    for (name, node), there in arrived.items():
        if name == flow.after:
            way = group.waiting(there.forwarded.way)
            found[name, node] = replace(there, forwarded=replace(there.forwarded, way=way))
    plan = connection.plan
    for (name, receiver), stages in plan.ways.items():
        if name == flow.after:
            plan.ways[name, receiver] = list(group.waiting(tuple(stages)))
    return found


class Group:
    """One flow from its origin to all members."""

    def __init__(self, connection: Connection, origin: Broker, published: Forwarded) -> None:
        self.connection, self.plan, self.flow = connection, connection.plan, connection.flow
        self.origin, self.published = origin, published
        self.name = f"{self.flow.name}/multicast"
        self.size = message_bytes(connection.topic, self.flow.size_bytes)
        least = self.flow.least_bytes
        self.least = self.size if least is None else message_bytes(connection.topic, least)
        self.bounded = release.is_bounded(self.flow)
        self.branches: list[tuple[Step, ...]] = []
        """From the origin to each member, and back with its report."""

    def lay(self, members: list[tuple[Broker, int]]) -> dict[str, Arrived]:
        nodes = tuple(broker.node for broker, _ in members)
        frames = datagrams(self.size, self.plan.wire, sealed=self.flow.sealed)
        published = self.published
        follows = Follows(
            stream=published.stream,
            destination=published.broker,
            extra_ns=BROKER_JITTER_NS,
            through=published.packet,
        )
        jitter = self.flow.jitter_ns + BROKER_JITTER_NS if follows.is_nothing else 0
        smallest = (
            least_datagram(self.least, self.size, self.plan.wire, sealed=self.flow.sealed)
            if self.least < self.size
            else None
        )
        self._stream(self.name, self.origin.node, nodes, "data", frames, follows, jitter, smallest=smallest)
        found, taken = {}, []
        for broker, copies in members:
            found[broker.node] = self._member(broker, copies)
            if self.flow.qos:
                taken.append(self._reports(broker, len(frames)))
        if taken:
            self._hold(taken)
        return found

    def _member(self, broker: Broker, copies: int) -> Arrived:
        """A member takes the message to its broker, on the same host; of QoS 2 that one passes it on when it is released there."""
        node, flow = broker.node, self.flow
        self.plan.role(node, "broker")
        packet = self._publish(broker, copies)
        segments = (*self.published.segments, Segment("multicast", self.name, self.origin.node, node))
        steps: list[Step] = [Working(node, packet)]
        if flow.qos == 2:
            work = 0 if broker.service is None else broker.service.forward_ns(self.size, copies)
            released = self._packet(
                f"{self.name}/pubrel", broker, work, after=packet, extra_ns=HOST_JITTER_NS, acknowledges=1
            )
            steps += [Waiting(HOST_JITTER_NS), Working(node, released)]
            packet = released
        way = (
            *self.published.way,
            Stage("network", "multicast", (Crossing(self.name, node),)),
            Stage("broker", node, tuple(steps)),
        )
        self.plan.segments[flow.name, node] = list(segments)
        self.plan.ways[flow.name, node] = list(way)
        there = Forwarded(self.name, node, packet, way, segments)
        return Arrived(there, there)

    def _publish(self, broker: Broker, copies: int) -> str | None:
        """The message reaches the member, which publishes it to its broker and is answered there."""
        if broker.service is None:
            return None
        at_once = 0 if self.flow.qos == 2 else copies
        work = broker.service.publish_ns(self.size, at_once) + self.flow.qos * broker.service.acknowledgement_ns
        return self._packet(self.name, broker, work, stream=self.name)

    def _packet(
        self,
        name: str,
        broker: Broker,
        work_ns: int,
        *,
        stream: str | None = None,
        after: str | None = None,
        extra_ns: int = 0,
        acknowledges: int = 0,
    ) -> str | None:
        if broker.service is None:
            return None
        packet = Packet(
            name=f"{name}@{broker.node}",
            broker=broker.node,
            flow=self.flow.name,
            work_ns=work_ns + acknowledges * broker.service.acknowledgement_ns,
            period_ns=self.flow.period_ns if self.bounded else None,
            stream=stream,
            after=after,
            extra_ns=extra_ns,
        )
        self.plan.packets[packet.name] = packet
        return packet.name

    # Over TCP ----------------------------------------------------------------------------------------------------------------

    def _frames(self, said_bytes: int) -> tuple[int, ...]:
        """Wire sizes of what one manager tells another."""
        return tuple(self.plan.wire.tcp(said_bytes + (RECORD_BYTES if self.flow.sealed else 0)))

    def _reports(self, broker: Broker, datagrams: int) -> Follows:
        """What a member says, and of QoS 2 what it is told; the report that its broker has taken the message, as a cause."""
        node, origin, report = broker.node, self.origin.node, self._frames(REPORT_BYTES)
        arrived, taken = f"{self.name}/arrived<{node}", f"{self.name}/taken<{node}"
        came = Follows(stream=self.name, destination=node, extra_ns=BROKER_JITTER_NS)
        self._control(arrived, node, origin, report * datagrams, came)
        done = f"{self.name}{'/pubrel' if self.flow.qos == 2 else ''}@{node}"
        through = done if done in self.plan.packets else None
        self._control(taken, node, origin, report, replace(came, through=through))
        if self.flow.qos == 2 and f"{self._publication()}/pubrel" in self.plan.origins:
            name = f"{self._publication()}/pubrel"
            packet = f"{name}@{origin}"
            known = packet if packet in self.plan.packets else None
            told = Follows(stream=name, destination=origin, extra_ns=BROKER_JITTER_NS, through=known)
            self._control(f"{self.name}/release>{node}", origin, node, self._frames(RELEASE_BYTES), told)
        packets = [self._packet(name, self.origin, 0, stream=name, acknowledges=1) for name in (arrived, taken)]
        there = self.plan.ways[self.flow.name, node][len(self.published.way) :]
        back = Crossing(taken, origin), Working(origin, packets[-1])
        self.branches.append((*(step for stage in there for step in stage.steps), *back))
        return Follows(stream=taken, destination=origin, extra_ns=BROKER_JITTER_NS, through=packets[-1])

    def _control(self, name: str, source: str, target: str, frames: tuple[int, ...], follows: Follows) -> None:
        """A message of one manager to another, and TCP's acknowledgement of it."""
        # Managers have a connection for each class, with what all flows of the class have to say.
        wire = self.plan.wire
        size = wire.segment_payload(frames[0])
        direction = f"managers of class {self.flow.priority} from {source} to {target}"
        known = all(self.plan.scenario.node(node).sender.known for node in (source, target))
        packets = Packets(direction, size, self.plan.mtu(source, target), count=len(frames), known=known, wire=wire)
        smallest = None if known else wire.least_segment(size, known=False)
        self._stream(name, source, (target,), "control", frames, follows, 0, packets, smallest)
        extra = min(self.flow.period_ns, DELAYED_ACK_NS)
        heard = Follows(stream=name, destination=target, extra_ns=extra)
        smallest = wire.least_segment(0, known=known)
        self._stream(f"{name}/ack", target, (source,), "ack", (wire.ack,) * len(frames), heard, 0, smallest=smallest)

    def _publication(self) -> str | None:
        """The stream that brought the message to the origin; `None`: its publisher is there."""
        return self.published.stream

    def waiting(self, way: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """The way with what the publisher's PUBREC waits for."""
        answer = f"{self._publication()}/pubrec"
        found = []
        for stage in way:
            steps: list[Step] = []
            for step in stage.steps:
                if isinstance(step, Crossing) and step.stream == answer:
                    steps.append(Slowest(tuple(self.branches)))
                steps.append(step)
            found.append(replace(stage, steps=tuple(steps)))
        return tuple(found)

    def _hold(self, taken: list[Follows]) -> None:
        """The publisher hears that its message has arrived when all have taken it."""
        answer = f"{self._publication()}/{REASONS[self.flow.qos]}"
        for place, stream in enumerate(self.plan.streams):
            if stream.name == answer and stream.follows is not None:
                follows = replace(stream.follows, also=(*stream.follows.also, *taken))
                self.plan.streams[place] = replace(stream, follows=follows)

    def _stream(
        self,
        name: str,
        source: str,
        targets: tuple[str, ...],
        role: str,
        frames: tuple[int, ...],
        follows: Follows,
        jitter: int,
        packets: Packets | None = None,
        smallest: int | None = None,
    ) -> None:
        flow, bounded = self.flow, self.bounded
        largest = max(frames) if packets is None else packets.wire.packet(packets.mtu)
        pattern = release.simulated(flow, frames)
        if pattern["kind"] == "periodic":
            pattern = {"kind": "periodic", "offset_ns": None}
        self.plan.add(
            self.connection.origin,
            Stream(
                name=name,
                source=source,
                destinations=targets,
                priority=flow.priority,
                role="data" if role == "data" else "ack" if role == "ack" else "control",
                frames_bytes=frames if bounded else (largest,),
                period_ns=flow.period_ns if bounded else None,
                jitter_ns=jitter,
                release=pattern,
                deadline_ns=flow.deadline_ns if role == "data" else None,
                follows=None if not bounded or follows.is_nothing else follows,
                smallest_frame=smallest,
                tcp=packets,
            ),
        )
