"""Which runs are running: the folder in which each lists itself (crates/live/src/control/registry.rs)."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timebound.engine.control import ControlError

LONGEST_FOLDER = 60
"""Bytes; a socket's path has at most 107 (unix(7)), and names in the folder need up to 40."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One running run. `pid` and `start_ticks` (clock ticks since boot) are those of its owner."""

    run_id: str
    scenario: str
    file: str | None
    folder: str
    pid: int
    start_ticks: int
    started_unix_s: int
    socket: str

    @property
    def age_s(self) -> int:
        """Seconds since it was started."""
        return max(0, int(time.time()) - self.started_unix_s)


def candidates() -> list[Path]:
    """Where runs of this user may be listed; the first is where ours are.

    `$XDG_RUNTIME_DIR` is set in a login, and not in cron or after su: both places are looked at.
    """
    places = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and len(os.fsencode(runtime)) + len("/timebound") <= LONGEST_FOLDER:
        places.append(Path(runtime) / "timebound")
    return [*places, Path(f"/tmp/timebound-{os.geteuid()}")]


def is_safe(folder: Path) -> bool:
    """Is it a folder of ours that nobody else can enter?"""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def own() -> Path:
    """The registry folder, made where it is missing.

    Raises:
        ControlError: somebody else has made it, or it cannot be made.
    """
    problem = ""
    for folder in candidates():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            problem = f"{folder} cannot be made: {error.strerror}"
            continue
        if is_safe(folder):
            return folder
        problem = f"{folder} is not a folder that only you can enter"
    raise ControlError(problem, "remove it, or set XDG_RUNTIME_DIR to a folder of your own", 3)


def sweep() -> None:
    """Removes what dead runs left. Called before every command."""
    folders = [str(folder) for folder in candidates() if is_safe(folder)]
    if folders:
        from timebound import _core

        _core.sweep(folders)


def running() -> list[Entry]:
    """All running runs of this user, oldest first."""
    found = []
    for folder in candidates():
        if is_safe(folder):
            found += [entry for file in sorted(folder.glob("*.json")) if (entry := _read(file)) is not None]
    return sorted(found, key=lambda entry: (entry.started_unix_s, entry.pid))


def _read(file: Path) -> Entry | None:
    """An entry, or None where it is gone by now or not one of ours."""
    try:
        values: Any = json.loads(file.read_text(encoding="utf-8"))
        kinds = {"run_id": str, "scenario": str, "folder": str, "pid": int, "start_ticks": int, "started_unix_s": int}
        if values["schema"] != 1 or not all(isinstance(values[name], kind) for name, kind in kinds.items()):
            return None
        written = values["file"] if isinstance(values["file"], str) else None
        # Where it lies is where its socket is, whatever it says.
        return Entry(**{name: values[name] for name in kinds}, file=written, socket=str(file.with_suffix(".sock")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def matching(name: str) -> list[Entry]:
    """The running runs that a run id, a run folder, a scenario's name or its file means."""
    entries = running()
    by_id = [entry for entry in entries if entry.run_id == name]
    if by_id:
        return by_id
    try:
        path = str(Path(name).resolve()) if name else ""
    except (OSError, ValueError):
        path = ""
    by_folder = [entry for entry in entries if entry.folder == path]
    return by_folder or [
        entry for entry in entries if entry.scenario == name or (entry.file is not None and entry.file == path)
    ]


def find(name: str) -> Entry:
    """The one running run that is meant.

    Raises:
        ControlError: none, or several.
    """
    found = matching(name)
    if not found:
        others = ", ".join(f"{entry.scenario} ({entry.run_id})" for entry in running())
        raise ControlError(f"no running experiment {name!r}", f"running: {others}" if others else "none is running")
    if len(found) > 1:
        listed = "; ".join(f"{entry.run_id} in {entry.folder}" for entry in found)
        raise ControlError(f"{len(found)} running experiments are called {name!r}", f"name one by its id: {listed}")
    return found[0]


def temporary() -> Path:
    """A run folder that is swept once this process is gone."""
    text = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    ticks = text.rpartition(")")[2].split()[19]
    return own() / f"{os.getpid()}-{ticks}.files"
