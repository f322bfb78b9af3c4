"""`timebound simulate`: the network in virtual time."""

from __future__ import annotations

from cyclopts import App

from timebound.cli.common import AsJson, Output, Quiet, ScenarioName, Settings
from timebound.cli.predict import figures


def register(app: App) -> None:
    """Adds the verb."""
    app.command(simulate)


def simulate(
    scenario: ScenarioName, /, *, set: Settings = (), output: Output = None, json: AsJson = False, quiet: Quiet = False
) -> int:
    """The emulated network in virtual time, and a search for its worst cases.

    The same seed gives the same result, bit for bit, on any machine and any number of cores. How long and how hard is
    searched stands in the scenario (`run.simulate`); bounds are printed beside.
    """
    return figures(scenario, set, output, {"predict", "simulate"}, json=json, quiet=quiet)
