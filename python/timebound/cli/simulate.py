"""`timebound simulate`: the network in virtual time."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, ForceFolder, OutputIfNamed, Quiet, ScenarioName, Settings
from timebound.cli.predict import figures


def register(app: App) -> None:
    """Adds the verb."""
    app.command(simulate)


Search = Annotated[
    str | None,
    Parameter(
        name="--search",
        help="How hard to search for worst cases: evaluations as 20000 (reproducible), or a time as 30s; `run.simulate.search` otherwise.",
    ),
]


def simulate(
    scenario: ScenarioName,
    /,
    *,
    search: Search = None,
    set: Settings = (),
    output: OutputIfNamed = None,
    force: ForceFolder = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """The emulated network in virtual time, and a search for its worst cases.

    What is found is a lower bound on the true worst case, printed beside the upper one; tightness is bound / worst found. The same seed
    and the same number of evaluations give the same result, bit for bit, on any machine and any number of cores.
    """
    if search is not None:
        set = (*set, f"run.simulate.search={search}")
    return figures(scenario, set, output, {"predict", "simulate"}, json=json, quiet=quiet, force=force)
