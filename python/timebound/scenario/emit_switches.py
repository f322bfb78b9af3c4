"""Real switches and their controller as YAML."""

from __future__ import annotations

from typing import Any

from timebound.scenario.model import Scenario
from timebound.scenario.units import format_time


def controller(scenario: Scenario) -> dict[str, Any] | None:
    """`network.controller`; `None` where there is none."""
    found = scenario.controller
    if found is None:
        return None
    entry: dict[str, Any] = {"program": list(found.command)}
    if found.environment:
        entry["env"] = dict(found.environment)
    entry["port"] = found.port
    if found.ready_port is not None:
        entry["ready-port"] = found.ready_port
    if found.ready_file is not None:
        entry["ready-file"] = found.ready_file
    return entry | {"timeout": format_time(found.timeout_ns)}
