"""`timebound shell`: an interactive shell on a host of a running experiment."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cyclopts import App

from timebound.cli.target import RunName, connected, host_names
from timebound.engine.control import ControlError, EndedError, Link, here, pick_nodes

END_OF_INPUT = b"\x04"
HANG_UPS = (signal.SIGHUP, signal.SIGTERM)


def register(app: App) -> None:
    """Adds the verb."""
    app.command(shell)


def shell(run: RunName, node: str, /, *command: str) -> int:
    """Open a shell on a host of a running experiment: timebound shell hello h1

    It has a terminal of its own, as with ssh; another command can be given after the host's name. The exit code is its own. It ends
    with the experiment.
    """
    with connected(run) as link:
        chosen = pick_nodes(node, host_names(link))
        if len(chosen) > 1:
            raise ControlError(f"{node!r} means {len(chosen)} hosts", "a shell is for one; timebound exec is for many")
        argv = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
        environment = {name: os.environ[name] for name in ("TERM", "LANG", "LC_ALL") if name in os.environ}
        ours, theirs = pty.openpty()
        try:
            _copy_size(ours)
            order = {"node": chosen[0], "argv": argv, "env": environment, "folder": here(), "terminal": True}
            number = link.send({"exec": order}, [theirs])
            os.close(theirs)
            with _raw(ours):
                return _relay(link, number, ours)
        finally:
            os.close(ours)


def _relay(link: Link, number: int, terminal: int) -> int:
    """Carries bytes both ways until the shell ends; its exit code."""
    sources: list[Any] = [sys.stdin.fileno(), terminal, link]
    code: int | None = None
    while code is None:
        ready, _, _ = select.select(sources, [], [])
        if sys.stdin.fileno() in ready:
            typed = os.read(sys.stdin.fileno(), 65_536)
            if not typed:
                sources.remove(sys.stdin.fileno())
            _write(terminal, typed or END_OF_INPUT)
        if terminal in ready and not _show(terminal):
            sources.remove(terminal)
        if link in ready:
            try:
                code = _ended(link.receive(), number)
            except EndedError:
                sys.stdout.write("\r\n")
                raise
    while select.select([terminal], [], [], 0)[0] and _show(terminal):
        pass
    return code


def _ended(answers: list[dict[str, Any]], number: int) -> int | None:
    for answer in answers:
        if "error" in answer:
            raise ControlError(str(answer["error"]))
        if answer.get("id") == number and "ended" in answer:
            ended = answer["ended"]
            return 128 + int(ended["signal"] or 0) if ended["exit_code"] is None else int(ended["exit_code"])
    return None


def _show(terminal: int) -> bool:
    """Prints what the shell wrote; false once its terminal is closed (then the kernel says EIO, pty(7))."""
    try:
        shown = os.read(terminal, 65_536)
    except OSError:
        return False
    _write(sys.stdout.fileno(), shown)
    return bool(shown)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _copy_size(terminal: int) -> None:
    """Gives the shell's terminal the size of ours; the kernel tells the shell (SIGWINCH)."""
    size = struct.pack("HHHH", 24, 80, 0, 0)
    if sys.stdout.isatty():
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, size)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Our terminal in raw mode; as it was however this ends (but by SIGKILL: then `reset` helps)."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin.fileno())
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in (*HANG_UPS, signal.SIGWINCH)}

    def hang_up(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        for asked in HANG_UPS:
            signal.signal(asked, hang_up)
        signal.signal(signal.SIGWINCH, lambda number, frame: _copy_size(terminal))
        tty.setraw(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
