"""Lines of the log for what may happen thousands of times a second."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from typing import Any

QUIET_S = 60.0
"""At least between two lines."""


class Quiet:
    """Counts what happens, and says so at once, and then at most once a minute, with how often it was."""

    def __init__(self, log: logging.Logger, message: str, level: int = logging.WARNING) -> None:
        self._log, self._message, self._level = log, message, level
        self._count = 0
        self._until = float("-inf")

    def count(self, now_s: float, last: str = "", times: int = 1) -> int:
        """It has happened once more, or so many `times` (0: what was not told yet is, if it is time); how often it was, if that is told now.

        `now_s` is of any clock that does not go back, `last` what is to be said of this one.
        """
        self._count += times
        if not self._count or now_s < self._until:
            return 0
        self._until = now_s + QUIET_S
        detail = {"last": last} if last else {}
        self._log.log(self._level, self._message, extra={"times": self._count, **detail})
        told, self._count = self._count, 0
        return told


def quieten(loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
    """A listening socket that can take nobody in says so once a minute, not with every try."""
    full = Quiet(log, "no connection can be taken in")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            full.count(loop.time(), str(error))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


class Sparing(logging.Filter):
    """Lets each of these messages of a library pass once a minute."""

    def __init__(self, *messages: str) -> None:
        super().__init__()
        self._until = dict.fromkeys(messages, float("-inf"))

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        now, until = time.monotonic(), self._until.get(str(record.msg))
        if until is None:
            return True
        if now < until:
            return False
        self._until[str(record.msg)] = now + QUIET_S
        return True
