"""`timebound validate`: is the scenario well formed? And the JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import EXIT_INPUT, AsJson, ScenarioName, Settings, open_scenario, print_json, stderr, stdout


def register(app: App) -> None:
    """Adds the verb."""
    app.command(validate)


def validate(
    scenario: ScenarioName | None = None,
    /,
    *,
    set: Settings = (),
    schema: Annotated[bool, Parameter(negative=(), help="Print the JSON Schema of scenario files instead.")] = False,
    json: AsJson = False,
) -> int:
    """Check a scenario: every error at once, each with file, line, column and a hint. Starts nothing."""
    from timebound.engine.runs import check
    from timebound.scenario import json_schema

    if schema:
        print_json(json_schema())
        return 0
    if scenario is None:
        stderr("error: name a scenario, or ask for --schema")
        return EXIT_INPUT
    loaded = open_scenario(scenario, set)
    host = check(loaded)
    for sentence in host:
        stderr(f"warning: {sentence}")
    counts = {
        "nodes": len(loaded.nodes),
        "links": len(loaded.links),
        "flows": len(loaded.flows),
        "background": len(loaded.background),
        "warnings": len(loaded.warnings),
    }
    if json:
        print_json({"scenario": loaded.name, "valid": True, **counts, "host": host})
    else:
        stdout(f"{loaded.name}: well formed ({', '.join(_count(value, key) for key, value in counts.items())})")
    return 0


def _count(value: int, what: str) -> str:
    return f"{value} {what.removesuffix('s') if value == 1 else what}"
