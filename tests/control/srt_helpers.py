"""Rows made up by Hypothesis from the row types, and a real ovsdb-server in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from timebound.control.srt.columns import Column, Value, columns, unflatten
from timebound.control.srt.rows import (
    ChannelState,
    ConnectionRow,
    GroupRow,
    ManagerRow,
    RequestRow,
    Requirements,
    Row,
    Side,
    TableName,
    Tables,
)
from timebound.control.srt.schema import schema
from timebound.control.srt.store import Role, Store, Writer

Open = Callable[..., Store]
"""`open_for(url, writer)`: a store that is closed at the end of the test."""

M1 = Writer(Role.MANAGER, "m1")
M2 = Writer(Role.MANAGER, "m2")
CONTROLLER = Writer(Role.CONTROLLER, "c1")
READER = Writer(Role.READER, "reader")

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
"""Whatever a store must hold: quotation marks, line breaks, every script."""
NUMBERS = st.one_of(st.integers(0, 100), st.integers(0, 2**63 - 1), st.sampled_from([2**53 + 1, 2**63 - 1]))


def values_of(column: Column) -> st.SearchStrategy[Value]:
    """Everything that a column may hold."""
    atoms = {str: TEXTS, int: NUMBERS, bool: st.booleans()}
    items = [st.sampled_from(column.enumerated) if kind not in atoms else atoms[kind] for kind in column.atoms]
    found: st.SearchStrategy[Value]
    if column.repeated:
        found = st.lists(items[0], max_size=4).map(tuple)
    else:
        found = st.tuples(*items) if column.listed else items[0]
    return st.none() | found if column.optional else found


@st.composite
def rows(draw: st.DrawFn, table: TableName, **fixed: st.SearchStrategy[str]) -> Row:
    """A row of a table."""
    values = {column.name: draw(values_of(column)) for column in columns(table)}
    values |= {name: draw(strategy) for name, strategy in {"id": st.sampled_from("abcd"), **fixed}.items()}
    return unflatten(table, values)


def manager(name: str = "m1", beat_ns: int = 1) -> ManagerRow:
    return ManagerRow(
        id=name, addresses=("10.0.0.1",), ports=(1883,), broker_address="127.0.0.1", broker_port=1884, version="1", beat_ns=beat_ns
    )  # fmt: skip


def connection(id: str, manager: str = "m1") -> ConnectionRow:
    return ConnectionRow(
        id=id, manager=manager, client_id="c", user=None, client_address="10.0.0.2", client_port=1, manager_address="10.0.0.1",
        manager_port=1883,
    )  # fmt: skip


def request(id: str, connection: str, revision: int = 1) -> RequestRow:
    needs = Requirements(deadline_ns=1_000_000, bandwidth_bps=(1, 2))
    return RequestRow(
        id=id, connection=connection, side=Side.PUBLISH, topic="a/b", requirements=needs, revision=revision, asked_ns=5
    )


def group(id: str = "g", members: tuple[str, ...] = ("m2",)) -> GroupRow:
    return GroupRow(
        id=id, origin="m1", request="r", topic="a/b", priority=5, address="239.192.0.1", members=members, rate_bps=1_000_000, bound_ns=2_000_000,
        links=("h1->s1", "s1->h2"), state=ChannelState.PROVEN,
    )  # fmt: skip


def wait_for(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Waits until something holds; of a row that nobody has heard of yet nothing does."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            if holds():
                return
        except KeyError:
            if time.monotonic() >= end:
                raise
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.002)


def count(tables: Tables) -> int:
    return sum(
        len(rows)
        for rows in (
            tables.managers,
            tables.connections,
            tables.requests,
            tables.verdicts,
            tables.channels,
            tables.groups,
        )
    )


class OvsdbServer:
    """An ovsdb-server with the table's schema; its files and socket live in `folder`."""

    def __init__(self, folder: Path, *remotes: str, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.socket = folder / "db.sock"
        self.url = f"unix:{self.socket}"
        self._remotes = [f"--remote=p{self.url}", *(f"--remote={remote}" for remote in remotes)]
        self._options = options
        self._environment = {
            **os.environ,
            "OVS_RUNDIR": str(folder),
            "OVS_LOGDIR": str(folder),
            "OVS_DBDIR": str(folder),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.database = folder / "timebound.db"
        text = folder / "timebound.ovsschema"
        text.write_text(json.dumps(schema()))
        subprocess.run(["ovsdb-tool", "create", self.database, text], check=True, env=self._environment)

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        log = (self.folder / "server.log").open("ab")
        command = ["ovsdb-server", self.database, *self._remotes, *self._options, "--no-chdir", "-vconsole:warn"]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
        )
        wait_for(self.socket.exists)

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait()
            self.process = None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
