"""Commands in the nodes of a running experiment: one, or many side by side."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

from timebound.engine.control import ControlError, EndedError, Link

EXIT_TIMEOUT, EXIT_NOT_STARTED = 124, 127
"""As `timeout` and the shell say it."""
MOST_KEPT = 16 << 20
"""Bytes kept of each output where it is collected."""
GRACE_S = 2.0

Sink = Callable[[str, int, bytes], None]
"""Called with node, 1 (output) or 2 (error), and whole lines."""


@dataclass(slots=True)
class Outcome:
    """What became of a command in one node. `exit_code` is 128 + the signal's number where one ended it, 124 where it ran out
    of time, 127 where it did not start, and None where the experiment ended first."""

    exit_code: int | None = None
    error: str | None = None
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {
            "exit_code": self.exit_code,
            "stdout": self.stdout.decode("utf-8", "replace"),
            "stderr": self.stderr.decode("utf-8", "replace"),
        }
        if self.error is not None:
            found["error"] = self.error
        if self.truncated:
            found["truncated"] = True
        return found


def worst(outcomes: dict[str, Outcome]) -> int:
    """The greatest exit code; 3 where the experiment ended first."""
    if any(outcome.exit_code is None for outcome in outcomes.values()):
        return 3
    return max((outcome.exit_code or 0 for outcome in outcomes.values()), default=0)


@dataclass(slots=True)
class _Running:
    node: str
    deadline: float | None
    streams: dict[int, int] = field(default_factory=dict)
    """Descriptor -> 1 or 2."""
    rest: dict[int, bytes] = field(default_factory=lambda: {1: b"", 2: b""})
    told: int = 0
    """How many signals it was sent for being too slow."""


class _Interrupts:
    """SIGINT and SIGTERM as something that a selector waits for; the second one is raised wherever it comes.

    As exceptions they would get lost: Python looks for signals between its instructions, and one that comes after it has looked and before the selector
    waits is seen only when something else happens. An exception in the middle of reading would lose what was read.
    """

    def __init__(self) -> None:
        self._count = 0
        self._told = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:  # no other thread may
            self._woken = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(signal.getsignal(number)):  # neither ignored nor left to the kernel
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._main:
            signal.set_wakeup_fd(self._woken)
        os.close(self._read)
        os.close(self._write)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt

    def fileno(self) -> int:
        """For select."""
        return self._read

    def first(self) -> bool:
        """Has one come? True once."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 1 << 12)
        told, self._told = self._told, self._count > 0
        return self._told and not told

    @property
    def came(self) -> bool:
        """Has one come?"""
        return self._count > 0


class Commands:
    """Runs one command in several nodes, at most `limit` at a time."""

    def __init__(
        self,
        link: Link,
        argv: Sequence[str],
        *,
        environment: dict[str, str],
        folder: str | None,
        limit: int = 32,
        timeout_s: float | None = None,
        sink: Sink | None = None,
    ) -> None:
        """`sink` gets whole lines as they come; without one they are kept in the outcomes."""
        self._link = link
        self._order = {"argv": list(argv), "env": environment, "folder": folder}
        self._limit = limit
        self._timeout_s = timeout_s
        self._sink = sink
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self.outcomes: dict[str, Outcome] = {}

    def run(self, nodes: Sequence[str]) -> dict[str, Outcome]:
        """Runs it in all nodes and waits. An interrupt is passed on; a second one ends everything at once."""
        self.outcomes = {node: Outcome() for node in nodes}
        waiting = deque(nodes)
        with _Interrupts() as interrupts:
            self._watch(interrupts)
            try:
                while waiting or self._running:
                    while waiting and len(self._running) < self._limit:
                        self._start(waiting.popleft(), None)
                    self._turn()
                    if interrupts.first():
                        waiting.clear()
                        self._interrupt()
            except EndedError:
                for running in list(self._running.values()):
                    self._drain(running)
                    self.outcomes[running.node].error = "the experiment ended first"
            finally:
                for running in self._running.values():
                    self._forget(running)
                self._selector.close()
        if interrupts.came:
            raise KeyboardInterrupt
        return self.outcomes

    def run_attached(self, node: str) -> dict[str, Outcome]:
        """Runs it in one node with our own input and outputs. Interrupts: see `run`."""
        self.outcomes = {node: Outcome()}
        with _Interrupts() as interrupts:
            self._watch(interrupts)
            try:
                self._start(node, (0, 1, 2))
                while self._running:
                    self._turn()
                    if interrupts.first():
                        self._interrupt()
            except EndedError:
                self.outcomes[node].error = "the experiment ended first"
            finally:
                self._selector.close()
        if interrupts.came:
            raise KeyboardInterrupt
        return self.outcomes

    def _watch(self, interrupts: _Interrupts) -> None:
        self._selector.register(self._link, selectors.EVENT_READ)
        self._selector.register(interrupts, selectors.EVENT_READ, interrupts)

    def _start(self, node: str, given: tuple[int, int, int] | None) -> None:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        running = _Running(node, deadline)
        with contextlib.ExitStack() as stack:
            if given is None:
                given = self._pipes(running, stack)
            number = self._link.send({"exec": {"node": node, **self._order}}, given)
        self._running[number] = running

    def _pipes(self, running: _Running, stack: contextlib.ExitStack) -> tuple[int, int, int]:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, nothing)
        ends = []
        for kind in (1, 2):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, theirs)
            os.set_blocking(ours, False)
            running.streams[ours] = kind
            self._selector.register(ours, selectors.EVENT_READ, running)
            ends.append(theirs)
        return nothing, ends[0], ends[1]

    def _turn(self) -> None:
        now = time.monotonic()
        deadlines = [running.deadline for running in self._running.values() if running.deadline is not None]
        wait = max(0.0, min(deadlines) - now) if deadlines else None
        for key, _ in self._selector.select(wait):
            if key.data is None:
                for answer in self._link.receive():
                    self._take(answer)
            elif isinstance(key.data, _Running) and key.fd in key.data.streams:
                # An answer before it in this turn may have closed it.
                self._read(key.data, key.fd)
        now = time.monotonic()
        for number, running in self._running.items():
            if running.deadline is not None and now >= running.deadline:
                # It ran out of time: asked first, then told.
                sent = signal.SIGKILL if running.told else signal.SIGTERM
                running.told += 1
                running.deadline = now + GRACE_S
                self._link.send({"signal": {"id": number, "signal": int(sent)}})

    def _interrupt(self) -> None:
        for number, running in self._running.items():
            running.deadline = min(running.deadline or time.monotonic() + GRACE_S, time.monotonic() + GRACE_S)
            self._link.send({"signal": {"id": number, "signal": int(signal.SIGINT)}})

    def _take(self, answer: dict[str, Any]) -> None:
        running = self._running.get(answer.get("id", -1))
        if answer.get("id") == 0 and "error" in answer:
            raise ControlError(str(answer["error"]))
        if running is None:
            return
        outcome = self.outcomes[running.node]
        if "error" in answer:
            outcome.exit_code, outcome.error = EXIT_NOT_STARTED, str(answer["error"])
        elif "ended" in answer:
            ended = answer["ended"]
            code = ended["exit_code"]
            outcome.exit_code = 128 + int(ended["signal"] or 0) if code is None else int(code)
            if running.told:
                # Without a time limit it was an interrupt that ran out of patience.
                after = "an interrupt" if self._timeout_s is None else f"{self._timeout_s:g} s"
                outcome.exit_code, outcome.error = EXIT_TIMEOUT, f"ended after {after}"
        else:
            return
        self._drain(running)
        self._forget(running)
        del self._running[answer["id"]]

    def _read(self, running: _Running, descriptor: int) -> bool:
        """Reads once; true while there may be more."""
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            del running.streams[descriptor]
            return False
        self._output(running, running.streams[descriptor], chunk)
        return True

    def _output(self, running: _Running, kind: int, chunk: bytes) -> None:
        if self._sink is None:
            outcome = self.outcomes[running.node]
            kept = outcome.stdout if kind == 1 else outcome.stderr
            outcome.truncated |= len(kept) + len(chunk) > MOST_KEPT
            kept += chunk[: MOST_KEPT - len(kept)]
            return
        text = running.rest[kind] + chunk
        end = text.rfind(b"\n") + 1 if len(text) < 1 << 16 else len(text)
        running.rest[kind] = text[end:]
        if end:
            self._sink(running.node, kind, text[:end])

    def _drain(self, running: _Running) -> None:
        """What is there already; what its children write later is not waited for."""
        for descriptor in list(running.streams):
            while descriptor in running.streams and self._read(running, descriptor):
                pass
        for kind, rest in running.rest.items():
            if rest and self._sink is not None:
                self._sink(running.node, kind, rest + b"\n")
                running.rest[kind] = b""

    def _forget(self, running: _Running) -> None:
        for descriptor in running.streams:
            self._selector.unregister(descriptor)
            os.close(descriptor)
        running.streams.clear()
