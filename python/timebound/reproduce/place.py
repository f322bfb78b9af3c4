"""An experiment's folder: known by its `reproduce.json`, and written without following links."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from timebound.files import FolderError, Place, take_marked

MARK = "reproduce.json"
EXPERIMENTS = ("mqtt-scalability", "velox-model", "mrt-mqtt-bounds", "mrt-mqtt")


def take(folder: Path, experiment: str, cells: Iterable[str] | None = None) -> bool:
    """Takes a folder for an experiment; does it hold an earlier part of it? Folders of `cells` are made.

    Raises:
        FolderError: it holds something else, or another experiment; or links are where files would be written.
    """
    known = take_marked(folder, MARK, _is_ours, files=("report.html", "paths.parquet"), folders=("figures", "cells"))
    if known is not None and known["experiment"] != experiment:
        raise FolderError(
            f"{folder} holds the experiment {known['experiment']}", "name an empty or new folder with --output"
        )
    if cells is not None:
        with Place(folder) as place:
            for cell in cells:
                place.make(f"cells/{cell}/iterations" if experiment == "mrt-mqtt" else f"cells/{cell}")
    return known is not None


def _is_ours(content: dict[str, Any]) -> bool:
    """Velox's model has a comparison where the others have statements; what was only begun has no version."""
    named = content.get("experiment") in EXPERIMENTS and isinstance(content.get("schema"), int)
    return named and any(isinstance(content.get(key), list) for key in ("statements", "defects"))
