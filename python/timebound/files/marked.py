"""Folders with many runs in them (a sweep, an experiment), known by a file of theirs with keys of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .beneath import FolderError, Kind, Place
from .inputs import refuse_inputs_beneath
from .mark import foreign

MOST = 1 << 30


def take_marked(
    folder: Path,
    mark: str,
    is_ours: Callable[[dict[str, Any]], bool],
    *,
    files: Iterable[str] = (),
    folders: Iterable[str] = (),
    inputs: Iterable[str] = (),
) -> dict[str, Any] | None:
    """Makes sure that a folder is new, empty, or marked as one of ours; the content of its mark, `None` where there is none yet.

    `files` and `folders` are what will be written in it: nothing else may stand in their place, no link, and none of the `inputs`.

    Raises:
        FolderError: it holds something else, or cannot be written; nothing was touched.
    """
    try:
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            raise FolderError(f"{folder} is no folder", "name a folder with --output")
        folder.mkdir(parents=True, exist_ok=True)
        with Place(folder) as place:
            content = _content(place.read(mark, MOST))
            ours = content is not None and is_ours(content)
            if not ours and place.entries():
                raise foreign(place)
            files, folders = [mark, *files], list(folders)
            refuse_inputs_beneath(folder, inputs, [*files, *(f"{name}/*" for name in folders)])
            for name in files:
                if (kind := place.kind(name)) not in (Kind.ABSENT, Kind.FILE):
                    raise place.refused(name, kind)
            for name in folders:
                if (kind := place.kind(name)) not in (Kind.ABSENT, Kind.FOLDER):
                    raise place.refused(f"{name}/.", kind)
            return content if ours else None
    except OSError as error:
        raise FolderError(
            f"{folder} cannot be written: {error.strerror}", "name another folder with --output", 3
        ) from error


def _content(text: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
