"""Runs the cells iteration by iteration; what is finished is kept, and an interrupted experiment goes on where it was."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.engine import folder as folders
from timebound.engine import runs
from timebound.engine.emulate import EXIT_DISTURBED, EXIT_INTERRUPTED, EXIT_OK
from timebound.engine.progress import Progress
from timebound.reproduce.multicast import measure, statements, tables
from timebound.reproduce.multicast.cells import LOADS, NAME, PROTOCOLS, Cell, scenario_of
from timebound.reproduce.multicast.effort import left, number_of
from timebound.reproduce.place import MARK, take
from timebound.scenario.problems import ScenarioError

SCHEMA = 1
ATTEMPTS = 2
"""An iteration that the machine disturbed is run once more, and then marked."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished experiment."""

    folder: Path
    result: dict[str, Any]
    exit_code: int


def run(cells: Sequence[Cell], folder: Path, progress: Progress, *, rootless: bool = False) -> Done:
    """Runs what is not there yet, checks the statements and writes `reproduce.json`, `paths.parquet` and `report.html`.

    Raises:
        FolderError: the folder holds something else; a cell could not be run.
        KeyboardInterrupt: finished iterations are kept.
    """
    _prepare(folder, cells)
    begun = time.monotonic()
    took = {cell.name: _kept(cell, folder) for cell in cells}
    progress.step("plan", f"{number_of(len(cells), 'cell')}, {left(cells, took).words()}")
    found: list[dict[str, Any]] = []
    for number, cell in enumerate(cells, 1):
        progress.step(cell.name, f"cell {number} of {len(cells)}: {PROTOCOLS[cell.protocol]}, {cell.load} load")
        place = folder / "cells" / cell.name
        iterations: list[dict[str, Any]] = []
        for index in range(cell.iterations):
            finished = _finished(cell, index, place)
            if finished is None:
                if cell.iterations > 1:
                    progress.step(
                        cell.name, f"iteration {index + 1} of {cell.iterations}; in all {left(cells, took).words()}"
                    )
                finished = _iteration(cell, index, place, progress, rootless=rootless)
                took[cell.name].append(finished["took_s"])
            iterations.append(finished)
        found.append(_cell(cell, iterations))
        folders.write_json(place / "cell.json", found[-1])
        # After every cell: whoever stops the experiment has what there is so far.
        result = _result(cells, found, time.monotonic() - begun)
        folders.write_json(folder / MARK, result)
    from timebound.reproduce.multicast.page import write

    progress.step("report", "drawing the figures")
    tables.write(folder, result)
    write(folder, result)
    disturbed = any(cell["verdict"] == "disturbed" for cell in found)
    return Done(folder, result, EXIT_DISTURBED if disturbed else EXIT_OK)


def _prepare(folder: Path, cells: Sequence[Cell]) -> None:
    if not take(folder, NAME, [cell.name for cell in cells]):
        folders.write_json(folder / MARK, {"schema": SCHEMA, "experiment": NAME, "cells": [], "statements": []})


def _kept(cell: Cell, folder: Path) -> list[float]:
    """What each finished iteration of a cell took, seconds."""
    place = folder / "cells" / cell.name
    finished = (_finished(cell, index, place) for index in range(cell.iterations))
    return [entry["took_s"] for entry in finished if entry is not None]


def _conditions(cell: Cell, index: int) -> dict[str, Any]:
    conditions = {**cell.conditions(), "schema": SCHEMA, "iteration": index}
    # How many are wanted changes none of them.
    del conditions["iterations"]
    if cell.background == "generators":
        # As iterations were kept before there was anything else.
        del conditions["background"]
    return conditions


def _finished(cell: Cell, index: int, place: Path) -> dict[str, Any] | None:
    """An iteration that was run with the same conditions before; one whose emulation failed is to be tried again."""
    known = _read(_file(place, index), _conditions(cell, index))
    return None if known is None or known.get("failed") else known


def _file(place: Path, index: int) -> Path:
    return place / "iterations" / f"{index:04d}.json"


def _iteration(cell: Cell, index: int, place: Path, progress: Progress, *, rootless: bool) -> dict[str, Any]:
    began = time.monotonic()
    scenario = scenario_of(cell, index, emulated=False)
    summary = runs.figures_only(scenario, {"predict", "simulate"}, progress)
    entry: dict[str, Any] = {
        "conditions": _conditions(cell, index),
        "computed": measure.computed(summary),
        "busiest": measure.busiest(summary),
        "emulated": None,
        "certificate": None,
        "not_emulated": None,
        "attempts": 0,
    }
    if cell.emulate:
        entry |= _emulated(cell, index, place, progress, rootless=rootless)
    else:
        entry["not_emulated"] = "not asked for"
    entry["took_s"] = round(time.monotonic() - began, 1)
    file = _file(place, index)
    folders.write_json(file, entry)
    return entry


def _read(file: Path, conditions: dict[str, Any]) -> dict[str, Any] | None:
    """A finished iteration of the same conditions."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and known.get("conditions") == conditions else None


def _emulated(cell: Cell, index: int, place: Path, progress: Progress, *, rootless: bool) -> dict[str, Any]:
    scenario = scenario_of(cell, index, emulated=True)
    best: dict[str, Any] | None = None
    for attempt in range(1, ATTEMPTS + 1):
        folder = place / f"run-{index:04d}-{attempt}"
        # A run that was interrupted has left its folder, and nothing that counts.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            done = runs.run(
                scenario, folder, {"predict", "emulate"}, progress, rootless=rootless, report=cell.iterations == 1
            )
        except ScenarioError as error:
            # A stack that is not emulated here is simulated all the same, and the report says why.
            return {"not_emulated": error.problems[0].message}
        if done.exit_code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        certificate = measure.certificate(done.summary)
        if done.failure is not None or not (folder / "messages.parquet").exists():
            best = best or {
                "not_emulated": f"the run failed: {done.failure or 'it measured nothing'}",
                "failed": True,
                "attempts": attempt,
            }
            continue
        found = measure.emulated(folder, done.summary, cell.stretch)
        channels = measure.channels(folder, scenario)
        background = measure.background(folder, scenario, cell.stretch)
        wrong = [measure.load_not_kept(found, scenario), _without_channel(channels), _silent(background)]
        if any(wrong):
            reasons = [*(reason for reason in wrong if reason), *certificate["reasons"]]
            certificate = {**certificate, "verdict": "disturbed", "reasons": reasons}
        figures = {
            "emulated": found,
            "certificate": certificate,
            "channels": channels,
            "background": background,
            "fewest_messages": measure.fewest_messages(folder),
            "violations": len(done.summary["violations"]),
            "not_emulated": None,
            "failed": False,
            "attempts": attempt,
            "run": f"cells/{cell.name}/{folder.name}" if cell.iterations == 1 else None,
        }
        if best is None or best.get("emulated") is None or certificate["verdict"] == "good":
            best = figures
        if cell.iterations > 1:
            shutil.rmtree(folder, ignore_errors=True)
        if certificate["verdict"] == "good":
            break
    assert best is not None
    return {**best, "attempts": attempt}


def _without_channel(channels: dict[str, int]) -> str | None:
    """Why messages of a run went as best effort although their clients asked for a channel."""
    missing = {outcome: number for outcome, number in channels.items() if outcome != "granted"}
    if not missing:
        return None
    said = ", ".join(f"{number} {outcome}" for outcome, number in missing.items())
    return f"of {sum(channels.values())} requests for channels not all were granted ({said}): their messages went as best effort"


def _silent(background: list[dict[str, Any]]) -> str | None:
    """Which source of background was not there, so that a run was under another load than it says."""
    silent = [source["name"] for source in background if not source["measured_bps"]]
    return f"background of {', '.join(silent)} did not come: see the logs of the run" if silent else None


def _cell(cell: Cell, iterations: list[dict[str, Any]]) -> dict[str, Any]:
    certificates = [entry["certificate"] for entry in iterations if entry["certificate"] is not None]
    disturbed = [each for each in certificates if each["verdict"] != "good"]
    missing = [entry["not_emulated"] for entry in iterations if entry["emulated"] is None]
    verdict = "simulated" if not certificates else "disturbed" if disturbed else "good"
    return {
        **cell.conditions(),
        "name": cell.name,
        "words": PROTOCOLS[cell.protocol],
        "publishers_in_paper": LOADS[cell.load],
        "verdict": verdict,
        "disturbed_iterations": len(disturbed),
        "reasons": list(dict.fromkeys(reason for each in disturbed for reason in each["reasons"])),
        "not_emulated": missing[0] if missing else None,
        "violations": sum(entry.get("violations", 0) for entry in iterations),
        "fewest_messages": min(
            (entry["fewest_messages"] for entry in iterations if entry.get("fewest_messages")), default=None
        ),
        "channels": next((entry["channels"] for entry in reversed(iterations) if entry.get("channels")), {}),
        # Measured rates differ between iterations by next to nothing: the last one's.
        "background_sources": next((e["background"] for e in reversed(iterations) if e.get("background")), []),
        "attempts": max(entry["attempts"] for entry in iterations),
        "busiest": iterations[0]["busiest"],
        "paths": measure.combined(iterations),
        "runs": [entry["run"] for entry in iterations if entry.get("run")],
        "took_s": round(sum(entry["took_s"] for entry in iterations), 1),
    }


def _result(cells: Sequence[Cell], found: list[dict[str, Any]], elapsed_s: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "experiment": NAME,
        "timebound": __version__,
        "complete": len(found) == len(cells),
        "took_s": round(elapsed_s, 1),
        "published": statements.published(),
        "cells": found,
        "statements": statements.check_all(found),
    }
