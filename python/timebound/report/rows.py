"""The closing table of the command line as plain data: any terminal library can draw it, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .ranking import critical
from .run import Flow, Run
from .units import count_text, ratio_text, time_text
from .words import SYMBOL, known_verdict

STYLE = {
    "met": "green",
    "missed": "bold yellow",
    "violated": "bold red",
    "unbounded": "yellow",
    "unsupported": "dim",
    "unmeasured": "dim",
    "disturbed": "magenta",
}


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    justify: Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells as text, and a style in rich's words (`bold red`). Cells are plain: escape or wrap them before markup is read."""

    cells: tuple[str, ...]
    style: str


@dataclass(frozen=True, slots=True)
class FlowTable:
    """Columns and rows, the most critical flow first; columns without any figure are left out."""

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


def _bound(flow: Flow) -> str:
    if flow.bound is None and flow.verdict in ("unbounded", "unsupported"):
        return "none" if flow.verdict == "unbounded" else "unsupported"
    return time_text(flow.bound)


def flow_table(summary: Mapping[str, Any]) -> FlowTable:
    """The rows for a `summary.json` object. Raises `ReportError` for another schema."""
    flows = critical(Run.parse(summary).flows)
    apart = any(flow.judged_apart for flow in flows)
    wanted: list[tuple[Column, list[str]]] = [
        (Column("flow", "left"), [f.flow for f in flows]),
        (Column("receiver", "left"), [f.receiver for f in flows]),
        (Column("received", "right"), [_received(f) for f in flows]),
        (Column("observed p50", "right"), [time_text(f.network.p50) for f in flows]),
        (Column("observed max", "right"), [time_text(f.network.max) for f in flows]),
        (Column("simulated max", "right"), [time_text(f.simulated) for f in flows]),
        (Column("bound", "right"), [_bound(f) for f in flows]),
        (Column("bound / found", "right"), [ratio_text(f.tightness) for f in flows]),
        (Column("end to end", "right"), [time_text(f.promise if apart else None) for f in flows]),
        (Column("bound, arrivals observed", "right"), [time_text(f.bound_observed) for f in flows]),
        (Column("application max", "right"), [time_text(f.application.max) for f in flows]),
        (Column("deadline", "right"), [time_text(f.deadline) for f in flows]),
        (Column("verdict", "left"), [f"{SYMBOL[known_verdict(f.verdict)]} {f.verdict}" for f in flows]),
    ]
    missing = time_text(None)
    kept = [(c, v) for c, v in wanted if not flows or any(cell != missing for cell in v)]
    rows = [
        TableRow(tuple(values[i] for _, values in kept), STYLE[known_verdict(flow.verdict)])
        for i, flow in enumerate(flows)
    ]
    return FlowTable(tuple(column for column, _ in kept), tuple(rows))


def _received(flow: Flow) -> str:
    sent, received = flow.counts["sent"], flow.counts["received"]
    if received is None:
        return time_text(None)
    return count_text(received) if sent is None else f"{count_text(received)}/{count_text(sent)}"
