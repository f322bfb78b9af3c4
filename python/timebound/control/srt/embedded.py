"""The table in a file (SQLite), for sites without OVSDB: manager and controller on one host, or tests.

Several processes share the file. Each transaction also appends to a log which rows it was about, so that others read only those; that something
was committed at all is seen in SQLite's `data_version`, looked at every `POLL_S`. A reader for whom the log begins too late reads everything.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path

from timebound.control.srt import rules
from timebound.control.srt.columns import Column, ColumnError, Value, columns, flatten, unflatten
from timebound.control.srt.replica import Replica
from timebound.control.srt.rows import ROWS, Row, TableName, Tables, table_of
from timebound.control.srt.store import Change, Delete, Put, StoreError, Writer

POLL_S = 0.01
"""How often other processes' commits are looked for."""
LOOK_S = 0.5
"""How often the file itself is looked at: is it still the same one, and whole?"""
KEPT = 10_000
"""Entries of the log that are kept."""
HEAL_POLLS = 500
"""Every so many polls: does this writer's part of the table still stand as it wants it?"""
_APPLICATION = 0x54424E44
"""`TBND`, in the file's header (SQLite's application_id): a file of another kind is not written to."""
VERSION = 5
"""Of the file's layout (user_version): counts up with every table and column that is added. Older files are brought up to date when they are
opened; newer ones are left alone."""

log = logging.getLogger("timebound.srt")

_Order = tuple[tuple[Change, ...], Future[bool]]


class EmbeddedStore(Replica):
    """See `store.Store`. One thread owns the connection to the file; a file that is taken away or replaced is opened anew."""

    def __init__(self, path: str, writer: Writer, *, adopt: bool = False, wanted: Iterable[Change] = ()) -> None:
        super().__init__(writer, adopt=adopt, wanted=wanted)
        self._path = Path(path)
        self._orders: deque[_Order] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"srt-file-{writer.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """See `Store`. What was handed in before is still committed."""
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._dispatch.close()

    def _name(self) -> str:
        return f"file:{self._path}"

    def _commit(self, changes: tuple[Change, ...], done: Future[bool]) -> None:
        self._orders.append((changes, done))
        self._wake.set()

    def _run(self) -> None:
        wait_s = 0.05
        while True:
            try:
                with contextlib.closing(_File(self._path)) as file:
                    self._follow(file)
            except _BehindError:
                continue
            except (sqlite3.Error, StoreError, OSError) as error:
                wait_s = 0.05 if self.connected else min(2.0, wait_s * 2)
                self._lost(_why(error, self._path))
            if self._closing:
                self._out_of_use()
                self._refuse()
                return
            self._refuse()
            self._wake.wait(wait_s)
            self._wake.clear()

    def _refuse(self) -> None:
        """Orders that came too late for a file that is gone: `_loaded` will write what they wanted."""
        while self._orders:
            self._orders.popleft()[1].set_result(False)

    def _follow(self, file: _File) -> None:
        changes = self._loaded(file.load())
        self._refuse()
        while changes or not self._current():
            self._applied(file.commit([changes]))
            changes = self._rest()
        log.info("store connected", extra={"store": self._name()})
        polls, look_at = 0, 0.0
        while True:
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                if file.changed_outside():
                    self._applied(file.commit([self._loaded(file.load())]))
            if self._orders:
                self._serve(file)
            elif self._closing:
                return
            else:
                self._wake.wait(POLL_S)
                self._wake.clear()
                self._applied(file.news())
                polls += 1
                if polls % HEAL_POLLS == 0 and not self._orders and (rest := self._rest()):
                    self._applied(file.commit([rest]))

    def _serve(self, file: _File) -> None:
        """All orders that wait go into one commit, each of them whole."""
        orders: list[_Order] = []
        while self._orders:
            orders.append(self._orders.popleft())
        try:
            changes = file.commit([changes for changes, _ in orders])
        except BaseException:
            for _, done in orders:
                done.set_result(False)
            raise
        self._applied(changes)
        for _, done in orders:
            done.set_result(True)


def _why(error: Exception, path: Path) -> str:
    """What is said of a file that cannot be used; what is in a broken one is for a person to judge, so it is never removed by us."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):  # the lower byte: the primary result code
        return f"{path} is no whole table ({error}): move it away with its -wal and -shm, and it is made anew"
    return str(error)


class _BehindError(Exception):
    """More was written than the log keeps: the table must be read anew."""


class _File:
    """An open file. Every method is one SQLite transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Made by us, so that it is not for everybody to read (SQLite would make it 0644).
        # Only where it is not there: to close any descriptor of a file gives up all locks that this process has on it (fcntl(2)), those of another
        # store with the same file, too.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660))
        self._db = sqlite3.connect(path, timeout=2.0, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._prepare()
            self._inodes = self._there()
            self._stamp = self._stamped()
        except BaseException:
            self._db.close()
            raise
        self._seen = 0
        self._version = -1

    def close(self) -> None:
        self._db.close()

    def _there(self) -> tuple[int, int]:
        """Which files these are: the table, and its log of what is to go into it (`-wal`)."""
        try:
            return self._path.stat().st_ino, Path(f"{self._path}-wal").stat().st_ino
        except FileNotFoundError as error:
            raise StoreError(f"{error.filename} was taken away", "it is made anew") from error

    def _stamped(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_size, found.st_mtime_ns

    def changed_outside(self) -> bool:
        """May somebody have written to the file past SQLite? To be called now and then.

        SQLite reads what it has in memory again only when a *transaction* of another says so: a file that is truncated or overwritten in its place
        is noticed long after, and what was written meanwhile is lost. What SQLite itself does to the file's size and time (a checkpoint) is
        not told apart, so everything is read again; the memory is given up first, so that it is read from the file.

        Raises:
            StoreError: the files are not those that were opened any more, or make no table.
        """
        if self._there() != self._inodes:
            raise StoreError(f"{self._path} was taken away", "it is made anew")
        before, self._stamp = self._stamp, self._stamped()
        if before == self._stamp:
            return False
        self._db.execute("PRAGMA shrink_memory")
        if self._stamp[0] == 0:
            # With all pages in the log it still looks whole to us; to who opens it next it is new, and the log rubbish.
            raise StoreError(f"{self._path} was emptied")
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(f"{self._path} was damaged: {found}")
        return True

    def _pragma(self, name: str) -> int:
        found: int = self._db.execute(f"PRAGMA {name}").fetchone()[0]
        return found

    def _prepare(self) -> None:
        with self._transaction():
            application, version = self._pragma("application_id"), self._pragma("user_version")
            if application == 0 and not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in layout():
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id={_APPLICATION}")
                self._db.execute(f"PRAGMA user_version={VERSION}")
            elif application != _APPLICATION:
                raise StoreError(f"{self._path} is a database of something else", "name another file")
            elif version > VERSION:
                raise StoreError(
                    f"{self._path} has version {version} of the table, which is newer than {VERSION}",
                    "a newer timebound has written it: update this one, or name another file",
                )
            elif version < VERSION:
                for statement in self._additions():
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={VERSION}")
                log.info("table brought up to date", extra={"file": str(self._path), "was": version, "is": VERSION})

    def _additions(self) -> list[str]:
        """The statements that make this file one of today's."""
        statements = []
        for table in ROWS:
            has = {name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))}
            if not has:
                statements.append(_table(table))
                continue
            for column in columns(table):
                if column.name not in has:
                    default = "" if column.default is None else f" DEFAULT {_literal(column.default)}"
                    statements.append(f"ALTER TABLE {table} ADD COLUMN {_declared(column)}{default}")
        return statements

    @contextlib.contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def load(self) -> Tables:
        """Everything."""
        found = Tables()
        with self._transaction("DEFERRED"):
            self._seen = self._last()
            self._version = self._pragma("data_version")
            for table in ROWS:
                rows = getattr(found, table)
                for values in self._db.execute(_select(table)):
                    row = _row(table, values)
                    if row is not None:
                        rows[row.id] = row
        return found

    def news(self) -> list[Change]:
        """What others have committed since this was last asked."""
        version = self._pragma("data_version")
        if version == self._version:
            return []
        with self._transaction("DEFERRED"):
            self._version = self._pragma("data_version")
            return self._read_log()

    def commit(self, transactions: list[tuple[Change, ...]]) -> list[Change]:
        """Writes all of them; returns what has changed since this was last asked, by others and by this."""
        with self._transaction():
            changes = self._read_log()
            for transaction in transactions:
                for change in transaction:
                    self._write(change)
                changes += transaction
            before, self._seen = self._seen, self._last()
            if before // 1000 != self._seen // 1000:
                self._db.execute("DELETE FROM changes WHERE seq <= ?", (self._seen - KEPT,))
        return changes

    def _last(self) -> int:
        found: int = self._db.execute("SELECT coalesce(max(seq), 0) FROM changes").fetchone()[0]
        return found

    def _read_log(self) -> list[Change]:
        first = self._db.execute("SELECT min(seq) FROM changes").fetchone()[0]
        if first is not None and first > self._seen + 1:
            raise _BehindError
        changes: list[Change] = []
        for seq, table, id in self._db.execute(
            "SELECT max(seq), tab, id FROM changes WHERE seq > ? GROUP BY tab, id ORDER BY max(seq)", (self._seen,)
        ).fetchall():
            self._seen = seq
            if table not in ROWS:
                continue
            values = self._db.execute(_select(table) + " WHERE id = ?", (id,)).fetchone()
            row = _row(table, values) if values else None
            changes.append(Put(row) if row is not None else Delete(table, id))
        return changes

    def _write(self, change: Change) -> None:
        table, id = rules.key(change)
        if isinstance(change, Delete):
            self._db.execute(f"DELETE FROM {table} WHERE id = ?", (id,))
        else:
            values = [_to_sql(value) for value in flatten(change.row).values()]
            marks = ", ".join("?" * len(values))
            names = ", ".join(column.name for column in columns(table_of(change.row)))
            self._db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", values)
        self._db.execute("INSERT INTO changes (tab, id) VALUES (?, ?)", (table, id))


def layout() -> list[str]:
    """The statements that make a new file."""
    statements = ["CREATE TABLE changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, tab TEXT NOT NULL, id TEXT NOT NULL)"]
    return [*statements, *(_table(table) for table in ROWS)]


def _table(table: TableName) -> str:
    parts = ", ".join(_declared(column) for column in columns(table))
    return f"CREATE TABLE {table} ({parts}) WITHOUT ROWID"


def _literal(value: Value) -> str:
    """A value as it is written in a statement."""
    stored = _to_sql(value)
    return str(int(stored)) if isinstance(stored, int) else "'" + str(stored).replace("'", "''") + "'"


def _declared(column: Column) -> str:
    kind = "TEXT" if column.listed or issubclass(column.atoms[0], str) else "INTEGER"
    return (
        f"{column.name} {kind}"
        + ("" if column.optional else " NOT NULL")
        + (" PRIMARY KEY" if column.name == "id" else "")
    )


def _select(table: TableName) -> str:
    return f"SELECT {', '.join(column.name for column in columns(table))} FROM {table}"


def _to_sql(value: Value) -> str | int | None:
    return json.dumps(value) if isinstance(value, tuple) else value


def _row(table: TableName, values: tuple[str | int | None, ...]) -> Row | None:
    """A row as it was read; one that is none of ours is passed over, and said."""
    try:
        found = {column.name: _from_sql(column, value) for column, value in zip(columns(table), values, strict=True)}
        return unflatten(table, found)
    except (ColumnError, ValueError, TypeError) as error:
        log.warning("a row cannot be read", extra={"table": table, "why": str(error)})
        return None


def _from_sql(column: Column, value: str | int | None) -> Value:
    if value is None:
        return None
    if column.listed:
        return tuple(json.loads(str(value)))
    return bool(value) if column.atoms[0] is bool else value
