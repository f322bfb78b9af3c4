"""Single files that a user names: what is there is replaced only if it is ours or by `--force`, and an input never."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from .beneath import ASK, FolderError, Place
from .inputs import refuse_input

_PARENT = "make it first, or name a file in a folder that exists with --output"


def may_write(
    file: Path,
    *,
    force: bool = False,
    ours: Callable[[Path], bool] | None = None,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> bool:
    """Whether a single file that a user names may be written; true where it takes the place of one. `inputs`: what the command reads.

    Raises:
        FolderError: it exists, and neither is it `ours` nor did anybody say `--force`; or it is one of the `inputs` or no regular
            file, or no folder is there to take it, and nothing helps.
    """
    try:
        mode = os.lstat(file).st_mode
    except FileNotFoundError:
        if not file.parent.is_dir():
            raise FolderError(f"{file.parent} is no folder", _PARENT) from None
        return False
    except OSError as error:
        raise FolderError(f"{file} cannot be written: {error.strerror}", "name another file with --output") from error
    if stat.S_ISLNK(mode):
        raise FolderError(f"{file} is a link, and links are not followed", "name the file itself with --output")
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise FolderError(f"{file} is {what}", "name a file with --output")
    refuse_input(file, inputs)
    if not force and not (ours is not None and ours(file)):
        raise FolderError(f"{file} exists", ASK)
    return True


def write_file(
    file: Path,
    content: str | bytes,
    *,
    force: bool = False,
    ours: Callable[[Path], bool] | None = None,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Writes a single file that a user named, whole or not at all; as `may_write`."""
    data = content.encode() if isinstance(content, str) else content
    write_with(file, lambda out: out.write(data), force=force, ours=ours, inputs=inputs)


def write_with(
    file: Path,
    write: Callable[[IO[bytes]], object],
    *,
    force: bool = False,
    ours: Callable[[Path], bool] | None = None,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """`write_file` for what writes itself into a stream."""
    replace = may_write(file, force=force, ours=ours, inputs=inputs)
    try:
        with Place(file.parent) as place, place.writing(file.name, replace=replace) as out:
            write(out)
    except OSError as error:
        hint = "name a file in a folder that exists with --output"
        raise FolderError(f"{file} cannot be written: {error.strerror or error}", hint, _code(error)) from error


def _code(error: OSError) -> int:
    """A name that cannot be is the user's to mend (2), a full disk is the host's (3)."""
    wrong = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR)
    return 2 if error.errno in wrong else 3
