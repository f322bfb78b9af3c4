"""The shape of `network`: nodes, links, their conditions, the import of topologies."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from timebound.scenario import units
from timebound.scenario.fields import (
    Cores,
    Ends,
    Frequency,
    Length,
    Memory,
    Rate,
    Shape,
    Share,
    Short,
    Size,
    Time,
    TimeRange,
    Word,
    fail,
    one_of,
)
from timebound.scenario.framing import ETHERNET, HEADER, KINDS, Kind
from timebound.scenario.shape_hardware import Computer, InterfaceField, Vm
from timebound.scenario.shape_media import Tdma
from timebound.scenario.shape_switches import ControllerField
from timebound.scenario.shape_tcp import TcpField
from timebound.scenario.written import TextForm

_SHARE_SCHEMA = {"type": "string", "pattern": units.SHARE.pattern, "examples": ["0.1 %"]}
_TIME_SCHEMA = {"type": "string", "pattern": units.TIME.pattern, "examples": ["1 ms"]}
LEAST_FRAME = ETHERNET.least
LARGEST_FRAME = 9_300
"""On the wire; as in crates/model/src/compile."""


class GilbertElliott(Shape):
    """Loss in bursts: two states, each frame first may change the state, then is lost with the state's share."""

    good_to_bad: Share = Field(description="share of frames after which a good link turns bad", examples=["1 %"])
    bad_to_good: Share = Field(description="share of frames after which a bad link turns good", examples=["30 %"])
    loss_in_good: Share = Field(default=0.0, description="loss in the good state", examples=["0 %"])
    loss_in_bad: Share = Field(default=1.0, description="loss in the bad state", examples=["100 %"])


class Loss(Shape):
    """Loss of frames: independent (`0.1 %`) or in bursts."""

    instead_of: ClassVar = one_of("independent", "gilbert-elliott")
    independent: Share | None = Field(
        default=None, description="each frame is lost with this share", examples=["0.1 %"]
    )
    gilbert_elliott: GilbertElliott | None = Field(default=None, description="loss in bursts")


def _loss(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) != 1:
            raise fail("state one kind of loss", "loss: 0.1 %, or loss: {gilbert-elliott: {...}}")
        return value
    return {"independent": value}


LossField = Annotated[Loss, Short(_loss, _SHARE_SCHEMA)]


class Normal(Shape):
    """Normal distribution, cut at zero and at `max`."""

    mean: Time = Field(description="mean", examples=["5 ms"])
    deviation: Time = Field(description="standard deviation", examples=["1 ms"])
    max: Time | None = Field(default=None, description="cut here; default: mean + 4 deviations", examples=["10 ms"])


class Pareto(Shape):
    """Pareto distribution less its least value, cut at `max`: rarely long."""

    scale: Time = Field(description="scale (least value before the shift)", examples=["1 ms"])
    alpha: float = Field(
        default=3.0, gt=0, le=1000, strict=False, description="shape; smaller is heavier", examples=[3]
    )
    max: Time | None = Field(default=None, description="cut here; default: 20 times the scale", examples=["20 ms"])


class Exponential(Shape):
    """Exponential distribution, cut at `max`."""

    mean: Time = Field(description="mean", examples=["1 ms"])
    max: Time | None = Field(default=None, description="cut here; default: 10 times the mean", examples=["10 ms"])


class Jitter(Shape):
    """A random delay of each frame, added to the link's delay. A single time is uniform from zero up to it."""

    instead_of: ClassVar = one_of("uniform", "normal", "pareto", "exponential")
    uniform: Time | None = Field(default=None, description="uniform from 0 to this", examples=["1 ms"])
    normal: Normal | None = Field(default=None, description="normal")
    pareto: Pareto | None = Field(default=None, description="Pareto")
    exponential: Exponential | None = Field(default=None, description="exponential")
    reorder: bool = Field(default=False, description="may a later frame overtake an earlier one?", examples=[True])


def _jitter(value: Any) -> Any:
    if not isinstance(value, dict):
        return {"uniform": value}
    kinds = [key for key in value if key in ("uniform", "normal", "pareto", "exponential")]
    if len(kinds) != 1:
        raise fail("state one distribution", "jitter: 1 ms, or one of uniform, normal, pareto, exponential")
    return value


JitterField = Annotated[Jitter, Short(_jitter, _TIME_SCHEMA)]


class Drr(Shape):
    """Deficit round robin: bytes that each class may send per round; classes left out get `default`."""

    default: Size = Field(default=1538, description="quantum of the classes that are not named", examples=["1538 B"])
    classes: dict[str, Size] = Field(
        default_factory=dict, description="quantum per class", examples=[{"5": "6152 B", "0": "1538 B"}]
    )


class Queue(Shape):
    """The discipline of the egress queue."""

    instead_of: ClassVar = {"drr": frozenset({"kind"})}
    kind: Literal["strict-priority", "fifo", "drr"] = Field(
        default="strict-priority",
        description="strict-priority: eight classes, the higher number first, also of frames that come at one instant, "
        "not pre-empting; fifo: one queue; drr: weighted",
        examples=["fifo"],
    )
    drr: Drr | None = Field(default=None, description="quanta of a weighted queue")


def _queue(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": value, "drr": {}} if value == "drr" else {"kind": value}
    if isinstance(value, dict) and "drr" in value and "kind" not in value:
        return {"kind": "drr", **value}
    return value


QueueField = Annotated[Queue, Short(_queue, {"enum": ["strict-priority", "fifo", "drr"]})]


class Disconnections(Shape):
    """The link is up and down in turns at random, up first; both directions at the same times. `none` ends them."""

    mean_up: Time = Field(description="mean time up", examples=["20 s"])
    mean_down: Time = Field(description="mean time down; 0 s: no disconnections", examples=["500 ms"])
    distribution: Literal["exponential", "fixed"] = Field(
        default="exponential",
        description="exponential: each time is drawn, from a random stream named after the link; fixed: each is its mean",
        examples=["fixed"],
    )


def _disconnections(value: Any) -> Any:
    return {"mean-up": "0 s", "mean-down": "0 s"} if value == "none" else value


DisconnectionsField = Annotated[Disconnections, Short(_disconnections, {"enum": ["none"]})]
_QUEUED = Field(
    default=None,
    description="while the link carries nothing (down, outage, disconnection), frames that wait are sent and lost "
    "(dropped), or held until it carries again; the frame in transmission is lost; built in: dropped",
    examples=["held"],
)


class Trace(Shape):
    """Delivery opportunities in place of a rate, in mahimahi's format: one time in milliseconds per line, each an
    opportunity to deliver 1504 bytes; repeats with the period of the last one. A file name alone is for both directions."""

    instead_of: ClassVar = {
        **one_of("file", "opportunities"),
        "up": frozenset({"file", "opportunities"}),
        "down": frozenset({"file", "opportunities"}),
    }
    file: str | None = Field(default=None, description="file, from the scenario's folder", examples=["lte.down"])
    up: str | None = Field(
        default=None, description="file for the way from the first end to the second", examples=["lte.up"]
    )
    down: str | None = Field(
        default=None, description="file for the way from the second end to the first", examples=["lte.down"]
    )
    opportunities: str | None = Field(
        default=None, description="written here: milliseconds, `3x2` for two at 3", examples=["1 3x2 5"]
    )


def _trace(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) - {"up", "down"} and len(value) != 1:
            raise fail("state one trace, or up and down", "trace: lte.down, or trace: {up: lte.up, down: lte.down}")
        return value
    return {"file": value}


TraceField = Annotated[Trace, Short(_trace, {"type": "string"}), TextForm()]


class Profile(Shape):
    """Conditions under a name: links say `conditions: edge`, and so do changes (`at:`). What a profile does not state stays
    what the link has of its own or by default."""

    rate: Rate | None = Field(default=None, description="rate", examples=["250 kbit/s"])
    delay: Time | None = Field(default=None, description="delay, one way", examples=["30 ms"])
    loss: LossField | None = Field(default=None, description="loss of frames", examples=["30 %"])
    jitter: JitterField | None = Field(default=None, description="random extra delay", examples=["5 ms"])
    corruption: Share | None = Field(
        default=None, description="share of frames with a flipped bit", examples=["0.01 %"]
    )
    corruption_drops: bool | None = Field(default=None, description="are damaged frames dropped?", examples=[True])
    duplication: Share | None = Field(default=None, description="share of frames that arrive twice", examples=["0.1 %"])
    buffer: Size | None = Field(default=None, description="room of each class's queue", examples=["64 KiB"])
    disconnections: DisconnectionsField | None = Field(default=None, description="times down at random")
    queued: Literal["held", "dropped"] | None = _QUEUED


class Conditions(Shape):
    """What a link does to frames, in both directions or (under `forward` and `backward`) in one."""

    rate: Rate | None = Field(
        default=None, description="rate at which frames leave the port (whole wire)", examples=["10 Mbit/s"]
    )
    delay: Time | None = Field(default=None, description="propagation delay, one way", examples=["5 us"])
    loss: LossField | None = Field(default=None, description="loss of frames", examples=["0.1 %"])
    jitter: JitterField | None = Field(default=None, description="random extra delay of each frame", examples=["1 ms"])
    corruption: Share | None = Field(
        default=None, description="share of frames with a flipped bit", examples=["0.01 %"]
    )
    corruption_drops: bool | None = Field(
        default=None, description="is a damaged frame dropped (as a card does) or delivered damaged?", examples=[True]
    )
    duplication: Share | None = Field(default=None, description="share of frames that arrive twice", examples=["0.1 %"])
    queue: QueueField | None = Field(default=None, description="discipline of the egress queue", examples=["fifo"])
    buffer: Size | None = Field(
        default=None,
        description="room of each class's queue at the egress port, bytes on the wire",
        examples=["256 KiB"],
    )
    disconnections: DisconnectionsField | None = Field(
        default=None, description="times at random in which nothing passes"
    )
    queued: Literal["held", "dropped"] | None = _QUEUED
    trace: TraceField | None = Field(default=None, description="delivery opportunities in place of a rate")
    conditions: str | None = Field(
        default=None, description="name of conditions that hold where nothing is stated here", examples=["edge"]
    )
    outages: list[TimeRange] | None = Field(
        default=None, description="times in which nothing passes, since the start of the run", examples=[["3 s..4 s"]]
    )


class LinkDefaults(Conditions):
    """Conditions of every link that does not state its own."""


class Link(Conditions):
    """A link between two nodes; `[a, b]` alone takes all defaults.

    Ranges pair up: `["h[1-3]", s1]` joins each to s1, `["h[1-3]", "s[1-3]"]` joins them one to one.
    """

    between: Ends = Field(description="the two ends", examples=[["s1", "s4"]])
    duplex: Literal["full", "half"] = Field(
        default="full", description="half: both directions share one transmission", examples=["half"]
    )
    length: Length | None = Field(
        default=None,
        description="cable length; gives the delay (5 us/km) where the link states none",
        examples=["120 km"],
    )
    tdma: Tdma | None = Field(
        default=None,
        description="slots in which its ends may send",
        examples=[{"cycle": "10 ms", "slots": {"h1": [{"at": "0 ms", "length": "5 ms"}]}}],
    )
    forward: Conditions | None = Field(default=None, description="what differs from the first to the second end")
    backward: Conditions | None = Field(default=None, description="what differs from the second to the first end")


def _link(value: Any) -> Any:
    return {"between": value} if isinstance(value, list) else value


LinkField = Annotated[Link, Short(_link, {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2})]


class Program(Shape):
    """A program that a host runs, in the host's own network namespace. A list of words is the command alone."""

    command: list[Word] = Field(min_length=1, description="program and arguments", examples=[["iperf3", "-s"]])
    env: dict[str, Word] = Field(default_factory=dict, description="environment added", examples=[{"LANG": "C"}])
    folder: str | None = Field(
        default=None, description="working folder (from the scenario's); default: an own one", examples=["data"]
    )
    name: str | None = Field(
        default=None,
        description="name of its log: no /, at most 120 bytes, and none of the run's own logs; default: the program's",
        examples=["server"],
    )
    essential: bool = Field(
        default=False,
        description="does its early end stop the run: with another status than 0, by a signal, or at all where it has a ready-port? Without that an early end "
        "with status 0 stops nothing",
        examples=[True],
    )
    ready_port: int | None = Field(
        default=None, ge=1, le=65535, description="TCP port that accepts once it is ready", examples=[5201]
    )
    start: Time = Field(default=0, description="when it starts", examples=["2 s"])


def _programs(value: Any) -> Any:
    if isinstance(value, str):
        raise fail("a program is a list of words", 'write run: ["mosquitto", "-v"]')
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(word, (str, int, float)) for word in value):
        return [{"command": [str(word) for word in value]}]
    if isinstance(value, list):
        return [{"command": [str(word) for word in item]} if isinstance(item, list) else item for item in value]
    return value


_COMMAND = {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}
ProgramsField = Annotated[
    list[Annotated[Program, Short(lambda value: {"command": value} if isinstance(value, list) else value, _COMMAND)]],
    Short(_programs, _COMMAND, {"type": "object"}),
    TextForm(),
]


class Cpu(Shape):
    """A limit of CPU: a share of one core (`250 %` are two and a half), or a frequency (of the host's nominal one)."""

    instead_of: ClassVar = one_of("share", "frequency")
    share: Cores | None = Field(default=None, description="share of one core", examples=["50 %"])
    frequency: Frequency | None = Field(default=None, description="part of the nominal frequency", examples=["200 MHz"])


def _cpu(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) != 1:
            raise fail("state the limit of CPU one way", "cpu: 50 %, or cpu: 200 MHz")
        return value
    return {"frequency" if isinstance(value, str) and value.rstrip().endswith("Hz") else "share": value}


_CPU_SCHEMA = {
    "type": "string",
    "pattern": f"({units.CORES.pattern})|({units.FREQUENCY.pattern})",
    "examples": ["50 %", "200 MHz"],
    "x-quantity": "share or frequency",
}
CpuField = Annotated[Cpu, Short(_cpu, _CPU_SCHEMA)]


def _mode(value: Any) -> Any:
    """`0600` is a number in YAML; what is meant is octal, as for chmod."""
    return f"{value:04d}" if isinstance(value, int) and not isinstance(value, bool) else value


class File(Shape):
    """A file that a host sees at a path of its own. A text alone is its content."""

    instead_of: ClassVar = one_of("content", "from")
    content: str | None = Field(default=None, description="its text; may hold ${node} and ${index}", examples=["id=1"])
    from_: str | None = Field(
        default=None,
        description="a file beside the scenario, byte for byte; the name may hold ${node}",
        examples=["a.conf"],
    )
    mode: Annotated[str, BeforeValidator(_mode), WithJsonSchema({"type": ["string", "integer"]})] = Field(
        default="0644", pattern=r"^0?[0-7]{3}$", description="permissions, octal", examples=["0600"]
    )


def _file(value: Any) -> Any:
    return {"content": value} if isinstance(value, str) else value


FileField = Annotated[File, Short(_file, {"type": "string"}), TextForm()]


class HostDefaults(Shape):
    """What every host has that does not state its own."""

    mtu: int | None = Field(default=None, ge=68, le=9000, description="largest IP packet, bytes", examples=[1500])
    tcp: TcpField = Field(
        default=None,
        description="its TCP, on which bounds of connections rest; default: windows for all that can be under way, no pacing, as emulation sets "
        "them; of a device or virtual machine: unknown",
        examples=["unknown", {"initial-window": 10}],
    )
    cpu: CpuField | None = Field(
        default=None,
        description="limit of CPU of everything that runs in it: share of one core, or MHz of the host's nominal frequency",
        examples=["50 %", "200 MHz"],
    )
    cpu_reservation: Cores | None = Field(
        default=None,
        description="least CPU while the nodes want more than there is, share of one core",
        examples=["10 %"],
    )
    memory: Memory | None = Field(
        default=None, description="limit of memory of everything that runs in it", examples=["64 MiB"]
    )
    processes: int | None = Field(
        default=None,
        ge=8,
        le=8192,
        description="most processes and threads of its programs and commands; default: 1024",
        examples=[200],
    )
    env: dict[str, Word] = Field(
        default_factory=dict,
        description="environment of everything that runs in it; merged with the template's",
        examples=[{"SITE": "north"}],
    )
    files: dict[str, FileField] = Field(
        default_factory=dict,
        description="files that only this host sees, by path; merged with the template's",
        examples=[{"/etc/app.conf": "node = ${node}"}],
    )


class SwitchDefaults(Shape):
    """What every switch has that does not state its own."""

    delay: TimeRange | None = Field(
        default=None, description="switching delay, least..greatest", examples=["10..20 us"]
    )
    replication: TimeRange | None = Field(
        default=None,
        description="delay added where a flow branches (copying for several receivers, rendezvous point), least..greatest",
        examples=["5..8 us"],
    )


class AllSwitches(SwitchDefaults):
    """What every switch has that does not state its own."""

    engine: Literal["fabric", "ovs"] = Field(
        default="fabric", description="what forwards in every switch that does not state its own", examples=["ovs"]
    )


def _without_bridge(kind: str) -> str:
    """A bridge is a switch under its older name (IEEE 802.1D says bridge for both)."""
    return "switch" if kind == "bridge" else kind


class Gateway(Shape):
    """What a node of kind gateway does between its two interfaces. Hosts on its inside use it as default route, for names and leases."""

    outside: str | None = Field(
        default=None,
        description="name of its second interface in links; default: its name and -out",
        examples=["gw-out"],
    )
    address: str | None = Field(
        default=None, description="address of the second interface; default: assigned", examples=["10.1.0.1"]
    )
    nat: bool = Field(default=True, description="does the outside see the gateway's address only?", examples=[False])
    dhcp: bool = Field(default=True, description="does it lease addresses on the inside?", examples=[False])
    dns: bool = Field(default=True, description="does it answer for the names of all nodes?", examples=[False])
    domain: str | None = Field(default=None, description="domain of the names", examples=["plant.test"])
    uplink: bool = Field(
        default=False, description="a way to the real network; only false in this version", examples=[False]
    )


class Node(HostDefaults, SwitchDefaults):
    """A node. `h1: host` is short for `h1: {kind: host}`."""

    kind: (
        Annotated[Literal["host", "switch", "bridge", "segment", "gateway"], AfterValidator(_without_bridge)] | None
    ) = Field(
        default=None,
        description="host: an end system; gateway: a host that joins two subnets; switch: stores and forwards; segment: a shared half-duplex medium",
        examples=["host"],
    )
    gateway: Gateway | None = Field(
        default=None, description="what a gateway does; default: NAT, DHCP and DNS", examples=[{"nat": False}]
    )
    template: str | None = Field(
        default=None, description="of network.templates; what the node states itself wins", examples=["meter"]
    )
    clone_of: str | None = Field(
        default=None,
        description="a node whose definition it gets (all but the address; links are not copied); own keys win",
        examples=["h1"],
    )
    hostname: str | None = Field(
        default=None,
        description="host name; default: its name; may hold ${node} and ${index}",
        examples=["meter-${index}"],
    )
    engine: Literal["fabric", "ovs"] | None = Field(
        default=None,
        description="what forwards in a switch: fabric, or ovs: a bridge of a real Open vSwitch between emulated links "
        "(docs/switches.md); default: that of network.defaults, else fabric",
        examples=["ovs"],
    )
    address: str | None = Field(
        default=None,
        description="IPv4 address; default: assigned; dhcp: leased by the gateway",
        examples=["10.0.0.7", "dhcp"],
    )
    run: ProgramsField = Field(default_factory=list, description="programs of a host", examples=[["iperf3", "-s"]])
    mac: str | None = Field(
        default=None,
        description="MAC address of a host; default: made of its address, of a device behind a cable: asked for by ARP",
        examples=["02:00:00:00:00:01"],
    )
    interface: InterfaceField | None = Field(
        default=None, description="a real interface of this host", examples=["enp3s0"]
    )
    vm: Vm | None = Field(default=None, description="the host is a virtual machine")
    tdma: Tdma | None = Field(default=None, description="of a segment: slots of all who send on it")
    latitude: float | None = Field(
        default=None, ge=-90, le=90, strict=False, description="degrees north", examples=[52.52]
    )
    longitude: float | None = Field(
        default=None, ge=-180, le=180, strict=False, description="degrees east", examples=[13.4]
    )


def _node(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


NodeField = Annotated[Node, Short(_node, {"enum": ["host", "switch", "bridge", "segment", "gateway"]})]


class Import(Shape):
    """A topology from a file: its nodes become switches, named after their labels (else their ids; `n` before a number). Of a link rate (`bandwidth`,
    `capacity`, `rate`, ...), delay (`latency`, `delay`) and length (`dist`, `length`) are read, with a unit (`10 Mbit/s`, `50 ms`, `12.5 km`; `latency_ms: 50`; a
    length alone is in km). A length becomes a delay of 5 us/km, and so does the way by air where there are coordinates. In a directed
    graph both directions of a link keep their own values. A warning names every attribute of links that is not read, and how many links have it."""

    file: str = Field(description="GML, GraphML or topohub JSON", examples=["abilene.gml"])
    rate: Rate | None = Field(
        default=None, description="rate of its links; default: network.defaults", examples=["1 Gbit/s"]
    )
    hosts_per_node: int = Field(
        default=1, ge=0, le=1000, description="hosts joined to each node: Berlin gets Berlin-h1, ...", examples=[2]
    )
    host_rate: Rate | None = Field(default=None, description="rate of the hosts' links", examples=["100 Mbit/s"])


def _import(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class Defaults(Shape):
    """Defaults for links, switches and hosts."""

    link: LinkDefaults = Field(default_factory=LinkDefaults, description="for every link")
    switch: AllSwitches = Field(default_factory=AllSwitches, description="for every switch")
    host: HostDefaults = Field(default_factory=HostDefaults, description="for every host")


def _no_frame(value: Any) -> Any:
    if value == "none":
        return "0 B"
    with contextlib.suppress(units.UnitError):
        if isinstance(value, str) and units.parse(value, units.SIZE) == 0:
            raise fail(f"no frame has {value}", "best-effort: none says that there is no undeclared frame")
    return value


def _wire_frame(value: int) -> int:
    if value and not LEAST_FRAME <= value <= LARGEST_FRAME:
        raise fail(
            f"no frame of Ethernet has {value} B on the wire",
            f"state {LEAST_FRAME} B to {LARGEST_FRAME} B: the MTU, {HEADER + ETHERNET.unseen_bytes} B for headers, preamble and gap, and 4 B for every tag; or none",
        )
    return value


FrameField = Annotated[Size, AfterValidator(_wire_frame), Short(_no_frame, {"enum": ["none"]})]


class Framing(Shape):
    """How long frames are on the wire, everywhere in the network. A kind, or a list of kinds, is short for `kinds`."""

    kinds: list[Kind] = Field(
        default_factory=list,
        description="what frames bear beside an Ethernet header and check sequence: vlan a tag of 802.1Q (4 B), double-vlan two, prp the trailer (6 B) and hsr the "
        "tag (6 B) of IEC 62439-3, afdx the sequence number of ARINC 664 (1 B of the payload)",
        examples=[["vlan", "prp"]],
    )
    overhead: Size | None = Field(default=None, description="bytes that something else adds", examples=["4 B"])
    least: Size | None = Field(
        default=None,
        description="the shortest frame with all of it, from the destination address to the check sequence; default: everything is added to frames that "
        "were padded to 64 B (a tagged one has 68 B then), only afdx is padded with the payload",
        examples=["64 B"],
    )


def _framing(value: Any) -> Any:
    if isinstance(value, str):
        return {"kinds": [value]}
    if isinstance(value, list):
        return {"kinds": value}
    if not isinstance(value, dict):
        raise fail(
            "expected how frames are framed", f"use one of: {', '.join(KINDS)}; or {{overhead: 4 B, least: 64 B}}"
        )
    return value


_KINDS_SCHEMA = {"enum": list(KINDS)}
FramingField = Annotated[Framing, Short(_framing, _KINDS_SCHEMA, {"type": "array", "items": _KINDS_SCHEMA})]


class Network(Shape):
    """The network: nodes and links, written here or imported."""

    defaults: Defaults = Field(default_factory=Defaults, description="what nodes and links have where they state none")
    nodes: dict[str, NodeField] = Field(
        default_factory=dict,
        description="nodes by name or range of names",
        examples=[{"h[1-3]": "host", "s1": "switch"}],
    )
    templates: dict[str, NodeField] = Field(
        default_factory=dict,
        description="what nodes have in common, by name",
        examples=[{"meter": {"kind": "host", "mtu": 127}}],
    )
    links: list[LinkField] = Field(
        default_factory=list, description="links", examples=[[["h[1-3]", "s1"], {"between": ["s1", "s2"]}]]
    )
    machines: dict[str, Computer] = Field(
        default_factory=dict,
        description="two computers that emulate the network together (emulate --machine)",
        examples=[{"a": {"nodes": ["h1", "s1"], "address": "192.0.2.1"}}],
    )
    controller: ControllerField | None = Field(
        default=None,
        description="OpenFlow controller of the switches with engine: ovs; without one they forward along the scenario's routes",
        examples=[{"program": ["timebound", "controller", "/etc/timebound/controller.yaml"], "ready-port": 8321}],
    )
    framing: FramingField | None = Field(
        default=None,
        description="what frames bear on the wire beside Ethernet's own header and check sequence, on all links alike; default: nothing (ethernet)",
        examples=["vlan", ["vlan", "prp"], {"overhead": "4 B", "least": "64 B"}],
    )
    best_effort: FrameField | None = Field(
        default=None,
        description="the largest frame that may be on its way without being declared, on the wire with all tags, which bounds assume below "
        "every class at every port; none: everything is declared, as in many published cases; default: that of the hosts' largest mtu "
        "with the network's framing, and a full one of Ethernet (1538 B) at least",
        examples=["1542 B", "none"],
    )
    import_: Annotated[Import, Short(_import, {"type": "string"}), TextForm()] | None = Field(
        default=None, description="a topology file", examples=["backbone.gml"]
    )
