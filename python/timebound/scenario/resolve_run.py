"""`background` and `run` -> traffic and limits."""

from __future__ import annotations

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.fields import SearchTime
from timebound.scenario.graph import Graph
from timebound.scenario.model import Background, Precision, Run, Simulate
from timebound.scenario.names import is_flow_name
from timebound.scenario.resolve_media import bucket, check_burst
from timebound.scenario.resolve_network import Net
from timebound.scenario.resolve_plane import resolve_data_plane
from timebound.scenario.resolve_stack import resolve_hosts
from timebound.scenario.tree import Path

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
    "poisson": {"rate", "size", "token_bucket"},
    "burst": {"size", "period", "frames"},
    "request-response": {"size", "response", "period"},
    "video": {"rate", "size", "frames_per_second", "token_bucket"},
}
_EXAMPLES = {
    "rate": "rate: 5 Mbit/s",
    "period": "period: 100 ms",
    "frames": "frames: 20",
    "response": "response: 2 kB",
}
_FIELDS = {
    "from": "source",
    "to": "destination",
    "rate": "rate_bps",
    "size": "size_bytes",
    "period": "gap_ns",
    "token-bucket": "token_bucket",
    "program": "program",
}
_MADE_BY: dict[str, tuple[str, ...]] = {"tcp": ("d-itg", "vsftpd"), "video": ("vlc",)}
"""Programs by the kind of traffic that they make."""
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
        check_burst(item.token_bucket, path, context)
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
        token_bucket=bucket(item.token_bucket),
        program=item.program,
    )


def _check_background(item: shape.Background, path: Path, context: Context) -> None:
    for key in ("rate", "size", "response", "period", "frames", "frames_per_second", "token_bucket"):
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
    if item.program is not None:
        _check_program(item, item.program, path, context)
    if item.stop is not None and item.stop <= item.start:
        context.error((*path, "stop"), "it stops before it starts", "stop later than start")


def _check_program(item: shape.Background, program: str, path: Path, context: Context) -> None:
    """Can this program make this traffic? What a program sends is best effort, and nobody keeps it to more than its largest frame."""
    made = _MADE_BY.get(item.kind, ())
    if program not in made:
        hint = (
            f"{item.kind} takes: {', '.join(made)}"
            if made
            else f"leave it out: only {' and '.join(_MADE_BY)} are made by programs"
        )
        context.error((*path, "program"), f"{program} makes no {item.kind} traffic", hint)
    if item.rate is None:
        context.error(path, f"background made by {program} needs rate", _EXAMPLES["rate"])
    if item.priority:
        context.error((*path, "priority"), f"what {program} sends is best effort", "leave out priority, or program")
    if item.token_bucket is not None:
        context.error(
            (*path, "token-bucket"), f"{program} keeps to no token bucket", "leave out token-bucket, or program"
        )


def _simulate(run: shape.Run) -> Simulate:
    duration_ns = run.simulate.duration or run.duration
    match run.simulate.search:
        case SearchTime(nanoseconds):
            return Simulate(duration_ns=duration_ns, evaluations=0, search_ns=nanoseconds)
        case evaluations:
            return Simulate(duration_ns=duration_ns, evaluations=evaluations)


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
        simulate=_simulate(run),
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
