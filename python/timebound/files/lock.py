"""Who writes into a run folder holds its lock: a file that is never written to."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .beneath import FolderError, Kind, Place
from .mark import LOCK

_LOCKS: dict[Path, int] = {}
"""Open files hold their locks. A folder that this process uses again is held already."""


def take(place: Place) -> bool:
    """Holds the folder for as long as this process lives, or until `release`; the kernel lets go of it, however that ends. Was it free until now?

    Raises:
        FolderError: another process holds it; or a link, or no file, stands in the place of the lock.
        OSError: it cannot be opened.
    """
    kind = place.kind(LOCK)
    if kind not in (Kind.ABSENT, Kind.FILE):
        raise place.refused(LOCK, kind)
    key = place.path.resolve()
    # Whatever the file holds is left alone.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(LOCK, flags, 0o666, dir_fd=place.descriptor)
    held = _LOCKS.get(key)
    if held is not None and os.path.sameopenfile(held, lock):
        os.close(lock)
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FolderError(
            f"another process is writing {place.path}", "wait until it has ended, or name another folder"
        ) from None
    if held is not None:
        # The folder that this process held under the name is gone.
        os.close(held)
    _LOCKS[key] = lock
    return True


def release(folder: Path) -> None:
    """Lets go of a folder that was taken: for processes that make many runs."""
    lock = _LOCKS.pop(folder.resolve(), None)
    if lock is not None:
        os.close(lock)


@contextlib.contextmanager
def holding(place: Place) -> Iterator[None]:
    """The folder is held in the block, and after it if it was before; as `take`."""
    taken = take(place)
    try:
        yield
    finally:
        if taken:
            release(place.path)
