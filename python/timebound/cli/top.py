"""`timebound top`: nodes and links of a running experiment, live."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, print_json
from timebound.engine import registry
from timebound.engine.control import ControlError, Link
from timebound.engine.load import Load, rates
from timebound.scenario.problems import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

SORTS = {
    "c": ("cpu", "cpu_share"),
    "m": ("memory", "rss_bytes"),
    "o": ("sent", "tx_bps"),
    "i": ("received", "rx_bps"),
    "n": ("name", ""),
}


def register(app: App) -> None:
    """Adds the verb."""
    app.command(top)


def top(
    run: Annotated[
        str | None, Parameter(help="A running experiment; may be left out where only one is running.")
    ] = None,
    /,
    *,
    once: Annotated[bool, Parameter(negative=(), help="Print once and end.")] = False,
    interval: Annotated[float, Parameter(help="Seconds between two looks.")] = 1.0,
    json: AsJson = False,
) -> int:
    """Show hosts and links of a running experiment live: CPU, memory, traffic, states; load, drops, queues; lateness.

    Keys: q ends; c, m, o, i, n sort hosts by CPU, memory, bytes out, bytes in, name; arrows or j and k scroll.
    """
    if not 0.1 <= interval <= 3600:
        raise ControlError("--interval must be 0.1 to 3600 seconds", "1 is what it is without the option")
    with Link(_entry(run).socket) as link:
        before = link.ask("top")
        if once or json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            time.sleep(interval)
            load = rates(before, link.ask("top"))
            if json:
                print_json(load.as_json())
            else:
                _console().print(_page(load, "c", 0, 1000))
            return 0
        _live(link, before, interval)
    return 0


def _entry(run: str | None) -> registry.Entry:
    if run is not None:
        return registry.find(run)
    entries = registry.running()
    if len(entries) == 1:
        return entries[0]
    if not entries:
        raise ControlError("no experiment is running", "timebound up SCENARIO, or timebound run SCENARIO")
    listed = "; ".join(f"{entry.scenario}: {entry.run_id}" for entry in entries)
    raise ControlError(f"{len(entries)} experiments are running", f"name one: {listed}")


def _live(link: Link, before: dict[str, Any], interval: float) -> None:
    from rich.live import Live

    sort, offset = "c", 0
    now = link.ask("top")
    load = rates(before, now)
    console = _console()
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic() + interval
        while True:
            live.update(_page(load, sort, offset, max(4, console.size.height - 8)), refresh=True)
            key = _key(max(0.0, due - time.monotonic()))
            if key in ("q", "Q", "\x03", "\x1b"):
                return
            if key in SORTS:
                sort, offset = key, 0
            elif key in ("j", "\x1b[B"):
                offset = min(offset + 1, max(0, len(load.nodes) - 1))
            elif key in ("k", "\x1b[A"):
                offset = max(0, offset - 1)
            if time.monotonic() >= due:
                due = time.monotonic() + interval
                before, now = now, link.ask("top")
                load = rates(before, now)


def _console() -> Any:
    from rich.console import Console

    return Console()


def _page(load: Load, sort: str, offset: int, rows: int) -> RenderableType:
    from rich.columns import Columns
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    name, column = SORTS[sort]
    nodes = sorted(load.nodes, key=lambda node: str(node["node"])) if not column else load.nodes
    if column:
        nodes = sorted(nodes, key=lambda node: (-node[column], str(node["node"])))
    hosts = Table(title=f"hosts by {name} ({len(nodes)})", title_justify="left", box=None)
    for heading in ("host", "state", "CPU", "memory", "out", "in"):
        hosts.add_column(heading, justify="left" if heading in ("host", "state") else "right")
    for node in nodes[offset : offset + rows]:
        hosts.add_row(
            Text(plain(node["node"])),
            node["state"],
            f"{100 * node['cpu_share']:.1f} %",
            f"{node['rss_bytes'] / 2**20:.1f} MiB",
            _rate(node["tx_bps"]),
            _rate(node["rx_bps"]),
        )
    links = Table(title=f"links by load ({len(load.links)})", title_justify="left", box=None)
    for heading in ("link", "load", "rate", "drops/s", "queue"):
        links.add_column(heading, justify="left" if heading == "link" else "right")
    for link in sorted(load.links, key=lambda link: (-link["load"], link["port"]))[:rows]:
        links.add_row(
            Text(plain(link["port"])),
            f"{100 * link['load']:.1f} %",
            _rate(link["bps"]),
            f"{link['drops_per_s']:.0f}",
            f"{link['queue_bytes']} B",
        )
    return Group(
        Text(plain(load.headline()), style="bold"),
        Text(plain(load.emulator_line())),
        Columns([hosts, links], padding=(0, 4)),
    )


def _rate(bps: float) -> str:
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= factor:
            return f"{bps / factor:.1f} {unit}"
    return f"{bps:.0f} bit/s"


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come one by one; the terminal is as it was afterwards, however this ends."""
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, before)


def _key(seconds: float) -> str:
    """The next key (an escape sequence as a whole), or nothing after some time."""
    import os

    if not select.select([sys.stdin], [], [], seconds)[0]:
        return ""
    typed = os.read(sys.stdin.fileno(), 16).decode("utf-8", "replace")
    return typed if typed.startswith("\x1b[") else typed[:1]
