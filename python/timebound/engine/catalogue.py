"""From a name on the command line to a scenario file: a path, or a built-in scenario."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from timebound.scenario.builtin import builtin_file, builtin_names
from timebound.scenario.problems import Problem, ScenarioError


@dataclass(frozen=True, slots=True)
class Entry:
    """A built-in scenario."""

    name: str
    file: Path
    description: str


def find(name: str) -> Path:
    """The file of a scenario: `name` is a path, a folder with a `scenario.yaml`, or the name of a built-in one.

    Raises:
        ScenarioError: there is neither such a file nor such a built-in scenario.
    """
    path = Path(name)
    if path.is_dir() and (path / "scenario.yaml").is_file():
        return path / "scenario.yaml"
    if path.exists() and not path.is_dir():
        return path
    if name in builtin_names():
        return builtin_file(name)
    close = difflib.get_close_matches(name, builtin_names(), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"built in are: {', '.join(builtin_names())}"
    problem = Problem(
        file=name, line=0, column=0, path="", message="no such file, and no such built-in scenario", hint=hint, source_line=""
    )  # fmt: skip
    raise ScenarioError([problem])


def entries() -> list[Entry]:
    """The built-in scenarios in alphabetical order."""
    found = []
    for name in builtin_names():
        file = builtin_file(name)
        match = re.search(r"^description: *(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        found.append(Entry(name, file, match.group(1).strip("'\" ") if match else ""))
    return found
