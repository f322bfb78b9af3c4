"""`timebound admit`: may these flows join those that are there?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Quiet, ScenarioName, Settings, open_scenario, print_json, stdout

if TYPE_CHECKING:
    from timebound.engine.admission import Alternatives
    from timebound.engine.admit import FlowAnswer

EXIT_REFUSED = 1
MOST_NOTES = 8
_DECIDING = "deciding on one flow after another"


def register(app: App) -> None:
    """Adds the verb."""
    app.command(admit)


def admit(
    scenario: ScenarioName,
    /,
    *flows: Annotated[
        str, Parameter(help="Flows of the scenario that ask to join, in this order; all where none is named.")
    ],
    set: Settings = (),
    method: Annotated[
        Literal["bound", "port-by-port"] | None,
        Parameter(
            help="The bounds that count: bound is what `timebound predict` prints and takes a prediction per decision; port-by-port is instant, and the default, "
            "where no frames answer others and there is no background traffic."
        ),
    ] = None,
    buffers: Annotated[bool, Parameter(negative=(), help="Refuse what could overfill a queue, too.")] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """May these flows join the others, so that every deadline is kept? One after another, with the reason and what would still fit.

    The flows of the scenario that are not named are there from the start. A refused flow changes nothing for the next one.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine.admit import admit as decide
    from timebound.engine.admit import risks

    loaded = open_scenario(scenario, set)
    found = []
    with TerminalProgress(quiet or json) as progress:
        progress.step("admit", _DECIDING)

        def tell(share: float, predictions: int) -> None:
            progress.at(share, f"{_DECIDING}, {predictions} predictions" if predictions else _DECIDING)

        for answer in decide(loaded, flows, method=method, check_buffers=buffers, tell=tell):
            found.append(answer)
            if not json:
                # At once: what was decided stays decided when somebody breaks off.
                _tell(answer, shares=loaded.best_effort_frame_bytes > 0)
    notes = risks(loaded, found) if not buffers and any(answer.admitted for answer in found) else []
    if json:
        print_json({"flows": [asdict(answer) for answer in found], "notes": notes})
    else:
        for note in notes[:MOST_NOTES]:
            stdout(f"but {note} (--buffers refuses that)")
        if len(notes) > MOST_NOTES:
            stdout(f"and {len(notes) - MOST_NOTES} more with --json")
    return 0 if all(answer.admitted for answer in found) else EXIT_REFUSED


def _tell(answer: FlowAnswer, *, shares: bool) -> None:
    from timebound.scenario.units import format_ms

    stdout(f"{answer.flow}: {'admitted' if answer.admitted else 'REFUSED'}")
    for decision in answer.decisions.values():
        for receiver, bound_ns in decision.bounds_ns.items():
            if answer.admitted:
                within = "without a finite bound" if bound_ns is None else f"within {format_ms(bound_ns)}"
                rests_on = answer.rests_on.get(receiver)
                stdout(f"  {answer.flow} reaches {receiver} {within}{f' ({rests_on})' if rests_on else ''}")
        for text in decision.texts:
            stdout(f"  {text}")
        if decision.total > len(decision.texts):
            stdout(f"  and {decision.total - len(decision.texts)} more")
    for alternatives in answer.alternatives.values():
        stdout(f"  still admitted of {answer.flow}: {_fits(alternatives, shares=shares)}")


def _fits(alternatives: Alternatives, *, shares: bool) -> str:
    """`shares`: may there be undeclared traffic in class 0?"""
    from timebound.scenario.units import format_ms, format_rate

    said = []
    if alternatives.smallest_period_ns is not None:
        said.append(f"period {format_ms(alternatives.smallest_period_ns)} or more")
    if alternatives.largest_rate_bps is not None:
        said.append(f"token rate {format_rate(alternatives.largest_rate_bps)} or less")
    if alternatives.smallest_deadline_ns is not None:
        said.append(f"deadline {format_ms(alternatives.smallest_deadline_ns)} or more")
    if alternatives.lowest_class is not None:
        shared = ", which undeclared traffic shares," if shares and alternatives.lowest_class == 0 else ""
        said.append(f"priority {alternatives.lowest_class}{shared} as the lowest")
    return ", or ".join(said) if said else "nothing, whatever its period, deadline or priority alone"
