"""`timebound predict`: safe worst-case bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from timebound.cli import predict_assign, predict_explain
from timebound.cli.common import (
    AsJson,
    OutputIfNamed,
    Quiet,
    ScenarioName,
    Settings,
    everything,
    open_scenario,
    print_flows,
    print_json,
    stderr,
    whole,
)
from timebound.cli.predict_assign import AssignOptions
from timebound.engine.folder import FolderError

Explain = Annotated[
    tuple[str, ...],
    Parameter(
        name="--explain",
        negative=(),
        help="Show hop by hop what the bounds of this flow are made of, at all its receivers (of a bare name with several instances: those with the "
        "least slack); may be given several times.",
    ),
]
Ports = Annotated[
    bool,
    Parameter(name="--ports", negative=(), help="Also show every port's utilisation, and the backlog of each queue."),
]

Effort = Annotated[
    int | None,
    Parameter(
        converter=whole,
        name="--effort",
        help="Work that may be spent on bounds over several ports at once, in rivals that are looked at (4194304 where it is not stated). Flows with the least "
        "slack come first; where it is not enough for all, the output says for how many it was.",
    ),
]

Method = Literal[
    "bound", "port-by-port", "holistic", "calculus", "trajectory", "holistic-as-published", "trajectory-as-published"
]


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
    explain: Explain = (),
    ports: Ports = False,
    effort: Effort = None,
    output: OutputIfNamed = None,
    force: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Replace the FILE.yaml of --output, or the results of another scenario or verb in its folder.",
        ),
    ] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Safe worst-case latency bounds per flow and receiver, utilisation per port, and the reason where there is none.

    The bound is the least of the holistic analysis and of network calculus at every port, and over several ports at once; the
    figures of these two methods stand beside it. With `--output` the run folder and its report are written too.
    """
    assigns = assignment is not None and assignment.assign is not None
    if assignment is not None and not assigns and (stated := assignment.stated()):
        raise FolderError(f"{stated[0]} without --assign", "say what to assign: --assign priorities,routes")
    _check_force(output, force=force)
    if effort is not None and not 0 <= effort < 1 << 63:
        raise FolderError(f"--effort {effort}", "a number from 0 on; 4194304 is what is taken without it")
    if explain:
        if output is not None or ports or method is not None or assigns:
            raise FolderError(
                "--explain answers by itself",
                "leave out --output, --ports, --method and --assign: a report shows the flows with the least slack anyway",
            )
        return predict_explain.run(open_scenario(scenario, set), explain, json=json, quiet=quiet, effort=effort)
    if assignment is not None and assigns:
        if ports or method is not None or effort is not None:
            raise FolderError(
                f"--assign beside {'--ports' if ports else '--effort' if method is None else '--method'}",
                "--assign shows bounds before and after: keep what it found with -o FILE.yaml, and predict that",
            )
        assignment.check()
        loaded = open_scenario(scenario, set)
        return predict_assign.run(loaded, assignment, set, output, force=force, json=json, quiet=quiet)
    return figures(
        scenario,
        set,
        output,
        {"predict"},
        json=json,
        quiet=quiet,
        method=method,
        ports=ports,
        force=force,
        effort=effort,
    )


def figures(
    name: str,
    settings: tuple[str, ...],
    output: str | None,
    parts: set[str],
    *,
    json: bool,
    quiet: bool,
    method: Method | None = None,
    ports: bool = False,
    force: bool = False,
    effort: int | None = None,
) -> int:
    """Computes the parts without emulation; a folder is written only when asked for."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import runs
    from timebound.engine.notes import effort_notes, interrupted_notes, joined_notes

    _check_force(output, force=force)
    scenario = open_scenario(name, settings)
    with TerminalProgress(quiet or json) as progress:
        if output is None:
            summary = runs.figures_only(scenario, parts, progress, method=method, effort=effort)
            code = runs.exit_code(summary, None)
        else:
            done = runs.run(scenario, output, parts, progress, method=method, force=force, effort=effort)
            summary, code = done.summary, done.exit_code
    if json:
        print_json(summary if output is None else {**summary, "folder": output})
    else:
        print_flows(summary, written=output is not None)
        if ports:
            predict_explain.print_ports(summary, everything(written=output is not None))
    notes = [*effort_notes(summary.get("looked_at")), *joined_notes(summary["flows"])]
    for note in [*notes, *interrupted_notes(summary.get("search_interrupted"))]:
        stderr(note)
    if output is not None:
        stderr(f"report: {Path(output) / 'report.html'}")
    return code


def _check_force(output: str | None, *, force: bool) -> None:
    if force and output is None:
        raise FolderError("--force without --output", "it says that what is under the name of --output may be replaced")
