"""`timebound compare`: two or more runs side by side."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Force, Given, print_json, stderr
from timebound.engine.folder import read_summary
from timebound.files import FolderError, named_file


def register(app: App) -> None:
    """Adds the verb."""
    app.command(compare)


def compare(
    first: Annotated[Given, Parameter(help="A run folder.")],
    second: Annotated[Given, Parameter(help="Another run folder.")],
    /,
    *more: Given,
    output: Annotated[
        str | None,
        Parameter(name=["--output", "-o"], help="The HTML file to write; a new one below `runs/` by default."),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> int:
    """Compare runs: every flow's figures side by side, what became better or worse, and which verdicts changed."""
    from timebound.cli.table import comparison_table
    from timebound.report import ReportError, check_page, write_comparison

    folders = [first, second, *more]
    page = _new() if output is None else named_file(output, "comparison.html")
    check_page(page, folders, force=force)
    summaries = [read_summary(folder) for folder in folders]
    try:
        path = write_comparison(folders, page, force=force, tell=lambda said: stderr(f"warning: {said}"))
    except ReportError as error:
        raise FolderError(str(error), "compare between two and six folders that `timebound run` wrote") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FolderError(
            f"a summary.json is damaged: {error!r}", "compare folders that `timebound run` wrote"
        ) from error
    if json:
        print_json({"runs": [{"folder": str(f), "flows": s["flows"]} for f, s in zip(folders, summaries, strict=True)]})
    else:
        from timebound.cli.table import print_table

        print_table(comparison_table([str(folder) for folder in folders], summaries))
    stderr(f"comparison: {path}")
    return 0


def _new() -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    page, number = Path("runs") / f"comparison-{stamp}.html", 1
    while os.path.lexists(page):
        number += 1
        page = Path("runs") / f"comparison-{stamp}-{number}.html"
    page.parent.mkdir(exist_ok=True)
    return page
