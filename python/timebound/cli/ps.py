"""`timebound ps`: which experiments are running."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cyclopts import App

from timebound.cli.common import AsJson, print_json, stderr, stdout
from timebound.engine import registry
from timebound.engine.control import ControlError, Link
from timebound.scenario.problems import plain


def register(app: App) -> None:
    """Adds the verb."""
    app.command(ps)


def ps(*, json: AsJson = False) -> int:
    """List the running experiments of this user."""
    entries = [{**asdict(entry), **_status(entry.socket)} for entry in registry.running()]
    if json:
        print_json(entries)
        return 0
    if not entries:
        stderr("no experiment is running")
        return 0
    stdout(f"{'RUN':<20} {'SCENARIO':<24} {'PHASE':<10} {'HOSTS':>5}  FOLDER")
    for entry in entries:
        name = plain(entry["scenario"])
        stdout(f"{entry['run_id']:<20} {name:<24} {entry['phase']:<10} {entry['hosts']:>5}  {entry['folder']}")
    return 0


def _status(socket: str) -> dict[str, Any]:
    """Phase and hosts; one that does not answer is starting or ending."""
    try:
        with Link(socket) as link:
            status = link.ask("status")
    except ControlError:
        return {"phase": "unknown", "hosts": 0, "run_ns": None}
    return {"phase": status["phase"], "hosts": len(status["nodes"]), "run_ns": status["run_ns"]}
