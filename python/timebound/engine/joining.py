"""From the records of an emulation to the results in its folder: nothing that was measured is lost on this way.

The records stay where they are until `summary.json` is written. An interrupt does not end the work at once; where it is broken off all the
same (a second one, a full disk, a kill), the folder has everything that is needed to begin it anew (`timebound report FOLDER`).
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from timebound.engine.emulate import EXIT_HOST, EXIT_INTERRUPTED
from timebound.engine.progress import Progress
from timebound.files import FolderError, Place

RECORDS = ("frames.bin", "endpoints.bin", "nodes.csv", "ports.csv", "lateness.csv")
"""What the sandbox leaves; gone when the tables made of it and the summary are there."""
ONCE = "interrupted: the results are being written, which is finished first; a second interrupt breaks it off"


def left(folder: Path) -> list[str]:
    """The records in a folder that has no summary."""
    return [] if (folder / "summary.json").exists() else [name for name in RECORDS if (folder / name).is_file()]


def can_be_joined(folder: Path) -> bool:
    """Did the emulation get as far as saying how it ended (`live.json`), and are there records without results?"""
    return bool(left(folder)) and (folder / "live.json").is_file() and (folder / "scenario.yaml").is_file()


def discard_records(folder: Path) -> None:
    """Removes the records, of which the results are written."""
    with Place(folder) as place:
        for name in RECORDS:
            place.remove(name)


def read_live(folder: Path) -> dict[str, Any]:
    """What the sandbox said in the end; nothing where it did not come to it.

    Raises:
        FolderError: it is damaged.
    """
    return _read(folder / "live.json")


def read_plan(folder: Path) -> dict[str, Any]:
    """What the sandbox was told to do; as `read_live`."""
    return _read(folder / "emulation.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}", "run the scenario again", EXIT_HOST) from error
    return found if isinstance(found, dict) else {}


@dataclass(slots=True)
class Interrupts:
    """How many came while results were written."""

    count: int = 0


@contextmanager
def kept(folder: Path, progress: Progress) -> Iterator[Interrupts]:
    """The way from records to results. What breaks it off says what is left in the folder; whoever goes on to something else asks whether somebody interrupted.

    Raises:
        FolderError: it was interrupted twice (exit code 130), or something could not be written (3).
    """
    try:
        with _holding_back(progress) as came:
            yield came
    except KeyboardInterrupt:
        raise FolderError(f"interrupted: {_words(folder)}", _hint(folder), EXIT_INTERRUPTED) from None
    except OSError as error:
        where = f"{error.filename} cannot be written" if error.filename else f"{folder} cannot be written"
        said = f"{where}: {error.strerror or error}"
        if not left(folder):
            raise FolderError(said, "mend that, and run the scenario again", EXIT_HOST) from error
        raise FolderError(f"{said}; {_words(folder)}", f"mend that; then {_hint(folder)}", EXIT_HOST) from error


def _words(folder: Path) -> str:
    names = left(folder)
    if not names and (folder / "summary.json").exists():
        return f"the results are in {folder}, but for their report"
    if not names:
        return f"the results were not written to {folder}"
    return f"what was measured is in {folder} as it was recorded ({', '.join(names)}), and is not joined"


def _hint(folder: Path) -> str:
    if left(folder):
        return f"timebound report {folder} joins the records"
    return f"timebound report {folder} writes it" if (folder / "summary.json").exists() else "run it again"


@contextmanager
def _holding_back(progress: Progress) -> Iterator[Interrupts]:
    """The first interrupt is answered in words, a second one is raised."""
    came = Interrupts()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield came
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        came.count += 1
        if came.count > 1:
            raise KeyboardInterrupt
        progress.note(ONCE)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
