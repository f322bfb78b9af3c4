"""PNG files from SVG figures: by resvg, which draws the same picture on every machine; by headless Chromium where resvg cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .run import ReportError
from .svg import FONT

ZOOM = 2
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text x="2" y="15" font-family="{}">{}</text></svg>'
)


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome on this machine."""
    return next((path for name in _CHROMIUM if (path := shutil.which(name)) is not None), None)


def chromium_command(program: str, profile: str, *options: str) -> list[str]:
    """The command line of a headless Chromium that talks to nobody and keeps to its own profile folder."""
    # Inside containers and as root Chromium's own sandbox cannot start; it only ever opens files that we wrote.
    return [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        *options,
    ]


@cache
def _resvg_draws_text() -> bool:
    """Whether resvg is installed and finds a font: without one it would leave out all words silently."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        return False
    drawn, blank = (bytes(svg_to_bytes(svg_string=_PROBE.format(FONT, words))) for words in ("Ag", " "))
    return drawn != blank


_NO_RENDERER = (
    "no PNG can be drawn: resvg is missing or finds no font on this machine, and there is no Chromium; "
    "install a font, e.g. apt-get install fonts-dejavu-core"
)


def svg_to_png(svg: str) -> bytes:
    """The SVG as PNG, twice its nominal size.

    Raises `ReportError` where neither resvg with a font nor Chromium is there, or where the drawing fails.
    """
    if _resvg_draws_text():
        from resvg_py import svg_to_bytes

        try:
            return bytes(svg_to_bytes(svg_string=svg, zoom=ZOOM, background="#ffffff"))
        except (ValueError, RuntimeError) as error:
            raise ReportError(f"the figure cannot be drawn as PNG: {error}") from error
    program = find_chromium()
    if program is None:
        raise ReportError(_NO_RENDERER)
    return _by_chromium(program, svg)


def draw_pngs(figures: Mapping[str, str]) -> tuple[dict[str, bytes], list[str]]:
    """Each SVG text as PNG, by its name; and what could not be drawn and why, once for each reason.

    A report is worth having without these files, so a failing renderer does not raise.
    """
    pictures: dict[str, bytes] = {}
    problems: list[str] = []
    for name, svg in figures.items():
        try:
            pictures[name] = svg_to_png(svg)
        except ReportError as error:
            if str(error) not in problems:
                problems.append(str(error))
    return pictures, problems


def _by_chromium(program: str, svg: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="timebound-png-") as folder:
        page, picture = Path(folder) / "figure.svg", Path(folder) / "figure.png"
        page.write_text(svg, encoding="utf-8")
        width, height = size(svg)
        command = chromium_command(
            program,
            os.fspath(Path(folder) / "profile"),
            f"--screenshot={picture}",
            f"--window-size={width},{height}",
            f"--force-device-scale-factor={ZOOM}",
            page.as_uri(),
        )
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            return picture.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise ReportError(f"the figure cannot be drawn as PNG by {program}: {error}") from error


def size(svg: str) -> tuple[int, int]:
    """Width and height of an SVG document in pixels, from its viewBox. Raises `ReportError` where it has none."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if found is None:
        raise ReportError("the figure cannot be drawn as PNG: it has no viewBox that starts at 0 0")
    return round(float(found[1])), round(float(found[2]))
