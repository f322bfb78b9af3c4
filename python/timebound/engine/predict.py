"""Prediction: the safe bounds of every stream, with the arrivals of answers worked out along the way.

A broker forwards when a PUBLISH arrives, so the jitter at its port depends on the bound of the way to it. Starting from
the declared jitters, all streams that follow others are given the jitter with which those arrive, until nothing
changes: the least fixed point. A stream that follows one without a finite bound promises nothing any more. What a broker with
known service times sends takes its response time as well, which in turn depends on when all packets reach it: `servers`.

How that point is found, and why it is safe: `settling`. How many analyses it takes grows with how strongly answers feed back, not with the number of flows; what
still changes beyond its limit has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from timebound.engine.causes import Causes
from timebound.engine.core import Network
from timebound.engine.named import Named
from timebound.engine.orders import Orders
from timebound.engine.outcome import Outcome, outcomes_of
from timebound.engine.servers import Servers
from timebound.engine.settling import Point, Settling, overriding
from timebound.engine.together import Together
from timebound.engine.windows import Windows
from timebound.stacks import Plan, Segment, Stream
from timebound.stacks.joined import Joined, with_joined


@dataclass(slots=True)
class Prediction:
    """Bounds of a plan. `streams` are the plan's, with the jitters that were worked out."""

    plan: Plan
    network: Network
    streams: dict[str, Stream]
    outcomes: dict[tuple[str, str], Outcome]
    ports: list[dict[str, Any]]
    rounds: int
    steady: Network
    """What the bounds are worked out on; differs from `network` where conditions change during the run."""
    servers: Servers
    """The brokers whose service times are known, with their response times."""
    orders: Orders = field(default_factory=Orders)
    """Hosts that are stopped or paused by schedule."""
    windows: Windows = field(default_factory=Windows)
    """Windows of TCP that may hold segments back."""
    effort: int | None = None
    """See `predict`."""
    looked_at: dict[str, int] | None = None
    """Where the effort was not enough for all streams: for how many (`streams`) of those over several ports (`of`) it was."""
    together: Together = field(default_factory=Together)
    """Packets of different kinds that may leave in one segment."""

    def observed(
        self,
        jitter_ns: Mapping[str, int],
        largest_bytes: Mapping[str, int] | None = None,
        beyond: Mapping[str, Joined] | None = None,
    ) -> dict[tuple[str, str], Outcome]:
        """Bounds for what was observed at the first ports, where it exceeds the declaration: jitters (ns) and largest frames (bytes on the wire) by
        stream. A sender that was held up may put several messages into one segment, which is transmitted as a whole at every port of its way.
        `beyond` are the arrivals of streams whose bytes no jitter explains: they stand for all that was seen of these.
        """
        beyond = beyond or {}
        larger = {
            name: size
            for name, size in (largest_bytes or {}).items()
            if name in self.streams and name not in beyond and size > self.streams[name].largest_frame
        }
        later = {
            name: jitter
            for name, jitter in jitter_ns.items()
            if name in self.streams and jitter > self.streams[name].jitter_ns
        }
        streams = {
            name: stream if name not in larger else _of_frames(stream, larger[name], later.get(name, 0))
            for name, stream in self.streams.items()
        }
        streams |= {name: replace(streams[name], joined=seen) for name, seen in beyond.items()}
        if not later and not larger and not beyond:
            return self.outcomes
        steady = self.steady
        if larger or beyond:
            steady = Network(self.plan, _steady(self.plan, streams, self.orders), self.effort)
        overrides = overriding({name: jitter for name, jitter in later.items() if name not in beyond}, streams)
        outcomes = outcomes_of(steady.bounds(overrides), streams, later)
        outcomes = Together(self.together.directions).added(streams, outcomes)
        found = Named(self.plan, self.streams).outcomes(self.windows.observed(streams, later, outcomes))
        return {
            # What has no bound as declared has none for later or larger frames.
            key: self.outcomes[key] if self.outcomes[key].reason else outcome
            for key, outcome in found.items()
        }

    def segment(self, segment: Segment) -> Outcome:
        """The bound of one segment."""
        return self.outcomes[segment.stream, segment.destination]


def network_of(plan: Plan, joined: Mapping[str, Joined] | None = None) -> Network:
    """The network that the bounds are worked out on, with the declared jitters; streams of `joined` leave in segments that several packets share.

    Raises:
        ScenarioError: it does not compile.
    """
    found = joined or {}
    streams = {stream.name: replace(stream, joined=found.get(stream.name)) for stream in plan.streams}
    return Network(plan, _steady(plan, streams, Orders.of(plan.scenario)))


def predict(
    plan: Plan,
    below: Mapping[str, int] | None = None,
    *,
    paths: bool = True,
    method: str = "bound",
    effort: int | None = None,
) -> Prediction:
    """Bounds for every stream of the plan.

    `below` spares rounds: jitters of answers that are known not to exceed those of this plan, as those of a prediction of fewer flows on the same
    ways in the same classes do not. The result is safe; it can lie some nanoseconds above the one from nothing, as a bound over stretches of ports can become less
    by what is added (a property test of `timebound.engine.judged` found 80 ns in 10 ms).
    Without `paths` outcomes have none, and of ports there is no more than name, utilisation and whether their buffers suffice. `method`, then: "bound", or
    "port-by-port", whose bounds are safe and larger (two and a half times where 40 flows share a way), and which takes a small part of the time there.
    `effort` is the work that "bound" may spend on several ports at once, streams with the least slack first; None is the core's own limit.

    Raises:
        ScenarioError: the network does not compile.
        ValueError: a method other than "bound" for what is shown: that has the least bounds.
    """
    orders = Orders.of(plan.scenario)
    if method != "bound" and (paths or plan.scenario.events or orders):
        raise ValueError(f"paths, and networks that change, have their bounds by the method bound, not {method}")
    streams = {stream.name: stream for stream in plan.streams}
    servers, causes, windows = Servers(plan), Causes(orders, streams), Windows.of(plan)
    together, named = Together.of(streams), Named(plan, streams)
    known = below or {}
    declared = dict(streams)
    settling = Settling(plan, together, causes, method, lowers=not known)
    streams = with_joined(streams)
    while True:
        network = Network(plan, _steady(plan, streams, orders), effort)
        jitters = {
            name: max(stream.jitter_ns, known.get(name, 0))
            for name, stream in streams.items()
            if stream.follows is not None
        }
        point, look = settling.settle(network, streams, Point(jitters, servers, windows))
        servers, windows, broken = point.servers, point.windows, look.broken
        for name, jitter in point.jitters.items():
            streams[name] = replace(streams[name], jitter_ns=jitter)
        # More packets than were counted on can leave together: jitters only grow, and a segment holds no more than it can.
        before, streams = streams, with_joined(streams)
        if not broken and not any(_is_larger(streams[name].joined, before[name].joined) for name in streams):
            break
        for name, outcome in broken.items():
            follows = streams[name].follows
            if follows is None or follows.through is not None:
                causes.broken[name] = outcome
            else:
                causes.broken[name] = causes.of((follows.stream or name, follows.destination), outcome)
            streams[name] = _unbounded(streams[name])
        if broken:
            streams = with_joined(streams)
    for name, jitter in windows.written({}, streams).items():
        streams[name] = replace(streams[name], jitter_ns=jitter)
    analysis, outcomes = look.analysis, look.outcomes
    # A network whose conditions change is emulated and simulated as it is, but not bounded.
    if not paths and not plan.scenario.events and not orders:
        found = named.outcomes(windows.added({key: causes.of(key, outcome) for key, outcome in outcomes.items()}))
        servers.name(named)
        looked_at = analysis.get("looked_at")
        return Prediction(
            plan,
            network,
            streams,
            found,
            named.ports(analysis["ports"]),
            settling.rounds,
            network,
            servers,
            orders,
            windows,
            effort,
            looked_at,
            together,
        )
    # What is simulated and emulated are the packets of each stream, by themselves; nor is it known there which of them meet.
    alone = {name: replace(stream, joined=None) for name, stream in streams.items()}
    changes = bool(plan.scenario.events or orders) or alone != streams
    steady = Network(plan, _steady(plan, streams, orders), effort) if changes else None
    network = Network(plan, _declaration(plan, alone), effort)
    analysis = (steady or network).bounds({})
    outcomes = together.added(streams, causes.cut(outcomes_of(analysis, streams)))
    outcomes = windows.added({key: _said(plan, causes.of(key, outcome)) for key, outcome in outcomes.items()})
    found = named.outcomes(outcomes)
    servers.name(named)
    ports = named.ports(loaded(plan, declared, orders, streams, analysis["ports"]))
    looked_at = analysis.get("looked_at")
    return Prediction(
        plan,
        network,
        streams,
        found,
        ports,
        settling.rounds,
        steady or network,
        servers,
        orders,
        windows,
        effort,
        looked_at,
        together,
    )


def loaded(
    plan: Plan, declared: dict[str, Stream], orders: Orders, streams: dict[str, Stream], ports: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The ports with the utilisation of all that is declared, also of streams that promise nothing any more: an overload must not hide what it leads to."""
    if all(streams[name].period_ns == stream.period_ns for name, stream in declared.items()):
        return ports
    loads = Network(plan, _steady(plan, declared, orders)).bounds({}, "port-by-port")["ports"]
    return [{**port, "utilisation": load["utilisation"]} for port, load in zip(ports, loads, strict=True)]


def _is_larger(now: Joined | None, before: Joined | None) -> bool:
    """Can larger segments leave, or any that several packets share, than was counted on? The burst is not meant: it follows the jitter."""
    return now is not None and (before is None or now.frame_bytes > before.frame_bytes)


def _unbounded(stream: Stream) -> Stream:
    """The same stream once it promises nothing: it answers one that has no finite bound. Of what TCP carries any number can share a segment then."""
    frame = stream.largest_frame if stream.tcp is None else stream.tcp.wire.packet(stream.tcp.mtu)
    pattern = stream.release
    if pattern["kind"] in ("periodic", "sporadic") and stream.period_ns is not None:
        pattern = {
            "kind": "burst",
            "gap_ns": stream.period_ns + pattern.get("mean_extra_ns", 0),
            "frames": len(stream.frames_bytes),
            # A burst has frames of one size: as many, and as many bytes, as a release has.
            "frame_bytes": -(-sum(stream.frames_bytes) // len(stream.frames_bytes)),
        }
    return replace(
        stream,
        period_ns=None,
        jitter_ns=0,
        frames_bytes=(frame,),
        release=pattern,
        follows=None,
        bucket=None,
        joined=None,
    )


def _of_frames(stream: Stream, largest: int, jitter_ns: int) -> Stream:
    """The same stream with frames of that size where its own are smaller: of what TCP carries they are segments that several packets share."""
    if stream.tcp is not None and stream.period_ns is not None:
        jitter, payload = max(stream.jitter_ns, jitter_ns), stream.tcp.wire.segment_payload(largest)
        # A full one may be the first of several that were filled together.
        together = payload + (payload >= stream.tcp.largest_segment)
        return replace(stream, joined=Joined.of(stream.tcp, stream.period_ns, jitter, together))
    return replace(
        stream,
        frames_bytes=tuple(max(size, largest) for size in stream.frames_bytes),
        smallest_frame=min(stream.frames_bytes) if stream.smallest_frame is None else stream.smallest_frame,
    )


def _declaration(plan: Plan, streams: dict[str, Stream]) -> dict[str, Any]:
    return {**plan.scenario.declaration(), "streams": [stream.declaration() for stream in streams.values()]}


def _steady(plan: Plan, streams: dict[str, Stream], orders: Orders) -> dict[str, Any]:
    """The declaration for the bounds: a link whose conditions change (`at:`) is one that is interrupted, and frames of hosts that are paused or
    come back declare no arrivals.

    The analysis knows one condition per port. An interruption is what it refuses in any case, so no bound is
    printed for a flow that such a change could touch.
    """
    if orders:
        streams = {
            name: stream if orders.upset(stream) is None else _unbounded(stream) for name, stream in streams.items()
        }
    declaration = _declaration(plan, streams)
    changed = {event.link for event in plan.scenario.events}
    if not changed:
        return declaration
    links = [
        {**link, **{side: _interrupted(link[side]) for side in ("forward", "backward")}} if index in changed else link
        for index, link in enumerate(declaration["links"])
    ]
    return {**declaration, "links": links}


def _said(plan: Plan, outcome: Outcome) -> Outcome:
    """Says of a link whose conditions change that they change, not that it is interrupted."""
    if outcome.reason is None:
        return outcome
    reason = outcome.reason
    for event in plan.scenario.events:
        link = plan.scenario.links[event.link]
        for name in (f"{link.a}->{link.b}", f"{link.b}->{link.a}"):
            reason = reason.replace(f"port {name} is out of service at times", f"the conditions of port {name} change")
    return replace(outcome, reason=reason)


def _interrupted(direction: dict[str, Any]) -> dict[str, Any]:
    impairments = direction["impairments"]
    return {**direction, "impairments": {**impairments, "outages": [*impairments["outages"], [0, 1]]}}
