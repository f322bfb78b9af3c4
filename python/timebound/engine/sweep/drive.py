"""Runs a sweep: what is there stays, the rest is given to an executor, and all of it becomes one comparison."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timebound.engine.folder import FolderError
from timebound.engine.progress import SILENT, Progress
from timebound.engine.sweep import results
from timebound.engine.sweep.executors import (
    Kind,
    SlurmExecutor,
    executor,
    interrupt_local,
    interrupts_later,
)
from timebound.engine.sweep.points import VERBS, Point, Sweep
from timebound.engine.sweep.store import PLAN, Store, prepare, read_plan
from timebound.engine.sweep.work import EXIT_HOST, EXIT_INTERRUPTED, work

STARTING_S = 3.0
"""What an emulation takes besides its duration (bringing up, proving, settling), for estimates."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a sweep is run. `jobs` None: all cores, one for emulations, which disturb each other."""

    folder: Path
    executor: Kind = "local"
    executor_options: dict[str, str] = field(default_factory=dict)
    jobs: int | None = None
    resume: bool = False
    force: bool = False
    shard: tuple[int, int] | None = None
    rootless: bool = False

    def workers(self, verb: str) -> int:
        """How many points at once."""
        return self.jobs or (1 if "emulate" in VERBS[verb] else os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A sweep that ended. `content` is that of sweep.json; None for a shard, whose points are only a part."""

    folder: Path
    exit_code: int
    computed: int
    reused: int
    content: dict[str, Any] | None
    interrupted: bool = False


def mine(points: Sequence[Point], shard: tuple[int, int] | None) -> list[Point]:
    """The points of shard i of n (i from 1): every n-th, so that each shard has its part of every axis."""
    return list(points) if shard is None else [p for p in points if p.index % shard[1] == shard[0] - 1]


def waiting(points: Sequence[Point], store: Store, *, force: bool) -> list[Point]:
    """The points without a whole result; points that failed are tried again. Points of the same content count once."""
    todo: dict[str, Point] = {}
    for point in points:
        result = None if force else store.read(point.key)
        if result is None or result.failure is not None:
            todo.setdefault(point.key, point)
    return list(todo.values())


def estimate_s(points: Sequence[Point], jobs: int) -> float | None:
    """Seconds that emulations take at least; None for what has no clock of its own."""
    emulated = [point.emulated_s + STARTING_S for point in points if point.emulated_s]
    return sum(emulated) / jobs if emulated else None


def run_sweep(sweep: Sweep, options: Options, progress: Progress = SILENT) -> Outcome:
    """Computes what is missing and writes the comparison.

    Raises:
        FolderError: the folder or the executor cannot be used; nothing was started.
    """
    if options.shard is not None and not 1 <= options.shard[0] <= options.shard[1]:
        raise FolderError(f"--shard {options.shard[0]}/{options.shard[1]} is no part", "the first of four is 1/4")
    prepare(options.folder, sweep.definition(), resume=options.resume, force=options.force, inputs=sweep.inputs)
    store = Store(options.folder)
    store.sweep_out()
    points = mine(sweep.points, options.shard)
    todo = waiting(points, store, force=options.force)
    answers, interrupted = _Crew(sweep, options, progress).compute(todo)
    codes = [answer["exit_code"] for answer in answers if not answer["kept"]]
    if options.shard is not None:
        known = [result.exit_code for point in points if (result := store.read(point.key)) is not None]
        code = EXIT_INTERRUPTED if interrupted else results.worst_code([*codes, *known])
        return Outcome(options.folder, code, len(answers), len(points) - len(todo), None, interrupted)
    content = write_all(sweep.definition(), options.folder, progress)
    code = EXIT_INTERRUPTED if interrupted else results.worst_code([*codes, content["exit_code"]])
    return Outcome(options.folder, code, len(answers), len(points) - len(todo), content, interrupted)


def write_all(definition: dict[str, Any], folder: Path, progress: Progress = SILENT) -> dict[str, Any]:
    """Writes `sweep.json`, `sweep.parquet` and `report.html` from the results that are there."""
    from timebound.report import ReportError, write_sweep

    progress.step("report", "putting the points side by side")
    content = results.document(definition, folder)
    results.write(content, folder)
    try:
        write_sweep(content, folder / "report.html")
    except ReportError as error:
        raise FolderError(str(error), f"the figures are in {folder / 'sweep.json'}", EXIT_HOST) from error
    return content


class _Crew:
    """Hands points out and takes answers in."""

    def __init__(self, sweep: Sweep, options: Options, progress: Progress) -> None:
        self.sweep, self.options, self.progress = sweep, options, progress
        self.answers: list[dict[str, Any]] = []
        self.started = time.monotonic()
        self.total = 0

    def compute(self, todo: Sequence[Point]) -> tuple[list[dict[str, Any]], bool]:
        """Answers, and whether it was interrupted."""
        if not todo:
            return [], False
        self.total = len(todo)
        jobs = min(self.options.workers(self.sweep.verb), len(todo))
        self.progress.step("sweep", f"{len(todo)} points, {jobs} at once")
        rest = list(todo)
        try:
            rest = self._pass(rest, jobs)
            # A process died and took the others' work with it: one at a time, it is known whose fault it is.
            while rest:
                before = rest
                rest = self._pass(before[:1], 1)
                if rest:
                    self._answer(self._lost(rest[0], "its process was killed (out of memory?)"))
                rest = before[1:]
        except KeyboardInterrupt:
            return self.answers, True
        return self.answers, False

    def _pass(self, todo: Sequence[Point], jobs: int) -> list[Point]:
        """Computes points; those that were under way or waiting when the pool broke come back."""
        options = self.options
        with executor(options.executor, jobs, options.folder, options.executor_options) as pool:
            futures: dict[Future[Any], Point] = {}
            try:
                try:
                    with interrupts_later():
                        futures |= {pool.submit(work, self._task(point)): point for point in todo}
                except BrokenProcessPool:
                    return list(todo)
                return self._collect(futures)
            except KeyboardInterrupt:
                for future in futures:
                    future.cancel()
                if isinstance(pool, SlurmExecutor):
                    pool.cancel_jobs()
                elif options.executor == "local":
                    interrupt_local()
                raise

    def _collect(self, futures: dict[Future[Any], Point]) -> list[Point]:
        pending, lost = set(futures), []
        while pending:
            # A timeout, so that the estimate of the time that is left does not stand still.
            done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                point = futures[future]
                try:
                    answer = future.result()
                except BrokenProcessPool:
                    lost.append(point)
                    continue
                except Exception as error:
                    answer = self._lost(point, f"{type(error).__name__}: {error}")
                if answer["exit_code"] == EXIT_INTERRUPTED:
                    raise KeyboardInterrupt
                self._answer(answer)
            self._tell()
        return lost

    def _task(self, point: Point) -> dict[str, Any]:
        return {
            "index": point.index,
            "key": point.key,
            "source": self.sweep.source,
            "verb": self.sweep.verb,
            "settings": {**self.sweep.common, **point.settings},
            "folder": str(self.options.folder.resolve()),
            "rootless": self.options.rootless,
        }

    def _lost(self, point: Point, why: str) -> dict[str, Any]:
        """The failure of a point whose worker could not say so itself; it is kept, so that the report names it."""
        store = Store(self.options.folder)
        answer = {"index": point.index, "exit_code": EXIT_HOST, "verdict": "failed", "failure": why, "elapsed_s": 0.0}
        store.keep(
            store.working_folder(point.key),
            point.key,
            {**answer, "settings": dict(point.settings), "verb": self.sweep.verb},
        )
        return {**answer, "kept": True}

    def _answer(self, answer: dict[str, Any]) -> None:
        self.answers.append(answer)
        if answer["failure"] is not None:
            name = self.sweep.points[answer["index"]].name
            self.progress.note(f"point {answer['index']} ({name}) failed: {str(answer['failure']).splitlines()[0]}")

    def _tell(self) -> None:
        done = len(self.answers)
        words = f"{done} of {self.total} points"
        if done:
            left = (time.monotonic() - self.started) / done * (self.total - done)
            words += f", about {_clock(left)} left"
        self.progress.at(done / self.total, words)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 90 else f"{whole // 60} min" if whole < 5400 else f"{whole / 3600:.1f} h"


def gather(folders: Sequence[Path], output: Path | None, progress: Progress = SILENT) -> Outcome:
    """Joins the results of shards into one folder (the first, or `output`) and writes the comparison.

    Raises:
        FolderError: a folder without a sweep, or of another one.
    """
    plans = [read_plan(folder) for folder in folders]
    for folder, plan in zip(folders[1:], plans[1:], strict=True):
        if plan["points"] != plans[0]["points"] or plan["verb"] != plans[0]["verb"]:
            raise FolderError(f"{folder} holds another sweep than {folders[0]}", "gather the shards of one sweep")
    target = output or folders[0]
    if target != folders[0]:
        prepare(target, plans[0], resume=False)
    store = Store(target)
    copied = 0
    for folder in folders:
        if folder.resolve() == target.resolve():
            continue
        source = Store(folder)
        for entry in plans[0]["points"]:
            key = entry["key"]
            have, found = store.read(key), source.read(key)
            if found is None or (have is not None and (have.failure is None or found.failure is not None)):
                continue
            working = store.working_folder(key)
            shutil.copytree(source.path(key), working, ignore=shutil.ignore_patterns(".lock"))
            store.adopt(working, key)
            copied += 1
    content = write_all(plans[0], target, progress)
    missing = content["counts"]["missing"]
    code = content["exit_code"] if not missing else results.worst_code([content["exit_code"], EXIT_HOST])
    return Outcome(target, code, copied, len(content["points"]) - missing - copied, content)


__all__ = ["PLAN", "Options", "Outcome", "estimate_s", "gather", "mine", "run_sweep", "waiting", "write_all"]
