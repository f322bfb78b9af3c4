"""What the report reads: `summary.json` (docs/results.md) parsed once into typed, immutable values.

Every figure of a verb that did not run is `None`; a figure that is not a finite number is treated as absent, never drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .details import Lateness, UnreadError, read_lateness
from .explained import Explained
from .units import time_text
from .way import Way

SCHEMA = 1


class ReportError(ValueError):
    """The folder cannot be reported on; the message says which file is at fault and what to do."""


def figure(value: object) -> float | None:
    """A finite number, or `None`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """The objects of a JSON list; anything else in it is left out."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def text(value: object) -> str:
    return "" if value is None else str(value)


def _figures(value: object) -> tuple[float | None, ...]:
    return tuple(figure(entry) for entry in value) if isinstance(value, list) else ()


def _quantiles(value: object) -> tuple[float, ...]:
    """Quantiles in steps of equal probability; empty unless every one is a number."""
    found = _figures(value)
    whole = tuple(entry for entry in found if entry is not None)
    return whole if len(whole) == len(found) and len(whole) >= 2 else ()


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median, 99 % quantile and maximum, in microseconds."""

    min: float | None = None
    p50: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def parse(cls, value: object) -> Spread:
        raw = mapping(value)
        return cls(*(figure(raw.get(name)) for name in ("min", "p50", "p99", "max")))


@dataclass(frozen=True, slots=True)
class Segment:
    """One network segment of a flow (publisher to broker, broker to subscriber); times in microseconds."""

    name: str
    stream: str
    source: str
    destination: str
    latency: Spread
    simulated: float | None
    tightness: float | None
    bound: float | None
    bound_observed: float | None
    holistic: float | None
    calculus: float | None
    best: float | None
    declared_jitter: float | None
    observed_jitter: float | None
    kept: bool | None
    reason: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Segment:
        kept = raw.get("kept")
        path = raw.get("path")
        return cls(
            name=text(raw.get("name")),
            stream=text(raw.get("stream")),
            source=text(raw.get("source")),
            destination=text(raw.get("destination")),
            latency=Spread.parse(raw.get("latency_us")),
            simulated=figure(raw.get("simulated_max_us")),
            tightness=figure(raw.get("tightness")),
            bound=figure(raw.get("bound_us")),
            bound_observed=figure(raw.get("bound_observed_us")),
            holistic=figure(raw.get("holistic_us")),
            calculus=figure(raw.get("calculus_us")),
            best=figure(raw.get("best_us")),
            declared_jitter=figure(raw.get("declared_jitter_us")),
            observed_jitter=figure(raw.get("observed_jitter_us")),
            kept=kept if isinstance(kept, bool) else None,
            reason=text(raw.get("reason")),
            path=tuple(text(port) for port in path) if isinstance(path, list) else (),
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow at one receiver; times in microseconds."""

    flow: str
    receiver: str
    topic: str
    priority: float | None
    qos: float | None
    size: float | None
    period: float | None
    jitter: float | None
    counts: Mapping[str, float | None]
    late_reason: str
    risk: str
    network: Spread
    application: Spread
    shares: Mapping[str, Spread]
    simulated: float | None
    tightness: float | None
    holistic: float | None
    calculus: float | None
    bound: float | None
    bound_observed: float | None
    best: float | None
    reason: str
    segments: tuple[Segment, ...]
    deadline: float | None
    verdict: str
    decides: bool
    """Does the run's verdict depend on this flow's? Not where nothing is required of it."""
    quantiles: Mapping[str, tuple[float, ...]]
    way: Way = field(default_factory=Way)

    @property
    def name(self) -> str:
        return f"{self.flow} → {self.receiver}"

    @property
    def key(self) -> str:
        """The name under which `series.flows` holds this flow."""
        return f"{self.flow}>{self.receiver}"

    @property
    def limit(self) -> float | None:
        """The bound that holds for the arrivals seen: that for the observed jitter where there is one."""
        return self.bound if self.bound_observed is None else self.bound_observed

    @property
    def promise(self) -> float | None:
        """What a deadline is compared with."""
        return self.way.bound if self.way.parts else self.bound

    @property
    def judged_apart(self) -> bool:
        """Is a deadline compared with another figure than the network's bound: is there release jitter, or a broker on the way?"""
        return self.promise != self.bound or self.way.has_broker

    @property
    def promise_words(self) -> str:
        return "bound end to end" if self.judged_apart else "bound"

    @property
    def margin(self) -> float | None:
        """Deadline minus the bound from publisher to subscriber (of the network alone where that is all there is); without a bound,
        deadline minus the worst latency seen."""
        worst = self.promise
        if worst is None:
            seen = [v for v in (self.network.max, self.application.max, self.simulated) if v is not None]
            worst = max(seen, default=None)
        return None if self.deadline is None or worst is None else self.deadline - worst

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Flow:
        bound = mapping(raw.get("bound_us"))
        shares = mapping(raw.get("shares_us"))
        distribution = mapping(raw.get("distribution"))
        return cls(
            flow=text(raw.get("flow")),
            receiver=text(raw.get("receiver")),
            topic=text(raw.get("topic")),
            priority=figure(raw.get("priority")),
            qos=figure(raw.get("qos")),
            size=figure(raw.get("size_bytes")),
            period=figure(raw.get("period_us")),
            jitter=figure(raw.get("jitter_us")),
            counts={name: figure(raw.get(name)) for name in COUNTS},
            network=Spread.parse(raw.get("latency_us")),
            late_reason=text(raw.get("late_reason")),
            risk=text(raw.get("risk")),
            application=Spread.parse(raw.get("application_us")),
            shares={name: Spread.parse(shares.get(name)) for name in SHARES},
            simulated=figure(raw.get("simulated_max_us")),
            tightness=figure(raw.get("tightness")),
            holistic=figure(bound.get("holistic")),
            calculus=figure(bound.get("calculus")),
            bound=figure(bound.get("bound")),
            bound_observed=figure(bound.get("observed_arrivals")),
            best=figure(raw.get("best_us")),
            reason=text(bound.get("reason")),
            segments=tuple(Segment.parse(entry) for entry in items(raw.get("segments"))),
            deadline=figure(raw.get("deadline_us")),
            verdict=text(raw.get("verdict")) or "unmeasured",
            decides=raw.get("decides") is not False,
            quantiles={name: _quantiles(distribution.get(f"{name}_us")) for name in DISTRIBUTIONS},
            way=Way.parse(raw.get("end_to_end_us")),
        )


COUNTS = ("sent", "received", "lost", "late", "duplicates", "reordered")
SHARES = ("network", "broker", "host")
DISTRIBUTIONS = ("network", "application", "simulated")


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of one class at a port: a buffer of `backlog` bytes loses nothing."""

    priority: float | None
    longest: float | None
    backlog: float | None
    room: float | None
    exceeds: bool
    reason: str

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Queue:
        return cls(
            priority=figure(raw.get("class")),
            longest=figure(raw.get("largest_delay_us")),
            backlog=figure(raw.get("backlog_bytes")),
            room=figure(raw.get("room_bytes")),
            exceeds=raw.get("exceeds") is True,
            reason=text(raw.get("reason")),
        )


@dataclass(frozen=True, slots=True)
class Port:
    """One output port: the load on its link (share of the rate) and its queue (bytes)."""

    name: str
    rate: float | None
    declared: float | None
    observed: float | None
    simulated: float | None
    reason: str
    backlog_bound: float | None
    queues: tuple[Queue, ...]
    dropped: float | None
    largest_queue: float | None

    @property
    def load(self) -> float | None:
        """Observed, else simulated, else declared utilisation."""
        return next((value for value in (self.observed, self.simulated, self.declared) if value is not None), None)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Port:
        return cls(
            name=text(raw.get("port")),
            rate=figure(raw.get("rate_bps")),
            declared=figure(raw.get("utilisation_declared")),
            observed=figure(raw.get("utilisation_observed")),
            simulated=figure(raw.get("utilisation_simulated")),
            reason=text(raw.get("bound_reason")),
            backlog_bound=figure(raw.get("backlog_bound_bytes")),
            queues=tuple(Queue.parse(entry) for entry in items(raw.get("queues"))),
            dropped=figure(raw.get("dropped")),
            largest_queue=figure(raw.get("largest_queue_bytes")),
        )


@dataclass(frozen=True, slots=True)
class Series:
    """Figures per second of the run; `marks` are times (s) with what happened then."""

    time: tuple[float | None, ...]
    flows: Mapping[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]]
    links: Mapping[str, tuple[float | None, ...]]
    marks: tuple[tuple[float, str], ...]

    @classmethod
    def parse(cls, value: object) -> Series:
        raw = mapping(value)
        flows = {text(k): mapping(v) for k, v in mapping(raw.get("flows")).items()}
        marks = ((figure(entry.get("time_s")), text(entry.get("text"))) for entry in items(raw.get("events")))
        return cls(
            time=_figures(raw.get("time_s")),
            flows={k: (_figures(v.get("p50_us")), _figures(v.get("max_us"))) for k, v in flows.items()},
            links={text(k): _figures(v) for k, v in mapping(raw.get("links")).items()},
            marks=tuple((time, label) for time, label in marks if time is not None),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the report shows of one run."""

    scenario: Mapping[str, Any]
    topology: Mapping[str, Any]
    ports: tuple[Port, ...]
    flows: tuple[Flow, ...]
    series: Series
    nodes: list[Mapping[str, Any]]
    undeclared: list[Mapping[str, Any]]
    tcp: Mapping[str, Any]
    precision: Mapping[str, Any]
    data_plane: Mapping[str, Any]
    verdict: str
    violations: list[Mapping[str, Any]]
    assumptions: list[Mapping[str, Any]] = field(default_factory=list)
    channels: list[Mapping[str, Any]] = field(default_factory=list)
    """What a controller answered to the clients of flows."""
    failure: str = ""
    failed_programs: tuple[str, ...] = ()
    """One line on each program of a node that ended badly."""
    notes: tuple[str, ...] = ()
    """But for those on what was measured."""
    measured_notes: tuple[str, ...] = ()
    """What was not measured, or is not as declared."""
    explained: tuple[Explained, ...] = ()
    packets: Mapping[str, Any] = field(default_factory=dict)
    switches: list[Mapping[str, Any]] = field(default_factory=list)
    """Real ones."""
    method: Mapping[str, Any] = field(default_factory=dict)
    """Figures of a method that was asked for beside the bound."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    lateness: Lateness | None = None
    left_out: tuple[str, ...] = ()
    """What is not shown since a file of the folder cannot be read."""
    resolved: str = ""
    folder: str = ""

    @property
    def name(self) -> str:
        return text(self.scenario.get("name")) or "unnamed"

    @classmethod
    def parse(cls, summary: object) -> Run:
        """Reads the object of `summary.json`.

        Raises `ReportError` where it is not an object of the schema that this version knows.
        """
        if not isinstance(summary, Mapping):
            raise ReportError("the summary is not a JSON object")
        schema = summary.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise ReportError(
                f"the summary has schema {schema!r}, this version reads schema {SCHEMA}: use the version that wrote it"
            )
        notes = _texts(mapping(summary.get("scenario")).get("notes"))
        measured_notes = _texts(summary.get("measured_notes"))
        return cls(
            scenario=mapping(summary.get("scenario")),
            topology=mapping(summary.get("topology")),
            ports=tuple(Port.parse(entry) for entry in items(summary.get("ports"))),
            flows=tuple(Flow.parse(entry) for entry in items(summary.get("flows"))),
            series=Series.parse(summary.get("series")),
            nodes=items(summary.get("nodes")),
            undeclared=items(summary.get("undeclared")),
            tcp=mapping(summary.get("tcp")),
            precision=mapping(summary.get("precision")),
            data_plane=mapping(summary.get("data_plane")),
            verdict=text(summary.get("verdict")) or "unmeasured",
            violations=items(summary.get("violations")),
            assumptions=items(summary.get("assumptions")),
            channels=items(summary.get("channels")),
            failure=text(summary.get("failure")),
            failed_programs=tuple(_failed(entry) for entry in items(summary.get("failed_programs"))),
            method=mapping(summary.get("method")),
            explained=tuple(Explained.parse(entry) for entry in items(summary.get("explained"))),
            packets=mapping(summary.get("packets")),
            switches=items(summary.get("switches")),
            notes=tuple(note for note in notes if note not in measured_notes),
            measured_notes=measured_notes,
        )


def _texts(entries: Any) -> tuple[str, ...]:
    return tuple(text(entry) for entry in entries) if isinstance(entries, list) else ()


def _failed(entry: Mapping[str, Any]) -> str:
    tail = entry.get("tail")
    said = f": {text(tail[-1])}" if isinstance(tail, list) and tail else ""
    return f"program {text(entry.get('program'))} of node {text(entry.get('node'))} ended with {text(entry.get('how'))}{said} ({text(entry.get('log'))})"


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(
            f"{path} does not exist: a run folder holds one (docs/results.md); did the run finish?"
        ) from None
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON: {error}") from error


def _object(path: Path) -> Mapping[str, Any]:
    found = _read(path)
    if not isinstance(found, Mapping):
        raise ReportError(f"{path} is not a JSON object")
    return found


def late_seconds(run: Run, lateness: Lateness | None) -> list[tuple[float, str]]:
    """The seconds in which the emulator was later than its limit for a whole run allows: what was measured then is doubtful."""
    limit = figure(run.precision.get("lateness_limit_us"))
    if lateness is None or limit is None:
        return []
    late = [(second, highest) for second, p99, highest in lateness.seconds if p99 > limit]
    return [(second, f"the emulator was late, by up to {time_text(highest)}") for second, highest in late]


def read_run(folder: Path) -> Run:
    """Reads a run folder. Only `summary.json` is required; `manifest.json` and `scenario.yaml` are shown where they exist, and `left_out` says
    which of them cannot be read.

    Raises `ReportError`.
    """
    path = folder / "summary.json"
    try:
        run = Run.parse(_read(path))
    except ReportError as error:
        raise error if str(path) in str(error) else ReportError(f"{path}: {error}") from None
    left_out: list[str] = []
    manifest: Mapping[str, Any] = {}
    lateness, resolved = None, ""
    try:
        lateness = read_lateness(folder)
    except UnreadError as error:
        left_out.append(str(error))
    if (path := folder / "manifest.json").is_file():
        try:
            manifest = _object(path)
        except ReportError as error:
            left_out.append(f"{error}: version, host, times and command of the run are left out")
    if (path := folder / "scenario.yaml").is_file():
        try:
            resolved = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            left_out.append(f"{path} cannot be read: {error.strerror or error}; the resolved scenario is left out")
    return replace(
        run,
        manifest=manifest,
        resolved=resolved,
        left_out=tuple(left_out),
        folder=folder.resolve().name,
        lateness=lateness,
        series=replace(run.series, marks=(*run.series.marks, *late_seconds(run, lateness))),
    )
