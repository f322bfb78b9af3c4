"""A table that an older Timebound has made: it is brought up to date with its rows, or is said to be what it is."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from srt_helpers import CONTROLLER, M1, Open, OvsdbServer, connection, group, manager, request, wait_for

from tests.tools import OVSDB, need
from timebound.control.srt.schema import schema
from timebound.control.srt.store import Put

FIRST_MANAGERS = (
    "CREATE TABLE managers (id TEXT NOT NULL PRIMARY KEY, addresses TEXT NOT NULL, ports TEXT NOT NULL, broker_address TEXT NOT NULL, "
    "broker_port INTEGER NOT NULL, version TEXT NOT NULL, beat_ns INTEGER NOT NULL) WITHOUT ROWID"
)
"""As version 1 of the file had it."""
ADDED = ("network", "peer_address", "peer_port", "interests", "peer_sealed")
"""Columns of `managers` since then."""


def older_file(path: Path, open_for: Open) -> None:
    """A file of version 1 with a manager, its connection and a request."""
    ours = open_for(f"file:{path}", M1)
    assert ours.transact([Put(manager()), Put(connection("x")), Put(request("r", "x"))])
    ours.close()
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE managers RENAME TO newer")
        file.execute(FIRST_MANAGERS)
        old = [row[1] for row in file.execute("PRAGMA table_info(managers)")]
        file.execute(f"INSERT INTO managers SELECT {', '.join(old)} FROM newer")
        file.execute("DROP TABLE newer")
        file.execute("DROP TABLE groups")
        file.execute("PRAGMA user_version=1")
    file.close()


def test_a_file_of_the_first_version_keeps_its_rows_and_gets_groups(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    older_file(path, open_for)
    theirs = open_for(f"file:{path}", CONTROLLER, adopt=True)
    rows = theirs.snapshot()
    assert rows.managers == {"m1": manager()} and rows.requests == {"r": request("r", "x")}
    assert (rows.managers["m1"].network, rows.managers["m1"].peer_address, rows.managers["m1"].peer_port) == (
        "",
        None,
        None,
    )
    assert theirs.transact([Put(group())])
    again = open_for(f"file:{path}", M1, adopt=True)
    assert again.snapshot().groups == {"g": group()} and again.snapshot().managers == {"m1": manager()}


def test_a_group_of_the_second_version_says_nothing_of_its_burst(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    ours = open_for(f"file:{path}", CONTROLLER)
    assert ours.transact([Put(replace(group(), burst_bytes=4_000))])
    ours.close()
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE groups DROP COLUMN burst_bytes")
        file.execute("PRAGMA user_version=2")
    file.close()
    assert open_for(f"file:{path}", M1, adopt=True).snapshot().groups == {"g": group()}
    assert group().burst_bytes == 0


def test_a_manager_of_the_third_version_wants_nothing_from_others(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    ours = open_for(f"file:{path}", M1)
    assert ours.transact([Put(replace(manager(), interests=("plant/#",)))])
    ours.close()
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE managers DROP COLUMN interests")
        file.execute("PRAGMA user_version=3")
    file.close()
    assert open_for(f"file:{path}", CONTROLLER, adopt=True).snapshot().managers == {"m1": manager()}
    assert manager().interests == ()


def test_a_manager_of_the_fourth_version_has_no_tls_for_others(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    ours = open_for(f"file:{path}", M1)
    assert ours.transact([Put(replace(manager(), peer_sealed=True))])
    ours.close()
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE managers DROP COLUMN peer_sealed")
        file.execute("PRAGMA user_version=4")
    file.close()
    assert open_for(f"file:{path}", CONTROLLER, adopt=True).snapshot().managers == {"m1": manager()}
    assert not manager().peer_sealed


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "srt.db"
    open_for(f"file:{path}", M1).close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version=99")
    file.close()
    store = open_for(f"file:{path}", M1, wait=False)
    wait_for(lambda: "version 99 of the table, which is newer than" in store.trouble)
    assert not store.connected


def older_schema() -> dict[str, Any]:
    """That of version 1.0.0."""
    found = schema()
    found["version"] = "1.0.0"
    del found["tables"]["groups"]
    for name in ADDED:
        del found["tables"]["managers"]["columns"][name]
    return found


def test_a_server_of_the_first_version_is_said_to_lack_groups_and_has_them_after_conversion(
    tmp_path: Path, open_for: Open
) -> None:
    need(*OVSDB)
    server = OvsdbServer(tmp_path)
    now, then = tmp_path / "now.ovsschema", tmp_path / "then.ovsschema"
    now.write_text(json.dumps(schema()))
    then.write_text(json.dumps(older_schema()))
    server.start()
    try:
        open_for(server.url, M1).transact([Put(manager()), Put(connection("x"))])
        server.kill()
        subprocess.run(["ovsdb-tool", "convert", server.database, then], check=True)
        server.start()
        store = open_for(server.url, CONTROLLER, wait=False)
        wait_for(lambda: "its schema lacks managers.network, managers.peer_address" in store.trouble)
        subprocess.run(["ovsdb-client", "convert", server.url, now], check=True, timeout=30)
        wait_for(lambda: store.connected)
        assert store.snapshot().managers == {"m1": manager()}
        assert store.transact([Put(group())])
    finally:
        server.kill()


def test_a_database_of_something_else_is_not_touched(tmp_path: Path, open_for: Open) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE groups (id TEXT)")
    file.close()
    store = open_for(f"file:{path}", M1, wait=False)
    wait_for(lambda: "something else" in store.trouble)
