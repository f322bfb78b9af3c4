"""JSON-RPC 1.0 with an OVSDB server (RFC 7047, section 4) on asyncio streams: calls, notifications, and whether the server is still there."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any

from timebound.control.srt.jsonstream import JsonStream
from timebound.control.srt.store import StoreError

PROBE_S = 2.0
"""After so long without a word from the server it is asked for one; after as long again it counts as gone."""


class RpcError(Exception):
    """The server refused a call."""


class Peer:
    """A connection. `reading` ends, with the reason, when it is of no use any more; all calls that wait then fail, too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._stream = JsonStream()
        self._next = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.on_update: Callable[[dict[str, Any]], None] = lambda updates: None
        """Called with the table updates of a notification `update` (RFC 7047, section 4.1.6)."""
        self.reading = asyncio.ensure_future(self._read())

    @property
    def waiting(self) -> int:
        """Calls without an answer yet."""
        return len(self._calls)

    def send(self, method: str, params: list[Any]) -> asyncio.Future[Any]:
        """Sends a call; the answer will be there, or `RpcError`, or `EOFError`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.reading.done():
            answer.set_exception(EOFError("the server has closed the connection"))
            return answer
        self._next += 1
        self._calls[self._next] = answer
        self._write({"method": method, "params": params, "id": self._next})
        return answer

    async def close(self) -> None:
        """Ends it."""
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        self._writer.transport.abort()

    def _write(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())

    async def _read(self) -> None:
        try:
            while True:
                data = await self._next_bytes()
                if not data:
                    raise EOFError("the server has closed the connection")
                for message in self._stream.feed(data):
                    self._take(message)
        finally:
            for answer in self._calls.values():
                if not answer.done():
                    answer.set_exception(EOFError("the connection was lost before the answer"))
                    answer.exception()  # Not everybody waits for theirs.
            self._calls.clear()

    async def _next_bytes(self) -> bytes:
        try:
            async with asyncio.timeout(PROBE_S):
                return await self._reader.read(2**18)
        except TimeoutError:
            self._write({"method": "echo", "params": [], "id": "probe"})
        try:
            async with asyncio.timeout(PROBE_S):
                return await self._reader.read(2**18)
        except TimeoutError:
            raise EOFError("the server is silent") from None

    def _take(self, message: dict[str, Any]) -> None:
        method, id = message.get("method"), message.get("id")
        if method == "echo":
            self._write({"result": message.get("params"), "error": None, "id": id})
        elif method == "update":
            params = message.get("params")
            if isinstance(params, list) and len(params) == 2 and isinstance(params[1], dict):
                self.on_update(params[1])
        elif method is None and isinstance(id, int) and not isinstance(id, bool):
            answer = self._calls.pop(id, None)
            if answer is None or answer.done():
                return
            if message.get("error") is not None:
                answer.set_exception(RpcError(_shown(message["error"])))
            else:
                answer.set_result(message.get("result"))


def _shown(error: Any) -> str:
    if isinstance(error, dict) and "error" in error:
        return f"{error['error']}: {error.get('details', '')}".rstrip(": ")
    return str(error)


def failed(result: Any, operations: int) -> str:
    """Why a `transact` was not committed; empty: it was (RFC 7047, section 4.1.3: an error stands where the failing operation's result would)."""
    if not isinstance(result, list):
        return "an answer that is none"
    for part in result:
        if isinstance(part, dict) and part.get("error") is not None:
            return _shown(part)
    if len(result) < operations or None in result:
        return "not all operations were done"
    return ""


async def connect(url: str, context: ssl.SSLContext | None) -> Peer:
    """Opens a connection to `unix:PATH`, `tcp:ADDRESS:PORT` or `ssl:ADDRESS:PORT`.

    Raises:
        OSError: nobody answers there, or TLS fails.
        StoreError: this is no such address.
    """
    kind, _, rest = url.partition(":")
    if kind == "unix":
        return Peer(*await asyncio.open_unix_connection(rest))
    address, _, port = rest.rpartition(":")
    if not (address and port.isdigit() and int(port) < 65536):
        raise StoreError(f"{url!r} has no address and port", f"write {kind}:192.0.2.1:6640")
    host = address.strip("[]")
    return Peer(*await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host if context else None))
