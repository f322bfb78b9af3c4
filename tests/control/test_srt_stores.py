"""What every store must do, held against a real ovsdb-server and against a file."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from srt_helpers import CONTROLLER, M1, M2, READER, Open, connection, count, manager, request, wait_for

from timebound.control.srt.rows import Outcome, Row, VerdictRow
from timebound.control.srt.store import Change, Delete, NotYoursError, Put, Role, Store, Writer


def verdict(id: str, revision: int = 1) -> VerdictRow:
    return VerdictRow(
        id=id, revision=revision, outcome=Outcome.GRANTED, reason="", priority=5, bound_ns=7, shared_with=("b", "a")
    )


def puts(*rows: Row) -> list[Change]:
    return [Put(row) for row in rows]


def test_what_is_committed_is_read_back_at_once_and_by_others(url: str, open_for: Open) -> None:
    ours, theirs = open_for(url, M1), open_for(url, CONTROLLER)
    assert ours.transact(puts(manager(), connection("x"), request("r", "x")))
    assert ours.snapshot().requests == {"r": request("r", "x")}
    wait_for(lambda: theirs.snapshot().requests == {"r": request("r", "x")})
    assert theirs.transact(puts(verdict("r")))
    wait_for(lambda: ours.snapshot().verdicts == {"r": verdict("r")})
    assert ours.transact(puts(request("r", "x", 2)))
    assert ours.transact([Delete("connections", "x")])
    wait_for(lambda: not theirs.snapshot().connections)
    assert not theirs.snapshot().requests, "a connection takes its requests with it"


def test_others_see_transactions_whole(url: str, open_for: Open) -> None:
    ours, theirs = open_for(url, M1), open_for(url, READER)
    torn: list[str] = []
    state: dict[str, int] = {}

    def told(changes: tuple[Change, ...]) -> None:
        for change in changes:
            if isinstance(change, Put):
                row = change.row
                state[row.id] = getattr(row, "revision", 0)
        if state.get("a") != state.get("b"):
            torn.append(str(state))

    theirs.watch(told)
    assert ours.transact(puts(manager(), connection("x")))
    for revision in range(1, 100):
        assert ours.transact(puts(request("a", "x", revision), request("b", "x", revision)))
        tables = theirs.snapshot().requests
        assert len({row.revision for row in tables.values()}) <= 1
    wait_for(lambda: state.get("b") == 99)
    assert not torn


def test_a_watcher_is_told_every_last_change(url: str, open_for: Open) -> None:
    ours, theirs = open_for(url, M1), open_for(url, READER)
    seen: dict[str, int] = {}
    slow = threading.Event()

    def told(changes: tuple[Change, ...]) -> None:
        slow.wait(0.02)
        for change in changes:
            if isinstance(change, Put) and isinstance(change.row, type(request("r", "x"))):
                seen[change.row.id] = change.row.revision
            elif isinstance(change, Delete) and change.table == "requests":
                del seen[change.id]

    assert not theirs.watch(told).requests
    ours.transact(puts(manager(), connection("x")))
    for revision in range(200):
        ours.transact(puts(request(f"r{revision % 7}", "x", revision)), wait_s=0)
    assert ours.transact([Delete("requests", "r0")])
    wait_for(lambda: seen == {f"r{number % 7}": number for number in range(193, 200) if number % 7})


def test_a_callback_may_write_and_may_fail(url: str, open_for: Open) -> None:
    ours, theirs = open_for(url, M1), open_for(url, CONTROLLER)

    def answer(changes: tuple[Change, ...]) -> None:
        for change in changes:
            if isinstance(change, Put) and change.row.id == "r":
                assert theirs.transact(puts(verdict("r")))
                raise ValueError("a callback that fails")

    theirs.watch(answer)
    ours.transact(puts(manager(), connection("x"), request("r", "x")))
    wait_for(lambda: ours.snapshot().verdicts)
    ours.transact([Delete("requests", "r")])
    ours.transact(puts(request("r", "x", 2)))
    wait_for(lambda: theirs.snapshot().requests.get("r") == request("r", "x", 2))


@pytest.mark.parametrize(
    ("writer", "row"),
    [
        (M1, verdict("r")),
        (M1, manager("m2")),
        (M1, connection("y", "m2")),
        (M1, request("r", "of m2")),
        (M1, request("r", "of nobody")),
        (CONTROLLER, manager("c1")),
        (CONTROLLER, request("r", "of m2")),
        (READER, manager("reader")),
    ],
)
def test_a_row_has_one_writer(url: str, open_for: Open, writer: Writer, row: Row) -> None:
    assert open_for(url, M2).transact(puts(manager("m2"), connection("of m2", "m2")))
    store = open_for(url, writer)
    with pytest.raises(NotYoursError):
        store.transact(puts(row))
    assert count(store.snapshot()) == 2


def test_rows_of_another_are_not_taken_over_or_deleted(url: str, open_for: Open) -> None:
    open_for(url, M2).transact(puts(manager("m2"), connection("x", "m2")))
    store = open_for(url, M1)
    for change in (Put(connection("x", "m1")), Delete("connections", "x"), Delete("managers", "m2")):
        with pytest.raises(NotYoursError):
            store.transact([change])
    with pytest.raises(NotYoursError):
        open_for(url, CONTROLLER).transact([Delete("connections", "x")])


def test_a_keeper_clears_up_and_writes_nothing(url: str, open_for: Open) -> None:
    gone = open_for(url, M2)
    gone.transact(puts(manager("m2"), connection("x", "m2"), request("r", "x")))
    gone.close()
    keeper = open_for(url, Writer(Role.KEEPER, "root"))
    with pytest.raises(NotYoursError):
        keeper.transact(puts(manager("root")))
    assert keeper.transact([Delete("managers", "m2")])
    assert count(keeper.snapshot()) == 0


def test_a_manager_that_comes_back_removes_what_it_left(url: str, open_for: Open) -> None:
    first = open_for(url, M1)
    first.transact(puts(manager(), connection("old"), request("r", "old")))
    other = open_for(url, M2)
    other.transact(puts(manager("m2"), connection("theirs", "m2")))
    first.close()
    second = open_for(url, M1)
    assert list(second.snapshot().managers) == ["m2"]
    assert list(second.snapshot().connections) == ["theirs"]
    assert not second.snapshot().requests


def test_a_controller_that_comes_back_finds_its_own(url: str, open_for: Open) -> None:
    first = open_for(url, CONTROLLER, adopt=True)
    first.transact(puts(verdict("r"), verdict("s")))
    first.close()
    second = open_for(url, CONTROLLER, adopt=True)
    assert second.snapshot().verdicts == {"r": verdict("r"), "s": verdict("s")}
    assert second.transact([Delete("verdicts", "r")])
    assert list(second.snapshot().verdicts) == ["s"]


def test_a_snapshot_does_not_change(url: str, open_for: Open) -> None:
    store = open_for(url, M1)
    store.transact(puts(manager(), connection("x")))
    before = store.snapshot()
    store.transact(puts(connection("y")))
    store.transact([Delete("connections", "x")])
    assert list(before.connections) == ["x"]
    assert list(store.snapshot().connections) == ["y"]


def test_values_that_no_store_can_hold_are_refused_before_anything_is_written(url: str, open_for: Open) -> None:
    store = open_for(url, M1)
    for bad in (
        replace(manager(), version="a\0b"),
        replace(manager(), version="\ud800"),
        manager(beat_ns=2**63),
        manager(beat_ns=-1),
    ):
        with pytest.raises(ValueError, match="m1"):
            store.transact(puts(bad))
    assert count(store.snapshot()) == 0


def test_rows_that_somebody_else_spoils_are_put_right(
    url: str, open_for: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timebound.control.srt.ovsdb.HEAL_S", 0.2)
    monkeypatch.setattr("timebound.control.srt.embedded.HEAL_POLLS", 20)
    ours = open_for(url, M1)
    ours.transact(puts(manager(), connection("x"), request("r", "x")))
    keeper = open_for(url, Writer(Role.KEEPER, "root"))
    assert keeper.transact([Delete("managers", "m1")])
    wait_for(lambda: ours.snapshot().requests and keeper.snapshot().requests)
    assert keeper.snapshot().connections == {"x": connection("x")}


def test_threads_write_together(url: str, open_for: Open) -> None:
    store, reader = open_for(url, M1), open_for(url, READER)
    store.transact(puts(manager(), *(connection(f"x{number}") for number in range(4))))

    def write(number: int) -> None:
        for revision in range(1, 51):
            store.transact(puts(request(f"r{number}", f"x{number}", revision)), wait_s=5.0 if revision % 10 == 0 else 0)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row.revision for row in store.snapshot().requests.values()} == {50}
    wait_for(lambda: reader.snapshot() == store.snapshot())


def test_states_are_told_in_order(url: str, open_for: Open) -> None:
    store = open_for(url, M1, wait=False)
    states: list[bool] = []
    store.on_connected(states.append)
    store.wait_connected(10)
    wait_for(lambda: states and states[-1])
    assert store.trouble == ""
    store.close()
    assert not store.connected
    assert store.trouble
    assert states in ([True], [False, True], [True, False], [False, True, False])


def test_a_change_is_seen_soon_by_others(url: str, open_for: Open) -> None:
    ours, theirs = open_for(url, M1), open_for(url, READER)
    seen: dict[int, float] = {}

    def told(changes: tuple[Change, ...]) -> None:
        now = time.monotonic()
        for change in changes:
            if isinstance(change, Put):
                seen[getattr(change.row, "beat_ns", 0)] = now

    theirs.watch(told)
    delays = []
    for beat in range(1, 21):
        at = time.monotonic()
        assert ours.transact(puts(manager(beat_ns=beat)))
        wait_for(lambda beat=beat: beat in seen)
        delays.append(seen[beat] - at)
    assert sorted(delays)[10] < 0.05, f"half of all changes were seen within {sorted(delays)[10]} s"


def test_open_stores_are_stores(url: str, open_for: Open) -> None:
    store: Store = open_for(url, M1)
    assert store.connected
