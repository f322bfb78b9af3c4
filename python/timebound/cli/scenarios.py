"""`timebound scenarios`: what is built in."""

from __future__ import annotations

from cyclopts import App

from timebound.cli.common import AsJson, print_json, stdout


def register(app: App) -> None:
    """Adds the verb."""
    app.command(scenarios)


def scenarios(*, json: AsJson = False) -> int:
    """List the built-in scenarios; each is a folder with a README that can be copied and changed."""
    from timebound.scenario.builtin import builtin

    found = builtin()
    if json:
        print_json([{"name": s.name, "file": str(s.file), "description": s.description} for s in found])
        return 0
    width = max((len(s.name) for s in found), default=0)
    for entry in found:
        stdout(f"{entry.name:<{width}}  {entry.description}")
        stdout(f"{'':<{width}}  {entry.file}")
    return 0
