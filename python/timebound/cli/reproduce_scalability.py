"""`timebound reproduce mqtt-scalability`: its options, its table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from timebound.cli.common import print_json, stderr, whole, wholes
from timebound.engine.folder import FolderError

CLIENTS = 350


@dataclass(frozen=True, slots=True)
class ScalabilityOptions:
    """What of `mqtt-scalability` to run."""

    full: Annotated[
        bool,
        Parameter(
            negative=(), help="mqtt-scalability, mrt-mqtt: as long as in the paper (hours, days) instead of minutes."
        ),
    ] = False
    clients: Annotated[
        int | None,
        Parameter(converter=whole, help=f"mqtt-scalability: how many clients join, 2 to {CLIENTS} ({CLIENTS})."),
    ] = None
    scenario: Annotated[
        tuple[int, ...],
        Parameter(
            converter=wholes, negative=(), help="mqtt-scalability: 1: one subscriber; 2: one to one. Default: both."
        ),
    ] = ()
    qos: Annotated[
        tuple[int, ...], Parameter(negative=(), help="mqtt-scalability: QoS levels. Default: 0, 1 and 2.")
    ] = ()
    rootless: Annotated[
        bool,
        Parameter(
            negative=(),
            help="mqtt-scalability, mrt-mqtt: even as root, emulate with the rights of a user without root.",
        ),
    ] = False

    def stated(self) -> list[str]:
        """The options that were given, as written on the command line."""
        return ["--" + field.name for field in fields(self) if getattr(self, field.name) != field.default]


def run(options: ScalabilityOptions, folder: Path, *, json: bool, quiet: bool) -> int:
    """Runs the cells, writes the folder and prints the statements.

    Raises:
        FolderError: an option out of range, or a folder that holds something else.
    """
    from timebound.reproduce.scalability import cells as parts

    clients = CLIENTS if options.clients is None else options.clients
    if not 2 <= clients <= parts.MOST_CLIENTS:
        raise FolderError(f"{clients} clients are not possible", f"--clients 2 to {parts.MOST_CLIENTS}")
    scenarios = tuple(dict.fromkeys(options.scenario)) or (1, 2)
    levels = tuple(dict.fromkeys(options.qos)) or (0, 1, 2)
    if not set(scenarios) <= {1, 2}:
        raise FolderError(f"there is no scenario {max(scenarios)}", "--scenario 1 or 2")
    if not set(levels) <= {0, 1, 2}:
        raise FolderError(f"there is no QoS {max(levels)}", "--qos 0, 1 or 2")
    from timebound.cli.live_progress import TerminalProgress
    from timebound.reproduce.scalability import experiment

    wanted = experiment.cells_of(clients, scenarios, levels, full=options.full)
    with TerminalProgress(quiet or json) as progress:
        try:
            done = experiment.run(wanted, folder, progress, rootless=options.rootless)
        except KeyboardInterrupt:
            stderr(f"interrupted; finished cells are kept: timebound reproduce mqtt-scalability -o {folder} goes on")
            raise
    if json:
        print_json({**done.result, "folder": str(folder)})
    else:
        _table(done.result)
    stderr(f"report: {folder / 'report.html'}")
    return done.exit_code


def _table(result: dict[str, Any]) -> None:
    from rich.table import Table

    from timebound.cli.table import print_table

    table = Table(box=None, pad_edge=False)
    for column in ("", "paper", "statement", "ours"):
        table.add_column(column, overflow="fold")
    words = {True: "holds", False: "differs", None: "open"}
    for statement in result["statements"]:
        table.add_row(words[statement["holds"]], statement["where"], statement["text"], statement["ours"])
    print_table(table)
