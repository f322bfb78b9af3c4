"""The resolved scenario: what every other room reads.

Includes, parameters, ranges and defaults are expanded; every name is known to exist. All times are integer
nanoseconds, all rates bit/s, all sizes bytes, all probabilities floats in 0..1. The field names of `Node`, `Link`,
`Direction`, `Queue`, `Impairments`, `Jitter` and `Loss` are those of `crates/model/src/declaration.rs`, and
`declaration()` gives exactly that JSON. Nothing here reads files or knows YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from timebound.scenario.framing import ETHERNET, Framing
from timebound.scenario.model_broker import BrokerService
from timebound.scenario.model_hardware import Computer, Interface, Machine
from timebound.scenario.model_media import Slots, TokenBucket
from timebound.scenario.model_switches import Controller
from timebound.scenario.model_tcp import OURS, SOMEBODYS, Tcp
from timebound.scenario.problems import Place, Problem
from timebound.scenario.traces import Trace

NodeKind = Literal["host", "switch", "segment"]
BackgroundKind = Literal["tcp", "udp", "poisson", "burst", "request-response", "video"]
BackgroundProgram = Literal["d-itg", "vsftpd", "vlc"]
Pattern = Literal["periodic", "sporadic", "poisson", "trace", "token-bucket"]
NodeOrder = Literal["stop", "start", "restart", "pause", "resume"]

"""One full Ethernet frame of undeclared best effort is assumed on every port (wire bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that a host runs."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    """Working folder, relative to the scenario's folder; `None`: one of its own in the run folder."""
    essential: bool = False
    """Does its early end stop the run?"""
    ready_port: int | None = None
    """TCP port that accepts connections once the program is ready."""
    start_ns: int = 0
    """Start, counted from the start of the run (its warm-up included)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """A file that only its node sees: a text, or the bytes of a file of this host."""

    path: str
    """Absolute, in the node."""
    content: str | None = None
    source: str | None = None
    """Absolute path of the file that it is a copy of, where `content` is `None`."""
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What a host does that joins two subnets."""

    outside: str
    """Name of the node that stands for its second interface."""
    nat: bool = True
    dhcp: bool = True
    dns: bool = True
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host, a switch or a shared segment."""

    name: str
    kind: NodeKind
    switching_min_ns: int = 0
    switching_max_ns: int = 0
    replication_min_ns: int = 0
    """What a switch adds for a flow that it sends on over several ports, least and greatest."""
    replication_max_ns: int = 0
    engine: Literal["fabric", "ovs"] = "fabric"
    """Of a switch: the emulated network itself, or a bridge of a real Open vSwitch."""
    address: str | None = None
    """IPv4 address; `None`: the emulation plan assigns one."""
    mtu: int = 1500
    """Largest IP packet of the host's interface, bytes."""
    tcp: Tcp | None = None
    """What is stated of its TCP; `None`: nothing."""
    cpu_share: float | None = None
    """Upper limit of CPU, in cores (0.5 is half a core)."""
    cpu_hz: int | None = None
    """The same as a part of the nominal frequency of whatever host emulates it; one of both at most."""
    cpu_reservation: float | None = None
    """Cores that it gets at least while the nodes want more CPU than there is."""
    memory_bytes: int | None = None
    processes: int | None = None
    """Most processes and threads of its programs and commands; `None`: 1024 (`PROCESSES` in crates/live/src/plan.rs)."""
    hostname: str | None = None
    """`None`: its name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of everything that runs in it."""
    files: tuple[NodeFile, ...] = ()
    gateway: Gateway | None = None
    side_of: str | None = None
    """The gateway whose second interface this is: no host of its own, but a place in the network of its own."""
    dhcp: bool = False
    """Is its address leased by the gateway at run time? It gets the one that the plan assigns."""
    programs: tuple[Program, ...] = ()
    latitude: float | None = None
    longitude: float | None = None
    mac: str | None = None
    """MAC address; `None`: made of the address, or learnt from the device behind the cable."""
    interface: Interface | None = None
    """A real interface of the host that emulates."""
    machine: Machine | None = None
    """The node is a virtual machine."""

    @property
    def is_external(self) -> bool:
        """Has it a kernel of its own (a device behind a cable, a virtual machine), so that we start nothing in it?"""
        return self.machine is not None or (self.interface is not None and self.interface.use == "device")

    @property
    def sender(self) -> Tcp:
        """Its TCP: as stated, else what the emulation sets, else (a kernel of its own) somebody's."""
        return self.tcp or (SOMEBODYS if self.is_external else OURS)

    @property
    def is_limited(self) -> bool:
        """Has it limits or a guarantee, which bind (or serve) everything that runs in it?"""
        return any(
            value is not None for value in (self.cpu_share, self.cpu_hz, self.cpu_reservation, self.memory_bytes)
        )

    def declaration(self) -> dict[str, Any]:
        """`NodeDecl` of the model."""
        declared = {
            "name": self.name,
            "kind": self.kind,
            "switching_min_ns": self.switching_min_ns,
            "switching_max_ns": self.switching_max_ns,
        }
        if self.replication_max_ns:
            declared |= {
                "replication_min_ns": self.replication_min_ns,
                "replication_max_ns": self.replication_max_ns,
            }
        return declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """`QueueDecl`: the discipline of an egress port."""

    kind: Literal["strict-priority", "fifo", "drr"] = "strict-priority"
    quanta_bytes: tuple[int, ...] = ()
    """Only for `drr`: eight quanta, class 0 first."""

    def declaration(self) -> dict[str, Any]:
        """`QueueDecl` of the model."""
        if self.kind == "drr":
            return {"kind": "drr", "quanta_bytes": list(self.quanta_bytes)}
        return {"kind": self.kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """`JitterDecl`: a random delay on top of the propagation delay of each frame."""

    kind: Literal["uniform", "normal", "pareto", "exponential"]
    max_ns: int
    mean_ns: int = 0
    deviation_ns: int = 0
    scale_ns: int = 0
    alpha: float = 3.0
    reorder: bool = False

    def declaration(self) -> dict[str, Any]:
        """`JitterDecl` of the model."""
        parameters: dict[str, dict[str, Any]] = {
            "uniform": {},
            "normal": {"mean_ns": self.mean_ns, "deviation_ns": self.deviation_ns},
            "pareto": {"scale_ns": self.scale_ns, "alpha": self.alpha},
            "exponential": {"mean_ns": self.mean_ns},
        }
        return {
            "distribution": {"kind": self.kind, **parameters[self.kind], "max_ns": self.max_ns},
            "reorder": self.reorder,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`LossDecl`: Bernoulli or Gilbert-Elliott loss."""

    kind: Literal["bernoulli", "gilbert-elliott"] = "bernoulli"
    probability: float = 0.0
    good_to_bad: float = 0.0
    bad_to_good: float = 0.0
    loss_in_good: float = 0.0
    loss_in_bad: float = 0.0

    def declaration(self) -> dict[str, Any]:
        """`LossDecl` of the model."""
        if self.kind == "bernoulli":
            return {"kind": "bernoulli", "probability": self.probability}
        return {
            "kind": "gilbert-elliott",
            "good_to_bad": self.good_to_bad,
            "bad_to_good": self.bad_to_good,
            "loss_in_good": self.loss_in_good,
            "loss_in_bad": self.loss_in_bad,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnections:
    """`DisconnectionsDecl`: the link is up and down in turns."""

    mean_up_ns: int
    mean_down_ns: int
    distribution: Literal["exponential", "fixed"] = "exponential"

    def declaration(self) -> dict[str, Any]:
        """`DisconnectionsDecl` of the model."""
        return {
            "mean_up_ns": self.mean_up_ns,
            "mean_down_ns": self.mean_down_ns,
            "distribution": self.distribution,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Impairments:
    """`ImpairmentsDecl`: what happens to a frame beyond rate and propagation delay."""

    jitter: Jitter | None = None
    loss: Loss | None = None
    corruption: float = 0.0
    corruption_drops: bool = False
    duplication: float = 0.0
    outages: tuple[tuple[int, int], ...] = ()
    """`[from, to)` in ns since the start of the run."""
    disconnections: Disconnections | None = None
    held: bool = False
    """Frames wait while the link carries nothing, instead of being sent and lost."""

    def declaration(self) -> dict[str, Any]:
        """`ImpairmentsDecl` of the model."""
        declared: dict[str, Any] = {
            "corruption": self.corruption,
            "corruption_drops": self.corruption_drops,
            "duplication": self.duplication,
            "outages": [list(outage) for outage in self.outages],
        }
        if self.jitter is not None:
            declared["jitter"] = self.jitter.declaration()
        if self.loss is not None:
            declared["loss"] = self.loss.declaration()
        if self.disconnections is not None:
            declared["disconnections"] = self.disconnections.declaration()
        if self.held:
            declared["held"] = True
        return declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """`DirectionDecl`: one direction of a link with the egress port that feeds it."""

    rate_bps: int
    delay_ns: int
    """Propagation delay, one way."""
    queue: Queue
    buffer_bytes: int
    """Wire bytes that may wait; the frame in transmission does not count."""
    impairments: Impairments = Impairments()
    trace: Trace | None = None
    """Delivery opportunities in place of the rate, which then is their capacity."""
    slots: Slots | None = None
    """Times in which this end may send; `None`: always."""

    def declaration(self) -> dict[str, Any]:
        """`DirectionDecl` of the model; a trace by its key in `Declaration.traces`."""
        declared = self._declaration()
        if self.slots is not None:
            declared["slots"] = self.slots.declaration()
        return declared if self.trace is None else declared | {"trace": self.trace.key}

    def _declaration(self) -> dict[str, Any]:
        return {
            "rate_bps": self.rate_bps,
            "delay_ns": self.delay_ns,
            "queue": self.queue.declaration(),
            "buffer_bytes": self.buffer_bytes,
            "impairments": self.impairments.declaration(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """`LinkDecl`: forward is from `a` to `b`."""

    a: str
    b: str
    forward: Direction
    backward: Direction
    half_duplex: bool = False
    length_m: int | None = None
    """Length in metres where the scenario states one (its share of the delay is already in `delay_ns`)."""

    def declaration(self) -> dict[str, Any]:
        """`LinkDecl` of the model."""
        return {
            "a": self.a,
            "b": self.b,
            "forward": self.forward.declaration(),
            "backward": self.backward.declaration(),
            "half_duplex": self.half_duplex,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A broker and the receivers of one flow that it serves."""

    broker: str
    receivers: tuple[str, ...]
    via: tuple[str, ...] = ()
    """Brokers that the messages pass before, in order: the publisher connects to the first, each bridges to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One publisher instance with its receivers; the unit of a reservation.

    With `count` or several sources the instances are called `name[1]`, `name[2]`, ...; `group` is the name written in
    the file.
    """

    name: str
    group: str
    source: str
    receivers: tuple[str, ...]
    topic: str
    size_bytes: int
    """Payload of one message, the largest where they differ; the stack adds its headers."""
    period_ns: int
    """Nominal period; the minimum inter-arrival time of a sporadic flow, the mean gap of a Poisson flow, the least
    gap of a trace."""
    least_bytes: int | None = None
    """The smallest payload; `None`: all have `size_bytes`."""
    jitter_ns: int = 0
    """Release jitter: each message leaves up to this much after its nominal release."""
    deadline_ns: int | None = None
    """From nominal release to reception."""
    priority: int = 1
    qos: int = 0
    pattern: Pattern = "periodic"
    offset_ns: int | None = None
    """First nominal release of a periodic flow; `None`: drawn from the seed."""
    mean_extra_ns: int = 0
    """Mean of the exponential extra gap of a sporadic flow."""
    trace_ns: tuple[int, ...] = ()
    """Release times of a trace, in order."""
    token_bucket: TokenBucket | None = None
    """Of the pattern `token-bucket`; the period is then the time of one message at its rate."""
    start_ns: int = 0
    """When its clients connect, from the start of the run (warm-up included); 0: before it. Release times count from then."""
    content: str | None = None
    """Absolute path of a file with the text of a message; `None`: fill bytes."""
    services: tuple[Service, ...] = ()
    """MQTT only: who serves which receiver; the publisher sends one copy to each broker named here."""
    routes: tuple[tuple[str, ...], ...] = ()
    """Ways of its segments, node by node from host to host; the way back is the same. Segments without one go the shortest way."""
    connection: str | None = None
    """MQTT only: flows of one host with this name share its TCP connection; `None`: a connection of its own."""
    after: str | None = None
    """MQTT only: the flow whose messages these are, passed on by its broker; only the ways from there to the receivers are this flow's own."""
    multicast: bool = False
    """MQTT only, with `after`: the broker (or manager) at which those messages come in sends them to the brokers that are its receivers, each
    message once to a multicast group; flows that come after it begin at those."""
    sealed: bool = False
    """Of a multicast flow: its datagrams and reports are encrypted."""
    reserve: bool = True
    """RT-MQTT only: do its clients ask for a channel?"""
    programs: tuple[str, ...] = ()
    """Its hosts whose own programs take the place of built-in clients."""

    @property
    def is_own(self) -> bool:
        """Does its publisher's own program send the messages?"""
        return self.source in self.programs

    @property
    def asks(self) -> bool:
        """RT-MQTT only: whoever has no deadline asks for nothing."""
        return self.reserve and self.deadline_ns is not None and self.priority > 0

    def way(self, source: str, destination: str) -> tuple[str, ...] | None:
        """The stated way between two hosts; `None`: the shortest."""
        for route in self.routes:
            if (route[0], route[-1]) == (source, destination):
                return route
        for route in self.routes:
            if (route[-1], route[0]) == (source, destination):
                return route[::-1]
        return None

    def answer_way(self, source: str, destination: str) -> tuple[str, ...] | None:
        """Of a multicast flow: the stated way of what its two brokers tell each other, which is written from the receiver; else that of the
        messages."""
        for route in self.routes:
            if (route[0], route[-1]) == (source, destination) and source in self.receivers:
                return route
            if (route[-1], route[0]) == (source, destination) and destination in self.receivers:
                return route[::-1]
        return self.way(source, destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker of the MQTT stack."""

    node: str
    program: Literal["embedded", "mosquitto", "manager"] = "embedded"
    """`manager`: an intermediary that passes messages on both ways, with no broker on its host."""
    port: int = 1883
    service: BrokerService | None = None
    """How long it takes over messages; `None`: nothing is known, and end-to-end figures leave it out."""
    hosts: tuple[str, ...] = ()
    """Hosts whose broker this is, where the file names them: its edge network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttStack:
    """MQTT over TCP."""

    brokers: tuple[Broker, ...]
    version: Literal["5", "3.1.1"] = "5"
    clients: Literal["auto", "shared", "per-node"] = "auto"
    """Processes of the built-in clients."""
    connections: Literal["per-flow", "per-node"] = "per-flow"
    priorities: bool = True
    """Do flows have classes of their own? Otherwise all are best effort, or (`dm-mqtt`) in one class."""
    kind: Literal["mqtt", "mqtt-bridged", "rt-mqtt", "dm-mqtt", "mrt-mqtt"] = "mqtt"

    @property
    def reserved(self) -> bool:
        """RT-MQTT: clients of flows with a deadline ask for channels, managers and a controller reserve them."""
        return self.kind in ("rt-mqtt", "dm-mqtt", "mrt-mqtt")

    @property
    def between(self) -> Literal["copies", "bridges", "groups"]:
        """How messages reach the brokers of other networks: the publisher sends a copy to each, its broker forwards over bridges, or the manager
        before its broker sends to a multicast group."""
        if self.kind == "mqtt-bridged":
            return "bridges"
        return "groups" if self.kind in ("dm-mqtt", "mrt-mqtt") else "copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpStack:
    """One datagram per message and receiver, or one per message to a multicast group."""

    multicast: bool = False
    kind: Literal["udp"] = "udp"


Stack = MqttStack | UdpStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Traffic that nobody measures but everybody meets.

    `rate_bps` counts bits on the wire. By kind: `tcp` rate_bps (`None`: as fast as it goes); `udp`, `poisson` rate_bps
    and size_bytes; `burst` size_bytes, frames, gap_ns; `request-response` size_bytes, response_bytes, gap_ns; `video`
    rate_bps, size_bytes (of a packet), frames_per_second.
    """

    name: str
    kind: BackgroundKind
    source: str
    destination: str
    priority: int = 0
    rate_bps: int | None = None
    size_bytes: int = 1472
    """Payload of one datagram or request."""
    frames: int = 1
    gap_ns: int = 0
    """Time between two bursts or two requests."""
    response_bytes: int = 0
    frames_per_second: int = 25
    start_ns: int = 0
    stop_ns: int | None = None
    token_bucket: TokenBucket | None = None
    """What `poisson` and `video` are declared to keep to."""
    program: BackgroundProgram | None = None
    """Who makes it in an emulation; `None`: our own generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """From `at_ns` on, the link has these conditions (all earlier events included)."""

    at_ns: int
    link: int
    """Index into `Scenario.links`."""
    up_forward: bool
    up_backward: bool
    forward: Direction
    backward: Direction
    ways: tuple[bool, bool]
    """Which directions this event changes: forward, backward. Both have the same new values then."""
    target: str
    """`link s1-s4`, or `link s1->s4` for one direction; `#1` for the second of parallel links."""
    changed: tuple[str, ...]
    """What this event states: names of `timebound.scenario.conditions.CHANGED`, or `up`."""
    note: str | None = field(default=None, compare=False)
    """What a report says at this time; `None` for the steps of a ramp."""

    @property
    def up(self) -> bool:
        """Does the link carry frames both ways?"""
        return self.up_forward and self.up_backward


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An order for one host; which order a state allows is checked (`scenario.lifecycle`)."""

    at_ns: int
    node: str
    order: NodeOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulate:
    """Limits of the simulator; a search that is limited by evaluations is reproducible."""

    duration_ns: int
    evaluations: int = 200
    """0: no search, unless it has a time."""
    search_ns: int | None = None
    """Search for so long instead, with as many evaluations as that allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Limits of the emulation's own error; `None`: the emulator's default (`PrecisionPlan` in crates/live/src/plan.rs)."""

    lateness_p99_ns: int | None = None
    """p99 of the lateness of departures."""
    late_frame_ns: int | None = None
    """A frame later than this is a late one."""
    late_share: float | None = None
    """Greatest share of late frames, 0..1."""
    ring_lost: int | None = None
    """Most frames that the emulator may lose."""
    longest_overrun_ns: int | None = None
    """Longest time for which the data plane may be kept from running."""
    steal: float | None = None
    """Greatest share of CPU time that a hypervisor may take, 0..1."""

    def stated(self) -> dict[str, int | float]:
        """What the scenario states, by the names of the emulation's plan."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlane:
    """How an emulation moves frames (`DataPlanePlan` in crates/live/src/plan.rs)."""

    back_end: Literal["auto", "ring", "tap"] = "auto"
    threads: int | Literal["auto"] = "auto"
    back_pressure: bool = False

    def plan(self) -> dict[str, Any]:
        """`DataPlanePlan` as JSON."""
        return {
            "back_end": self.back_end,
            "threads": None if self.threads == "auto" else self.threads,
            "back_pressure": self.back_pressure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How long, with which seed, and what is recorded."""

    duration_ns: int
    warm_up_ns: int
    seed: int
    captures: tuple[str, ...]
    """Ports as `h1->s1`."""
    simulate: Simulate
    log_limit_bytes: int = 64 * 2**20
    """Bytes kept of the output of each program."""
    precision: Precision
    """From what on an emulation calls itself disturbed."""
    data_plane: DataPlane = DataPlane()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A checked scenario. Compare two with `==`; places and warnings do not take part in it."""

    name: str
    description: str = ""
    reading: str = ""
    """Which reading of a published experiment this is."""
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    flows: tuple[Flow, ...]
    stack: Stack
    background: tuple[Background, ...]
    events: tuple[Event, ...]
    node_events: tuple[NodeEvent, ...] = ()
    """Stops, starts and pauses of hosts, by time."""
    run: Run
    machines: tuple[Computer, ...] = ()
    """The computers that emulate the network together; none: one does."""
    controller: Controller | None = None
    """Of the real switches; `None`: they forward along the routes of the scenario."""
    framing: Framing = ETHERNET
    """How long frames are."""
    stated_best_effort_bytes: int | None = None
    """The largest frame on the wire that nobody declared, as the scenario states it; 0: there is none; `None`: see below."""
    file: str | None = field(default=None, compare=False)
    """The file it was loaded from."""
    inputs: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The absolute paths of all files that it is made of: its own, those that it includes, and those that it names."""
    locations: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    paths: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict, compare=False, repr=False)
    """Part of this object -> its path in the file, and its own parts with their keys there."""
    warnings: tuple[Problem, ...] = field(default=(), compare=False, repr=False)

    def node(self, name: str) -> Node:
        """The node of this name; `KeyError` where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def hosts(self) -> tuple[Node, ...]:
        """All hosts in the order of declaration."""
        return tuple(node for node in self.nodes if node.kind == "host")

    @property
    def real_switches(self) -> tuple[Node, ...]:
        """Switches that are bridges of a real Open vSwitch."""
        return tuple(node for node in self.nodes if node.engine == "ovs")

    @property
    def best_effort_frame_bytes(self) -> int:
        """The largest frame that may be on its way without being declared, bytes on the wire; 0: none.

        Unless stated, a full frame of the largest MTU of the hosts, but no less than a full one of Ethernet: what a switch sends of its own
        knows no MTU of hosts.
        """
        if self.stated_best_effort_bytes is not None:
            return self.stated_best_effort_bytes
        mtus = [node.mtu for node in self.nodes if node.kind == "host"]
        return max([self.framing.full, *(self.framing.wire(mtu) for mtu in mtus)])

    def declaration(self) -> dict[str, Any]:
        """The network as `Declaration` JSON, without streams: those are the stack's to add."""
        directions = [direction for link in self.links for direction in (link.forward, link.backward)]
        traces = {trace.key: list(trace.millis) for direction in directions if (trace := direction.trace) is not None}
        return ({"traces": traces} if traces else {}) | {
            "nodes": [node.declaration() for node in self.nodes],
            "links": [link.declaration() for link in self.links],
            "streams": [],
            "best_effort_frame_bytes": self.best_effort_frame_bytes,
        }

    def locate(self, path: str) -> Place | None:
        """Where in the files `path` was written.

        `path` is a path of the declaration (`nodes[3].switching_min_ns`, `links[2].forward.rate_bps`) or of this object
        (`flows[7].deadline_ns`, `background[0]`, `events[1]`); the longest known prefix counts.
        """
        candidate = path
        while candidate:
            for known in (candidate, re.sub(r"\.(forward|backward)\b", "", candidate)):
                if known in self.locations:
                    return self.locations[known]
            candidate = re.sub(r"(^|\.)[^.\[]+$|\[[^\]]*\]$", "", candidate)
        return None

    def path_in_file(self, path: str) -> str:
        """A path of this object (`flows[7].token_bucket.burst`) with the keys of the file (`flows[2].token-bucket.burst`), as far as they are known."""
        whole, _, part = path.partition("].")
        target = f"{whole}]" if part else path
        if target not in self.paths:
            return path
        found, keys = self.paths[target]
        first, _, rest = part.partition(".")
        return ".".join(filter(None, (found, keys.get(first, first), rest))) if part else found

    def to_yaml(self) -> str:
        """The resolved scenario as YAML; loading it gives an equal scenario."""
        from timebound.scenario.emit import to_yaml

        return to_yaml(self)
