"""`timebound admit`: may these flows join those that are there?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Quiet, ScenarioName, Settings, open_scenario, print_json

if TYPE_CHECKING:
    from timebound.engine.admission import Alternatives, FlowAnswer

EXIT_REFUSED = 1


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
    buffers: Annotated[bool, Parameter(negative=(), help="Refuse what could overfill a queue, too.")] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """May these flows join the others, so that every deadline is kept? One after another, with the reason and what would still fit.

    The flows of the scenario that are not named are there from the start. A refused flow changes nothing for the next one.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine.admission import admit as decide
    from timebound.stacks import build_plan

    loaded = open_scenario(scenario, set)
    with TerminalProgress(quiet or json) as progress:
        progress.step("admit", "deciding on one flow after another")
        answers = decide(build_plan(loaded), flows, check_buffers=buffers)
    if json:
        print_json({"flows": [asdict(answer) for answer in answers]})
    else:
        for answer in answers:
            _tell(answer)
    return 0 if all(answer.admitted for answer in answers) else EXIT_REFUSED


def _tell(answer: FlowAnswer) -> None:
    print(f"{answer.flow}: {'admitted' if answer.admitted else 'REFUSED'}")
    for name, decision in answer.decisions.items():
        for receiver, bound_ns in decision.bounds_ns.items():
            if answer.admitted:
                print(f"  {name} reaches {receiver} within {_time(bound_ns)}")
        for text in decision.texts:
            print(f"  {text}")
        if decision.total > len(decision.texts):
            print(f"  and {decision.total - len(decision.texts)} more")
    for name, alternatives in answer.alternatives.items():
        print(f"  still admitted of {name}: {_fits(alternatives)}")


def _fits(alternatives: Alternatives) -> str:
    said = []
    if alternatives.smallest_period_ns is not None:
        said.append(f"period {_time(alternatives.smallest_period_ns)} or more")
    if alternatives.smallest_deadline_ns is not None:
        said.append(f"deadline {_time(alternatives.smallest_deadline_ns)} or more")
    if alternatives.lowest_class is not None:
        said.append(f"priority {alternatives.lowest_class} as the lowest")
    return ", or ".join(said) if said else "nothing, whatever its period, deadline or priority alone"


def _time(nanos: int | None) -> str:
    """To the nanosecond, so that it can be written into a scenario and still holds."""
    if nanos is None:
        return "no finite time"
    whole, rest = divmod(nanos, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " ms"
