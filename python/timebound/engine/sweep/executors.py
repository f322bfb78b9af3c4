"""Where points are computed: anything that is a `concurrent.futures.Executor`. Dask and Slurm come with `timebound[cluster]`."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from timebound.engine.folder import FolderError
from timebound.engine.sweep.work import start_worker

Kind = Literal["local", "dask", "slurm"]
INSTALL = "pip install 'timebound[cluster]'"
POLL_S = 0.5
INTERRUPT_S = 30.0
"""How long an interrupted emulation may take to keep what it measured."""

SLURM = {
    "partition": "slurm_partition",
    "account": "slurm_account",
    "qos": "slurm_qos",
    "time": "slurm_time",
    "mem": "slurm_mem",
    "cpus-per-task": "slurm_cpus_per_task",
    "array-parallelism": "slurm_array_parallelism",
}
"""Options of sbatch that submitit names itself; every other one is passed on as it is."""


@contextmanager
def executor(kind: Kind, jobs: int, folder: Path, options: Mapping[str, str]) -> Iterator[Executor]:
    """An executor for `work`.

    Raises:
        FolderError: its packages are not installed (exit code 3), or there is no scheduler to reach.
    """
    if kind == "local":
        with _local(jobs) as pool:
            yield pool
    elif kind == "dask":
        with _dask(jobs, options) as pool:
            yield pool
    else:
        yield SlurmExecutor(folder, options)


@contextmanager
def _local(jobs: int) -> Iterator[Executor]:
    # "spawn": a fork of a process with threads (Rust's, polars') may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=start_worker, initargs=(os.getpid(),))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Processes that are started meanwhile begin with interrupts blocked, and let them through once they can take them (`start_worker`): one that
    came in the middle of their imports would be a traceback. Our own interrupt waits for the end of the block."""
    # Where it is started later it lets interrupts through again.
    resource_tracker.ensure_running()
    came = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    # The mask is that of this thread: an interrupt that another thread takes (polars has some) still runs the handler in the main one.
    handler = signal.getsignal(signal.SIGINT)
    replaced = threading.current_thread() is threading.main_thread() and handler is not None
    if replaced:
        signal.signal(signal.SIGINT, remember)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if replaced:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def interrupt_local() -> None:
    """Tells this process's workers to stop, as Ctrl-C would; those that do not are ended."""
    children = multiprocessing.active_children()
    for child in children:
        with contextlib.suppress(OSError):
            os.kill(child.pid or 0, signal.SIGINT) if child.pid else None

    def end() -> None:
        deadline = time.monotonic() + INTERRUPT_S
        for child in children:
            child.join(max(0.0, deadline - time.monotonic()))
            if child.is_alive():
                child.kill()

    threading.Thread(target=end, daemon=True).start()


@contextmanager
def _dask(jobs: int, options: Mapping[str, str]) -> Iterator[Executor]:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise FolderError("Dask is not installed", INSTALL, 3) from None
    address = options.get("address")
    if unknown := set(options) - {"address"}:
        raise FolderError(
            f"unknown option for Dask: {', '.join(sorted(unknown))}", "--executor-option address=tcp://..."
        )
    if address is None:
        cluster = distributed.LocalCluster(n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None)
        with cluster, distributed.Client(cluster) as client:
            yield client.get_executor(pure=False)
        return
    try:
        client = distributed.Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise FolderError(f"no Dask scheduler at {address}: {error}", "start `dask scheduler`", 3) from error
    with client:
        yield client.get_executor(pure=False)


class SlurmExecutor(Executor):
    """Jobs of submitit as futures. `cluster=local` runs them as processes on this machine, by submitit's own means."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        try:
            from submitit import AutoExecutor
        except ImportError:
            raise FolderError("submitit is not installed", INSTALL, 3) from None
        cluster = options.get("cluster", "slurm")
        try:
            self._executor = AutoExecutor(
                folder=folder / "slurm" / "%j", cluster=None if cluster == "auto" else cluster
            )
        except (RuntimeError, ValueError) as error:
            raise FolderError(
                f"Slurm cannot be used: {error}", "run it where `sbatch` is, or use --shard", 3
            ) from error
        self._executor.update_parameters(**slurm_parameters(options, cluster))
        self._jobs: list[tuple[Any, Future[Any]]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits one job."""
        job = self._executor.submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        with self._lock:
            self._jobs.append((job, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        return future

    def cancel_jobs(self) -> None:
        """Takes back what has not ended (scancel)."""
        with self._lock:
            jobs = list(self._jobs)
        for job, _ in jobs:
            with contextlib.suppress(Exception):
                job.cancel(check=False)

    def _watch(self) -> None:
        while True:
            with self._lock:
                jobs = list(self._jobs)
            for entry in jobs:
                job, future = entry
                if not job.done():
                    continue
                try:
                    if not future.cancelled():
                        future.set_result(job.result())
                except BaseException as error:
                    future.set_exception(error)
                with self._lock:
                    self._jobs.remove(entry)
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
            time.sleep(POLL_S)


def slurm_parameters(options: Mapping[str, str], cluster: str = "slurm") -> dict[str, Any]:
    """`--executor-option partition=short` ... as submitit's parameters; one task per job."""
    additional: dict[str, str] = {}
    found: dict[str, Any] = {"name": "timebound-sweep"}
    for name, value in options.items():
        if name == "cluster":
            continue
        if name in SLURM:
            number = int(value) if value.isdigit() else value
            found[SLURM[name]] = number
        else:
            additional[name.replace("-", "_")] = value
    if additional:
        found["slurm_additional_parameters"] = additional
    if cluster != "slurm":
        # submitit's local executor knows only what all clusters share.
        found = {"name": found["name"], "timeout_min": 24 * 60}
    return found


def sbatch_script(folder: Path, options: Mapping[str, str]) -> str:
    """The batch script that each point would be submitted with, for `--dry-run`."""
    try:
        from submitit.slurm.slurm import _make_sbatch_string
    except ImportError:
        raise FolderError("submitit is not installed", INSTALL, 3) from None
    given = {name.removeprefix("slurm_"): value for name, value in slurm_parameters(options).items()}
    given["job_name"] = given.pop("name")
    return str(_make_sbatch_string(command="timebound", folder=str(folder / "slurm" / "%j"), **given))
