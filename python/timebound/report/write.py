"""Writes the report of a run into its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from timebound.files import REPORT, Place, adopt, holding

from .figures import FIGURES, draw
from .page import render
from .png import draw_pngs
from .run import ReportError, read_run

SIGNATURE = "Timebound report."
_MOST = 1 << 28


def write_report(
    folder: Path, *, png: bool = True, force: bool = False, tell: Callable[[str], None] = lambda said: None
) -> Path:
    """Writes `report.html`, `figures/*.svg` and, unless `png` is false, `figures/*.png`; returns the path of the page.

    Figures for which the run has nothing are not written, and those of an earlier report are removed. Where PNG files cannot be
    drawn, `figures/PNG-MISSING.txt` says why; what is left out since a file cannot be read, is told and stands on the page. Raises `ReportError` where the folder cannot be read or written, and
    `FolderError` where a file is in the way that no run or report wrote (`force` replaces it), or a link, or where another process
    holds the folder.
    """
    run = read_run(folder)
    for said in run.left_out:
        tell(said)
    drawn = {name: svg for name in FIGURES if (svg := draw(name, run)) is not None}
    page = folder / "report.html"
    try:
        with Place(folder) as place, holding(place):
            adopt(place, REPORT, force=force, ours=_is_reported)
            place.make("figures")
            for name in REPORT[1:]:
                place.remove(name)
            for name, svg in drawn.items():
                place.write(f"figures/{name}.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n')
            pictures, problems = draw_pngs(drawn) if png else ({}, [])
            for name, picture in pictures.items():
                place.write(f"figures/{name}.png", picture)
            if problems:
                place.write("figures/PNG-MISSING.txt", "\n".join(problems) + "\n")
            place.write("report.html", render(run))
    except OSError as error:
        where = error.filename or folder
        raise ReportError(f"the report cannot be written to {where}: {error.strerror or error}") from error
    return page


def _is_reported(place: Place) -> bool:
    """Is there the page of an earlier report?"""
    page = place.read("report.html", _MOST)
    return page is not None and SIGNATURE.encode() in page


def write_text(path: Path, content: str) -> None:
    """Writes the file whole or not at all: an interrupted report leaves the former one."""
    with Place(path.parent) as place:
        place.write(path.name, content)
