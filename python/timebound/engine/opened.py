"""What nodes' programs see of this host beside the rule (crates/live/src/nodes/view.rs), and where they may write: docs/nodes.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from timebound.engine.control import ControlError

VARIABLE = "TIMEBOUND_WRITABLE"
"""Folders that whoever runs a scenario opens for its programs, separated by colons. No scenario can state them."""


def shown(scenario: Path) -> list[str]:
    """Folders that a node's own `/tmp` and `/run` do not hide: the scenario's, and this Python's."""
    package = Path(__file__).resolve().parents[2]
    folders = [scenario, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent, package]
    return sorted({str(folder.resolve()) for folder in folders})


def writable() -> list[str]:
    """The folders of `VARIABLE`, absolute.

    Raises:
        ControlError: one that is no folder, or all of this host.
    """
    folders = [Path(text).expanduser() for text in os.environ.get(VARIABLE, "").split(":") if text]
    for folder in folders:
        if not folder.is_dir() or folder.resolve() == Path("/"):
            hint = f"name folders, separated by colons: {VARIABLE}=~/results:/var/log/experiment"
            raise ControlError(f"{VARIABLE}: {str(folder)!r} is not a folder that can be opened for programs", hint, 2)
    return sorted({str(folder.resolve()) for folder in folders})
