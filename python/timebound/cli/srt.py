"""`timebound srt`: the table of real-time requirements that managers and controller share, for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from timebound.cli.common import EXIT_INPUT, AsJson, print_json, stderr, stdout

if TYPE_CHECKING:
    from timebound.control.srt.rows import Tables
    from timebound.control.srt.rules import Stale
    from timebound.control.srt.store import Role, Store

EXIT_HOST = 3

StoreUrl = Annotated[
    str, Parameter(help="unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT (OVSDB), file:PATH (embedded).")
]
Key = Annotated[str | None, Parameter(help="For ssl: PEM file of the private key.")]
Certificate = Annotated[str | None, Parameter(help="For ssl: PEM file of the certificate.")]
Ca = Annotated[str | None, Parameter(help="For ssl: PEM file of the authority that signed the server's certificate.")]

srt = App(name="srt", help="Look at the table of real-time requirements; print its schema for ovsdb-tool.")


def register(app: App) -> None:
    """Adds the verb."""
    app.command(srt)


@srt.command
def schema() -> int:
    """Print the schema of the OVSDB database: `timebound srt schema > timebound.ovsschema`, then
    `ovsdb-tool create timebound.db timebound.ovsschema`."""
    from timebound.control.srt.schema import schema as ours

    print_json(ours())
    return 0


@srt.command
def show(
    store: StoreUrl, /, *, key: Key = None, certificate: Certificate = None, ca: Ca = None, json: AsJson = False
) -> int:
    """Show who asks for what, what was answered, and what is reserved."""
    from timebound.control.srt.rules import stale
    from timebound.control.srt.store import Role

    with _opened(store, Role.READER, key, certificate, ca) as opened:
        if opened is None:
            return EXIT_HOST
        tables = opened.snapshot()
    gone = stale(tables, time.time_ns())
    if json:
        print_json({**asdict(tables), "stale": {name: sorted(ids) for name, ids in asdict(gone).items()}})
        return 0
    _managers(tables, gone)
    _requests(tables, gone)
    _channels(tables)
    _groups(tables)
    return 0


@srt.command
def forget(store: StoreUrl, manager: str, /, *, key: Key = None, certificate: Certificate = None, ca: Ca = None) -> int:
    """Remove everything of a manager that is gone for good. One that is alive is left alone."""
    from timebound.control.srt.rules import stale
    from timebound.control.srt.store import Delete, Role

    with _opened(store, Role.KEEPER, key, certificate, ca) as opened:
        if opened is None:
            return EXIT_HOST
        tables = opened.snapshot()
        if manager not in tables.managers:
            stderr(f"error: there is no manager {manager!r}: {', '.join(sorted(tables.managers)) or 'there is none'}")
            return EXIT_INPUT
        if manager not in stale(tables, time.time_ns()).managers:
            stderr(f"error: manager {manager!r} is alive: stop it first")
            return EXIT_INPUT
        if not opened.transact([Delete("managers", manager)], wait_s=5.0):
            stderr("error: the store did not take it")
            return EXIT_HOST
    return 0


@contextmanager
def _opened(url: str, role: Role, key: str | None, certificate: str | None, ca: str | None) -> Iterator[Store | None]:
    """A store that is connected; `None`, and said why, where it is not within five seconds."""
    from timebound.control.srt.store import StoreError, Tls, Writer, open_store

    tls = Tls(key=key, certificate=certificate, ca=ca) if key and certificate and ca else None
    kind, _, place = url.partition(":")
    if kind == "file" and not Path(place).exists():
        # Whoever looks at a table makes none.
        stderr(
            f"error: there is no table {place}\n  = hint: managers and the controller make it; their configuration names it as store"
        )
        yield None
        return
    try:
        store = open_store(url, Writer(role, "timebound srt"), tls=tls)
    except StoreError as error:
        stderr(f"error: {error}\n  = hint: {error.hint}")
        yield None
        return
    try:
        connected = store.wait_connected(5.0)
        if not connected:
            stderr(f"error: {url}: {store.trouble}")
        yield store if connected else None
    finally:
        store.close()


def _managers(tables: Tables, gone: Stale) -> None:
    stdout(f"{'MANAGER':<16} {'ALIVE':<6} {'LISTENS':<32} BROKER")
    for row in tables.managers.values():
        listens = f"{', '.join(row.addresses)}:{'/'.join(map(str, row.ports))}"
        alive = "no" if row.id in gone.managers else "yes"
        stdout(f"{row.id:<16} {alive:<6} {listens:<32} {row.broker_address}:{row.broker_port}")
    for controller in tables.controllers.values():
        age_s = (time.time_ns() - controller.beat_ns) / 1e9
        stdout(
            f"controller {controller.id}: last beat {age_s:.1f} s ago"
            + (f", {controller.url}" if controller.url else "")
        )


def _requests(tables: Tables, gone: Stale) -> None:
    stdout(
        f"\n{'CLIENT':<20} {'SIDE':<10} {'TOPIC':<28} {'DEADLINE':<10} {'ANSWER':<12} {'CLASS':<5} {'BOUND':<10} WHY"
    )
    for row in sorted(tables.requests.values(), key=lambda row: (row.topic, row.id)):
        connection = tables.connections.get(row.connection)
        client = (connection.client_id or connection.client_address) if connection else "-"
        verdict = tables.verdicts.get(row.id)
        answered = verdict is not None and verdict.revision == row.revision
        if row.id in gone.requests:
            answer, rest = "stale", ("-", "-", "its manager is gone")
        elif verdict is None or not answered:
            answer, rest = "pending", ("-", "-", "")
        else:
            answer, rest = verdict.outcome.value, (str(verdict.priority), _time(verdict.bound_ns), verdict.reason)
        deadline = _time(row.requirements.deadline_ns)
        line = f"{client:<20} {row.side:<10} {row.topic:<28} {deadline:<10} {answer:<12} {rest[0]:<5} {rest[1]:<10} {rest[2]}"
        stdout(line.rstrip())


def _channels(tables: Tables) -> None:
    stdout(f"\n{'CHANNEL':<20} {'STATE':<10} {'CLASS':<5} {'RATE':<14} {'BOUND':<10} WAY")
    for row in sorted(tables.channels.values(), key=lambda row: row.id):
        rate = f"{row.rate_bps / 1000:.0f} kbit/s"
        line = (
            f"{row.id:<20} {row.state:<10} {row.priority:<5} {rate:<14} {_time(row.bound_ns):<10} {' '.join(row.links)}"
        )
        stdout(line.rstrip())


def _groups(tables: Tables) -> None:
    if not tables.groups:
        return
    stdout(f"\n{'GROUP':<20} {'STATE':<10} {'CLASS':<5} {'ADDRESS':<15} {'FROM':<12} {'TO':<24} {'BOUND':<10} TOPIC")
    for row in sorted(tables.groups.values(), key=lambda row: row.id):
        line = (
            f"{row.id:<20} {row.state:<10} {row.priority:<5} {row.address:<15} {row.origin:<12} {' '.join(row.members):<24} "
            f"{_time(row.bound_ns):<10} {row.topic}"
        )
        stdout(line.rstrip())


def _time(nanos: int | None) -> str:
    return "-" if nanos is None else f"{nanos / 1e6:.6g} ms"
