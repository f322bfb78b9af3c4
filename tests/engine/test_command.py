"""Commands in nodes, against a run that is a model: interrupts at moments that a user cannot choose. Over real runs: `tests/live/test_control`."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from timebound.engine.command import Commands
from timebound.engine.control import Link


class _Run(Link):
    """A run whose commands end when they are told for the `patience`-th time. `on_start` happens as soon as a command is there."""

    def __init__(self, patience: int = 1) -> None:
        self._socket, self.far = socket.socketpair()
        self._received, self._next, self._kept = b"", 1, []
        self.signals: list[int] = []
        self.patience = patience
        self.on_start: Any = lambda: None

    def send(self, order: Any, descriptors: Sequence[int] = ()) -> int:
        number, self._next = self._next, self._next + 1
        if "exec" in order:
            self.answer({"id": number, "ok": {"pid": 7}})
            self.on_start()
        else:
            self.signals.append(order["signal"]["signal"])
            if len(self.signals) == self.patience:
                self.end(order["signal"]["id"], signal=self.signals[-1])
        return number

    def end(self, number: int, **how: int) -> None:
        self.answer({"id": number, "ended": {"exit_code": None, "signal": None, **how}})

    def answer(self, answer: dict[str, Any]) -> None:
        self.far.sendall(json.dumps(answer).encode() + b"\n")


@pytest.fixture
def run() -> Iterator[_Run]:
    made = _Run()
    with made, made.far:
        yield made


@pytest.fixture(params=["attached", "kept"])
def go(request: pytest.FixtureRequest, run: _Run) -> Any:
    commands = Commands(run, ["true"], environment={}, folder=None)
    return (lambda: commands.run_attached("h1")) if request.param == "attached" else (lambda: commands.run(["h1"]))


@pytest.fixture
def another_thread() -> Iterator[None]:
    """It takes signals that are for nobody in particular, as the main one blocks them."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    over.set()
    thread.join()


def test_a_command_that_ends_is_an_outcome_and_handlers_are_as_before(run: _Run, go: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    run.on_start = lambda: run.end(1, exit_code=5)
    assert go()["h1"].exit_code == 5
    assert signal.getsignal(signal.SIGINT) is handler and signal.set_wakeup_fd(-1) == -1


def test_an_interrupt_in_the_middle_of_starting_reaches_the_command(run: _Run, go: Any) -> None:
    run.on_start = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go()
    assert run.signals == [signal.SIGINT]


@pytest.mark.usefixtures("another_thread")
def test_an_interrupt_that_does_not_end_the_wait_is_seen_at_once(run: _Run, go: Any) -> None:
    """As one that comes just before the wait begins: the system call is not interrupted."""
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    woken = threading.Event()
    late = threading.Timer(10, lambda: woken.set() or run.end(1, exit_code=0))
    late.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            go()
    finally:
        late.cancel()
    assert run.signals == [signal.SIGINT] and not woken.is_set(), "seen only when something else happened"


def test_one_that_takes_no_notice_is_told_again_and_then_killed(
    run: _Run, go: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timebound.engine.command.GRACE_S", 0.05)
    run.patience = 3
    run.on_start = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go()
    assert run.signals == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


def test_a_second_interrupt_ends_everything_at_once(run: _Run, go: Any) -> None:
    run.patience = 99
    run.on_start = lambda: os.kill(os.getpid(), signal.SIGINT)
    again = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    again.start()
    with pytest.raises(KeyboardInterrupt):
        go()
    again.join()
    assert run.signals == [signal.SIGINT]


def test_ignored_interrupts_stay_ignored(run: _Run, go: Any) -> None:
    """Of `nohup`, or of a job in the background of a shell without job control."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def started() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        run.end(1, exit_code=0)

    run.on_start = started
    try:
        assert go()["h1"].exit_code == 0
    finally:
        signal.signal(signal.SIGINT, before)
