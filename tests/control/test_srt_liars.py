"""A server that answers what no OVSDB server does: the store is out of reach until it is a server again, and its thread lives."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from srt_helpers import M1, READER, Open, OvsdbServer, connection, manager, wait_for

from timebound.control.srt import ovsdb
from timebound.control.srt.jsonstream import JsonStream
from timebound.control.srt.schema import schema
from timebound.control.srt.store import Put

SOUND = {"list_dbs": ["Timebound"], "get_schema": schema(), "monitor": {}, "transact": [{}]}
NOTHING: list[Any] = [None, True, 5, "x", [], {}, [None], {"a": None}]


def lies() -> Iterator[tuple[str, Any]]:
    """Answers, by the method that they answer; `update`: a notification behind a sound answer to `monitor`."""
    for method in ("list_dbs", "get_schema", "transact"):
        yield from ((method, answer) for answer in NOTHING if answer != SOUND[method])
    for tables in (None, 5, [], {"managers": None}, {"managers": 5}, {"managers": {"columns": [1]}}):
        yield "get_schema", {"tables": tables}
    for updates in NOTHING[:-1]:
        if updates != {}:
            yield "monitor", updates
            yield "update", updates
    for rows in (None, 5, [], {"u": None}, {"u": 3}, {"u": []}):
        yield "monitor", {"managers": rows}
        yield "update", {"managers": rows}
    for row in (5, [], {}, {"id": 7}, {"id": ["set", 1]}, {"id": ["map"]}):
        yield "monitor", {"managers": {"u": {"new": row}}}
        yield "update", {"managers": {"u": {"new": row}}}


class Liar:
    """One lie per connection, and after the last one the way to a server."""

    def __init__(self, lies: list[tuple[str, Any]], server: Path) -> None:
        self.lies, self.server = lies, server
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp:127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._door.accept()
            except OSError:
                return
            if self.lies:
                self._lie(taken, *self.lies.pop(0))
            else:
                threading.Thread(target=self._pass_on, args=(taken,), daemon=True).start()

    def _lie(self, taken: socket.socket, about: str, what: Any) -> None:
        """Until it is not believed any more; what can be believed is told again and ends the connection."""
        stream = JsonStream()
        taken.settimeout(1.0)
        with taken:
            try:
                while data := taken.recv(65536):
                    for call in stream.feed(data):
                        method = call["method"]
                        answer = what if method == about else SOUND.get(method)
                        taken.sendall(json.dumps({"id": call["id"], "result": answer, "error": None}).encode())
                        if method == "monitor" and about == "update":
                            said = {"id": None, "method": "update", "params": [None, what]}
                            taken.sendall(json.dumps(said).encode())
                        if method in (about, "transact"):
                            taken.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def _pass_on(self, taken: socket.socket) -> None:
        with taken, socket.socket(socket.AF_UNIX) as real:
            real.connect(str(self.server))

            def back() -> None:
                try:
                    while data := real.recv(65536):
                        taken.sendall(data)
                except OSError:
                    pass

            threading.Thread(target=back, daemon=True).start()
            try:
                while data := taken.recv(65536):
                    real.sendall(data)
            except OSError:
                pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not for the waits between attempts."""
    monkeypatch.setattr(ovsdb, "LONGEST_BACKOFF_S", 0.05)


@pytest.mark.parametrize("part", range(4))
def test_whatever_a_server_answers_the_store_comes_back(server: OvsdbServer, open_for: Open, part: int) -> None:
    told = list(lies())[part::4]
    liar = Liar(told, server.socket)
    store = open_for(liar.url, M1, wait=False)
    store.transact([Put(manager()), Put(connection("x"))], wait_s=0)
    try:
        wait_for(lambda: not liar.lies, 120)
        assert store.wait_connected(10), store.trouble
        reader = open_for(server.url, READER)
        wait_for(lambda: set(reader.snapshot().connections) == {"x"})
        assert store.transact([Put(connection("y"))])
    finally:
        liar.close()


def test_a_server_whose_words_are_changed_on_the_way_is_out_of_reach_and_comes_back(
    server: OvsdbServer, open_for: Open
) -> None:
    """Values of real answers replaced at random (seeded)."""
    writer = open_for(server.url, M1)
    writer.transact([Put(manager()), *(Put(connection(f"c{number}")) for number in range(5))])
    draw = random.Random(5)
    sound: dict[str, Any] = {"list_dbs": ["Timebound"], "get_schema": schema(), "monitor": monitored(server)}
    told = []
    for _ in range(40):
        method = draw.choice(sorted(sound))
        told.append((method, changed(sound[method], draw)))
    liar = Liar(told, server.socket)
    store = open_for(liar.url, READER, wait=False)
    try:
        wait_for(lambda: not liar.lies, 120)
        assert store.wait_connected(10), store.trouble
        wait_for(lambda: len(store.snapshot().connections) == 5)
    finally:
        liar.close()


def monitored(server: OvsdbServer) -> Any:
    """What the server answers to `monitor`."""
    with socket.socket(socket.AF_UNIX) as real:
        real.connect(str(server.socket))
        tables: dict[str, Any] = {table: [{}] for table in schema()["tables"]}
        real.sendall(json.dumps({"id": 1, "method": "monitor", "params": ["Timebound", None, tables]}).encode())
        stream, found = JsonStream(), list[dict[str, Any]]()
        while not found:
            found = stream.feed(real.recv(65536))
        return found[0]["result"]


def changed(value: Any, draw: random.Random) -> Any:
    """One place in it is something else."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(sorted(value))
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], changed(value[at], draw), *value[at + 1 :]]
    return draw.choice([None, True, -1, 2**70, 1.5, "", "\0", [], {}, ["set"], ["map", [[1]]], ["uuid", 5]])
