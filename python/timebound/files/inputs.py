"""An input is never an output: what a command reads it does not replace, whatever it is told."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .beneath import FolderError

_HINT = "name another place with --output: what is read is never replaced, with --force neither"


def refuse_input(file: Path, inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuses a file that is to be written and is read too, under whatever name.

    Raises:
        FolderError: it is one of the inputs.
    """
    try:
        target = file.stat()
    except OSError:
        return
    for name in inputs:
        try:
            same = os.path.samestat(target, Path(name).stat())
        except OSError:
            continue
        if same:
            raise FolderError(f"{file} is read by this command", _HINT)


def refuse_inputs_beneath(folder: Path, inputs: Iterable[str | os.PathLike[str]], written: Iterable[str]) -> None:
    """Refuses a folder in which files are to be written or removed that are read too. Names of `written` are relative; one that ends in
    `/*` stands for all that is in a folder.

    Raises:
        FolderError: one is an input.
    """
    root = folder.resolve()
    beneath = [
        path.relative_to(root).as_posix() for name in inputs if (path := Path(name).resolve()).is_relative_to(root)
    ]
    if not beneath:
        return
    names = set(written)
    folders = tuple(name.removesuffix("*") for name in names if name.endswith("/*"))
    for name in beneath:
        if name in names or (folders and name.startswith(folders)):
            raise FolderError(f"{folder / name} is read by this command", _HINT)
