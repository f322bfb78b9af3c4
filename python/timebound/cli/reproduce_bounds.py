"""`timebound reproduce mrt-mqtt-bounds`: its options, its tables."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from timebound.cli.common import print_json, stderr, stdout, whole
from timebound.engine.folder import FolderError

MOST_EVALUATIONS = 1_000_000
EVALUATIONS = 10_000


@dataclass(frozen=True, slots=True)
class BoundsOptions:
    """What of `mrt-mqtt-bounds` to run."""

    reading: Annotated[
        Literal["topics-of-a", "all"] | None,
        Parameter(help="mrt-mqtt-bounds: one reading of the paper's traffic. Default: both."),
    ] = None
    evaluations: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help=f"mrt-mqtt-bounds: evaluations of the search per load ({EVALUATIONS}); 0: none. mrt-mqtt: per cell (100).",
        ),
    ] = None
    seed: Annotated[
        int | None, Parameter(converter=whole, help="mrt-mqtt-bounds, mrt-mqtt: draws the periods, and the search (1).")
    ] = None

    def stated(self) -> list[str]:
        """The options that were given, as written on the command line."""
        return ["--" + field.name for field in fields(self) if getattr(self, field.name) is not None]


def run(options: BoundsOptions, folder: Path, *, json: bool, quiet: bool) -> int:
    """Works it out, writes its folder and prints it.

    Raises:
        FolderError: an option out of range, or a folder that holds something else.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.reproduce.bounds import experiment
    from timebound.reproduce.bounds.networks import READINGS

    evaluations = EVALUATIONS if options.evaluations is None else options.evaluations
    if not 0 <= evaluations <= MOST_EVALUATIONS:
        raise FolderError(f"--evaluations {evaluations} is out of range", f"use 0 to {MOST_EVALUATIONS}")
    seed = 1 if options.seed is None else options.seed
    if not 0 <= seed < 2**63:
        raise FolderError(f"--seed {seed} is out of range", "use 0 to 2^63 - 1")
    readings = tuple(READINGS) if options.reading is None else (options.reading,)
    with TerminalProgress(quiet or json) as progress:
        done = experiment.run(folder, evaluations=evaluations, seed=seed, readings=readings, progress=progress)
    if json:
        print_json({**done.result, "folder": str(folder)})
    else:
        _tables(done.result)
    stderr(f"report: {folder / 'report.html'}")
    return 0


def _tables(result: dict[str, Any]) -> None:
    from rich.table import Table

    from timebound.cli.table import duration, print_table
    from timebound.reproduce.bounds.page import BARS, SAFETY, WORDS, title_of, value_of

    for cell in result["cells"]:
        busiest = ", ".join(f"{port['port']} {port['utilisation']:.2f}" for port in cell["ports"][:4])
        table = Table(title=f"\n{title_of(cell, result)}", title_justify="left", box=None, pad_edge=False)
        table.caption, table.caption_justify = f"utilisation: {busiest}", "left"
        table.add_column("path", overflow="fold")
        for _, words, _ in BARS:
            table.add_column(words, justify="right", overflow="fold")
        for group in cell["figures"]:
            values = []
            for key, _, _ in BARS:
                value = value_of(group, key)
                missing = "not searched" if key == "simulated_us" else "none"
                values.append(missing if value is None else duration(value))
            table.add_row(f"{group['path']} {group['topic']}", *values)
        print_table(table)
        if cell["not_searched"]:
            stdout(f"no finite bound for some: {cell['not_searched']}")
        for method in cell["methods"]:
            most = method["largest_deviation_percent"]
            said = (
                ""
                if most is None
                else f", {method['least_deviation_percent']:+.1f} to {most:+.1f} % over the worst found"
            )
            stdout(f"  {method['name']} ({SAFETY[method['safety']]}): {method['compute_ms']:.2f} ms{said}")
    table = Table(title="\nwhat the paper says", title_justify="left", box=None, pad_edge=False)
    for column in ("", "statement", "paper", "ours"):
        table.add_column(column, overflow="fold")
    for entry in result["statements"]:
        table.add_row(WORDS[entry["holds"]], entry["text"], entry["paper"], entry["ours"])
    print_table(table)
