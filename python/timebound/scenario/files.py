"""Files that a scenario or a configuration names."""

from __future__ import annotations

from pathlib import Path


def instead_of_file(file: Path) -> str | None:
    """What is wrong with a path that should be a regular file; `None` if it is one. Opening a pipe would wait for a writer for ever, and a device may
    never end.

    Raises:
        OSError: it cannot be looked at.
    """
    if file.is_file():
        return None
    if file.is_dir():
        return "is a folder"
    return "is no regular file, but a pipe, a socket or a device" if file.exists() else "does not exist"
