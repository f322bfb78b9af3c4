"""Every part of the table's way may be killed and come back: what its writer wants stands there again, and nobody reads what is not so."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from srt_helpers import (
    CONTROLLER,
    M1,
    READER,
    Open,
    OvsdbServer,
    connection,
    manager,
    request,
    wait_for,
)

from tests.certificates import certificate
from tests.tools import OVSDB, need
from timebound.control.srt.jsonstream import JsonStream
from timebound.control.srt.rows import ControllerRow
from timebound.control.srt.schema import schema, to_json
from timebound.control.srt.store import Delete, Put, StoreError, Tls, open_store


def test_a_server_killed_in_the_middle_of_transactions_loses_none_that_was_confirmed(
    server: OvsdbServer, open_for: Open
) -> None:
    store, reader = open_for(server.url, M1), open_for(server.url, READER)
    store.transact([Put(manager()), Put(connection("x"))])
    draw = random.Random(7)
    confirmed = revision = 0
    for _ in range(5):
        end = time.monotonic() + draw.uniform(0.02, 0.1)
        while time.monotonic() < end:
            revision += 1
            if store.transact([Put(request("a", "x", revision)), Put(request("b", "x", revision))], wait_s=0.5):
                confirmed = revision
        for _ in range(20):  # so many are under way when it dies
            revision += 1
            store.transact([Put(request("a", "x", revision)), Put(request("b", "x", revision))], wait_s=0)
        server.kill()
        wait_for(lambda: not store.connected and not reader.connected)
        assert not store.transact([Put(request("later", "x", revision))])
        server.start()
        anew = open_for(server.url, READER)
        rows = anew.snapshot().requests
        assert rows["a"].revision == rows["b"].revision >= confirmed, (
            "a transaction is whole, and a confirmed one is there"
        )
        wait_for(lambda: reader.connected and store.connected)
        wait_for(lambda: reader.snapshot().requests == store.snapshot().requests)
        assert reader.snapshot().requests["later"].revision == reader.snapshot().requests["a"].revision == revision
    assert confirmed > 0


def test_what_was_wanted_while_the_server_was_away_is_written_on_return(server: OvsdbServer, open_for: Open) -> None:
    store = open_for(server.url, M1)
    store.transact([Put(manager()), Put(connection("gone")), Put(request("r", "gone"))])
    states: list[bool] = []
    store.on_connected(states.append)
    server.kill()
    wait_for(lambda: states[-1:] == [False])
    assert store.snapshot().requests, "what was known last can still be read"
    store.transact([Delete("connections", "gone")])
    store.transact([Put(connection("new")), Put(request("s", "new"))])
    server.start()
    began = time.monotonic()
    wait_for(lambda: states[-1:] == [True])
    assert time.monotonic() - began < 2.0, "back within the longest pause between attempts"
    reader = open_for(server.url, READER)
    assert list(reader.snapshot().connections) == ["new"]
    assert list(reader.snapshot().requests) == ["s"]


def test_a_watcher_is_told_what_changed_while_it_was_away(server: OvsdbServer, open_for: Open, tmp_path: Path) -> None:
    store = open_for(server.url, M1)
    store.transact([Put(manager()), Put(connection("x")), Put(request("r", "x")), Put(request("s", "x"))])
    reader = open_for(server.url, READER)
    told: list[object] = []
    reader.watch(told.extend)
    server.send(signal.SIGSTOP)
    wait_for(lambda: not reader.connected, 20)
    assert reader.trouble == "the server is silent"
    assert not store.transact([Put(request("r", "x", 2)), Delete("requests", "s")], wait_s=0.1)
    server.send(signal.SIGCONT)
    wait_for(lambda: Put(request("r", "x", 2)) in told and Delete("requests", "s") in told, 20)


def test_an_empty_server_is_filled_again(server: OvsdbServer, open_for: Open, tmp_path: Path) -> None:
    """A database that was lost with its disk: every writer puts its own rows there again."""
    ours, theirs = open_for(server.url, M1), open_for(server.url, CONTROLLER, adopt=True)
    ours.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    before = ours.snapshot()
    server.kill()
    server.database.unlink()
    fresh = OvsdbServer(server.folder)
    fresh.start()
    try:
        wait_for(lambda: ours.connected and theirs.connected)
        wait_for(lambda: theirs.snapshot() == before == ours.snapshot())
    finally:
        fresh.kill()


def test_a_server_without_the_table_is_said_to_lack_it(tmp_path: Path, open_for: Open) -> None:
    need(*OVSDB)
    (tmp_path / "o").mkdir()
    server = OvsdbServer(tmp_path / "o")
    text = (tmp_path / "o" / "timebound.ovsschema").read_text().replace('"Timebound"', '"Other"')
    (tmp_path / "other.ovsschema").write_text(text)
    server.database.unlink()
    subprocess.run(["ovsdb-tool", "create", server.database, tmp_path / "other.ovsschema"], check=True)
    server.start()
    try:
        store = open_for(server.url, M1, wait=False)
        wait_for(lambda: "no database Timebound" in store.trouble)
        assert not store.connected
    finally:
        server.kill()


WRITER = """
import sys
sys.path[:0] = {path!r}
from srt_helpers import M1, connection, manager, request
from timebound.control.srt.store import Put, open_store
store = open_store({url!r}, M1)
assert store.wait_connected(10), store.trouble
store.transact([Put(manager()), Put(connection("x"))])
revision = {last}
while True:
    revision += 1
    if store.transact([Put(request("a", "x", revision)), Put(request("b", "x", revision))]):
        print(revision, flush=True)
"""


def test_a_writer_killed_in_the_middle_leaves_whole_transactions(url: str, open_for: Open) -> None:
    reader = open_for(url, READER)
    for attempt in range(3):
        # Of the life before nothing may be taken for this one's.
        code = WRITER.format(path=sys.path, url=url, last=attempt * 1_000_000)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(30 + 7 * attempt):
            confirmed = int(process.stdout.readline())
        process.kill()
        confirmed = max([confirmed, *(int(line) for line in process.stdout.read().split("\n")[:-1] if line)])
        process.wait()
        wait_for(lambda confirmed=confirmed: reader.snapshot().requests["a"].revision >= confirmed)
        rows = reader.snapshot().requests
        assert rows["a"].revision == rows["b"].revision <= confirmed + 1
    store = open_for(url, M1)
    wait_for(lambda: not reader.snapshot().requests)
    assert not store.snapshot().connections, "whoever comes back clears up after its former life"


def test_a_file_that_is_taken_away_is_made_anew(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    store = open_for(f"file:{path}", M1)
    store.transact([Put(manager()), Put(connection("x"))])
    for each in tmp_path.iterdir():
        each.unlink()
    wait_for(path.exists)
    reader = open_for(f"file:{path}", READER)
    wait_for(lambda: list(reader.snapshot().connections) == ["x"])
    assert path.stat().st_mode & 0o007 == 0, "not for everybody to read"


def _put_into_the_file(file: Path) -> None:
    """All that is in SQLite's log so far."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _whole(file: Path) -> bool:
    with contextlib.closing(sqlite3.connect(file)) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


OVERWRITTEN = pytest.mark.parametrize("damage", ["truncate -s 12288 {}", "head -c 12000 /dev/zero > {}"])
"""By a process of its own: to close a file gives up what this process has locked in it."""


@OVERWRITTEN
def test_a_file_that_is_damaged_in_its_place_is_noticed(
    tmp_path: Path, open_for: Open, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """SQLite had gone on with what it had in memory, and everybody with it."""
    file = tmp_path / "srt.db"
    writer, reader = open_for(f"file:{file}", M1), open_for(f"file:{file}", READER)
    writer.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    _put_into_the_file(file)
    wait_for(lambda: reader.snapshot().requests)
    subprocess.run(["sh", "-c", damage.format(file)], check=True)
    wait_for(lambda: not writer.connected and not reader.connected and "no whole table" in writer.trouble)
    assert "store out of reach" in caplog.text
    assert not writer.transact([Put(request("later", "x"))], wait_s=0.2)
    for each in tmp_path.glob("srt.db*"):
        each.unlink()
    wait_for(lambda: writer.connected and reader.connected)
    wait_for(lambda: set(reader.snapshot().requests) == {"r", "later"})
    assert _whole(file)


@OVERWRITTEN
def test_damage_to_what_the_log_has_whole_is_none(tmp_path: Path, open_for: Open, damage: str) -> None:
    """A young table lies in SQLite's log alone, and the file is made from that."""
    file = tmp_path / "srt.db"
    writer = open_for(f"file:{file}", M1)
    states: list[bool] = []
    writer.on_connected(states.append)
    writer.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    subprocess.run(["sh", "-c", damage.format(file)], check=True)
    time.sleep(1.2)  # it was looked at twice
    assert writer.transact([Put(request("later", "x"))])
    _put_into_the_file(file)
    assert states == [True] and _whole(file)
    assert set(open_for(f"file:{file}", READER).snapshot().requests) == {"r", "later"}


@pytest.mark.parametrize("logged", [False, True], ids=["in the file", "in its log"])
def test_a_file_that_is_emptied_is_filled_again(tmp_path: Path, open_for: Open, logged: bool) -> None:
    file = tmp_path / "srt.db"
    writer = open_for(f"file:{file}", M1)
    states: list[bool] = []
    writer.on_connected(states.append)
    writer.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    if not logged:
        _put_into_the_file(file)
    subprocess.run(["truncate", "-s", "0", file], check=True)
    wait_for(lambda: states == [True, False, True])
    assert set(open_for(f"file:{file}", READER).snapshot().requests) == {"r"}
    assert _whole(file)


def test_another_table_that_is_written_over_a_file_is_read_and_put_right(tmp_path: Path, open_for: Open) -> None:
    """As from a backup: rows of the writer that lack in it come again, rows of others are those of the copy."""
    file, backup = tmp_path / "srt.db", tmp_path / "backup.db"
    other = open_store(f"file:{backup}", CONTROLLER)
    assert other.wait_connected(10)
    other.transact([Put(ControllerRow(id=CONTROLLER.name, version="1", beat_ns=1))])
    other.close()
    writer = open_for(f"file:{file}", M1)
    writer.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    _put_into_the_file(file)
    subprocess.run(["cp", backup, file], check=True)
    wait_for(lambda: writer.snapshot().controllers)
    wait_for(lambda: set(open_for(f"file:{file}", READER).snapshot().requests) == {"r"})
    assert writer.connected


def test_a_log_that_is_taken_away_is_noticed(tmp_path: Path, open_for: Open) -> None:
    """Who opens the file then makes another log, and neither sees what the other writes."""
    file = tmp_path / "srt.db"
    writer = open_for(f"file:{file}", M1)
    states: list[bool] = []
    writer.on_connected(states.append)
    writer.transact([Put(manager())])
    Path(f"{file}-wal").unlink()
    wait_for(lambda: states == [True, False, True])
    assert set(open_for(f"file:{file}", READER).snapshot().managers) == {"m1"}


def test_checkpoints_are_no_damage(tmp_path: Path, open_for: Open) -> None:
    file = tmp_path / "srt.db"
    writer = open_for(f"file:{file}", M1)
    states: list[bool] = []
    writer.on_connected(states.append)
    writer.transact([Put(manager()), Put(connection("x"))])
    size = file.stat().st_size
    end, revision = time.monotonic() + 2.0, 0
    while time.monotonic() < end:
        revision += 1
        assert writer.transact([Put(request("r", "x", revision))])
    assert file.stat().st_size != size, "there was at least one checkpoint"
    assert states == [True]
    assert open_for(f"file:{file}", READER).snapshot().requests["r"].revision == revision


def test_a_file_of_another_kind_is_not_touched(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "else.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE precious (thing TEXT)")
    other.close()
    text = tmp_path / "notes.txt"
    text.write_text("something else entirely\n" * 100)
    for each, why in ((path, "something else"), (text, "not a database")):
        before = each.read_bytes()
        store = open_for(f"file:{each}", M1, wait=False)
        wait_for(lambda store=store, why=why: why in store.trouble)
        assert not store.transact([Put(manager())])
        store.close()
        assert each.read_bytes()[100:] == before[100:]


def test_a_reader_far_behind_reads_everything_anew(
    tmp_path: Path, open_for: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timebound.control.srt.embedded.KEPT", 10)
    monkeypatch.setattr("timebound.control.srt.embedded.POLL_S", 0.2)
    url = f"file:{tmp_path / 'srt.db'}"
    store, reader = open_for(url, M1), open_for(url, READER)
    store.transact([Put(manager()), Put(connection("x"))])
    for first in range(0, 1500, 500):
        store.transact([Put(request(f"r{number}", "x")) for number in range(first, first + 500)])
    wait_for(lambda: len(reader.snapshot().requests) == 1500)
    assert reader.snapshot() == store.snapshot()


def _certificates(folder: Path) -> dict[str, Tls]:
    """An authority of the site, a certificate for the server, one for a manager, and one of another authority."""
    for ca in ("ca", "other-ca"):
        certificate(folder, ca)
    for name, ca in (("server", "ca"), ("manager", "ca"), ("stranger", "other-ca")):
        certificate(folder, name, ca)
    found = {
        name: Tls(key=str(folder / f"{name}.key"), certificate=str(folder / f"{name}.pem"), ca=str(folder / "ca.pem"))
        for name in ("server", "manager", "stranger")
    }
    found["misled"] = Tls(key=found["manager"].key, certificate=found["manager"].certificate, ca=str(folder / "other-ca.pem"))  # fmt: skip
    return found


def test_tls_in_both_directions(tmp_path: Path, open_for: Open) -> None:
    need(*OVSDB)
    tls = _certificates(tmp_path)
    theirs = tls["server"]
    options = (f"--private-key={theirs.key}", f"--certificate={theirs.certificate}", f"--ca-cert={theirs.ca}")
    port = 20_000 + os.getpid() % 20_000
    server = OvsdbServer(tmp_path, f"pssl:{port}:127.0.0.1", options=options)
    server.start()
    url = f"ssl:127.0.0.1:{port}"
    try:
        store = open_for(url, M1, tls=tls["manager"])
        assert store.transact([Put(manager()), Put(connection("x"))])
        assert list(open_for(server.url, READER).snapshot().connections) == ["x"]
        for whom in ("stranger", "misled"):
            refused = open_for(url, READER, wait=False, tls=tls[whom])
            wait_for(lambda refused=refused: refused.trouble not in ("", "not connected yet"))
            assert not refused.connected
            assert not refused.snapshot().connections
        server.kill()
        server.start()
        wait_for(lambda: store.connected)
        assert store.transact([Put(connection("y"))])
        with pytest.raises(StoreError):
            open_store(url, READER)
        with pytest.raises(StoreError, match="TLS"):
            open_store(url, READER, tls=Tls(key="/none", certificate="/none", ca=tls["server"].ca))
    finally:
        server.kill()


@pytest.mark.parametrize("url", ["", "nothing", "http:x", "file:", "unix:", "udp:1.2.3.4:5"])
def test_a_url_of_no_store_is_refused_with_the_kinds_there_are(url: str) -> None:
    with pytest.raises(StoreError) as error:
        open_store(url, READER)
    assert "file:PATH" in error.value.hint


def test_an_update_that_comes_with_the_bytes_of_the_table_is_not_lost(tmp_path: Path, open_for: Open) -> None:
    """It was applied before the table that it builds upon, which then took its place."""
    path = tmp_path / "played.sock"
    ready = threading.Event()

    def play() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            ready.set()
            peer, _ = listening.accept()
            with peer:
                stream = JsonStream()
                while data := peer.recv(65_536):
                    for message in stream.feed(data):
                        peer.sendall(answer(message))

    def answer(message: dict[str, Any]) -> bytes:
        results = {"list_dbs": ["Timebound"], "get_schema": schema(), "monitor": {}, "echo": []}
        text = json.dumps({"id": message["id"], "error": None, "result": results[message["method"]]})
        if message["method"] == "monitor":
            update = {"managers": {"11111111-2222-3333-4444-555555555555": {"new": to_json(manager())}}}
            text += json.dumps({"id": None, "method": "update", "params": [None, update]})
        return text.encode()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    assert ready.wait(5)
    store = open_for(f"unix:{path}", READER)
    assert store.snapshot().managers == {"m1": manager()}
    store.close()
    thread.join(5)
