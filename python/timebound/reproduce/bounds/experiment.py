"""Measures the cells and keeps them: `reproduce.json`, `report.html`, `figures/*.svg`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.engine import folder as folders
from timebound.engine.progress import SILENT, Progress
from timebound.reproduce.bounds import statements
from timebound.reproduce.bounds.measure import measure
from timebound.reproduce.bounds.networks import LOADS, READINGS, case
from timebound.reproduce.place import MARK, take

NAME = "mrt-mqtt-bounds"
SCHEMA = 1
FIGURES = {"low": "Fig. 16", "medium": "Fig. 17", "high": "Fig. 18"}
ASSUMPTIONS = (
    "The links of Fig. 15 are not in the paper's text: those of L_AA, L_AB and L_AC are, the others are ours and carry nothing here.",
    "Propagation 1 us, switching delay 10 to 20 us, release jitter 0.4 ms for every publisher (the paper draws it from 0 to 0.4 ms).",
    "beta has the higher priority, as in section VII-B; the paper's summary says the opposite.",
    "One full frame of best effort at every port stands for what is not time-sensitive.",
    "MRT-MQTT alone, on its way up to the brokers: each message is multicast from its publisher to the three brokers.",
)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished experiment."""

    folder: Path
    result: dict[str, Any]


def run(
    folder: Path,
    *,
    evaluations: int,
    seed: int = 1,
    readings: tuple[str, ...] = tuple(READINGS),
    loads: tuple[str, ...] = tuple(LOADS),
    progress: Progress = SILENT,
) -> Done:
    """Works out every load under every reading, and writes the folder. `evaluations` are those of the search, per cell.

    Raises:
        FolderError: the folder holds something else.
    """
    mark = folder / MARK
    take(folder, NAME)
    cells = []
    for reading in readings:
        for load in loads:
            progress.step(f"{reading} {load}", f"{READINGS[reading]}, {load} load")
            cells.append(measure(case(load, reading, seed), evaluations, seed, progress.at))
    result = {
        "schema": SCHEMA,
        "experiment": NAME,
        "timebound": __version__,
        "seed": seed,
        "readings": {reading: READINGS[reading] for reading in readings},
        "assumptions": list(ASSUMPTIONS),
        "figures": FIGURES,
        "published": statements.published(),
        "cells": cells,
        "statements": statements.check_all(cells),
    }
    folders.write_json(mark, result)
    from timebound.reproduce.bounds.page import write

    write(folder, result)
    return Done(folder, result)
