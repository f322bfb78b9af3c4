"""The run folder: where it lies, what stands in its manifest, writing JSON so that a full disk is noticed."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any


class FolderError(Exception):
    """A run folder that cannot be used, with a hint and an exit code: 2 for a wrong name, 3 where the host refuses."""

    def __init__(self, message: str, hint: str, code: int = 2) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


MARK = "manifest.json"


def prepare(output: Path | None, name: str) -> Path:
    """An empty run folder: `output`, or a new one below `runs/`.

    An existing folder is emptied only when it holds an earlier run (it has a manifest), and is refused otherwise.

    Raises:
        FolderError: the folder holds something else, or cannot be written.
    """
    if output is None:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-") or "run"
        output = Path("runs") / f"{name}-{stamp}"
        number = 1
        while output.exists():
            number += 1
            output = Path("runs") / f"{name}-{stamp}-{number}"
    try:
        if output.exists():
            if not output.is_dir():
                raise FolderError(f"{output} is a file", "name a folder with --output")
            if any(output.iterdir()):
                if not (output / MARK).is_file():
                    raise FolderError(f"{output} holds other files", "name an empty or new folder with --output")
                _take(output)
                _empty(output)
        output.mkdir(parents=True, exist_ok=True)
        _take(output)
        (output / MARK).write_text("{}\n", encoding="utf-8")
    except OSError as error:
        raise FolderError(
            f"{output} cannot be written: {error.strerror}", "name another folder with --output"
        ) from error
    return output


def _take(folder: Path) -> None:
    """Holds the folder for as long as this process lives; the kernel lets go of it, however that ends."""
    if folder.resolve() in _LOCKS:
        return
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise FolderError(f"another run is writing {folder}", "name another folder with --output") from None
    _LOCKS[folder.resolve()] = lock


def release(folder: Path) -> None:
    """Lets go of a folder that `prepare` took: for processes that make many runs."""
    lock = _LOCKS.pop(folder.resolve(), None)
    if lock is not None:
        lock.close()


_LOCKS: dict[Path, IO[str]] = {}
"""Open files hold their locks. A folder that this process uses again is held already."""


def discard(folder: Path) -> None:
    """Removes a temporary run folder and lets go of it."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _LOCKS.pop(folder.resolve(), None)
    if lock is not None:
        lock.close()


def _empty(folder: Path) -> None:
    """Removes what runs write, and nothing else."""
    for pattern in (
        "*.json",
        "*.parquet",
        "*.bin",
        "*.csv",
        "*.yaml",
        "*.html",
        "*.conf",
        "*.nft",
        "*.lease",
        "*.leases",
        "*.ready",
    ):
        for file in folder.glob(pattern):
            file.unlink()
    for name in ("captures", "logs", "figures"):
        for file in (folder / name).glob("*"):
            if file.is_file():
                file.unlink()


def manifest(scenario_file: str | None, seed: int, parts: list[str], started: datetime) -> dict[str, Any]:
    """What a reader needs to repeat the run."""
    from timebound import __version__

    system = platform.uname()
    return {
        "timebound": __version__,
        "python": platform.python_version(),
        "kernel": f"{system.system} {system.release}",
        "host": {"machine": system.machine, "cores": os.cpu_count()},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "scenario": scenario_file,
        "seed": seed,
        "parts": parts,
        "started": started.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_json(path: Path, content: Any) -> None:
    """Writes JSON whole or not at all: a line for each entry of what is at the top, as for each flow of a summary."""
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(lines(content) + "\n", encoding="utf-8")
    temporary.replace(path)


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
        raise FolderError(f"{folder} is no run folder: it has no summary.json", hint) from None
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}", hint) from error
    if not isinstance(summary, dict) or not isinstance(summary.get("flows"), list):
        raise FolderError(f"{path} is no summary of a run", hint)
    return summary
