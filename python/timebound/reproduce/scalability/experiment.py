"""Runs the cells, one after the other; what is finished is kept, and an interrupted experiment goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.engine import folder as folders
from timebound.engine import runs
from timebound.engine.emulate import EXIT_DISTURBED, EXIT_INTERRUPTED, EXIT_OK
from timebound.engine.folder import FolderError
from timebound.engine.progress import Progress
from timebound.reproduce.place import MARK, take
from timebound.reproduce.scalability import measure, statements
from timebound.reproduce.scalability.cells import NAME, SEED, Cell, scenario_of

SCHEMA = 1
ATTEMPTS = 2
"""A cell that the machine disturbed is run once more, and then marked."""
SHORT_JOINING_NS, SHORT_HOLD_NS = 16_000_000_000, 7_000_000_000
FULL_JOIN_NS, FULL_HOLD_NS = 1_000_000_000, 900_000_000_000
"""The paper connects clients one after the other (it does not say how fast) and then runs for 15 minutes."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished experiment."""

    folder: Path
    result: dict[str, Any]
    exit_code: int


def cells_of(clients: int, scenarios: Sequence[int], levels: Sequence[int], *, full: bool) -> list[Cell]:
    """The cells that were asked for, QoS by QoS within a scenario."""
    join = FULL_JOIN_NS if full else max(1_000_000, SHORT_JOINING_NS // clients)
    hold = FULL_HOLD_NS if full else SHORT_HOLD_NS
    return [
        Cell(scenario=scenario, qos=qos, clients=clients, join_ns=join, hold_ns=hold)
        for scenario in scenarios
        for qos in levels
    ]


def run(cells: Sequence[Cell], folder: Path, progress: Progress, *, rootless: bool = False) -> Done:
    """Runs what is not there yet, checks the statements and writes `reproduce.json` and `report.html`.

    Raises:
        FolderError: the folder holds something else; a cell could not be run.
        KeyboardInterrupt: finished cells are kept.
    """
    _prepare(folder, cells)
    begun = time.monotonic()
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for number, cell in enumerate(cells, 1):
        file = folder / "cells" / cell.name / "cell.json"
        known = _read(file, cell)
        if known is None:
            progress.step(cell.name, f"cell {number} of {len(cells)}: scenario {cell.scenario}, QoS {cell.qos}")
            known = _run_cell(cell, file.parent, progress, rootless=rootless)
            folders.write_json(file, known)
        found[cell.scenario, cell.qos] = known
        # After every cell: whoever stops the experiment has what there is so far.
        result = _result(cells, found, time.monotonic() - begun)
        folders.write_json(folder / MARK, result)
    from timebound.reproduce.scalability.page import write

    progress.step("report", "drawing the figures")
    write(folder, result)
    disturbed = any(cell["certificate"]["verdict"] != "good" for cell in found.values())
    return Done(folder, result, EXIT_DISTURBED if disturbed else EXIT_OK)


def _prepare(folder: Path, cells: Sequence[Cell]) -> None:
    if not take(folder, NAME, [cell.name for cell in cells]):
        folders.write_json(folder / MARK, {"schema": SCHEMA, "experiment": NAME, "cells": [], "statements": []})


def _fingerprint(cell: Cell) -> dict[str, Any]:
    return {**asdict(cell), "seed": SEED, "schema": measure.SCHEMA}


def _read(file: Path, cell: Cell) -> dict[str, Any] | None:
    """A finished cell of the same conditions."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and known.get("conditions") == _fingerprint(cell) else None


def _run_cell(cell: Cell, folder: Path, progress: Progress, *, rootless: bool) -> dict[str, Any]:
    scenario = scenario_of(cell)
    best: dict[str, Any] | None = None
    for attempt in range(1, ATTEMPTS + 1):
        began = time.monotonic()
        done = runs.run(scenario, folder / f"run-{attempt}", {"predict", "emulate"}, progress, rootless=rootless)
        if done.exit_code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if done.failure is not None:
            raise FolderError(
                f"{cell.name} could not be run: {done.failure}", done.hint or f"see {done.folder}", code=3
            )
        try:
            figures = measure.figures(cell, done.folder, done.summary)
        except ValueError as error:
            raise FolderError(f"{cell.name} has no figures: {error}", f"see {done.folder}", code=3) from error
        figures |= {
            "conditions": _fingerprint(cell),
            "attempts": attempt,
            "took_s": round(time.monotonic() - began, 1),
            "run": f"cells/{cell.name}/{done.folder.name}",
        }
        if best is None or figures["certificate"]["verdict"] == "good":
            best = figures
        if figures["certificate"]["verdict"] == "good":
            break
    assert best is not None
    return {**best, "attempts": attempt}


def _result(cells: Sequence[Cell], found: dict[tuple[int, int], dict[str, Any]], elapsed_s: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "experiment": NAME,
        "timebound": __version__,
        "complete": len(found) == len(cells),
        "took_s": round(elapsed_s, 1),
        "cells": [found[cell.scenario, cell.qos] for cell in cells if (cell.scenario, cell.qos) in found],
        "statements": statements.check_all(found),
    }
