"""Scenario files: YAML in, a checked and resolved `Scenario` out, errors with file, line, column and hint.

This room knows nothing of the Rust core, of stacks or of the command line.
"""

from timebound.scenario.builtin import builtin_file, builtin_names
from timebound.scenario.loader import load
from timebound.scenario.model import Scenario
from timebound.scenario.problems import Place, Problem, ScenarioError
from timebound.scenario.schema import json_schema

__all__ = ["Place", "Problem", "Scenario", "ScenarioError", "builtin_file", "builtin_names", "json_schema", "load"]
