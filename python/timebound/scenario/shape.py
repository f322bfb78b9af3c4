"""The shape of a scenario file: one set of models for checking, JSON Schema and reference."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from timebound.scenario.fields import (
    Duration,
    Effort,
    NodeNames,
    Rate,
    Shape,
    Share,
    Short,
    Size,
    Time,
    TimeRange,
    fail,
)
from timebound.scenario.shape_media import TokenBucket
from timebound.scenario.shape_network import DisconnectionsField, JitterField, LossField, Network, Profile
from timebound.scenario.shape_plane import DataPlane
from timebound.scenario.shape_stack import Stack, stack_field


def _routes(value: Any) -> Any:
    """One way is a list of nodes, several are a list of those; a node may be called by a number, as everywhere."""
    if not isinstance(value, list):
        return value
    ways = [value] if value and not isinstance(value[0], list) else value
    return [
        [str(name) if type(name) is int else name for name in way] if isinstance(way, list) else way for way in ways
    ]


RoutesField = Annotated[list[list[str]], Short(_routes, {"type": "array", "items": {"type": "string"}})]


class Flow(Shape):
    """Messages that an application publishes again and again. Several hosts under `from`, or `count`, make instances
    `name[1]`, `name[2]`, ..., each a client of its own."""

    name: str = Field(description="name", examples=["alpha"])
    from_: NodeNames = Field(description="publishing host, or several", examples=["h1"])
    to: NodeNames = Field(description="receiving hosts", examples=[["h5", "h10"]])
    topic: str | None = Field(default=None, description="topic; default: the flow's name", examples=["plant/alpha"])
    size: Size = Field(
        description="payload of one message, from 0 B; headers come on top",
        examples=["1446 B"],
    )
    least_size: Size | None = Field(
        default=None,
        description="the smallest payload that a message may have, where not all have size: smaller ones arrive earlier, and bounds count "
        "that; simulated and emulated ones have size",
        examples=["0 B"],
    )
    period: TimeRange | None = Field(
        default=None,
        description="time between releases; of a range each instance draws its own on a grid of 1 us",
        examples=["15..20 ms"],
    )
    jitter: Time = Field(default=0, description="a message is released up to this late", examples=["0.4 ms"])
    deadline: Time | None = Field(default=None, description="from nominal release to reception", examples=["15 ms"])
    priority: int = Field(
        default=1, ge=0, le=7, description="class 0..7, 7 most urgent; best effort is 0", examples=[5]
    )
    qos: int = Field(default=0, ge=0, le=2, description="MQTT quality of service", examples=[1])
    count: int = Field(default=1, ge=1, le=20_000, description="instances per publishing host", examples=[20])
    pattern: Literal["periodic", "sporadic", "poisson", "trace"] = Field(
        default="periodic",
        description="periodic; sporadic: period is the least gap; poisson: period is the mean gap (no bound); "
        "trace: the times given",
        examples=["sporadic"],
    )
    mean_extra: Time | None = Field(
        default=None, description="sporadic: mean of the extra gap; default: half the period", examples=["5 ms"]
    )
    offset: Time | None = Field(default=None, description="first nominal release; default: drawn", examples=["3 ms"])
    trace: list[Time] = Field(default_factory=list, description="release times, in order", examples=[["0 ms", "7 ms"]])
    token_bucket: TokenBucket | None = Field(
        default=None,
        description="instead of a period: the burst at once, then at the rate, and again when the bucket is full (UDP alone)",
        examples=[{"rate": "2 Mbit/s", "burst": "10 kB"}],
    )
    broker: str | None = Field(
        default=None, description="the broker that serves all receivers; default: the nearest of each", examples=["h5"]
    )
    via: list[str] | None = Field(
        default=None,
        min_length=1,
        description="brokers on the way, in order: the publisher connects to the first, each forwards to the next over a bridge "
        "(a connection of its own for every flow), the receivers connect to the last",
        examples=[["b1", "b2"]],
    )
    start: Time = Field(
        default=0,
        description="its clients connect at that time of the run (warm-up included) and publish from then; 0: before it",
        examples=["2 s"],
    )
    join: Time = Field(
        default=0, description="time between the starts of one instance and the next", examples=["50 ms"]
    )
    content: str | None = Field(
        default=None,
        description="text file (relative to this one) whose beginning fills a message behind its measurement header",
        examples=["metering.xml"],
    )
    route: RoutesField = Field(
        default_factory=list,
        description="the way of its frames, node by node from host to host, or several such ways: to the broker and from it, or to each "
        "receiver; answers go back the same way; default: the shortest",
        examples=[["h1", "s1", "s6", "s2", "h5"]],
    )
    connection: str | None = Field(
        default=None,
        min_length=1,
        description="flows of one host with the same name here share its TCP connection to the broker: a segment may carry several of their "
        "messages, and each direction has the highest class of its flows; default: a connection of its own (predicted and simulated; clients of an emulation have their own)",
        examples=["c17"],
    )
    after: str | None = Field(
        default=None,
        min_length=1,
        description="the flow whose messages these are: its broker passes them on to the receivers here, with this flow's class, QoS, deadline and "
        "connection; from, topic, size, period and jitter are those of that flow (not emulated)",
        examples=["alpha"],
    )
    multicast: bool = Field(
        default=False,
        description="with after: between edge networks. The broker at which the messages of that flow come in (`broker`) sends each of them once to a UDP "
        "multicast group of the brokers in `to`, which deliver to flows that come after this one; with QoS 1 and 2 they acknowledge, on a way of `route` that begins at them where there is one (not emulated)",
        examples=[True],
    )
    sealed: bool = Field(
        default=False,
        description="with multicast: the managers have TLS between them, so each datagram is 28 B longer and each of their reports 22 B (not emulated)",
        examples=[True],
    )
    programs: NodeNames = Field(
        default_factory=list,
        description="hosts of from and to whose own program (run) publishes or receives its messages: no built-in client is started there, and they are "
        "measured by topic on the wire (docs/nodes.md)",
        examples=["h1"],
    )
    reserve: bool = Field(
        default=True,
        description="rt-mqtt, mrt-mqtt and dm-mqtt: its clients ask for a channel, if it has a deadline; false: they ask for nothing, and it is best effort",
        examples=[False],
    )


class Assigned(Shape):
    """What `timebound predict --assign` found for a flow, or for one instance of it: it counts in place of what the flow states."""

    priority: int | None = Field(default=None, ge=0, le=7, description="class 0..7", examples=[5])
    route: RoutesField = Field(
        default_factory=list, description="as in the flow", examples=[["h1", "s1", "s6", "s2", "h5"]]
    )


class Background(Shape):
    """Traffic that nobody measures but everybody meets; one source of traffic per pair of hosts."""

    kind: Literal["tcp", "udp", "poisson", "burst", "request-response", "video"] = Field(
        description="tcp: bulk; udp: constant rate; poisson: random gaps; burst: frames back to back every period; "
        "request-response; video: frames in groups",
        examples=["tcp"],
    )
    name: str | None = Field(default=None, description="name; default: kind and number", examples=["backup"])
    from_: NodeNames = Field(description="sending host or hosts", examples=["h3"])
    to: NodeNames = Field(description="receiving host or hosts", examples=["h5"])
    rate: Rate | None = Field(
        default=None, description="rate on the wire; tcp without it sends as fast as it can", examples=["10 Mbit/s"]
    )
    size: Size | None = Field(
        default=None, description="payload of a datagram or request; default 1472 B, request 200 B", examples=["1000 B"]
    )
    response: Size | None = Field(
        default=None, description="request-response: payload of the answer", examples=["20 kB"]
    )
    period: Time | None = Field(default=None, description="time between bursts or requests", examples=["100 ms"])
    frames: int | None = Field(
        default=None, ge=1, le=10_000, description="burst: datagrams back to back", examples=[20]
    )
    frames_per_second: int | None = Field(default=None, ge=1, le=1000, description="video: pictures", examples=[25])
    token_bucket: TokenBucket | None = Field(
        default=None,
        description="poisson and video: what the source is declared to keep to, so that there are bounds beside it",
        examples=[{"rate": "12 Mbit/s", "burst": "50 kB"}],
    )
    program: Literal["d-itg", "vsftpd", "vlc"] | None = Field(
        default=None,
        description="the program that makes it in an emulation, which must be installed; tcp: d-itg (ITGSend, ITGRecv) or vsftpd (a download with curl); "
        "video: vlc; default: Timebound's own generator",
        examples=["vlc"],
    )
    priority: int = Field(default=0, ge=0, le=7, description="class 0..7", examples=[0])
    start: Time = Field(default=0, description="when it starts", examples=["5 s"])
    stop: Time | None = Field(default=None, description="when it ends; default: with the run", examples=["20 s"])


class Change(Shape):
    """What changes from that time on: conditions of a link, or the state of nodes (`node h[1-3]: stop`)."""

    rate: Rate | None = Field(default=None, description="rate", examples=["1 Mbit/s"])
    delay: Time | None = Field(default=None, description="delay, one way", examples=["20 ms"])
    loss: LossField | None = Field(default=None, description="loss", examples=["30 %"])
    jitter: JitterField | None = Field(default=None, description="jitter", examples=["2 ms"])
    corruption: Share | None = Field(default=None, description="corruption", examples=["1 %"])
    duplication: Share | None = Field(default=None, description="duplication", examples=["1 %"])
    corruption_drops: bool | None = Field(default=None, description="are damaged frames dropped?", examples=[True])
    buffer: Size | None = Field(
        default=None, description="room of each class's queue; frames that wait stay", examples=["64 KiB"]
    )
    disconnections: DisconnectionsField | None = Field(default=None, description="times down at random")
    queued: Literal["held", "dropped"] | None = Field(
        default=None, description="what frames that wait do while the link carries nothing", examples=["held"]
    )
    up: bool | None = Field(
        default=None,
        description="false: nothing passes; true: it passes again; in short link s1-s4: down",
        examples=[False],
    )
    conditions: str | None = Field(
        default=None,
        description="name of conditions: what the link was declared with, and over it what they state; original: what it "
        "was declared with. What else is stated here comes on top",
        examples=["original"],
    )
    every: Time | None = Field(default=None, description="again and again after this time", examples=["60 s"])
    until: Time | None = Field(
        default=None,
        description="last time at which it may happen again; default: the end of the run",
        examples=["5 min"],
    )
    over: Time | None = Field(
        default=None,
        description="in steps of equal length, linearly, over this time from the values then",
        examples=["10 s"],
    )
    steps: int | None = Field(default=None, ge=1, le=10_000, description="steps of `over`; 10", examples=[20])
    state: Literal["stop", "start", "restart", "pause", "resume"] | None = Field(
        default=None,
        description="nodes only (links: up, down); stop: its processes end and its interface goes down; start: both come back; pause: its "
        "processes stand still, while its kernel goes on; resume",
        examples=["stop"],
    )


def _change(value: Any) -> Any:
    """In one word: of a link `up` or `down`, of a node its order."""
    if value in ("up", "down"):
        return {"up": value == "up"}
    return {"state": value} if isinstance(value, str) else value


ChangeField = Annotated[Change, Short(_change, {"enum": ["up", "down", "stop", "start", "restart", "pause", "resume"]})]


class Simulate(Shape):
    """Limits of the simulator."""

    duration: Duration | None = Field(
        default=None, description="simulated time; default: run.duration", examples=["60 s"]
    )
    search: Effort = Field(
        default=200,
        description="the search for the worst case: evaluations (0: none), which is reproducible, or for how long",
        examples=[20000, "30 s"],
    )


class Precision(Shape):
    """From what on an emulation calls itself disturbed; defaults are those of the emulator (crates/live/src/plan.rs)."""

    lateness_p99: Time | None = Field(
        default=None,
        description="departures later than this at the 99th percentile: disturbed; 1 ms where not given",
        examples=["0.5 ms"],
    )
    late_frame: Time | None = Field(
        default=None, description="a frame that leaves later than this is a late one; 5 ms", examples=["2 ms"]
    )
    late_share: Share | None = Field(default=None, description="greatest share of late frames; 0.5 %", examples=["1 %"])
    ring_lost: int | None = Field(
        default=None, ge=0, le=2**53, description="most frames that the emulator itself may lose; 0", examples=[10]
    )
    longest_overrun: Time | None = Field(
        default=None,
        description="longest time for which the data plane may be kept from running; 20 ms",
        examples=["10 ms"],
    )
    steal: Share | None = Field(
        default=None, description="greatest share of CPU time that a hypervisor may take; 5 %", examples=["1 %"]
    )


class Run(Shape):
    """How long, with which seed, what is recorded."""

    duration: Duration = Field(default=10_000_000_000, description="measured part of the run", examples=["30 s"])
    warm_up: Time = Field(default=1_000_000_000, description="time before it, not measured", examples=["2 s"])
    seed: int = Field(default=1, ge=0, le=2**53, description="seed of every random stream", examples=[1])
    captures: list[str] = Field(
        default_factory=list, description="ports captured as pcapng", examples=[["h1->s1", "s1->s4"]]
    )
    log_limit: Size = Field(
        default=64 * 2**20, description="bytes kept of each program's output; the rest is dropped", examples=["64 MiB"]
    )
    simulate: Simulate = Field(default_factory=Simulate, description="limits of the simulator")
    precision: Precision = Field(default_factory=Precision, description="limits of the emulation's own error")
    data_plane: DataPlane = Field(default_factory=DataPlane, description="how an emulation moves frames")


def _flows(value: Any) -> Any:
    """The mapping form: the key is the name."""
    if not isinstance(value, dict):
        return value
    return [{"name": name, **flow} if isinstance(flow, dict) else flow for name, flow in value.items()]


def _printable(value: str) -> str:
    """Names are printed on terminals, where control characters are orders."""
    if not value.isprintable():
        raise fail(f"{value!r} has characters that cannot be printed", "use letters, digits and punctuation")
    return value


class ScenarioShape(Shape):
    """A scenario file."""

    name: Annotated[str, AfterValidator(_printable)] = Field(
        min_length=1, max_length=100, description="name of the scenario", examples=["edge-networks"]
    )
    description: str = Field(default="", description="what it is about", examples=["Three cells and their brokers"])
    reading: str = Field(
        default="", description="which reading of a published experiment this is", examples=["topics-of-a"]
    )
    include: Annotated[
        list[str], Short(lambda value: [value] if isinstance(value, str) else value, {"type": "string"})
    ] = Field(default_factory=list, description="files on which this one builds", examples=[["base.yaml"]])
    parameters: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="values for ${name}, to be changed by --set", examples=[{"n": 20}]
    )
    network: Network = Field(description="nodes and links")
    flows: Annotated[list[Flow], Short(_flows, {"type": "object", "additionalProperties": {"type": "object"}})] = Field(
        default_factory=list, description="flows, as a list or by name"
    )
    assigned: dict[str, Assigned] = Field(
        default_factory=dict,
        description="classes and routes by name of the flow or of an instance, in place of those that the flows state",
        examples=[{"alpha": {"priority": 6}}],
    )
    stack: Annotated[Stack, Short(stack_field, {"enum": ["udp"]})] = Field(description="what carries the flows")
    background: list[Background] = Field(default_factory=list, description="other traffic")
    conditions: dict[str, Profile] = Field(
        default_factory=dict,
        description="conditions by name, for links and changes",
        examples=[{"edge": {"rate": "250 kbit/s", "delay": "30 ms", "loss": "30 %"}}],
    )
    at: dict[str, dict[str, ChangeField]] = Field(
        default_factory=dict,
        description="changes during the run, by time since its start (warm-up included) and link, links, segment or nodes",
        examples=[{"30 s": {"link s1-s4": {"loss": "30 %"}, "node h[1-3]": "stop"}}],
    )
    run: Run = Field(default_factory=Run, description="how it is run")
