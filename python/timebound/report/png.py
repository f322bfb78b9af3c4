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


def write_pngs(figures: Mapping[Path, str]) -> list[str]:
    """Writes each SVG text to its path as PNG, twice its nominal size. Returns what could not be drawn and why; never raises for that."""
    if _resvg_draws_text():
        return _by_resvg(figures)
    program = find_chromium()
    if program is None:
        return [
            "figures were not drawn as PNG: resvg finds no font on this machine (install any, e.g. fonts-dejavu-core) and there is no Chromium"
        ]
    return _by_chromium(program, figures)


def _by_resvg(figures: Mapping[Path, str]) -> list[str]:
    from resvg_py import svg_to_bytes

    problems = []
    for path, svg in figures.items():
        try:
            path.write_bytes(bytes(svg_to_bytes(svg_string=svg, zoom=ZOOM, background="#ffffff")))
        except (ValueError, RuntimeError, OSError) as error:
            problems.append(f"{path.name} was not drawn: {error}")
    return problems


def _by_chromium(program: str, figures: Mapping[Path, str]) -> list[str]:
    problems = []
    with tempfile.TemporaryDirectory(prefix="timebound-png-") as folder:
        page = Path(folder) / "figure.svg"
        for path, svg in figures.items():
            page.write_text(svg, encoding="utf-8")
            width, height = size(svg)
            command = chromium_command(
                program,
                os.fspath(Path(folder) / "profile"),
                f"--screenshot={path.resolve()}",
                f"--window-size={width},{height}",
                f"--force-device-scale-factor={ZOOM}",
                page.as_uri(),
            )
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=60)
            except (OSError, subprocess.SubprocessError) as error:
                problems.append(f"{path.name} was not drawn: {error}")
    return problems


def size(svg: str) -> tuple[int, int]:
    """Width and height of one of our SVG documents in pixels."""
    found = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    if found is None:
        raise ValueError("the SVG has no viewBox")
    return int(found[1]), int(found[2])
