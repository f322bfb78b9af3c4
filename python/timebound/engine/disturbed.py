"""Whose doing a run's late messages were: sources that sent more than they declare, and the machine, which then disturbed the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from timebound.engine.figures import micros
from timebound.engine.late import MACHINE
from timebound.engine.observed import Arrivals, Release
from timebound.stacks import Stream

if TYPE_CHECKING:
    from timebound.engine.summary import Results

NAMED = 3
"""Sources that are named for one flow."""
OF_RATE = 0.01
"""By so much more releases are a higher rate."""
LEAST_SHARE = 0.1
"""A run is disturbed when the machine made this share of its late messages late: one hiccup among a thousand says nothing about the others."""


def exceeders(results: Results, paths: Mapping[str, Mapping[str, Iterable[str]]]) -> dict[str, list[dict[str, Any]]]:
    """Port -> streams over it that came less regularly than declared or in larger frames, the worst first."""
    measured, streams = results.measured, results.prediction.streams
    if measured is None:
        return {}
    late = _released_late(results)
    found = []
    for name, seen in measured.arrivals.items():
        stream = streams[name]
        if seen.jitter_ns is None or stream.period_ns is None:
            continue
        more = max(0, seen.jitter_ns - stream.jitter_ns)
        is_larger = seen.largest_wire > stream.largest_frame
        if not more and not is_larger and seen.beyond is None:
            continue
        entry = {
            "stream": name,
            "source": stream.source,
            "declared_jitter_us": micros(stream.jitter_ns),
            "observed_jitter_us": micros(seen.jitter_ns),
            "count": _count(stream, seen),
            "frame_bytes": {"declared": stream.largest_frame, "observed": seen.largest_wire} if is_larger else None,
            "message": None if seen.beyond is None else _message(stream, seen.beyond),
            "released_late": more > 0 and 2 * late.get(name, 0) >= more,
        }
        found.append((more, entry))
    # Who only passes on or answers what came too often has not sent more of his own.
    names = {str(entry["stream"]) for _, entry in found}
    found = [each for each in found if not _follows(streams, str(each[1]["stream"]), names)]
    by_port: dict[str, list[dict[str, Any]]] = {}
    for _, entry in sorted(found, key=lambda each: -each[0]):
        for port in {port for path in paths.get(str(entry["stream"]), {}).values() for port in path}:
            by_port.setdefault(port, []).append(entry)
    return by_port


def _count(stream: Stream, seen: Arrivals) -> dict[str, Any] | None:
    """How many releases came over the whole run, where that is a higher rate than declared: a jitter that explains it grows with the run and says little."""
    assert stream.period_ns is not None
    allowed = (seen.span_ns + stream.jitter_ns) // stream.period_ns + 1
    if seen.releases - allowed <= max(1, allowed * OF_RATE):
        # One that came late or early at an end of the run.
        return None
    return {"observed": seen.releases, "allowed": allowed, "span_us": micros(seen.span_ns)}


def _message(stream: Stream, seen: Release) -> dict[str, dict[str, int]]:
    """A program's message as declared, and the largest one that was seen."""
    return {
        "declared": {"frames": len(stream.frames_bytes), "bytes": sum(stream.frames_bytes)},
        "observed": {"frames": seen.frames, "bytes": seen.wire_bytes},
    }


def _follows(streams: Mapping[str, Stream], name: str, others: Collection[str]) -> bool:
    """Are a stream's frames sent because of those of one of these?"""
    passed: set[str] = set()
    while (follows := streams[name].follows) is not None and follows.stream is not None and name not in passed:
        passed.add(name)
        name = follows.stream
        if name in others:
            return True
    return False


def _released_late(results: Results) -> dict[str, int]:
    """Stream of a publisher of ours -> by how much it released a message later than its jitter, at most, though its connection would have taken it."""
    import polars as pl

    plan, measured = results.prediction.plan, results.measured
    assert measured is not None
    told = {order["node"] for order in measured.live.get("lifecycle") or []}
    slow = told | {host.name for host in plan.scenario.hosts if host.is_limited}
    flows = {flow.name: flow for flow in plan.scenario.flows if flow.source not in slow}
    table = measured.messages
    if table.is_empty():
        return {}
    waited = (pl.col("sent_ns") - pl.col("released_ns")).max()
    released = dict(table.filter(~pl.col("held")).group_by("flow").agg(waited).iter_rows())
    return {
        parts[0].stream: released[name] - (flows[name].jitter_ns or 0)
        for (name, _), parts in plan.segments.items()
        if parts and name in flows and released.get(name) is not None
    }


def named(by_port: Mapping[str, list[dict[str, Any]]], ports: Iterable[str]) -> list[dict[str, Any]]:
    """Those that share a port with a flow, the worst first."""
    entries = {entry["stream"]: entry for port in ports for entry in by_port.get(port, [])}
    worst = sorted(entries.values(), key=lambda entry: entry["declared_jitter_us"] - entry["observed_jitter_us"])
    return worst[:NAMED]


def exceeded_words(entries: Iterable[Mapping[str, Any]]) -> str:
    """Who sent more than declared, in one clause."""
    return ", ".join(f"{entry['stream']} of {entry['source']} came {_exceeded(entry)}" for entry in entries)


def _exceeded(entry: Mapping[str, Any]) -> str:
    """How one source exceeded its declaration."""
    said = []
    if (count := entry.get("count")) is not None:
        said.append(
            f"{count['observed']:,} times in {_length(count['span_us'])} where period and jitter allow {count['allowed']:,}"
        )
    elif entry["observed_jitter_us"] > entry["declared_jitter_us"]:
        declared = _length(entry["declared_jitter_us"])
        said.append(f"with {_length(entry['observed_jitter_us'])} of jitter where {declared} are declared")
    if (message := entry.get("message")) is not None:
        declared, observed = message["declared"], message["observed"]
        frames = f" in {_frames(observed['frames'])}" if observed["frames"] > declared["frames"] else ""
        expected = f"{declared['bytes']:,} B in {_frames(declared['frames'])}"
        said.append(f"with messages of {observed['bytes']:,} B on the wire{frames} where {expected} are declared")
    elif (frame := entry.get("frame_bytes")) is not None:
        said.append(f"in frames of {frame['observed']:,} B where {frame['declared']:,} B are declared")
    return " and ".join(said)


def notes(flows: Iterable[Mapping[str, Any]], *, by_machine: bool) -> list[str]:
    """Who sent more than declared where nothing was late by it, but bounds would have to be higher; late messages name theirs themselves.
    `by_machine`: publishers of ours that released late, or all others, whose doing it was."""
    found = {
        entry["stream"]: entry
        for flow in flows
        if not (flow["late_by"] or {}).get("arrivals")
        for entry in flow["exceeded_by"]
        if entry["released_late"] == by_machine
    }
    if not found:
        return []
    said = exceeded_words(list(found.values())[:NAMED])
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return [
        f"More was sent than is declared: {said}{more}. The bounds of flows that meet these are shown for the arrivals seen as well, and those hold."
    ]


def by_machine(flow: Mapping[str, Any]) -> int:
    """How many of a flow's late messages the machine made late, our own publishers included."""
    late = flow["late_by"] or {}
    count: int = sum(late.get(name, 0) for name in MACHINE)
    if any(entry["released_late"] for entry in flow["exceeded_by"]):
        count += late.get("arrivals", 0)
    return count


def reasons(flows: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why the run is disturbed although the emulator kept within its limits; empty where it is not."""
    late = [flow for flow in flows if flow["late"]]
    count, all_late = sum(by_machine(flow) for flow in late), sum(flow["late"] for flow in late)
    if not count or count < LEAST_SHARE * all_late:
        return []
    worst = max(late, key=by_machine)
    said = [
        f"{count} of {all_late} late messages were late by this machine, first {worst['flow']} at {worst['receiver']}: {worst['late_reason']}"
    ]
    waits = [
        (wait, f"{whom} of {node['node']}")
        for node in nodes
        for whom, wait in (("programs", node["wait_s"]["programs"]), ("clients", node["wait_s"]["clients"]))
        if wait is not None and wait >= 0.01
    ]
    # Where clients share a process all nodes have the same figure: said once.
    top = list({round(wait, 3): text for wait, text in sorted(waits)}.items())[-NAMED:]
    if top:
        said.append(f"waited for a CPU: {', '.join(f'{text} {wait:.2f} s' for wait, text in reversed(top))}")
    return said


def _frames(count: int) -> str:
    return "one frame" if count == 1 else f"{count} frames"


def _length(micro: float) -> str:
    return f"{micro:.4g} us" if micro < 1000 else f"{micro / 1e3:.4g} ms" if micro < 1e6 else f"{micro / 1e6:.4g} s"
