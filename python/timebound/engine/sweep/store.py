"""Results by their key: written whole or not at all, and believed only while they are what was written."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timebound.engine.folder import release, write_json
from timebound.files import FolderError, take_marked

RESULTS = "results"
POINT = "point.json"
PLAN = "sweep-plan.json"
WRITTEN = ("sweep.json", "sweep.parquet", "report.html")
WORKING = ".work-"
STALE_S = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a point. `failure` says why there are no figures, or why they are not all."""

    key: str
    exit_code: int
    verdict: str
    failure: str | None
    elapsed_s: float
    summary: dict[str, Any] | None


class Store:
    """The results below a sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / RESULTS

    def path(self, key: str) -> Path:
        """The run folder of a result."""
        return self.folder / key

    def read(self, key: str) -> Result | None:
        """The result; None where there is none, or where it is not what was written (then it is computed again)."""
        folder = self.path(key)
        try:
            point = json.loads((folder / POINT).read_text(encoding="utf-8"))
            if point["key"] != key or not isinstance(point["exit_code"], int):
                return None
            for name, digest in point["files"].items():
                if _digest(folder / name) != digest:
                    return None
            summary = (
                json.loads((folder / "summary.json").read_text(encoding="utf-8"))
                if "summary.json" in point["files"]
                else None
            )
            return Result(
                key, point["exit_code"], str(point["verdict"]), point["failure"], float(point["elapsed_s"]), summary
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def working_folder(self, key: str) -> Path:
        """A folder of its own in which a result comes about, on the same file system."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{WORKING}{key}-{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}"

    def keep(self, working: Path, key: str, point: Mapping[str, Any]) -> None:
        """Makes a finished folder the result. What is written there before the renaming is on the disk."""
        working.mkdir(parents=True, exist_ok=True)
        names = sorted(
            path.name for path in working.iterdir() if path.is_file() and path.suffix in (".json", ".parquet", ".yaml")
        )
        write_json(working / POINT, {**point, "key": key, "files": {name: _digest(working / name) for name in names}})
        for name in (*names, POINT):
            _flush(working / name)
        release(working)
        self.adopt(working, key)

    def adopt(self, working: Path, key: str) -> None:
        """Renames a whole folder to the result's place."""
        final = self.path(key)
        for _ in range(3):
            try:
                working.rename(final)
            except OSError:
                # There is one already (corrupt, forced, or another worker's): it makes room and goes.
                old = self.folder / f"{WORKING}old-{key}-{time.monotonic_ns()}"
                with contextlib.suppress(OSError):
                    final.rename(old)
                shutil.rmtree(old, ignore_errors=True)
            else:
                _flush(self.folder)
                return
        raise FolderError(f"{final} cannot be written", "is another sweep writing the same result?", 3)

    def sweep_out(self) -> None:
        """Removes what killed workers left: folders that nobody holds."""
        if not self.folder.is_dir():
            return
        for left in self.folder.glob(f"{WORKING}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > STALE_S and _unheld(left):
                    shutil.rmtree(left, ignore_errors=True)


def _unheld(folder: Path) -> bool:
    """Does no living process hold the folder's lock (`engine.folder`)?"""
    lock = folder / ".lock"
    if not lock.exists():
        return True
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepare(
    folder: Path, definition: Mapping[str, Any], *, resume: bool, force: bool = False, inputs: Iterable[str] = ()
) -> None:
    """Takes a folder for a sweep.

    Raises:
        FolderError: it holds something else; the sweep of another scenario or verb, without `force`; or, with `resume`, no sweep.
    """
    plan = folder / PLAN
    if resume and not plan.is_file():
        raise FolderError(f"{folder} holds no sweep to resume", "name the folder of a sweep, or leave --resume away")
    known = take_marked(folder, PLAN, _is_plan, files=WRITTEN, folders=(RESULTS,), inputs=inputs)
    if known is not None and not force and any(known[key] != definition[key] for key in ("scenario", "source", "verb")):
        held = f"the sweep of {known['scenario']} ({known['verb']}, {known['source']})"
        raise FolderError(
            f"{folder} holds {held}", "say --force to replace its comparison, or name another folder with --output"
        )
    try:
        write_json(plan, definition)
    except OSError as error:
        raise FolderError(f"{folder} cannot be written: {error.strerror}", "name another folder", 3) from error


def _is_plan(content: Mapping[str, Any]) -> bool:
    """Is this the definition of a sweep (`Sweep.definition`)?"""
    texts = all(isinstance(content.get(key), str) for key in ("timebound", "scenario", "source", "verb"))
    return texts and all(isinstance(content.get(key), list) for key in ("axes", "points"))


def read_plan(folder: Path) -> dict[str, Any]:
    """The definition of the sweep in a folder.

    Raises:
        FolderError: there is none.
    """
    try:
        found = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(f"{folder} holds no sweep", "name the folder that `timebound sweep` wrote") from None
    except (OSError, ValueError) as error:
        raise FolderError(f"{folder / PLAN} cannot be read: {error}", "run the sweep again") from error
    if not isinstance(found, dict) or not isinstance(found.get("points"), list):
        raise FolderError(f"{folder / PLAN} is no plan of a sweep", "run the sweep again")
    return found
