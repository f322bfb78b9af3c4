"""`timebound compare`: two or more runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Force, print_json, refuse_to_replace, stderr
from timebound.engine.folder import FolderError, read_summary


def register(app: App) -> None:
    """Adds the verb."""
    app.command(compare)


def compare(
    first: Annotated[Path, Parameter(help="A run folder.")],
    second: Annotated[Path, Parameter(help="Another run folder.")],
    /,
    *more: Path,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The HTML file to write.")] = Path(
        "comparison.html"
    ),
    force: Force = False,
    json: AsJson = False,
) -> int:
    """Compare runs: every flow's figures side by side, what became better or worse, and which verdicts changed."""
    from timebound.cli.table import comparison_table
    from timebound.report import ReportError, is_comparison, write_comparison

    page = output / "comparison.html" if output.is_dir() else output
    # An earlier comparison is replaced, as an earlier run is by a run.
    refuse_to_replace(page, force=force or is_comparison(page))
    folders = [first, second, *more]
    summaries = [read_summary(folder) for folder in folders]
    try:
        path = write_comparison(folders, output)
    except (ReportError, AttributeError, KeyError, TypeError) as error:
        raise FolderError(
            f"a summary.json is damaged or too many folders: {error}",
            "compare between two and six folders that `timebound run` wrote",
        ) from error
    if json:
        print_json({"runs": [{"folder": str(f), "flows": s["flows"]} for f, s in zip(folders, summaries, strict=True)]})
    else:
        from rich.console import Console

        Console().print(comparison_table([str(folder) for folder in folders], summaries))
    stderr(f"comparison: {path}")
    return 0
