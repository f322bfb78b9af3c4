"""The run folder: where it lies, what stands in its manifest, writing JSON so that a full disk is noticed."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timebound.files import (
    Claim,
    FolderError,
    Place,
    foreign,
    is_empty,
    named_folder,
    read_mark,
    release,
    take,
    take_over,
)

__all__ = ["FolderError", "discard", "lines", "manifest", "prepare", "read_summary", "release", "write_json"]


def prepare(output: str | Path | None, claim: Claim, *, force: bool = False) -> Path:
    """A run folder in which nothing stands in the way of a run: `output`, or a new one below `runs/`.

    In an existing folder what an earlier run wrote is removed (`timebound.files`), by its manifest, and nothing else.

    Raises:
        FolderError: the name is none of a folder; the folder is none of ours, or of another scenario or verb without `force`, or it cannot be written.
    """
    if output is None:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", claim.name).lstrip(".-") or "run"
        folder = Path("runs") / f"{name}-{stamp}"
        number = 1
        while os.path.lexists(folder):
            number += 1
            folder = Path("runs") / f"{name}-{stamp}-{number}"
    else:
        folder = named_folder(output)
    try:
        if not folder.is_dir() and os.path.lexists(folder):
            what = "is a link that leads nowhere" if folder.is_symlink() and not folder.exists() else "is a file"
            raise FolderError(f"{folder} {what}", "name a folder with --output")
        folder.mkdir(parents=True, exist_ok=True)
        with Place(folder) as place:
            if read_mark(place) is None and not is_empty(place):
                raise foreign(place)
            take(place)
            take_over(place, claim, force=force)
    except OSError as error:
        raise FolderError(
            f"{folder} cannot be written: {error.strerror}", "name another folder with --output"
        ) from error
    return folder


def discard(folder: Path) -> None:
    """Removes a temporary run folder and lets go of it."""
    shutil.rmtree(folder, ignore_errors=True)
    release(folder)


def manifest(scenario_file: str | None, seed: int, claim: Claim, started: datetime) -> dict[str, Any]:
    """What a reader needs to repeat the run, and what marks its folder as ours."""
    from timebound import __version__

    system = platform.uname()
    return {
        "timebound": __version__,
        **claim.stated(),
        "python": platform.python_version(),
        "kernel": f"{system.system} {system.release}",
        "host": {"machine": system.machine, "cores": os.cpu_count()},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "scenario": scenario_file,
        "seed": seed,
        "started": started.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": list(claim.files),
    }


def write_json(path: Path, content: Any) -> None:
    """Writes JSON whole or not at all: a line for each entry of what is at the top, as for each flow of a summary."""
    with Place(path.parent) as place:
        place.write(path.name, lines(content) + "\n")


def lines(content: Any, depth: int = 2) -> str:
    """JSON of which the first levels have lines of their own.

    Further ones have not: Python's encoder of indented JSON takes twenty times as long, and for a large scenario half of the run.
    """

    def plain(value: Any) -> str:
        return json.dumps(value, allow_nan=False)

    def entries(value: Any, left: int, indent: str) -> str:
        if left == 0 or not value or not isinstance(value, dict | list):
            return plain(value)
        inner = f"{indent} "
        if isinstance(value, list):
            parts = [entries(each, left - 1, inner) for each in value]
        else:
            # Keys that are no strings are the encoder's to write or refuse.
            parts = [f"{plain({key: 0})[1:-2]}{entries(each, left - 1, inner)}" for key, each in value.items()]
        first, last = "[]" if isinstance(value, list) else "{}"
        return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{last}"

    return entries(content, depth, "")


def read_summary(folder: Path) -> dict[str, Any]:
    """The `summary.json` of a run folder.

    Raises:
        FolderError: there is none, or it is damaged.
    """
    path = folder / "summary.json"
    hint = "name a folder that `timebound run` wrote"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _without_summary(folder, hint) from None
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}", hint) from error
    if not isinstance(summary, dict) or not isinstance(summary.get("flows"), list):
        raise FolderError(f"{path} is no summary of a run", hint)
    return summary


def _without_summary(folder: Path, hint: str) -> FolderError:
    """A run that was broken off has left what it is known by (its manifest), and what it measured."""
    from timebound.engine import joining

    records = joining.left(folder)
    if not records:
        return FolderError(f"{folder} is no run folder: it has no summary.json", hint)
    there = f"{folder} has records of a run that was broken off before they were joined ({', '.join(records)})"
    if joining.can_be_joined(folder):
        return FolderError(there, f"timebound report {folder} joins them")
    return FolderError(
        f"{there}, and no live.json, which says how the emulation ended: they cannot be joined",
        "run the scenario again",
    )
