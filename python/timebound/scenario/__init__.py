"""Scenario files: YAML in, a checked and resolved `Scenario` out, errors with file, line, column and hint.

This room knows nothing of the Rust core, of stacks or of the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timebound.scenario.builtin import builtin_file, builtin_names
    from timebound.scenario.loader import load
    from timebound.scenario.model import Scenario
    from timebound.scenario.problems import Place, Problem, ScenarioError
    from timebound.scenario.schema import json_schema

__all__ = ["Place", "Problem", "Scenario", "ScenarioError", "builtin_file", "builtin_names", "json_schema", "load"]

_WHERE = {
    "Place": "problems", "Problem": "problems", "Scenario": "model", "ScenarioError": "problems", "builtin_file": "builtin",
    "builtin_names": "builtin", "json_schema": "schema", "load": "loader",
}  # fmt: skip


def __getattr__(name: str) -> object:
    # Whoever needs one module of this room (problems, for the command line) does not pay for the models of whole files.
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
