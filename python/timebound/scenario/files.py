"""Files that a scenario or a configuration names, and which were looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

_READ: ContextVar[dict[str, None] | None] = ContextVar("read", default=None)


@contextlib.contextmanager
def noting() -> Iterator[dict[str, None]]:
    """Collects the absolute paths of all files that are read in the block: they are inputs, which nobody may replace."""
    outer, found = _READ.get(), dict[str, None]()
    token = _READ.set(found)
    try:
        yield found
    finally:
        _READ.reset(token)
        if outer is not None:
            outer.update(found)


def instead_of_file(file: Path) -> str | None:
    """What is wrong with a path that should be a regular file; `None` if it is one, which then is to be read (`noting`). Opening a pipe would wait
    for a writer for ever, and a device may never end.

    Raises:
        OSError: it cannot be looked at.
    """
    if file.is_file():
        if (read := _READ.get()) is not None:
            read[str(file.absolute())] = None
        return None
    if file.is_dir():
        return "is a folder"
    return "is no regular file, but a pipe, a socket or a device" if file.exists() else "does not exist"
