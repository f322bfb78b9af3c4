"""`timebound predict`: safe worst-case bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from timebound.cli import predict_assign
from timebound.cli.common import (
    AsJson,
    Output,
    Quiet,
    ScenarioName,
    Settings,
    open_scenario,
    print_flows,
    print_json,
    stderr,
)
from timebound.cli.predict_assign import AssignOptions

Method = Literal["bound", "holistic", "calculus", "trajectory", "holistic-as-published", "trajectory-as-published"]


def register(app: App) -> None:
    """Adds the verb."""
    app.command(predict)


def predict(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    assignment: Annotated[AssignOptions | None, Parameter(name="*")] = None,
    method: Annotated[
        Method | None,
        Parameter(
            help="Figures of this method beside the bound: holistic and calculus are safe, trajectory is experimental, the "
            "as-published ones are unsafe and no bounds."
        ),
    ] = None,
    output: Output = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Safe worst-case latency bounds per flow and receiver, utilisation per port, and the reason where there is none.

    With `--output` the run folder and its report are written too.
    """
    if assignment is not None and assignment.assign is not None:
        assignment.check()
        loaded = open_scenario(scenario, set)
        return predict_assign.run(loaded, assignment, set, output, json=json, quiet=quiet)
    return figures(scenario, set, output, {"predict"}, json=json, quiet=quiet, method=method)


def figures(
    name: str,
    settings: tuple[str, ...],
    output: str | None,
    parts: set[str],
    *,
    json: bool,
    quiet: bool,
    method: Method | None = None,
) -> int:
    """Computes the parts without emulation; a folder is written only when asked for."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import runs

    scenario = open_scenario(name, settings)
    with TerminalProgress(quiet or json) as progress:
        if output is None:
            summary = runs.figures_only(scenario, parts, progress, method=method)
            code = runs.exit_code(summary, None)
        else:
            done = runs.run(scenario, Path(output), parts, progress, method=method)
            summary, code = done.summary, done.exit_code
    if json:
        print_json(summary if output is None else {**summary, "folder": output})
    else:
        print_flows(summary)
    if output is not None:
        stderr(f"report: {Path(output) / 'report.html'}")
    return code
