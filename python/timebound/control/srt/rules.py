"""Who may write what, what must be written after a partition, and whose rows are nobody's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timebound.control.srt.columns import check_values
from timebound.control.srt.rows import ROWS, ConnectionRow, ManagerRow, RequestRow, Row, TableName, Tables, table_of
from timebound.control.srt.store import Change, Delete, NotYoursError, Put, Role, Writer

STALE_AFTER_NS = 5_000_000_000
"""Age of a beat from which on its writer counts as gone: five beats."""

OF_ROLE: dict[Role, frozenset[TableName]] = {
    Role.MANAGER: frozenset({"managers", "connections", "requests"}),
    Role.CONTROLLER: frozenset({"controllers", "verdicts", "channels", "groups"}),
    Role.KEEPER: frozenset(ROWS),
    Role.READER: frozenset(),
}
"""Tables in which a role has rows (a keeper: may delete)."""


def rows_of(tables: Tables, table: TableName) -> Mapping[str, Row]:
    """One table by its name."""
    found: Mapping[str, Row] = getattr(tables, table)
    return found


def manager_of(row: Row, connections: Mapping[str, ConnectionRow]) -> str | None:
    """The manager that writes a row; `None`: no manager does, or its connection is unknown."""
    if isinstance(row, ManagerRow):
        return row.id
    if isinstance(row, ConnectionRow):
        return row.manager
    if isinstance(row, RequestRow):
        connection = connections.get(row.connection)
        return connection.manager if connection else None
    return None


def mine(writer: Writer, row: Row, connections: Mapping[str, ConnectionRow]) -> bool:
    """Is this writer the one who writes the row?"""
    table = table_of(row)
    if writer.role in (Role.KEEPER, Role.READER) or table not in OF_ROLE[writer.role]:
        return False
    if writer.role is Role.MANAGER:
        return manager_of(row, connections) == writer.name
    return row.id == writer.name if table == "controllers" else True


class Seen:
    """The table as its writer must see it: its own rows as it wants them (written or not yet), others' as they stand in the store."""

    def __init__(self, writer: Writer, wanted: Tables, there: Tables) -> None:
        self.writer = writer
        self._wanted = wanted
        self._there = there

    def get(self, table: TableName, id: str) -> Row | None:
        """One row."""
        row = rows_of(self._wanted, table).get(id)
        if row is not None:
            return row
        row = rows_of(self._there, table).get(id)
        return None if row is None or mine(self.writer, row, self._there.connections) else row

    def deletable(self, table: TableName) -> Iterable[Row]:
        """Rows among which this writer's deletions look for what hangs on the row that goes."""
        tables = self._there if self.writer.role is Role.KEEPER else self._wanted
        return rows_of(tables, table).values()


def prepare(changes: Iterable[Change], seen: Seen) -> tuple[Change, ...]:
    """The changes as they are to be made: checked, the last of several for one row, and with what hangs on a row that goes.

    A connection takes its requests with it, a manager its connections: no row is left that belongs to nobody.

    Raises:
        NotYoursError: a row has another writer.
        ValueError: no store can hold a value.
    """
    wanted: dict[tuple[TableName, str], Change] = {}
    for change in changes:
        if isinstance(change, Put):
            check_values(change.row)
        hanging: list[Change] = _with_hanging(change, seen) if isinstance(change, Delete) else [change]
        gone = {each.id for each in hanging if isinstance(each, Delete) and each.table == "connections"}
        # Requests that the same transaction has put on a connection before it goes.
        for put in [put.row for put in wanted.values() if isinstance(put, Put)]:
            if isinstance(put, RequestRow) and put.connection in gone:
                hanging.insert(0, Delete("requests", put.id))
        for each in hanging:
            wanted.pop(key(each), None)
            wanted[key(each)] = each
    new = {
        id: change.row
        for (_, id), change in wanted.items()
        if isinstance(change, Put) and isinstance(change.row, ConnectionRow)
    }
    gone = {id for (table, id), change in wanted.items() if table == "connections" and isinstance(change, Delete)}
    for change in wanted.values():
        # A request on a connection that goes in the same transaction would belong to nobody, whichever was said first.
        row = change.row if isinstance(change, Put) else None
        is_left = isinstance(row, RequestRow) and row.connection in gone
        if is_left or not _allowed(change, seen, new):
            table, id = key(change)
            raise NotYoursError(f"{seen.writer.role} {seen.writer.name!r} does not write {id!r} of {table}")
    return tuple(wanted.values())


def key(change: Change) -> tuple[TableName, str]:
    """The row that a change is about."""
    return (change.table, change.id) if isinstance(change, Delete) else (table_of(change.row), change.row.id)


def _with_hanging(change: Delete, seen: Seen) -> list[Change]:
    hanging: list[Change] = []
    if change.table == "connections":
        requests = seen.deletable("requests")
        hanging = [
            Delete("requests", row.id)
            for row in requests
            if isinstance(row, RequestRow) and row.connection == change.id
        ]
    elif change.table == "managers":
        for row in seen.deletable("connections"):
            if isinstance(row, ConnectionRow) and row.manager == change.id:
                hanging += _with_hanging(Delete("connections", row.id), seen)
    return [*hanging, change]


def _allowed(change: Change, seen: Seen, new: Mapping[str, ConnectionRow]) -> bool:
    writer = seen.writer
    table, id = key(change)
    there = seen.get(table, id)
    if table not in OF_ROLE[writer.role]:
        return False
    if writer.role is Role.KEEPER:
        return isinstance(change, Delete)
    row = change.row if isinstance(change, Put) else None
    return all(each is None or _mine_as_seen(each, seen, new) for each in (there, row))


def _mine_as_seen(row: Row, seen: Seen, new: Mapping[str, ConnectionRow]) -> bool:
    if not isinstance(row, RequestRow) or seen.writer.role is not Role.MANAGER:
        return mine(seen.writer, row, {})
    connection = new.get(row.connection) or seen.get("connections", row.connection)
    return isinstance(connection, ConnectionRow) and connection.manager == seen.writer.name


def own(writer: Writer, tables: Tables) -> Tables:
    """The rows of a table that are this writer's."""
    found = Tables()
    for table in ROWS:
        for row in rows_of(tables, table).values():
            if mine(writer, row, tables.connections):
                getattr(found, table)[row.id] = row
    return found


def reconcile(writer: Writer, wanted: Tables, there: Tables) -> tuple[Change, ...]:
    """What must be written so that of this writer's rows exactly `wanted` stand in a table that holds `there`."""
    changes: list[Change] = []
    theirs = own(writer, there)
    for table in reversed(ROWS):
        changes += [Delete(table, id) for id in rows_of(theirs, table) if id not in rows_of(wanted, table)]
    for table in ROWS:
        rows = rows_of(there, table)
        changes += [Put(row) for row in rows_of(wanted, table).values() if rows.get(row.id) != row]
    return tuple(changes)


def difference(before: Tables, after: Tables) -> tuple[Change, ...]:
    """What makes `after` of `before`: first what is new or other, then what is gone."""
    changes: list[Change] = []
    for table in ROWS:
        old = rows_of(before, table)
        changes += [Put(row) for row in rows_of(after, table).values() if old.get(row.id) != row]
    for table in reversed(ROWS):
        new = rows_of(after, table)
        changes += [Delete(table, id) for id in rows_of(before, table) if id not in new]
    return tuple(changes)


@dataclass(frozen=True, slots=True)
class Stale:
    """Ids of rows that are about nobody: their manager is gone, or has not renewed its beat."""

    managers: frozenset[str]
    connections: frozenset[str]
    requests: frozenset[str]


def stale(tables: Tables, now_ns: int, after_ns: int = STALE_AFTER_NS) -> Stale:
    """Rows whose manager's beat is older than `after_ns` at `now_ns` (wall clock, ns since 1970), or who have no manager at all.

    It compares clocks of two hosts, which therefore must agree to within a few seconds; `Pulse` does not.
    """
    alive = {row.id for row in tables.managers.values() if now_ns - row.beat_ns <= after_ns}
    connections = frozenset(row.id for row in tables.connections.values() if row.manager not in alive)
    return Stale(
        managers=frozenset(tables.managers.keys() - alive),
        connections=connections,
        requests=frozenset(
            row.id
            for row in tables.requests.values()
            if row.connection in connections or row.connection not in tables.connections
        ),
    )


class Pulse:
    """Who is alive by beats that *change*, so that it does not matter by how much clocks of hosts differ.

    A beat that was never seen to change counts by its age on the wall clock; from the first change on only the time since the last one counts.
    """

    def __init__(self, after_ns: int = STALE_AFTER_NS) -> None:
        self._after_ns = after_ns
        self._seen: dict[str, tuple[int, int]] = {}

    def observe(self, beats: Mapping[str, int], wall_ns: int, now_ns: int) -> None:
        """What stands in the table now: beats by id; `now_ns` by a clock that only goes forward."""
        for id, beat in beats.items():
            known = self._seen.get(id)
            if known is None:
                age = max(0, wall_ns - beat)
                self._seen[id] = (beat, now_ns - age)
            elif known[0] != beat:
                self._seen[id] = (beat, now_ns)
        for id in self._seen.keys() - beats.keys():
            del self._seen[id]

    def alive(self, now_ns: int) -> frozenset[str]:
        """Ids whose beat came in time."""
        return frozenset(id for id, (_, at) in self._seen.items() if now_ns - at <= self._after_ns)
