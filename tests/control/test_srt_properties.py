"""Random tables and transactions: what one store holds the other holds, and what is written is what is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from srt_helpers import CONTROLLER, M1, M2, READER, OvsdbServer, connection, manager, request, rows, wait_for

from tests.tools import OVSDB, need
from timebound.control.srt import rules, schema
from timebound.control.srt.columns import ColumnError, columns, flatten, unflatten
from timebound.control.srt.jsonstream import JsonStream, JsonStreamError
from timebound.control.srt.rows import ROWS, Row, TableName, Tables
from timebound.control.srt.store import Change, Delete, NotYoursError, Put, Store, Writer, open_store

ANY_ROW = st.sampled_from(list(ROWS)).flatmap(lambda table: rows(table))


@given(ANY_ROW)
def test_a_row_is_its_columns(row: Row) -> None:
    assert unflatten(rules.table_of(row), flatten(row)) == row


@given(ANY_ROW)
def test_a_row_survives_ovsdb(row: Row) -> None:
    text = json.dumps(schema.to_json(row))
    assert schema.from_json(rules.table_of(row), json.loads(text)) == row


@given(ANY_ROW, st.data())
def test_whatever_a_server_sends_is_a_row_or_an_error(row: Row, data: st.DataObject) -> None:
    values = schema.to_json(row)
    name = data.draw(st.sampled_from(sorted(values)))
    atoms = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["set", "map", "uuid"])
    values[name] = data.draw(st.recursive(atoms, lambda inner: st.lists(inner, max_size=3)))
    table = rules.table_of(row)
    try:
        read = schema.from_json(table, values)
    except ColumnError:
        return
    assert unflatten(table, flatten(read)) == read


# What random transactions are made of: few ids, so that they meet.
OWN: dict[Writer, st.SearchStrategy[Change]] = {
    M1: st.one_of(
        rows("managers", id=st.just("m1")).map(Put),
        rows("connections", manager=st.just("m1"), id=st.sampled_from(["m1-a", "m1-b"])).map(Put),
        rows("requests", connection=st.sampled_from(["m1-a", "m1-b"])).map(Put),
        st.builds(Delete, st.sampled_from(["managers", "connections", "requests"]), st.sampled_from(["m1", "m1-a", "m1-b", "a", "b"])),
    ),
    CONTROLLER: st.one_of(
        rows("controllers", id=st.just("c1")).map(Put),
        rows("verdicts").map(Put),
        rows("channels").map(Put),
        rows("groups").map(Put),
        st.builds(Delete, st.sampled_from(["verdicts", "channels", "groups", "controllers"]), st.sampled_from(["a", "b", "c", "d", "c1"])),
    ),
}  # fmt: skip
STEPS = st.lists(
    st.sampled_from(list(OWN)).flatmap(lambda writer: st.tuples(st.just(writer), st.lists(OWN[writer], max_size=4))),
    max_size=12,
)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """One store of each kind; every example clears them up."""
    need(*OVSDB)
    folder: Path = tmp_path_factory.mktemp("srt")
    server = OvsdbServer(folder)
    server.start()
    yield [f"file:{folder / 'srt.db'}", server.url]
    server.kill()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_both_stores_hold_the_same(urls: list[str], steps: list[tuple[Writer, list[Change]]]) -> None:
    ends = []
    for url in urls:
        with ExitStack() as stack:
            stores: dict[Writer, Store] = {}
            for writer in (*OWN, READER):
                stores[writer] = open_store(url, writer)
                stack.callback(stores[writer].close)
                assert stores[writer].wait_connected(10)
            said = [_say(stores, writer, changes) for writer, changes in steps]
            ends.append((said, stores[M1].snapshot().managers, _own(stores, M1), _own(stores, CONTROLLER)))
            wait_for(lambda stores=stores: _same(stores[READER].snapshot(), _own(stores, M1), _own(stores, CONTROLLER)))
            anew = open_store(url, READER)
            stack.callback(anew.close)
            assert anew.wait_connected(10)
            assert anew.snapshot() == stores[READER].snapshot()
    assert ends[0] == ends[1]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.lists(OWN[M1], max_size=5), max_size=6))
def test_no_transaction_leaves_a_request_that_belongs_to_nobody(transactions: list[list[Change]]) -> None:
    there = Tables()
    for changes in transactions:
        try:
            prepared = rules.prepare(changes, rules.Seen(M1, there, there))
        except NotYoursError:
            continue
        for change in prepared:
            table, id = rules.key(change)
            rows: dict[str, Row] = getattr(there, table)
            rows.pop(id, None)
            if isinstance(change, Put):
                rows[id] = change.row
        assert {row.connection for row in there.requests.values()} <= there.connections.keys()


@pytest.mark.parametrize("gone", [Delete("connections", "m1-b"), Delete("managers", "m1")])
def test_a_request_cannot_be_put_on_a_connection_that_goes(gone: Delete) -> None:
    """It was found by `test_both_stores_hold_the_same`, once in many thousand examples."""
    there = Tables(connections={"m1-b": connection("m1-b")})
    with pytest.raises(NotYoursError):
        rules.prepare([gone, Put(request("b", "m1-b"))], rules.Seen(M1, there, there))


def _say(stores: dict[Writer, Store], writer: Writer, changes: list[Change]) -> object:
    try:
        return stores[writer].transact(changes, wait_s=10)
    except NotYoursError as error:
        return str(error)


def _own(stores: dict[Writer, Store], writer: Writer) -> Tables:
    return rules.own(writer, stores[writer].snapshot())


def _same(read: Tables, managers: Tables, controllers: Tables) -> bool:
    return (read.managers, read.connections, read.requests, read.verdicts, read.channels, read.groups, read.controllers) == (
        managers.managers, managers.connections, managers.requests, controllers.verdicts, controllers.channels, controllers.groups,
        controllers.controllers,
    )  # fmt: skip


@st.composite
def tables(draw: st.DrawFn, orphans: bool = False) -> Tables:
    """A table in which two managers have rows. `orphans`: some hang in the air."""
    found = Tables()
    for name in draw(st.sets(st.sampled_from(["m1", "m2"]))):
        found.managers[name] = manager(name, draw(st.integers(0, 20)))
    ids = ["m1-a", "m1-b", "m2-a", "m2-b"]
    for id in draw(st.sets(st.sampled_from(ids))):
        found.connections[id] = connection(id, id[:2])
    for id in draw(st.sets(st.sampled_from([id for id in ids if orphans or id in found.connections] or ["none"]))):
        if id != "none":
            found.requests[f"{id}.1"] = request(f"{id}.1", id, draw(st.integers(1, 2)))
    return found


def _apply(before: Tables, changes: tuple[Change, ...]) -> Tables:
    after = Tables(**{table: dict(rules.rows_of(before, table)) for table in ROWS})  # type: ignore[arg-type]
    for change in changes:
        table, id = rules.key(change)
        rows: dict[str, Row] = getattr(after, table)
        if isinstance(change, Put):
            rows[id] = change.row
        else:
            del rows[id]
    return after


@given(tables(), tables())
def test_a_difference_leads_from_one_to_the_other(before: Tables, after: Tables) -> None:
    assert _apply(before, rules.difference(before, after)) == after
    assert not rules.difference(after, after)


@given(tables(), tables(), st.sampled_from([M1, M2]))
def test_reconciling_makes_own_rows_right_and_touches_no_other(there: Tables, other: Tables, writer: Writer) -> None:
    wanted = rules.own(writer, other)
    after = _apply(there, rules.reconcile(writer, wanted, there))
    assert rules.own(writer, after) == wanted
    rest = M2 if writer is M1 else M1
    assert rules.own(rest, after) == rules.own(rest, there)
    assert not rules.reconcile(writer, wanted, after)


@given(tables(orphans=True), st.integers(0, 40))
def test_rows_of_managers_without_a_beat_are_nobodys(there: Tables, now: int) -> None:
    gone = rules.stale(there, now, after_ns=5)
    alive = {name for name, row in there.managers.items() if row.beat_ns >= now - 5}
    assert gone.managers == there.managers.keys() - alive
    for row in there.connections.values():
        assert (row.id in gone.connections) == (row.manager not in alive)
    for asked in there.requests.values():
        owner = there.connections.get(asked.connection)
        assert (asked.id in gone.requests) == (owner is None or owner.manager not in alive)


def test_a_pulse_counts_by_change_and_not_by_the_clock_of_another_host() -> None:
    pulse = rules.Pulse(after_ns=5)
    pulse.observe({"old": 100, "ahead": 2000, "fresh": 1000}, wall_ns=1000, now_ns=50)
    assert pulse.alive(50) == {"ahead", "fresh"}
    pulse.observe({"old": 101, "ahead": 2000, "fresh": 1000}, wall_ns=1004, now_ns=54)
    assert pulse.alive(54) == {"old", "ahead", "fresh"}, "a beat that changes is alive, whatever time it states"
    assert pulse.alive(56) == {"old"}
    pulse.observe({"ahead": 2001}, wall_ns=1006, now_ns=56)
    assert pulse.alive(56) == {"ahead"}


OBJECTS = st.dictionaries(
    st.text(max_size=5), st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)), max_size=3
)  # fmt: skip


@given(st.lists(OBJECTS, max_size=5), st.booleans(), st.sampled_from(["", " ", "\r\n\t"]), st.data())
@example([{'"': "\\", "}{": '{"\\"'}], True, "", None)
def test_objects_come_out_of_a_stream_however_it_is_cut(
    objects: list[dict[str, object]], ascii: bool, between: str, data: st.DataObject | None
) -> None:
    text = between.join(json.dumps(each, ensure_ascii=ascii) for each in objects).encode("utf-8", "surrogatepass")
    stream, found, rest = JsonStream(), [], text
    while rest:
        cut = data.draw(st.integers(1, len(rest))) if data else 1
        found += stream.feed(rest[:cut])
        rest = rest[cut:]
    assert found == objects


@given(st.binary(max_size=60) | st.text(alphabet='{}[]"\\:, a1', max_size=40).map(str.encode), st.integers(1, 60))
def test_bytes_are_objects_or_an_error_and_never_more(data: bytes, cut: int) -> None:
    stream = JsonStream(most_bytes=50)
    try:
        found = stream.feed(data[:cut]) + stream.feed(data[cut:])
    except JsonStreamError:
        return
    assert all(isinstance(each, dict) for each in found)


def test_an_object_without_end_is_cut_off() -> None:
    stream = JsonStream(most_bytes=1000)
    with pytest.raises(JsonStreamError):
        for _ in range(100):
            stream.feed(b'{"a": "' + b"x" * 100)


def test_the_schema_names_every_column_and_nothing_else() -> None:
    found = schema.schema()
    assert found["name"] == "Timebound"
    for table in ROWS:
        assert list(found["tables"][table]["columns"]) == [column.name for column in columns(table)]
    assert schema.missing(found) == []
    del found["tables"]["requests"]["columns"]["topic"], found["tables"]["channels"]
    assert schema.missing(found) == ["requests.topic", "channels"]
    name: TableName = "verdicts"
    assert found["tables"][name]["columns"]["outcome"]["type"]["key"]["enum"] == [
        "set",
        ["granted", "refused", "unavailable"],
    ]
