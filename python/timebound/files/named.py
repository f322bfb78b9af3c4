"""What a user names, to be written with `--output` or to be read: one rule for every verb, before anything is read, computed or made."""

from __future__ import annotations

import os
from pathlib import Path

from .beneath import FolderError

OF_FILES = (
    *(".yaml", ".yml", ".json", ".html", ".htm", ".csv", ".parquet", ".svg", ".png", ".pdf"),
    *(".gml", ".graphml", ".pcap", ".pcapng", ".txt", ".md", ".log"),
)
"""Endings of files, in small letters: whoever gives one to a new folder meant a file."""
_EMPTY = "leave --output out, or name something with it; the current folder is ."


def suffix(path: Path) -> str:
    """The ending by which the kind of a file is told: `PLAN.YAML` is as good as `plan.yaml`."""
    return path.suffix.lower()


def named(name: str | os.PathLike[str]) -> Path:
    """A path that a user gave.

    Raises:
        FolderError: it is empty (and so would be the current folder, which nobody named), no name at all, or one that only a shell understands.
    """
    text = os.fspath(name)
    if not text.strip():
        raise FolderError("the name of --output is empty", _EMPTY)
    if "\0" in text:
        raise FolderError(f"{text!r} is no name of a file or folder", _EMPTY)
    _no_home(text)
    return Path(text)


def _no_home(text: str) -> None:
    """`~` means a home folder to a shell, which hands it on as it is where it stands in quotes or behind an `=`."""
    home = os.path.expanduser(text)  # noqa: PTH111
    if home != text and not os.path.lexists(text):
        where = "" if text == Path(text).parts[0] else "in "
        message = f"{text} would be {where}a folder called {Path(text).parts[0]}: only a shell makes a home folder of it, and where it is not quoted"
        raise FolderError(message, f"name {home}, or ./{text} if that is what you mean")


def given(name: str | os.PathLike[str]) -> Path:
    """A folder or file that is to be read.

    Raises:
        FolderError: it is empty (and so would be the current folder, which nobody named), or no name at all.
    """
    text = os.fspath(name)
    if not text.strip():
        raise FolderError("the name of a folder or file is empty", "name one; the current folder is .")
    if "\0" in text:
        raise FolderError(f"{text!r} is no name of a folder or file", "name one; the current folder is .")
    _no_home(text)
    return Path(text)


def named_folder(name: str | os.PathLike[str]) -> Path:
    """A folder to be written, which may be new; folders that lead to it are made.

    Raises:
        FolderError: as `named`; or it is new and has the ending of a file.
    """
    path = named(name)
    if suffix(path) in OF_FILES and not os.path.lexists(path):
        raise FolderError(
            f"{path} has the name of a {suffix(path)} file, and a folder would be written",
            f"name a folder with --output, for example {path.with_suffix('')}; to have it so, make it first",
        )
    return path


def named_file(name: str | os.PathLike[str], within: str | None = None) -> Path:
    """A file to be written, in a folder that exists: none is made for it. `within`: what it is called in a folder that is named instead.

    Raises:
        FolderError: as `named`; or it says that it is a folder and there is none. What stands there `may_write` looks at.
    """
    path = named(name)
    if within is not None and path.is_dir():
        return path / within
    if os.fspath(name).endswith(("/", "/.")) and not path.is_dir():
        raise FolderError(f"{os.fspath(name)} is no folder", "make it first, or name a file with --output")
    return path
