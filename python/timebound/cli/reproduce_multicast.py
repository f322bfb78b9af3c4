"""`timebound reproduce mrt-mqtt`: its options, its table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from timebound.cli.common import print_json, stderr, whole
from timebound.engine.folder import FolderError
from timebound.scenario.units import TIME, UnitError, exactly, format_time, parse

EVALUATIONS = 100
SHORTEST_NS, LONGEST_NS = 1_000_000_000, 86_400_000_000_000
MOST_PUBLISHERS, MOST_ITERATIONS = 60, 10_000
MOST_STRETCH = 100


@dataclass(frozen=True, slots=True)
class MulticastOptions:
    """What of `mrt-mqtt` to run."""

    protocol: Annotated[
        tuple[Literal["mqtt-bridged", "rt-mqtt", "dm-mqtt", "mrt-mqtt"], ...],
        Parameter(negative=(), help="mrt-mqtt: stacks. Default: all four."),
    ] = ()
    load: Annotated[
        tuple[Literal["low", "medium", "high"], ...],
        Parameter(negative=(), help="mrt-mqtt: loads. Default: all three."),
    ] = ()
    publishers: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="mrt-mqtt: publishers per host in place of the paper's 20, 40 and 60, for a machine that cannot carry these.",
        ),
    ] = None
    duration: Annotated[str | None, Parameter(help="mrt-mqtt: of one iteration (30 s; with --full 2 s).")] = None
    iterations: Annotated[
        int | None, Parameter(converter=whole, help="mrt-mqtt: of every cell (1; with --full 1000).")
    ] = None
    stretch: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="mrt-mqtt: emulate a network that is so many times as slow, and divide its latencies by it, for a machine that cannot carry the rates.",
        ),
    ] = None
    background: Annotated[
        Literal["generators", "tools"],
        Parameter(
            help="mrt-mqtt: who makes the background traffic of emulated cells: Timebound's generators, or the paper's D-ITG, VLC and vsftpd (Debian: "
            "d-itg vlc-bin vlc-plugin-base vsftpd curl)."
        ),
    ] = "generators"
    no_emulation: Annotated[
        bool,
        Parameter(negative=(), help="mrt-mqtt: bounds and simulation alone, which need no rights and some minutes."),
    ] = False

    def stated(self) -> list[str]:
        """The options that were given, as written on the command line."""
        named = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return ["--" + name.replace("_", "-") for name in named]


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """Those that other experiments have as well."""

    full: bool
    seed: int | None
    evaluations: int | None
    rootless: bool


def run(options: MulticastOptions, shared: SharedOptions, folder: Path, *, json: bool, quiet: bool) -> int:
    """Runs the cells, writes the folder and prints statements and worst cases.

    Raises:
        FolderError: an option out of range, or a folder that holds something else.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.reproduce.multicast import experiment

    wanted = cells_of(options, shared)
    with TerminalProgress(quiet or json) as progress:
        try:
            done = experiment.run(wanted, folder, progress, rootless=shared.rootless)
        except KeyboardInterrupt:
            stderr(f"interrupted; finished iterations are kept: timebound reproduce mrt-mqtt -o {folder} goes on")
            raise
    if json:
        print_json({**done.result, "folder": str(folder)})
    else:
        _tables(done.result)
    stderr(f"report: {folder / 'report.html'}")
    return done.exit_code


def cells_of(options: MulticastOptions, shared: SharedOptions) -> list[Any]:
    """The cells that were asked for, load by load.

    Raises:
        FolderError: an option out of range.
    """
    from timebound.reproduce.multicast.cells import (
        DURATION_NS,
        FULL_DURATION_NS,
        FULL_ITERATIONS,
        LOADS,
        PROTOCOLS,
        Cell,
    )

    duration = FULL_DURATION_NS if shared.full else DURATION_NS
    if options.duration is not None:
        try:
            duration = exactly(parse(options.duration, TIME), options.duration, TIME)
        except UnitError as error:
            raise FolderError(f"--duration: {error}", error.hint) from None
    iterations = options.iterations or (FULL_ITERATIONS if shared.full else 1)
    evaluations = EVALUATIONS if shared.evaluations is None else shared.evaluations
    seed = 1 if shared.seed is None else shared.seed
    _within("publishers", options.publishers, 1, MOST_PUBLISHERS)
    _within("iterations", options.iterations, 1, MOST_ITERATIONS)
    _within("stretch", options.stretch, 1, MOST_STRETCH)
    if options.stretch is not None and options.no_emulation:
        raise FolderError("--stretch is of emulated networks, and --no-emulation has none", "leave out one of the two")
    if options.background == "tools":
        _check_tools(options.no_emulation)
    _within("evaluations", evaluations, 0, 1_000_000)
    _within("seed", seed, 0, 2**53 - MOST_ITERATIONS)
    if not SHORTEST_NS <= duration <= LONGEST_NS:
        raise FolderError(f"--duration {options.duration} is out of range", f"use {format_time(SHORTEST_NS)} to 24 h")
    return [
        Cell(
            protocol=protocol,
            load=load,
            publishers=options.publishers or publishers,
            duration_ns=duration,
            iterations=iterations,
            seed=seed,
            evaluations=evaluations,
            emulate=not options.no_emulation,
            background=options.background,
            stretch=options.stretch or 1,
        )
        for load, publishers in LOADS.items()
        if not options.load or load in options.load
        for protocol in PROTOCOLS
        if not options.protocol or protocol in options.protocol
    ]


def _check_tools(no_emulation: bool) -> None:
    """Before anything starts: what programs there must be.

    Raises:
        FolderError: nothing is emulated, or one is missing (exit code 3).
    """
    from timebound.engine.emulate import EXIT_HOST
    from timebound.engine.programs import lacking
    from timebound.reproduce.multicast.cells import MADE_BY

    if no_emulation:
        raise FolderError(
            "--background tools is of emulated networks, and --no-emulation has none", "leave out one of the two"
        )
    absent = [said for program in MADE_BY.values() if (said := lacking(program)) is not None]
    if absent:
        raise FolderError("; ".join(absent), "install them, or leave out --background tools", EXIT_HOST)


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise FolderError(f"--{name} {value} is out of range", f"use {least} to {most}")


def _tables(result: dict[str, Any]) -> None:
    from rich.table import Table

    from timebound.cli.table import duration, print_table
    from timebound.reproduce.multicast.page import SHORT, VERDICTS, WORDS

    for cell in result["cells"]:
        title = f"\n{SHORT[cell['protocol']]}, {cell['load']} load, {cell['publishers']} publishers per host: {VERDICTS[cell['verdict']]}"
        if cell["stretch"] > 1:
            title += f"; emulated {cell['stretch']} times as slow, times divided by that"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        if cell["not_emulated"]:
            table.caption, table.caption_justify = f"not emulated: {cell['not_emulated']}", "left"
        for column in ("path", "emulated worst", "median", "simulated worst", "median", "bound"):
            table.add_column(column, justify="left" if column == "path" else "right", overflow="fold")
        for entry in cell["paths"]:
            values = [
                entry[kind][key] if entry[kind] else None
                for kind in ("emulated", "simulated")
                for key in ("worst_us", "median_us")
            ]
            shown = ["-" if value is None else duration(value) for value in [*values, entry["bound_us"]]]
            table.add_row(f"{entry['path']} {entry['topic']}", *shown)
        print_table(table)
    table = Table(title="\nwhat the paper says", title_justify="left", box=None, pad_edge=False)
    for column in ("", "statement", "paper", "ours"):
        table.add_column(column, overflow="fold")
    for entry in result["statements"]:
        table.add_row(WORDS[entry["holds"]], entry["text"], entry["paper"], entry["ours"])
    print_table(table)
