"""One point, computed where an executor puts it: another process, another machine. Takes and gives plain values."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from timebound.engine.sweep.store import Store

EXIT_HOST, EXIT_INTERRUPTED = 3, 130
PR_SET_PDEATHSIG = 1


def start_worker(parent: int) -> None:
    """In a new process: it ends with the one that started it, so that a killed sweep leaves nothing running."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Between points an interrupt is only remembered: what waits in the pool's queue must not start any more.
    signal.signal(signal.SIGINT, _stop)
    # Now, and not within a point: an interrupted import would leave half a module behind.
    for module in ("polars", "timebound.engine.runs", "timebound.report"):
        importlib.import_module(module)
    # Blocked since before this process was (`interrupts_later`); what came meanwhile is remembered now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


_STOPPED = threading.Event()


def _stop(number: int, frame: FrameType | None) -> None:
    _STOPPED.set()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Interrupts reach the point, where this is the thread that gets them (under Dask it is not)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _STOPPED.is_set():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Runs a point and keeps its result.

    `task`: `source`, `verb`, `settings`, `key`, `index`, `folder` (of the sweep), `rootless`. The answer: `index`, `exit_code`,
    `verdict`, `failure`, `elapsed_s`, `kept`. Nothing that goes wrong with the point is raised: it is the point's failure.
    """
    from timebound.engine.folder import FolderError
    from timebound.scenario.problems import ScenarioError

    store = Store(Path(task["folder"]))
    working = store.working_folder(task["key"])
    started = time.monotonic()
    verdict, failure, code = "failed", None, EXIT_HOST
    try:
        with _interruptible():
            verdict, failure, code = _run(task, working)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except ScenarioError as error:
        failure, code = error.render(), 2
    except FolderError as error:
        failure, code = f"{error} ({error.hint})", error.code
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    # Where it came about is no place that anybody can look at afterwards.
    failure = None if failure is None else failure.replace(str(working), str(store.path(task["key"])))
    elapsed = time.monotonic() - started
    answer = {"index": task["index"], "exit_code": code, "verdict": verdict, "failure": failure, "elapsed_s": elapsed}
    if code == EXIT_INTERRUPTED:
        _STOPPED.set()
    kept = code != EXIT_INTERRUPTED
    if kept:
        try:
            store.keep(working, task["key"], {**answer, "settings": task["settings"], "verb": task["verb"]})
        except (OSError, FolderError) as error:
            answer |= {"exit_code": EXIT_HOST, "failure": f"the result cannot be written: {error}"}
            kept = False
    if not kept:
        with contextlib.suppress(OSError):
            shutil.rmtree(working)
    return {**answer, "kept": kept}


def _run(task: dict[str, Any], working: Path) -> tuple[str, str | None, int]:
    """(verdict, failure, exit code) of a point's run."""
    from timebound.engine import runs
    from timebound.engine.sweep import points

    scenario, plan = points.compiled(task["source"], task["verb"], task["settings"])
    if points.key_of(scenario, plan, task["verb"]) != task["key"]:
        changed = "the scenario, its files or the version of Timebound changed since the sweep was planned"
        return "failed", changed, EXIT_HOST
    parts = points.VERBS[task["verb"]]
    done = runs.run(scenario, working, parts, rootless=task["rootless"], report="emulate" in parts)
    return str(done.summary["verdict"]), done.failure, done.exit_code
