"""`timebound reproduce`: the papers' experiments, our figures beside what the papers say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from timebound.cli import reproduce_bounds, reproduce_velox
from timebound.cli.common import AsJson, Output, Quiet, print_json, stderr
from timebound.cli.reproduce_bounds import BoundsOptions
from timebound.cli.reproduce_velox import VeloxOptions
from timebound.cli.run import Rootless
from timebound.engine.folder import FolderError

EXPERIMENTS = {
    "mqtt-scalability": "up to 350 MQTT clients on one broker: CPU, traffic and packets by QoS (vNET, sections II and III)",
    "velox-model": "the mean delay of DDS by the model of Velox, as printed and corrected, beside a safe bound (section 2.1)",
    "mrt-mqtt-bounds": "the analyses of MRT-MQTT as printed, beside safe bounds and simulation (Figs. 16 to 18)",
}


def register(app: App) -> None:
    """Adds the verb."""
    app.command(reproduce)


def reproduce(
    experiment: Annotated[str | None, Parameter(help="Name of the experiment; without it, they are listed.")] = None,
    /,
    *,
    full: Annotated[bool, Parameter(negative=(), help="As long as in the paper (hours) instead of minutes.")] = False,
    clients: Annotated[int, Parameter(help="How many clients join, 2 to 350.")] = 350,
    scenario: Annotated[
        tuple[int, ...], Parameter(negative=(), help="1: one subscriber; 2: one to one. Default: both.")
    ] = (),
    qos: Annotated[tuple[int, ...], Parameter(negative=(), help="QoS levels. Default: 0, 1 and 2.")] = (),
    velox: Annotated[VeloxOptions | None, Parameter(name="*")] = None,
    bounds: Annotated[BoundsOptions | None, Parameter(name="*")] = None,
    output: Output = None,
    rootless: Rootless = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run an experiment of a paper again and hold the outcome against the paper's statements, one by one.

    Finished parts are kept in the output folder: started again with the same folder, an experiment goes on where it was.
    """
    if experiment is None:
        if json:
            print_json([{"name": name, "description": text} for name, text in EXPERIMENTS.items()])
        else:
            for name, text in EXPERIMENTS.items():
                print(f"{name:<20} {text}")
        return 0
    if experiment not in EXPERIMENTS:
        raise _refused(f"there is no experiment {experiment!r}", f"there are: {', '.join(EXPERIMENTS)}")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = Path(output) if output else Path("runs") / f"{experiment}-{stamp}"
    for owner, options in (("velox-model", velox), ("mrt-mqtt-bounds", bounds)):
        if experiment != owner and options is not None and (stated := options.stated()):
            raise _refused(f"{experiment} has no {stated[0]}", f"it is a parameter of {owner}")
    if experiment == "velox-model":
        return reproduce_velox.run(velox or VeloxOptions(), folder, json=json)
    if experiment == "mrt-mqtt-bounds":
        return reproduce_bounds.run(bounds or BoundsOptions(), folder, json=json, quiet=quiet)
    from timebound.reproduce.scalability import cells as parts

    if not 2 <= clients <= parts.MOST_CLIENTS:
        raise _refused(f"{clients} clients are not possible", f"--clients 2 to {parts.MOST_CLIENTS}")
    scenarios, levels = tuple(dict.fromkeys(scenario)) or (1, 2), tuple(dict.fromkeys(qos)) or (0, 1, 2)
    if not set(scenarios) <= {1, 2}:
        raise _refused(f"there is no scenario {max(scenarios)}", "--scenario 1 or 2")
    if not set(levels) <= {0, 1, 2}:
        raise _refused(f"there is no QoS {max(levels)}", "--qos 0, 1 or 2")
    from timebound.cli.live_progress import TerminalProgress
    from timebound.reproduce.scalability import experiment as runner

    wanted = runner.cells_of(clients, scenarios, levels, full=full)
    with TerminalProgress(quiet or json) as progress:
        try:
            done = runner.run(wanted, folder, progress, rootless=rootless)
        except KeyboardInterrupt:
            stderr(f"interrupted; finished cells are kept: timebound reproduce {experiment} -o {folder} goes on")
            raise
    if json:
        print_json({**done.result, "folder": str(folder)})
    else:
        _table(done.result)
    stderr(f"report: {folder / 'report.html'}")
    return done.exit_code


def _refused(message: str, hint: str) -> FolderError:
    return FolderError(message, hint)


def _table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("", "paper", "statement", "ours"):
        table.add_column(column, overflow="fold")
    words = {True: "holds", False: "differs", None: "open"}
    for statement in result["statements"]:
        table.add_row(words[statement["holds"]], statement["where"], statement["text"], statement["ours"])
    Console().print(table)
