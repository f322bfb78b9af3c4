"""The scenarios that come with Timebound."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


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
