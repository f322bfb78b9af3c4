"""What all stores have in common: the table in memory, what the writer wants to stand there, and who is told of changes."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any

from timebound.control.srt import rules
from timebound.control.srt.dispatch import Dispatcher
from timebound.control.srt.rows import ROWS, Row, TableName, Tables, table_of
from timebound.control.srt.store import Change, Delete, Put, Role, Writer

log = logging.getLogger("timebound.srt")


class Replica(ABC):
    """The part of a store that knows neither files nor sockets; a store of some kind inherits it and says how changes are committed.

    Such a store calls `_loaded` with the whole table after every connect, writes what `_loaded` returns, then calls `_current`; `_applied` with
    what has changed in the store, in the order in which it did; and `_lost` when it is out of reach.
    """

    def __init__(self, writer: Writer, *, adopt: bool, wanted: Iterable[Change]) -> None:
        self.writer = writer
        self._former: Tables | None = None
        self._lock = threading.RLock()
        self._tables = Tables()
        self._wanted = Tables()
        self._adopt = adopt
        self._shared: set[TableName] = set()
        self._dispatch = Dispatcher(f"srt-{writer.name}")
        self._is_current = threading.Event()
        self._trouble = "not connected yet"
        _apply(self._wanted, rules.prepare(wanted, rules.Seen(writer, self._wanted, self._tables)))

    # For users of the store; see `Store`.

    @property
    def connected(self) -> bool:
        """See `Store`."""
        return self._is_current.is_set()

    @property
    def trouble(self) -> str:
        """See `Store`."""
        return self._trouble

    def transact(self, changes: Iterable[Change], wait_s: float = 2.0) -> bool:
        """See `Store`."""
        with self._lock:
            prepared = rules.prepare(changes, rules.Seen(self.writer, self._wanted, self._tables))
            if self.writer.role is not Role.KEEPER:
                _apply(self._wanted, prepared)
            if not self.connected:
                return False
            if not prepared:
                return True
            done: Future[bool] = Future()
            self._commit(prepared, done)
        if wait_s <= 0:
            return False
        try:
            return done.result(wait_s)
        except FutureTimeoutError:
            return False

    def snapshot(self) -> Tables:
        """See `Store`."""
        with self._lock:
            self._shared = set(ROWS)
            return replace(self._tables)

    def watch(self, changed: Callable[[tuple[Change, ...]], None]) -> Tables:
        """See `Store`."""
        with self._lock:
            self._dispatch.watch(changed)
            return self.snapshot()

    def on_connected(self, told: Callable[[bool], None]) -> None:
        """See `Store`."""
        with self._lock:
            self._dispatch.on_state(told, self.connected)

    @property
    def former(self) -> Tables:
        """See `Store`."""
        with self._lock:
            return self._former or Tables()

    def wait_connected(self, timeout_s: float) -> bool:
        """See `Store`."""
        return self._is_current.wait(timeout_s)

    # For the store that inherits.

    @abstractmethod
    def _commit(self, changes: tuple[Change, ...], done: Future[bool]) -> None:
        """Takes changes to be committed in the order of calls; `done` says whether they are in the store."""

    def _loaded(self, tables: Tables) -> tuple[Change, ...]:
        """The whole table as it stands in the store now; returns what this writer has to write to have its rows right."""
        with self._lock:
            changes = rules.difference(self._tables, tables)
            if self._former is None:
                self._former = rules.own(self.writer, tables)
            self._tables = tables
            self._shared = set()
            if changes:
                self._dispatch.changed(changes)
            if self._adopt:
                # Only the first table counts; what was wanted before it came goes before what stood there.
                self._adopt = False
                there = rules.own(self.writer, tables)
                for table in ROWS:
                    rows = getattr(self._wanted, table)
                    rows.update({id: row for id, row in rules.rows_of(there, table).items() if id not in rows})
            return rules.reconcile(self.writer, self._wanted, tables)

    def _applied(self, changes: Iterable[Change]) -> None:
        """Changes that are in the store."""
        with self._lock:
            real = tuple(change for change in changes if self._is_news(change))
            for table in {rules.key(change)[0] for change in real} & self._shared:
                # Somebody may still look at this table as it was.
                parts: dict[str, Any] = {table: dict(rules.rows_of(self._tables, table))}
                self._tables = replace(self._tables, **parts)
                self._shared.discard(table)
            _apply(self._tables, real)
            if real:
                self._dispatch.changed(real)

    def _is_news(self, change: Change) -> bool:
        table, id = rules.key(change)
        there = rules.rows_of(self._tables, table).get(id)
        return there is not None if isinstance(change, Delete) else there != change.row

    def _current(self) -> bool:
        """The replica has what the store has, and the store what the writer wants; `False`: more was wanted meanwhile, call `_rest`."""
        with self._lock:
            if rules.reconcile(self.writer, self._wanted, self._tables):
                return False
            if not self.connected:
                self._trouble = ""
                self._is_current.set()
                self._dispatch.state(True)
            return True

    def _rest(self) -> tuple[Change, ...]:
        """What must still be written."""
        with self._lock:
            return rules.reconcile(self.writer, self._wanted, self._tables)

    def _lost(self, why: str) -> None:
        """The store is out of reach. Repeated calls with the same reason are told once."""
        with self._lock:
            if why != self._trouble or self.connected:
                log.warning("store out of reach", extra={"store": self._name(), "why": why})
            self._out_of_use(why)

    def _out_of_use(self, why: str = "closed") -> None:
        with self._lock:
            self._trouble = why
            if self.connected:
                self._is_current.clear()
                self._dispatch.state(False)

    @abstractmethod
    def _name(self) -> str:
        """What logs call this store."""

    def _row(self, table: TableName, id: str) -> Row | None:
        with self._lock:
            return rules.rows_of(self._tables, table).get(id)


def _apply(tables: Tables, changes: Iterable[Change]) -> None:
    for change in changes:
        if isinstance(change, Put):
            getattr(tables, table_of(change.row))[change.row.id] = change.row
        else:
            getattr(tables, change.table).pop(change.id, None)
