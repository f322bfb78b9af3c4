"""Transactions with an OVSDB server (RFC 7047) on an asyncio loop: what the queues of Open vSwitch need, and no more.

The `ovs` package keeps its TLS settings for the whole process and brings a polling loop of its own; here every switch may have its own
server, and the store of the table a third one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

from timebound.control.openflow.settings import Tls

DATABASE = "Open_vSwitch"
_MOST_BUFFERED = 16 << 20

Operation = dict[str, Any]


class OvsdbError(Exception):
    """A server that is not there, does not answer, or refuses."""


class RemoteError(ValueError):
    """The address of a server is none."""


class Messages:
    """JSON texts out of a stream of bytes that may be cut anywhere (RFC 7047, section 4). Pure."""

    def __init__(self, most: int = _MOST_BUFFERED) -> None:
        """`most`: bytes of one text; a longer one is an error."""
        self._most = most
        self._buffer = bytearray()
        self._seen = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete now. Raises `OvsdbError` for what is no JSON object, or too long."""
        self._buffer += data
        while (end := self._end()) is not None:
            text = bytes(self._buffer[:end])
            del self._buffer[:end]
            try:
                yield json.loads(text)
            except (ValueError, RecursionError) as error:
                raise OvsdbError(f"the server sent what is no JSON: {error}") from error
        if len(self._buffer) > self._most:
            raise OvsdbError("the server sent a message without an end")

    def _end(self) -> int | None:
        """Where the first text of the buffer ends. Every byte is looked at once, however often it is called."""
        for index in range(self._seen, len(self._buffer)):
            byte = self._buffer[index]
            if self._quoted:
                self._quoted = self._escaped or byte != 0x22
                self._escaped = not self._escaped and byte == 0x5C
            elif byte == 0x22 and self._depth:
                self._quoted = True
            elif byte in b"{[":
                self._depth += 1
            elif byte in b"}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._depth, self._seen = 0, 0
                    return index + 1
            elif not self._depth and byte not in b" \t\r\n":
                raise OvsdbError("the server sent what is no JSON object")
        self._seen = len(self._buffer)
        return None


class Ovsdb:
    """One server. Connects when it is needed, and again after it was lost."""

    def __init__(self, remote: str, tls: Tls | None, within_s: float) -> None:
        """`remote`: `tcp:ADDRESS:PORT`, `ssl:ADDRESS:PORT`, `unix:FILE`. Raises `RemoteError`."""
        self._kind, self._where = parse_remote(remote)
        if self._kind == "ssl" and tls is None:
            raise RemoteError(f"{remote}: `ssl` needs key and certificates")
        self.remote = remote
        self._tls = tls
        self._within_s = within_s
        self._writer: asyncio.StreamWriter | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self._connecting = asyncio.Lock()

    async def transact(self, operations: Sequence[Operation]) -> list[dict[str, Any]]:
        """Carries out all operations or none, and returns their results. Raises `OvsdbError`."""
        result = await self._call("transact", [DATABASE, *operations])
        if not isinstance(result, list):
            raise OvsdbError(f"{self.remote}: an answer that is no list")
        for entry in result:
            if isinstance(entry, dict) and "error" in entry:
                raise OvsdbError(f"{self.remote} refuses: {entry['error']} ({entry.get('details', 'no details')})")
        return [entry if isinstance(entry, dict) else {} for entry in result]

    async def close(self) -> None:
        """Gives the connection back."""
        if self._reader_task is not None:
            self._reader_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader_task
        self._drop("closed")

    async def _call(self, method: str, parameters: list[Any]) -> Any:
        try:
            async with asyncio.timeout(self._within_s):
                await self._connect()
                id = next(self._ids)
                answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._waiting[id] = answer
                try:
                    self._send({"method": method, "params": parameters, "id": id})
                    return await answer
                finally:
                    self._waiting.pop(id, None)
        except TimeoutError:
            self._drop("no answer")
            raise OvsdbError(f"{self.remote}: no answer within {self._within_s:g} s") from None

    async def _connect(self) -> None:
        async with self._connecting:
            if self._writer is not None:
                return
            try:
                reader, self._writer = await self._open()
            except (OSError, ssl.SSLError) as error:
                raise OvsdbError(f"{self.remote}: {error.strerror or error}") from error
            self._reader_task = asyncio.get_running_loop().create_task(self._read(reader))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._kind == "unix":
            return await asyncio.open_unix_connection(str(self._where))
        context = self._tls.client() if self._kind == "ssl" and self._tls else None
        host, port = self._where
        return await asyncio.open_connection(host, port, ssl=context)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        messages = Messages()
        reason = "the server closed the connection"
        try:
            while data := await reader.read(1 << 16):
                for message in messages.feed(data):
                    self._handle(message)
        except (OSError, OvsdbError) as error:
            reason = str(error)
        finally:
            self._drop(reason)

    def _handle(self, message: dict[str, Any]) -> None:
        if message.get("method") == "echo":
            self._send({"result": message.get("params", []), "error": None, "id": message.get("id")})
            return
        id = message.get("id")
        waiting = self._waiting.get(id) if isinstance(id, int) else None
        if waiting is None or waiting.done():
            return
        if message.get("error"):
            waiting.set_exception(OvsdbError(f"{self.remote} refuses: {message['error']}"))
        else:
            waiting.set_result(message.get("result"))

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode())

    def _drop(self, reason: str) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(OvsdbError(f"{self.remote}: {reason}"))


def parse_remote(remote: str) -> tuple[str, Any]:
    """Kind and place of a server's address, as Open vSwitch writes it. Raises `RemoteError` with what was expected."""
    kind, _colon, rest = remote.partition(":")
    if kind == "unix" and rest:
        return kind, rest
    host, _colon, port = rest.rpartition(":")
    if kind in ("tcp", "ssl") and host and port.isdecimal() and 0 < int(port) < 1 << 16:
        return kind, (host.strip("[]"), int(port))
    raise RemoteError(
        f"{remote!r} is no address of an OVSDB server: write tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or unix:FILE"
    )
