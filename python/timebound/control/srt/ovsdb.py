"""The table in an OVSDB server (RFC 7047): the same protocol by which Open vSwitch keeps its configuration.

One thread runs one event loop. The server sends what a transaction changed before it answers the transaction, so a committed change is in
the replica when its writer hears of it. docs/srt.md says why the client is our own, with figures.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from timebound.control.srt import rules, schema
from timebound.control.srt.columns import ColumnError
from timebound.control.srt.jsonstream import JsonStreamError
from timebound.control.srt.replica import Replica
from timebound.control.srt.rows import ROWS, Row, TableName, Tables
from timebound.control.srt.rpc import Peer, RpcError, connect, failed
from timebound.control.srt.store import Change, Delete, Put, StoreError, Tls, Writer

CONNECT_S = 10.0
"""Longest time to connect, to read the whole table, and to write what is missing there."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 1.0
HEAL_S = 5.0
"""How often it is checked that this writer's part of the table still stands as it wants it."""
MOST_WAITING = 100
"""Transactions that are sent without waiting for an answer."""

log = logging.getLogger("timebound.srt")

_Order = tuple[tuple[Change, ...], "Future[bool]"]
_Key = tuple[TableName, str]


class OvsdbStore(Replica):
    """See `store.Store`."""

    def __init__(
        self,
        url: str,
        writer: Writer,
        *,
        adopt: bool = False,
        tls: Tls | None = None,
        wanted: Iterable[Change] = (),
    ) -> None:
        self._context = _context(tls) if tls else None
        super().__init__(writer, adopt=adopt, wanted=wanted)
        self._url = url
        self._uuids: dict[_Key, str] = {}
        """The server's names of rows; and `_ids` the other way round."""
        self._ids: dict[str, _Key] = {}
        self._flying: Counter[_Key] = Counter()
        """Rows in transactions that are sent and not answered: whether they exist is known only by the server."""
        self._orders: asyncio.Queue[_Order] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"srt-ovsdb-{writer.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """See `Store`. What was handed in before is still written, if the server answers within two seconds."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._dispatch.close()

    def _name(self) -> str:
        return self._url

    def _commit(self, changes: tuple[Change, ...], done: Future[bool]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._orders.put_nowait, (changes, done))
        except RuntimeError:  # closed
            done.set_result(False)

    # Everything below runs on the loop's thread.

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while not self._ended.is_set():
            try:
                await self._follow()
            except (OSError, EOFError, TimeoutError, StoreError, RpcError, JsonStreamError, ColumnError) as error:
                backoff_s = FIRST_BACKOFF_S if self.connected else min(LONGEST_BACKOFF_S, backoff_s * 2)
                self._lost(_words(error))
            except Exception as error:
                # A defect of ours must not end the thread: whoever uses the store would never hear of the table again, nor that it is out of reach.
                log.exception("the store's thread has met what it does not know")
                backoff_s = LONGEST_BACKOFF_S
                self._lost(f"{type(error).__name__}: {error}")
            self._refuse()
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._ended.wait()
        self._out_of_use()
        self._refuse()

    def _refuse(self) -> None:
        """Orders that nobody can send any more: what they want is remembered."""
        while not self._orders.empty():
            self._orders.get_nowait()[1].set_result(False)

    async def _follow(self) -> None:
        """One connection, until it is lost (raises) or the store is closed (returns)."""
        async with asyncio.timeout(CONNECT_S):
            peer = await connect(self._url, self._context)
            try:
                await self._begin(peer)
            except BaseException:
                await peer.close()
                raise
        log.info("store connected", extra={"store": self._url})
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended = asyncio.ensure_future(self._ended.wait())
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._serve(peer, failure)),
            asyncio.ensure_future(self._heal(peer)),
            ended,
        ]
        try:
            watched: list[asyncio.Future[Any]] = [*tasks, peer.reading, failure]
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                await self._drain(peer)
                return
            for each in watched:
                if each.done():
                    each.result()
        finally:
            if not failure.cancel():
                failure.exception()
            for task in tasks:
                task.cancel()
            await peer.close()

    async def _begin(self, peer: Peer) -> None:
        """Reads the whole table, then writes what this writer wants otherwise."""
        databases = await peer.send("list_dbs", [])
        if not isinstance(databases, list):
            raise RpcError("it does not answer as an OVSDB server does: databases that are no list")
        if schema.DATABASE not in databases:
            raise StoreError(f"the server has no database {schema.DATABASE}: docs/srt.md says how to make it")
        lacking = schema.missing(await peer.send("get_schema", [schema.DATABASE]))
        if lacking:
            raise StoreError(
                f"its schema lacks {', '.join(lacking[:5])}: `timebound srt schema` prints it, `ovsdb-client convert` brings it up to date"
            )
        # Updates may come with the very bytes of the table that they build upon, before this task has seen it.
        early: list[dict[str, Any]] = []
        peer.on_update = early.append
        self._uuids.clear()
        self._ids.clear()
        self._flying.clear()
        found = Tables()
        monitored: dict[str, list[dict[str, Any]]] = {table: [{}] for table in ROWS}
        for change in self._changes(await peer.send("monitor", [schema.DATABASE, None, monitored])):
            if isinstance(change, Put):
                getattr(found, rules.key(change)[0])[change.row.id] = change.row
        self._loaded(found)
        peer.on_update = self._updated
        for updates in early:
            self._updated(updates)
        self._refuse()
        rest = self._rest()
        while rest or not self._current():
            if rest:
                await self._transact(peer, rest)
            rest = self._rest()

    async def _serve(self, peer: Peer, failure: asyncio.Future[None]) -> None:
        """Sends transactions one behind the other, without waiting for the answers; one that fails is told to `failure`."""
        room = asyncio.Semaphore(MOST_WAITING)

        def answered(done: Future[bool], why: str) -> None:
            room.release()
            done.set_result(not why)
            if why and not failure.done():
                failure.set_exception(RpcError(why))

        while True:
            await room.acquire()
            changes, done = await self._orders.get()
            self._send(peer, changes, partial(answered, done))

    async def _heal(self, peer: Peer) -> None:
        """Rows of this writer that somebody else has changed are put right."""
        while True:
            await asyncio.sleep(HEAL_S)
            if not peer.waiting and self._orders.empty() and (rest := self._rest()):
                await self._transact(peer, rest)

    async def _drain(self, peer: Peer) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while (peer.waiting or not self._orders.empty()) and not peer.reading.done():
                    await asyncio.sleep(0.002)

    async def _transact(self, peer: Peer, changes: tuple[Change, ...]) -> None:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._send(peer, changes, lambda why: None if told.done() else told.set_result(why))
        if why := await told:
            raise RpcError(why)

    def _send(self, peer: Peer, changes: tuple[Change, ...], done: Callable[[str], None]) -> None:
        """`done` is told why it was not committed; an empty text: it was."""
        operations = [operation for change in changes for operation in self._operations(change)]
        keys = [rules.key(change) for change in changes]
        self._flying.update(keys)

        def answered(answer: asyncio.Future[Any]) -> None:
            self._flying.subtract(keys)
            for each in keys:
                if self._flying[each] <= 0:
                    del self._flying[each]
            if answer.cancelled():
                done("the connection was closed")
            elif error := answer.exception():
                done(_words(error))
            else:
                done(failed(answer.result(), len(operations)))

        peer.send("transact", [schema.DATABASE, *operations]).add_done_callback(answered)

    def _operations(self, change: Change) -> list[dict[str, Any]]:
        """By the server's own name of a row where that is known: a search by `id` looks at every row of the table."""
        each = rules.key(change)
        table, id = each
        uuid = self._uuids.get(each)
        unsure = each in self._flying
        by_id = {"op": "delete", "table": table, "where": [["id", "==", id]]}
        by_uuid = [["_uuid", "==", ["uuid", uuid]]]
        if isinstance(change, Delete):
            if unsure:
                return [by_id]
            return [{"op": "delete", "table": table, "where": by_uuid}] if uuid else []
        row = schema.to_json(change.row)
        if unsure:
            return [by_id, {"op": "insert", "table": table, "row": row}]
        if uuid:
            return [{"op": "update", "table": table, "where": by_uuid, "row": row}]
        return [{"op": "insert", "table": table, "row": row}]

    def _updated(self, updates: dict[str, Any]) -> None:
        self._applied(self._changes(updates))

    def _changes(self, updates: dict[str, Any]) -> list[Change]:
        """Table updates (RFC 7047, section 4.1.6) as changes; keeps the server's names of rows."""
        gone: dict[_Key, Change] = {}
        there: list[Change] = []
        for table, uuid, new in _rows_of(updates):
            old = self._ids.pop(uuid, None)
            if old and self._uuids.get(old) == uuid:
                del self._uuids[old]
                gone[old] = Delete(*old)
            row = _row(table, new)
            if row is not None:
                each = (table, row.id)
                self._uuids[each], self._ids[uuid] = uuid, each
                there.append(Put(row))
        still = {rules.key(change) for change in there}
        return [*(change for each, change in gone.items() if each not in still), *there]


def _rows_of(updates: Any) -> Iterator[tuple[TableName, str, Any]]:
    """Tables, names of rows and what they are now. Raises `RpcError` for what are no table updates."""
    if not isinstance(updates, dict):
        raise RpcError("table updates that are none")
    for table in ROWS:
        rows = updates.get(table, {})
        if not isinstance(rows, dict):
            raise RpcError(f"updates of {table} that are none")
        for uuid, update in rows.items():
            if not isinstance(update, dict):
                raise RpcError(f"an update of a row of {table} that is none")
            yield table, uuid, update.get("new")


def _row(table: TableName, values: Any) -> Row | None:
    """A row as it came; one that is none of ours is passed over, and said."""
    if values is None:
        return None
    try:
        return schema.from_json(table, values)
    except ColumnError as error:
        log.warning("a row cannot be read", extra={"table": table, "why": str(error)})
        return None


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "the server did not answer in time"
    return str(error) or type(error).__name__


def _context(tls: Tls) -> ssl.SSLContext:
    """TLS as Open vSwitch does it: each side proves itself by a certificate of the site's authority; names of hosts prove nothing there.

    Raises:
        StoreError: a file that cannot be read, or does not fit the others.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise StoreError(f"TLS: {error}", f"look at {tls.key}, {tls.certificate}, {tls.ca}") from None
    return context
