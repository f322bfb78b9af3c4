"""Orders for a running run over its control socket. The contract is that of crates/live/src/control/mod.rs."""

from __future__ import annotations

import difflib
import json
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from timebound.scenario.names import RangeError, expand, split_names

VERSION = 1
LONGEST_ANSWER = 64 << 20


class ControlError(Exception):
    """An order that cannot be given or was refused, with a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = 2) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


class EndedError(ControlError):
    """The run ended while somebody talked to it."""

    def __init__(self) -> None:
        super().__init__("the experiment has ended", "timebound ps lists what is running", 3)


class Link:
    """A connection to a run; a context manager. Whatever it started ends with it."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._received = b""
        self._next = 1
        self._kept: list[dict[str, Any]] = []
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise ControlError(
                f"the experiment does not answer: {error.strerror}", "it may just be ending; see timebound ps", 3
            ) from None

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def send(self, order: Any, descriptors: Sequence[int] = ()) -> int:
        """Gives an order; returns its id.

        Raises:
            EndedError: nobody listens any more.
        """
        number = self._next
        self._next += 1
        line = json.dumps({"version": VERSION, "id": number, "order": order}).encode() + b"\n"
        try:
            sent = socket.send_fds(self._socket, [line], list(descriptors)) if descriptors else 0
            self._socket.sendall(line[sent:])
        except OSError:
            # What it said before it hung up is the reason.
            for answer in self._rest():
                if answer.get("id") == 0 and "error" in answer:
                    raise ControlError(str(answer["error"])) from None
            raise EndedError from None
        return number

    def receive(self) -> list[dict[str, Any]]:
        """The answers that are there, at least one; waits for it.

        Raises:
            EndedError: the run is over.
        """
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        while b"\n" not in self._received:
            try:
                chunk = self._socket.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk or len(self._received) > LONGEST_ANSWER:
                raise EndedError
            self._received += chunk
        *lines, self._received = self._received.split(b"\n")
        return [answer for line in lines if isinstance(answer := json.loads(line), dict)]

    def ask(self, order: Any) -> dict[str, Any]:
        """Gives an order and waits for its answer; others are kept for `receive`.

        Raises:
            ControlError: it was refused.
            EndedError: the run is over.
        """
        number = self.send(order)
        others: list[dict[str, Any]] = []
        while True:
            answers = self.receive()
            mine = [answer for answer in answers if answer.get("id") in (number, 0)]
            others += [answer for answer in answers if answer.get("id") not in (number, 0)]
            if mine:
                self._kept = others + self._kept
                if "error" in mine[0]:
                    raise ControlError(str(mine[0]["error"]))
                value: dict[str, Any] = mine[0]["ok"]
                return value

    def _rest(self) -> Iterable[dict[str, Any]]:
        try:
            yield from self.receive()
        except (EndedError, ValueError):
            return


def pick_nodes(text: str, known: Sequence[str]) -> list[str]:
    """The nodes that `h1`, `h[1-60]`, `h1,h5` or `all` means, in that order, each once.

    Raises:
        ControlError: a malformed range, or a node that is not there.
    """
    if text == "all":
        return list(known)
    found: dict[str, None] = {}
    for part in split_names(text):
        try:
            names = expand(part)
        except RangeError as error:
            raise ControlError(error.message, error.hint) from None
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1, 0.6)
                raise ControlError(
                    f"no host {name!r}", f"did you mean {close[0]!r}?" if close else "see timebound show"
                )
            found[name] = None
    if not found:
        raise ControlError("no node is named", "write h1, h[1-60], h1,h5 or all")
    return list(found)


def environment(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping.

    Raises:
        ControlError: one without '='.
    """
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ControlError(f"{pair!r} is no variable", "write --env NAME=VALUE")
        found[name] = value
    return found


def here() -> str | None:
    """The working folder, if it still exists."""
    try:
        return str(Path.cwd())
    except OSError:
        return None
