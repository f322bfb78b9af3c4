"""`timebound report`: writes the report of a run folder anew."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Given, print_json, stderr
from timebound.engine.folder import FolderError, read_summary


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
    """Write `report.html` and the figures of an earlier run again, from its `summary.json`."""
    from timebound.report import write_report

    summary = read_summary(folder)
    try:
        path = write_report(folder, png=png, force=force)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder / 'summary.json'} is damaged: {error!r}", "run the scenario again") from error
    if json:
        print_json(summary)
    stderr(f"report: {path}")
    return 0
