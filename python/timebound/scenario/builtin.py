"""The scenarios that come with Timebound."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from timebound.scenario.tree import Mapping, Scalar, Sources, compose

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in scenario: its name, its file and what it is about."""

    name: str
    file: Path
    description: str


def _roots() -> list[Path]:
    """Installed: beside the package's modules; in a checkout: `scenarios/` at its top."""
    return [_PACKAGE / "_scenarios", _PACKAGE.parent.parent / "scenarios"]


def builtin_names() -> list[str]:
    """Names of the built-in scenarios, sorted."""
    return sorted({file.parent.name for root in _roots() for file in root.glob("*/scenario.yaml")})


def builtin_file(name: str) -> Path:
    """The scenario file of a built-in scenario; `KeyError` where there is none of this name."""
    for root in _roots():
        file = root / name / "scenario.yaml"
        if "/" not in name and file.is_file():
            return file
    raise KeyError(name)


def builtin_name(file: Path) -> str | None:
    """The name of the built-in scenario that this file is; `None` where it is none."""
    name = file.parent.name
    known = file.name == "scenario.yaml" and name in builtin_names() and builtin_file(name).resolve() == file.resolve()
    return name if known else None


def builtin() -> list[Builtin]:
    """All built-in scenarios, sorted by name."""
    return [Builtin(name, builtin_file(name), _description(builtin_file(name))) for name in builtin_names()]


def find(name: str) -> Path:
    """The file of a scenario: an existing file or folder as it is, else the built-in scenario of this name."""
    path = Path(name)
    try:
        if path.is_dir() and (path / "scenario.yaml").is_file():
            return path / "scenario.yaml"
        if not path.exists() and name in builtin_names():
            return builtin_file(name)
    except (OSError, ValueError):  # a name that no file system takes: the loader reports it
        return path
    return path


def suggest(name: str) -> str:
    """What somebody may have meant who named a file that does not exist."""
    close = difflib.get_close_matches(name, builtin_names(), n=1)
    return f"did you mean {close[0]!r}?" if close else f"name a file, or one of: {', '.join(builtin_names())}"


def _description(file: Path) -> str:
    tree = compose(file.read_text(encoding="utf-8"), file.name, Sources())
    entry = tree.entries.get("description") if isinstance(tree, Mapping) else None
    return entry.text if isinstance(entry, Scalar) else ""
