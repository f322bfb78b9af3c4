"""`background`, `at` and `run` -> traffic, events and limits."""

from __future__ import annotations

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.graph import Graph
from timebound.scenario.lifecycle import is_node_target
from timebound.scenario.model import Background, Direction, Event, Impairments, Precision, Run, Simulate
from timebound.scenario.names import is_flow_name
from timebound.scenario.resolve_flows import resolve_hosts
from timebound.scenario.resolve_network import Net, resolve_jitter, resolve_loss
from timebound.scenario.resolve_plane import resolve_data_plane
from timebound.scenario.tree import Path
from timebound.scenario.units import TIME, UnitError, integer, parse

_NEEDED = {
    "tcp": (),
    "udp": ("rate",),
    "poisson": ("rate",),
    "burst": ("period", "frames"),
    "request-response": ("period", "response"),
    "video": ("rate",),
}
_ALLOWED = {
    "tcp": {"rate"},
    "udp": {"rate", "size"},
    "poisson": {"rate", "size"},
    "burst": {"size", "period", "frames"},
    "request-response": {"size", "response", "period"},
    "video": {"rate", "size", "frames_per_second"},
}
_EXAMPLES = {
    "rate": "rate: 5 Mbit/s",
    "period": "period: 100 ms",
    "frames": "frames: 20",
    "response": "response: 2 kB",
}
_FIELDS = {"from": "source", "to": "destination", "rate": "rate_bps", "size": "size_bytes", "period": "gap_ns"}
MOST_BACKGROUND = 10_000
_LARGEST_DATAGRAM = 1472


def resolve_background(
    items: list[shape.Background], net: Net, graph: Graph, context: Context
) -> tuple[Background, ...]:
    """One source of traffic per pair of hosts."""
    traffic: list[Background] = []
    names: set[str] = set()
    for index, item in enumerate(items):
        path: Path = ("background", index)
        _check_background(item, path, context)
        sources = resolve_hosts(item.from_, net, (*path, "from"), context)
        destinations = resolve_hosts(item.to, net, (*path, "to"), context)
        pairs = [(a, b) for a in sources for b in destinations]
        base = item.name or f"{item.kind}-{index + 1}"
        if len(traffic) + len(pairs) > MOST_BACKGROUND:
            context.error(path, f"more than {MOST_BACKGROUND} sources of background", "make the ranges smaller")
            break
        for number, (source, destination) in enumerate(pairs, 1):
            if source == destination:
                context.error((*path, "to"), f"{source!r} sends to itself", "a receiver is another host")
            elif not graph.reaches(source, destination):
                context.error((*path, "to"), f"{destination!r} cannot be reached from {source!r}", "add the link")
            name = base if len(pairs) == 1 else f"{base}[{number}]"
            if name in names:
                context.error((*path, "name"), f"duplicate background {name!r}", "rename one of them")
                break
            names.add(name)
            context.remember(f"background[{len(traffic)}]", path, _FIELDS)
            traffic.append(_background(item, name, source, destination))
    return tuple(traffic)


def _background(item: shape.Background, name: str, source: str, destination: str) -> Background:
    default_size = 200 if item.kind == "request-response" else _LARGEST_DATAGRAM
    return Background(
        name=name,
        kind=item.kind,
        source=source,
        destination=destination,
        priority=item.priority,
        rate_bps=item.rate,
        size_bytes=default_size if item.size is None else item.size,
        frames=item.frames or 1,
        gap_ns=item.period or 0,
        response_bytes=item.response or 0,
        frames_per_second=item.frames_per_second or 25,
        start_ns=item.start,
        stop_ns=item.stop,
    )


def _check_background(item: shape.Background, path: Path, context: Context) -> None:
    for key in ("rate", "size", "response", "period", "frames", "frames_per_second"):
        stated = getattr(item, key) is not None
        written = key.replace("_", "-")
        if key in _NEEDED[item.kind] and not stated:
            context.error(path, f"background of kind {item.kind} needs {written}", _EXAMPLES[key])
        elif stated and key not in _ALLOWED[item.kind]:
            allowed = ", ".join(sorted(name.replace("_", "-") for name in _ALLOWED[item.kind]))
            hint = f"{item.kind} takes: {allowed}"
            context.error((*path, written), f"{written} has no meaning for {item.kind}", hint)
    if item.name is not None and not is_flow_name(item.name):
        context.error((*path, "name"), f"{item.name!r} is no name", "use letters, digits, '_', '.', '-', '/'")
    if item.size is not None and not 1 <= item.size <= (
        10_000_000 if item.kind == "request-response" else _LARGEST_DATAGRAM
    ):
        context.error((*path, "size"), f"a datagram of {item.size} B", f"use 1 B to {_LARGEST_DATAGRAM} B")
    if item.period == 0:
        context.error((*path, "period"), "a period of zero", "state the time between two of them")
    if item.stop is not None and item.stop <= item.start:
        context.error((*path, "stop"), "it stops before it starts", "stop later than start")


def event_times(at: dict[str, dict[str, shape.Change]], duration_ns: int, context: Context) -> dict[int, str]:
    """Time -> key of `at`, as far as the times can be read."""
    timed: dict[int, str] = {}
    for key in at:
        try:
            time = integer(parse(key, TIME))
            if time in timed:
                context.key_error(("at", key), f"{key} is the same time as {timed[time]}", "write them as one")
            timed[time] = key
        except UnitError as error:
            context.key_error(("at", key), error.message, error.hint)
    for time, key in sorted(timed.items()):
        if time > duration_ns:
            context.key_error(("at", key), f"{key} lies behind the end of the run", "make run.duration longer")
    return timed


def resolve_events(
    at: dict[str, dict[str, shape.Change]], times: dict[int, str], net: Net, context: Context
) -> tuple[Event, ...]:
    """Events in the order of time; each carries the link's whole conditions from then on."""
    state: dict[int, tuple[bool, Direction, Direction]] = {}
    events: list[Event] = []
    for time, key in sorted(times.items()):
        for target, change in at[key].items():
            if is_node_target(target):
                continue
            path: Path = ("at", key, target)
            if change.state is not None:
                context.key_error(path, f"{change.state} is an order for a node", "write link s1-s4: {up: false}")
            for index, forward, backward in _targets(target, net, path, context):
                link = net.links[index]
                up, ahead, back = state.get(index, (True, link.forward, link.backward))
                if change.up is not None:
                    up = change.up
                if forward:
                    ahead = _changed(ahead, change, path, context)
                if backward:
                    back = _changed(back, change, path, context)
                state[index] = (up, ahead, back)
                context.remember(f"events[{len(events)}]", path)
                changed = tuple(name for name in sorted(change.model_fields_set) if getattr(change, name) is not None)
                events.append(
                    Event(
                        at_ns=time,
                        link=index,
                        up=up,
                        forward=ahead,
                        backward=back,
                        target=" ".join(target.split()),
                        changed=changed,
                    )
                )
    return tuple(events)


def _targets(target: str, net: Net, path: Path, context: Context) -> list[tuple[int, bool, bool]]:
    """The links that `link a-b` (both directions) or `link a->b` (one) means."""
    kind, _, ends = target.partition(" ")
    ends = ends.strip()
    if kind != "link" or not ends:
        context.key_error(
            path, f"{target!r} is no target of a change", "write link s1-s4, link s1->s4 for one way, or node h1"
        )
        return []
    directed = "->" in ends
    separator = "->" if directed else "-"
    cuts = [position for position in range(len(ends)) if ends.startswith(separator, position)]
    pairs = [(ends[:cut].strip(), ends[cut + len(separator) :].strip()) for cut in cuts]
    for a, b in pairs:
        if a in net.nodes and b in net.nodes:
            found = net.links_between(a, b)
            if not found:
                context.key_error(path, f"no link between {a!r} and {b!r}", "name two neighbours")
            return [
                (index, not directed or net.links[index].a == a, not directed or net.links[index].a == b)
                for index in found
            ]
    unknown = next((name for pair in pairs for name in pair if name not in net.nodes), ends)
    context.key_error(path, f"unknown node {unknown!r}", close_to(unknown, net.nodes, "write link s1-s4"))
    return []


def _changed(direction: Direction, change: shape.Change, path: Path, context: Context) -> Direction:
    before = direction.impairments
    stated = change.model_fields_set
    return Direction(
        rate_bps=direction.rate_bps if change.rate is None else change.rate,
        delay_ns=direction.delay_ns if change.delay is None else change.delay,
        queue=direction.queue,
        buffer_bytes=direction.buffer_bytes,
        impairments=Impairments(
            jitter=before.jitter
            if "jitter" not in stated or change.jitter is None
            else resolve_jitter(change.jitter, (*path, "jitter"), context),
            loss=before.loss if "loss" not in stated or change.loss is None else resolve_loss(change.loss),
            corruption=before.corruption if change.corruption is None else change.corruption,
            corruption_drops=before.corruption_drops,
            duplication=before.duplication if change.duplication is None else change.duplication,
            outages=before.outages,
        ),
    )


def resolve_run(run: shape.Run, net: Net, context: Context) -> Run:
    """Limits of the run; captures name existing ports."""
    captures: list[str] = []
    for index, capture in enumerate(run.captures):
        path: Path = ("run", "captures", index)
        a, arrow, b = (part.strip() for part in capture.partition("->"))
        unknown = [name for name in (a, b) if name not in net.nodes]
        if not arrow:
            context.error(path, f"{capture!r} is no port", "write h1->s1: the port of h1 towards s1")
        elif unknown:
            context.error(path, f"unknown node {unknown[0]!r}", close_to(unknown[0], net.nodes, "write h1->s1"))
        elif not net.links_between(a, b):
            context.error(path, f"no link between {a!r} and {b!r}", "name two neighbours")
        elif f"{a}->{b}" not in captures:
            captures.append(f"{a}->{b}")
    return Run(
        duration_ns=run.duration,
        warm_up_ns=run.warm_up,
        seed=run.seed,
        captures=tuple(captures),
        simulate=Simulate(duration_ns=run.simulate.duration or run.duration, evaluations=run.simulate.search),
        log_limit_bytes=run.log_limit,
        precision=Precision(
            lateness_p99_ns=run.precision.lateness_p99,
            late_frame_ns=run.precision.late_frame,
            late_share=run.precision.late_share,
            ring_lost=run.precision.ring_lost,
            longest_overrun_ns=run.precision.longest_overrun,
            steal=run.precision.steal,
        ),
        data_plane=resolve_data_plane(run.data_plane, net, context),
    )
