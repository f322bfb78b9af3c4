"""What a stack says: streams, segments, clients, programs, markers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from timebound.scenario.model import Scenario
from timebound.scenario.model_media import TokenBucket
from timebound.stacks.joined import Joined, Packets
from timebound.stacks.stages import Packet, Stage
from timebound.stacks.transport import Carried, Carrier, Way
from timebound.stacks.wire import (
    IPV4_HEADER,
    LARGEST_DATAGRAM,
    LEAST_TCP_MTU,
    MEASUREMENT_HEADER_BYTES,
    TCP_HEADER,
    UDP_HEADER,
    Wire,
)

Role = Literal["data", "ack", "control", "background"]


class PlanError(Exception):
    """The scenario is well formed but no plan can be made of it; `path` is a path of the scenario."""

    def __init__(self, path: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Follows:
    """This stream's frames are answers: each is sent because a frame of `stream` arrived.

    Its jitter at its own first port is the jitter with which `stream` arrives at `destination` plus `extra_ns`; with `through`, plus
    the response time of the broker that deals with that packet in between. `stream` is None where a client on the host itself is answered.
    """

    stream: str | None
    destination: str
    extra_ns: int
    through: str | None = None
    """Name of a packet of the plan."""
    held_ns: int = 0
    """How much longer the host may hold the answer back once the broker is done."""
    also: tuple[Follows, ...] = ()
    """What must have come as well before it is sent. Whatever is last, its own jitter covers the answer's: the latest of all is at most that one's
    latest, and the earliest of all at least its earliest."""

    @property
    def is_nothing(self) -> bool:
        """Neither a stream nor a packet: the declared jitter stands."""
        return self.stream is None and self.through is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Frames of one connection in one direction, as `StreamDecl` of the model.

    With a token bucket `period_ns` is the time of one release at its rate, and `jitter_ns` that of the rest of its burst: together they
    let pass what the bucket does. `period_ns` is None for a stream that promises nothing but its largest frame (then `frames_bytes` has one entry).
    """

    name: str
    source: str
    destinations: tuple[str, ...]
    priority: int
    role: Role
    frames_bytes: tuple[int, ...]
    release: dict[str, Any]
    period_ns: int | None
    jitter_ns: int = 0
    deadline_ns: int | None = None
    follows: Follows | None = None
    route: tuple[tuple[str, ...], ...] | None = None
    """Nodes to each destination; `None`: the shortest ways."""
    bucket: TokenBucket | None = None
    smallest_frame: int | None = None
    """Where frames can really be smaller than those of `frames_bytes`: none is smaller than this. They arrive earlier, so that what follows them, and
    they themselves further on, vary by more; simulated ones have the sizes of `frames_bytes`."""
    one_at_a_time: bool = False
    """Are the frames declared for at most one packet of this stream under way in a segment? Then its jitter must stay below its period."""
    tcp: Packets | None = None
    """Of a stream of packets over TCP that may leave in common segments: which ones."""
    joined: Joined | None = None
    """What such segments are with the jitter that the stream has (`timebound.stacks.joined`); None: each packet leaves by itself."""

    @property
    def largest_frame(self) -> int:
        """Of its frames as declared, and of segments that several packets share."""
        return max(self.frames_bytes) if self.joined is None else max(*self.frames_bytes, self.joined.frame_bytes)

    def observed_jitter(self, jitter_ns: int) -> int:
        """What an analysis takes in place of the declared jitter; of a token bucket it is the time of the whole burst."""
        if self.period_ns is None:
            return jitter_ns
        if self.joined is not None:
            return self.joined.burst_ns(self.period_ns, jitter_ns)
        return jitter_ns + self.period_ns if self.bucket is not None else jitter_ns

    def declaration(self) -> dict[str, Any]:
        """The JSON of `StreamDecl`."""
        arrival: dict[str, Any]
        if self.joined is not None:
            arrival = self.joined.arrival()
        elif self.bucket is not None:
            arrival = {
                "kind": "token-bucket",
                "rate_bps": self.bucket.rate_bps,
                "burst_bytes": self.bucket.burst_bytes,
                "min_frame_bytes": min(self.frames_bytes) if self.smallest_frame is None else self.smallest_frame,
                "max_frame_bytes": max(self.frames_bytes),
            }
        elif self.period_ns is None:
            arrival = {"kind": "unbounded", "max_frame_bytes": max(self.frames_bytes)}
        else:
            arrival = {
                "kind": "periodic",
                "period_ns": self.period_ns,
                "jitter_ns": self.jitter_ns,
                "frames_bytes": list(self.frames_bytes),
            }
        found = {
            "name": self.name,
            "source": self.source,
            "destinations": list(self.destinations),
            "class": self.priority,
            "role": self.role,
            "arrival": arrival,
            "release": self.release,
            "deadline_ns": self.deadline_ns,
            "route": None if self.route is None else [list(way) for way in self.route],
        }
        if arrival["kind"] == "periodic" and self.smallest_frame is not None:
            found["least_frame_bytes"] = min(self.smallest_frame, *self.frames_bytes)
        return found


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a message's way that crosses the network: `publish` to the broker, `bridge` from one to the next, `multicast` to several,
    `deliver`, `direct`."""

    name: Literal["publish", "bridge", "multicast", "deliver", "direct"]
    stream: str
    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Short:
    """Messages whose payload has no room for a measurement header: known by what brings them, and numbered by what fits (crates/wire/src/short.rs)."""

    flow: int
    payload_bytes: int
    topic: str | None = None
    """`None` for datagrams."""

    def plan(self) -> dict[str, Any]:
        """The JSON of `ShortPlan`."""
        return {"flow": self.flow, "payload_bytes": self.payload_bytes, "topic": self.topic}


def short(flow: int, payload_bytes: int, topic: str | None = None) -> tuple[Short, ...]:
    """What there is to know of such messages; nothing of those with room."""
    return (Short(flow, payload_bytes, topic),) if payload_bytes < MEASUREMENT_HEADER_BYTES else ()


@dataclass(frozen=True, slots=True)
class Own:
    """Messages of a program that is not ours, told by topic (`OwnPlan` of crates/live/src/plan.rs)."""

    flow: int
    role: Literal["source", "onward", "answers"]
    topic: str | None = None
    """`None` for datagrams."""
    qos: int = 0
    version5: bool = False
    payload_bytes: int | None = None
    """Of messages that a built-in client publishes; `None`: the publisher is a program too."""

    def plan(self) -> dict[str, Any]:
        """The JSON of `OwnPlan`."""
        return {
            "flow": self.flow,
            "role": self.role,
            "topic": self.topic,
            "qos": self.qos,
            "version5": self.version5,
            "payload_bytes": self.payload_bytes,
        }


@dataclass(frozen=True, slots=True)
class Marker:
    """A 5-tuple in one direction and the streams whose frames it carries.

    `control` names the stream of frames with payload that are no messages (PUBREL between PUBLISH packets).
    """

    source: str
    destination: str
    protocol: Literal["tcp", "udp"]
    source_port: int | None
    """`None`: any, as of a device that chooses it itself."""
    destination_port: int | None
    data: str | None
    ack: str | None = None
    control: str | None = None
    header: tuple[int, int] | None = None
    """(bytes from the start of a message to the measurement header, bytes of one message)."""
    short: tuple[Short, ...] = ()
    """Of the messages without room for one."""
    own: Own | None = None
    """Of a connection that a program opens, or to which it publishes."""
    rewrite_dscp: bool = False
    join: tuple[str, str] | None = None
    """(connection, stream of this direction) of the frames with which a client joins during the run: all before the first
    message on the connection, in either direction."""

    def plan(self) -> dict[str, Any]:
        """The JSON of `MarkerPlan`."""
        header = None
        if self.header is not None and self.own is None:
            header = {
                "payload_offset": self.header[0],
                "message_bytes": self.header[1],
                "short": [short.plan() for short in self.short],
            }
        return {
            "source": self.source,
            "destination": self.destination,
            "protocol": self.protocol,
            "source_port": self.source_port,
            "destination_port": self.destination_port,
            "data": self.data,
            "ack": self.ack,
            "rewrite_dscp": self.rewrite_dscp,
            "header": header,
            "own": None if self.own is None else self.own.plan(),
        }


@dataclass(frozen=True, slots=True)
class Leg:
    """One sender of a flow with the receivers that get its messages; its position is the flow's number in records.

    A flow has several where its publisher sends a copy to each of several brokers or receivers.
    """

    flow: str
    receivers: tuple[str, ...]


@dataclass(slots=True)
class Plan:
    """Everything that prediction, simulation and emulation need to know of a scenario.

    `segments` maps (flow name, receiver) to its segments in order; in records senders are numbered by their position in
    `legs`, receivers by theirs in `scenario.hosts`. `clients`, `udp`, `udp_receivers`, `background` are parts of the
    endpoints' plan, `programs` of the emulation plan.
    """

    scenario: Scenario
    addresses: dict[str, str]
    streams: list[Stream] = field(default_factory=list)
    segments: dict[tuple[str, str], list[Segment]] = field(default_factory=dict)
    ways: dict[tuple[str, str], list[Stage]] = field(default_factory=dict)
    """(flow name, receiver) -> what a message passes, in order; the network's parts of it are the segments."""
    packets: dict[str, Packet] = field(default_factory=dict)
    """What reaches the brokers whose service times are known."""
    carriers: dict[Way, Carrier] = field(default_factory=dict)
    """The directions of TCP connections whose windows count."""
    legs: list[Leg] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)
    udp: list[dict[str, Any]] = field(default_factory=list)
    udp_receivers: list[dict[str, Any]] = field(default_factory=list)
    background: list[dict[str, Any]] = field(default_factory=list)
    programs: list[dict[str, Any]] = field(default_factory=list)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Host name -> parts of its `HostPlan` that follow from the network: default route, second interface."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that the run folder must hold before the start (broker configurations): path in it -> content."""
    groups: list[str] = field(default_factory=list)
    """Addresses of the multicast groups between managers."""
    shared: set[str] = field(default_factory=set)
    """Names of streams that carry messages of several flows, whose numbers run independently."""
    roles: dict[str, list[str]] = field(default_factory=dict)
    remote: frozenset[str] = frozenset()
    """Nodes that another machine emulates."""
    unemulated: str | None = None
    """Why this plan can be predicted and simulated, but not emulated."""
    unemulated_at: str = "stack"
    """The path of the scenario that says so."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know of how this stack was laid on the network."""
    origins: dict[str, str] = field(default_factory=dict)
    """Stream name -> path of the scenario that it comes from."""

    _marker_index: dict[str, list[Marker]] | None = None

    @property
    def wire(self) -> Wire:
        """What packets are on the wire of this network."""
        return Wire(self.scenario.framing)

    def add(self, origin: str, stream: Stream) -> Stream:
        """Adds a stream that comes from `origin`, a path of the scenario."""
        least = min(stream.frames_bytes) if stream.smallest_frame is None else stream.smallest_frame
        if (shortest := self.scenario.framing.shortest(least)) < least:
            stream = replace(stream, smallest_frame=shortest)
        self.streams.append(stream)
        self.origins[stream.name] = origin
        return stream

    def markers_of(self, stream: str) -> list[Marker]:
        """The 5-tuples whose frames belong to this stream, of some kind."""
        if self._marker_index is None:
            self._marker_index = {}
            for marker in self.markers:
                for name in {marker.data, marker.ack, marker.control} - {None}:
                    self._marker_index.setdefault(str(name), []).append(marker)
        return self._marker_index.get(stream, [])

    def carry(self, connection: str, sender: str, receiver: str, carried: Carried, answer: str | None = None) -> None:
        """Notes that TCP brings a stream's segments from `sender` to `receiver`; `answer` acknowledges them."""
        largest = self.mtu(sender, receiver) - IPV4_HEADER - TCP_HEADER
        carrier = self.carriers.setdefault((connection, sender, receiver), Carrier(sender, receiver, largest))
        carrier.carried.append(carried)
        back = self.carriers.setdefault((connection, receiver, sender), Carrier(receiver, sender, largest))
        if answer is not None:
            carrier.answers.append(answer)
        # What goes the other way with payload can bring acknowledgements of it as well.
        back.answers.append(carried.stream)

    def role(self, node: str, role: str) -> None:
        """Notes what a node does, for the picture of the topology."""
        roles = self.roles.setdefault(node, [])
        if role not in roles:
            roles.append(role)

    def declaration(self) -> dict[str, Any]:
        """The JSON of the model's `Declaration`."""
        return {**self.scenario.declaration(), "streams": [stream.declaration() for stream in self.streams]}

    def mtu(self, *nodes: str) -> int:
        """The smallest MTU of some hosts: what two ends of a TCP connection agree on."""
        return min(self.scenario.node(node).mtu for node in nodes)

    def check_datagrams(self, path: str, payload: int, source: str, receivers: tuple[str, ...]) -> None:
        """Can datagrams of this size get from `source` to all of `receivers`?

        Raises:
            PlanError: larger than UDP allows, or fragments that a receiver's interface does not take (nobody between them tells the
                sender: all hosts share one subnet).
        """
        if payload > LARGEST_DATAGRAM:
            raise PlanError(
                path, f"a datagram of {payload} bytes does not exist", f"use at most {LARGEST_DATAGRAM} bytes"
            )
        packet = min(payload + UDP_HEADER + IPV4_HEADER, self.mtu(source))
        for receiver in receivers:
            if self.mtu(receiver) < packet:
                raise PlanError(
                    path,
                    f"{source!r} sends packets of {packet} bytes, and {receiver!r} takes none above its MTU of {self.mtu(receiver)}",
                    "give both the same mtu, or send less at once",
                )

    def check_segments(self, path: str, *nodes: str) -> None:
        """Can TCP run between these hosts?

        Raises:
            PlanError: an MTU for which the kernel makes no segments.
        """
        for node in nodes:
            if self.mtu(node) < LEAST_TCP_MTU:
                raise PlanError(
                    path,
                    f"TCP of Linux needs an MTU of {LEAST_TCP_MTU}, and {node!r} has {self.mtu(node)}",
                    f"give it an mtu of {LEAST_TCP_MTU} or more, or use UDP",
                )

    def leg(self, flow: str, receivers: tuple[str, ...]) -> int:
        """Numbers one more sender of a flow."""
        self.legs.append(Leg(flow, receivers))
        return len(self.legs) - 1

    def host_numbers(self) -> dict[str, int]:
        """Host name -> number in the records."""
        return {host.name: number for number, host in enumerate(self.scenario.hosts)}
