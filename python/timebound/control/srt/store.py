"""What keeps the table: one interface, whichever store is behind it (`ovsdb`, `embedded`).

A store object is a *replica*: it holds the whole table in memory, so that reading never waits, and follows what others write. It also
remembers what its own writer wants to stand there. When the store is out of reach nothing is lost by it: what was written meanwhile is put
there on return, and rows of this writer that it no longer wants are removed (`rules.reconcile`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from timebound.control.srt.rows import Row, TableName, Tables


class Role(StrEnum):
    """What a writer may write (`rules.prepare`)."""

    MANAGER = "manager"
    """Its row in `managers`, its `connections`, and `requests` on them."""
    CONTROLLER = "controller"
    """Its row in `controllers`, `verdicts`, `channels`."""
    KEEPER = "keeper"
    """A person who clears up what nobody owns any more: may delete, but write nothing."""
    READER = "reader"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes."""

    role: Role
    name: str
    """Id of the manager or controller; of others what logs shall call them."""


@dataclass(frozen=True, slots=True)
class Put:
    """A row that is new, or in the place of the one with its id."""

    row: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that is no more; one that is not there is no error."""

    table: TableName
    id: str


Change = Put | Delete


class StoreError(Exception):
    """A store that cannot be used as it was asked to, with a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotYoursError(StoreError):
    """A change of a row that has another writer."""


class Store(Protocol):
    """The table. Every method may be called on any thread; callbacks come in order, on one thread of the store's own, and may call the store."""

    @property
    def connected(self) -> bool:
        """Is the replica current? Never, before the whole table has been read for the first time."""

    @property
    def trouble(self) -> str:
        """Why it is not connected; empty while it is."""

    def transact(self, changes: Iterable[Change], wait_s: float = 2.0) -> bool:
        """Makes all changes together, or none.

        Returns whether they are in the store for good. If not (it is out of reach, or did not answer within `wait_s`), they are remembered
        as what this writer wants, and are made when it is back. `wait_s` of 0 does not wait: the changes are made in the order of calls.

        Raises:
            NotYoursError: a row has another writer; nothing was changed.
            ValueError: a value that no store can hold (NUL in a text, an integer outside 0 .. 2**63 - 1).
        """

    def snapshot(self) -> Tables:
        """The table as this replica knows it, own changes that were committed included. Not to be changed by the caller; never blocks."""

    def watch(self, changed: Callable[[tuple[Change, ...]], None]) -> Tables:
        """Calls `changed` with the rows that are new, other or gone, whoever wrote them. Returns the table at which that begins.

        One call holds whole transactions: one, or several that came while the callback before it ran. After a loss of connection it tells the
        difference. A beat is a change like any other.
        """

    def on_connected(self, told: Callable[[bool], None]) -> None:
        """Calls `told` with every change of `connected`, and once with what it is now."""

    @property
    def former(self) -> Tables:
        """Rows of this writer from before, as the first connection has found them; empty until then."""

    def wait_connected(self, timeout_s: float) -> bool:
        """Waits until the replica is current; whether it is."""

    def close(self) -> None:
        """Ends threads and connections. What the writer wrote stays in the store."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a client proves who it is, and whom it believes (PEM files)."""

    key: str
    certificate: str
    ca: str
    """Authority of the server's certificate."""


def open_store(
    url: str, writer: Writer, *, adopt: bool = False, tls: Tls | None = None, wanted: Iterable[Change] = ()
) -> Store:
    """A store by its URL: `unix:PATH`, `tcp:ADDRESS:PORT`, `ssl:ADDRESS:PORT` (OVSDB, as in Open vSwitch), `file:PATH` (embedded).

    Returns at once; it connects by itself, and again whenever it must. Rows of this writer from its former life are removed with
    the first connection (a manager's clients are gone), or with `adopt` taken as its own (a controller's channels are still in the switches).
    `wanted`: as if it had been handed to `transact` before that, so that these rows are not gone for a moment.

    Raises:
        StoreError: no such kind of store, or `ssl:` without `tls`.
    """
    kind, _, rest = url.partition(":")
    if kind == "file" and rest:
        from timebound.control.srt.embedded import EmbeddedStore

        return EmbeddedStore(rest, writer, adopt=adopt, wanted=wanted)
    if kind in ("unix", "tcp", "ssl") and rest:
        from timebound.control.srt.ovsdb import OvsdbStore

        if kind == "ssl" and tls is None:
            raise StoreError(f"{url}: TLS needs a key, a certificate and an authority", "name key, certificate and ca")
        return OvsdbStore(url, writer, adopt=adopt, tls=tls, wanted=wanted)
    raise StoreError(f"{url!r} is no store", "write unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or file:PATH")
