"""Limits for who connects to the controller: over HTTP, and what a listening socket says when it can take nobody in.

uvicorn waits for ever for a request, and takes as many connections as there are; so one client could use up the files of the process, and nobody else,
no switch either, was let in any more.

| connection | ended |
|---|---|
| whose request (or its body) is not complete after `LONGEST_S` | then |
| one more than `MOST_CONNECTIONS` | the one that has waited for its request for the longest; where none waits, the new one |
| that is being answered | by its peer, or at the end of the answer (streams of events stay) |
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from timebound.control.quiet import Quiet, Sparing, quieten

if TYPE_CHECKING:
    import socket

MOST_CONNECTIONS = 64
LONGEST_S = 10.0
"""From the beginning of a connection, or the end of an answer, to the end of the next request."""
BACKLOG = 64
MOST_FILES = 65_536

log = logging.getLogger("timebound.controller")


def allow_files() -> None:
    """Lets the process have as many files as it may have at all: each switch is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server(uvicorn.Server):
    """uvicorn behind the limits of this module."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        loop: Any = asyncio.get_running_loop()
        quieten(loop, log)
        logging.getLogger("uvicorn.error").addFilter(
            Sparing("Invalid HTTP request received.", "Unsupported upgrade request.")
        )
        if self.config.is_ssl:
            # uvicorn has no word for it, and asyncio's own is a minute.
            loop.create_server = functools.partial(loop.create_server, ssl_handshake_timeout=LONGEST_S)
        await super().startup(sockets)


class Door(H11Protocol):
    """A connection over HTTP."""

    _slow = Quiet(log, "connections of HTTP were closed: too slow, or too many")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting_since: float | None = None
        """Loop time from which on a request is waited for; None while one is answered."""
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes it in, or another one out."""
        super().connection_made(transport)
        others = [each for each in self.connections if isinstance(each, Door) and each is not self]
        others = [each for each in others if not each.transport.is_closing()]
        if len(others) >= MOST_CONNECTIONS:
            waiting = [each for each in others if each._waiting_since is not None]
            self._break_off(min(waiting, key=lambda each: each._waiting_since or 0.0, default=self))
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self._waiting_since = None

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting_since = self.loop.time()
        if self._alarm is None:
            self._alarm = self.loop.call_later(LONGEST_S, self._look)

    def _look(self) -> None:
        """Ends what takes too long, however it passes its time."""
        self._alarm = None
        if self.transport.is_closing():
            return
        waited = 0.0 if self._waiting_since is None else self.loop.time() - self._waiting_since
        if waited >= LONGEST_S:
            self._break_off(self)
        else:
            self._alarm = self.loop.call_later(LONGEST_S - waited, self._look)

    def _break_off(self, door: Door) -> None:
        self._slow.count(self.loop.time())
        # Not `close`: what is to be written need not be read.
        door.transport.abort()
