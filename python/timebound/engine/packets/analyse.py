"""Runs the analysis over its sources and puts the parts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timebound.engine.folder import FolderError
from timebound.engine.packets import totals, tshark
from timebound.engine.packets.counts import Counts
from timebound.engine.packets.frames import Reader
from timebound.engine.packets.sources import Source, of_run
from timebound.engine.packets.tshark import CaptureError, MissingToolError
from timebound.engine.progress import SILENT, Progress
from timebound.engine.write import write_parquet
from timebound.files import Place

if TYPE_CHECKING:
    import polars as pl

INTERVAL_NS = 1_000_000_000
SCHEMA = 1
RECORD_BYTES = 32
"""About what a file spends on a frame besides its bytes; for progress alone."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """`summary` is the key `packets` of summary.json, `table` the content of packets.parquet (docs/results.md)."""

    summary: dict[str, Any]
    table: pl.DataFrame


def analyse(
    sources: Sequence[Source], *, interval_ns: int = INTERVAL_NS, partial: bool = False, progress: Progress = SILENT
) -> Analysis:
    """Analyses captures one after the other.

    `interval_ns` is the resolution over time; a capture that is too long for it gets a coarser one, and says so. With
    `partial` a file that is damaged or cut short is counted up to there and its entry names the problem.

    Raises:
        MissingToolError: tshark is not installed.
        CaptureError: a file is no capture, or damaged.
    """
    if interval_ns <= 0:
        raise FolderError("the interval must be longer than nothing", "for example --interval 1s")
    version = tshark.version()
    entries = []
    found = []
    for source in sources:
        progress.step("packets", f"reading {source.name}")
        counts, problem = _count(source, interval_ns, partial, progress)
        entries.append((source, counts))
        found.append(totals.capture(source, counts, problem))
    damaged = any(entry["problem"] for entry in found)
    summary = {
        "schema": SCHEMA,
        "status": "partial" if damaged else "complete",
        "reason": None,
        "tshark": version,
        "layers": totals.LAYERS,
        "captures": found,
    }
    return Analysis(summary, totals.table(entries))


def _count(source: Source, interval_ns: int, partial: bool, progress: Progress) -> tuple[Counts, str | None]:
    counts = Counts(interval_ns, source.origin_unix_ns)
    reader = Reader(source)
    size = sum(file.stat().st_size for file in source.files)
    seen = 0
    problem = None
    try:
        with tshark.lines(source) as pieces:
            for piece in pieces:
                rows, packets = reader.rows(piece)
                counts.add(rows, packets)
                seen += int(rows["captured_bytes"].sum()) + RECORD_BYTES * rows.height
                progress.at(min(1.0, seen / size) if size else 1.0, f"{source.name}: {reader.read} frames")
    except CaptureError as error:
        if not (partial and error.partial):
            raise
        problem = f"{error}; counted are the {reader.read} frames before that"
    if (rest := reader.rest()) is not None:
        counts.add(rest)
    return counts, problem


def summary_of_run(folder: Path, progress: Progress = SILENT) -> dict[str, Any] | None:
    """Analyses the captures of a run and writes `packets.parquet`; the key `packets`, None where nothing was captured.

    What cannot be analysed fails no run: the reason is in the answer, as `status` "missing" or "failed".
    """
    try:
        sources = of_run(folder)
        if not sources:
            return None
        analysis = analyse(sources, partial=True, progress=progress)
        with Place(folder) as place, place.writing("packets.parquet") as file:
            write_parquet(analysis.table, file)
    except MissingToolError as error:
        return {"schema": SCHEMA, "status": "missing", "reason": f"{error} ({error.hint})", "captures": []}
    except FolderError as error:
        return {"schema": SCHEMA, "status": "failed", "reason": f"{error} ({error.hint})", "captures": []}
    return analysis.summary
