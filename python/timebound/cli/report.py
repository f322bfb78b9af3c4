"""`timebound report`: writes the report of a run folder anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Given, print_json, stderr
from timebound.engine.emulate import EXIT_HOST
from timebound.engine.folder import FolderError, read_summary
from timebound.engine.joining import can_be_joined


def register(app: App) -> None:
    """Adds the verb."""
    app.command(report)


def report(
    folder: Annotated[Given, Parameter(help="A run folder.")],
    /,
    *,
    png: Annotated[bool, Parameter(help="Write the figures as PNG too.")] = True,
    force: Annotated[
        bool, Parameter(negative=(), help="Replace pages and figures that no report of ours wrote.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Write `report.html` and the figures of an earlier run again, from its `summary.json`.

    Where a run was broken off before its records were joined, they are joined first.
    """
    from timebound.report import ReportError, write_report

    if can_be_joined(folder):
        _join(folder, quiet=json)
    summary = read_summary(folder)
    try:
        path = write_report(folder, png=png, force=force, tell=lambda said: stderr(f"warning: {said}"))
    except ReportError as error:
        raise FolderError(str(error), "mend what it names, or run the scenario again", EXIT_HOST) from error
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder / 'summary.json'} is damaged: {error!r}", "run the scenario again") from error
    if json:
        print_json(summary)
    stderr(f"report: {path}")
    return 0


def _join(folder: Path, *, quiet: bool) -> None:
    """The results of a run that left its records alone."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine.runs import rejoin

    stderr(f"{folder} has the records of a run that was broken off: they are joined now")
    with TerminalProgress(quiet) as progress:
        rejoin(folder, progress)
