"""How long an experiment takes: before it starts from what each iteration lasts at least, later from what those that are finished took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from timebound.reproduce.multicast.cells import Cell, scenario_of


@dataclass(frozen=True, slots=True)
class Effort:
    """What is left of an experiment."""

    wanted: int
    """Iterations of all cells."""
    kept: int
    """Of these, finished."""
    least_s: float
    """What the rest lasts as runs in real time alone: warm-up and duration, without set-up, computing and repetitions."""
    expected_s: float | None
    """What the rest takes if it goes on as before; `None`: nothing is finished, or what is lasted no time that can be compared."""

    def words(self) -> str:
        """`1000 iterations, 250 of them finished; the rest takes about 3 h 20 min`."""
        said = f"{number_of(self.wanted, 'iteration')}, {self.kept} of them finished"
        if self.kept == self.wanted:
            return said
        if self.expected_s is not None:
            return f"{said}; the rest takes about {clock(self.expected_s)}"
        if self.least_s == 0:
            return f"{said}; nothing is emulated, so how long the rest takes shows with the first iteration"
        return f"{said}; the rest takes at least {clock(self.least_s)} in real time, and computing and set-up beside"


def clock(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def least_s(cell: Cell) -> float:
    """How long one iteration of a cell runs in real time, seconds; 0: nothing is emulated."""
    if not cell.emulate:
        return 0.0
    # Neither load nor publishers change how long it runs, and sixty of these take a while to load.
    return _real_time_s(replace(cell, load="low", publishers=1, iterations=1, seed=1, evaluations=0))


@cache
def _real_time_s(cell: Cell) -> float:
    run = scenario_of(cell, 0, emulated=True).run
    return (run.warm_up_ns + run.duration_ns) / 1e9


def left(cells: Iterable[Cell], took_s: Mapping[str, list[float]]) -> Effort:
    """`took_s`: what each finished iteration took, seconds, by the cell's name.

    A cell of which nothing is finished is expected to take so many times its least time as the finished ones did on average.
    """
    wanted = kept = 0
    least = expected = 0.0
    each = {cell.name: least_s(cell) for cell in cells}
    finished = [(took, each[name]) for name, times in took_s.items() for took in times if name in each]
    spent, ran = (sum(values) for values in zip(*finished, strict=True)) if finished else (0.0, 0.0)
    known = bool(finished)
    for cell in cells:
        times = took_s.get(cell.name, [])[: cell.iterations]
        missing = cell.iterations - len(times)
        wanted, kept, least = wanted + cell.iterations, kept + len(times), least + missing * each[cell.name]
        if times:
            expected += missing * sum(times) / len(times)
        elif ran > 0:
            expected += missing * each[cell.name] * spent / ran
        elif finished:
            expected += missing * spent / len(finished)
    return Effort(wanted, kept, least, expected if known else None)


def number_of(count: int, thing: str) -> str:
    """`1 cell`, `12,000 iterations`."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")
