"""Writes the report of a run into its folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .figures import FIGURES, draw
from .page import render
from .png import write_pngs
from .run import ReportError, read_run


def write_report(folder: Path, *, png: bool = True) -> Path:
    """Writes `report.html`, `figures/*.svg` and, unless `png` is false, `figures/*.png`; returns the path of the page.

    Figures for which the run has nothing are not written, and those of an earlier report are removed. Where PNG files cannot be
    drawn, `figures/PNG-MISSING.txt` says why. Raises `ReportError` where the folder cannot be read or written.
    """
    run = read_run(folder)
    drawn = {name: svg for name in FIGURES if (svg := draw(name, run)) is not None}
    figures = folder / "figures"
    page = folder / "report.html"
    try:
        figures.mkdir(exist_ok=True)
        for name in FIGURES:
            for suffix in ("svg", "png"):
                (figures / f"{name}.{suffix}").unlink(missing_ok=True)
        for name, svg in drawn.items():
            (figures / f"{name}.svg").write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n', encoding="utf-8")
        note = figures / "PNG-MISSING.txt"
        note.unlink(missing_ok=True)
        problems = write_pngs({figures / f"{name}.png": svg for name, svg in drawn.items()}) if png else []
        if problems:
            note.write_text("\n".join(problems) + "\n", encoding="utf-8")
        write_text(page, render(run))
    except OSError as error:
        raise ReportError(f"the report cannot be written to {folder}: {error.strerror or error}") from error
    return page


def write_text(path: Path, content: str) -> None:
    """Writes the file whole or not at all: an interrupted report leaves the former one."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
