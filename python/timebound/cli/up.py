"""`timebound up`: a scenario's network with its programs and without its flows, for as long as it is wanted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from timebound.cli.common import ForceFolder, Output, Quiet, ScenarioName, Settings, open_scenario, stderr
from timebound.cli.run import Rootless
from timebound.engine import folder as folders
from timebound.engine import registry
from timebound.engine.control import ControlError
from timebound.scenario.units import TIME, UnitError, exactly, parse

if TYPE_CHECKING:
    from timebound.engine.hold import Held
    from timebound.scenario.model import Scenario


def register(app: App) -> None:
    """Adds the verb."""
    app.command(up)


def up(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    for_: Annotated[str | None, Parameter(name="--for", help='How long, as "60 s"; until Ctrl-C without it.')] = None,
    output: Annotated[
        str | None, Parameter(name=["--output", "-o"], help="Folder for logs and captures; a temporary one without it.")
    ] = None,
    force: ForceFolder = False,
    rootless: Rootless = False,
    quiet: Quiet = False,
) -> int:
    """Bring a scenario's network up with its programs and brokers, without its flows, and hold it until Ctrl-C.

    Use it from another terminal: timebound exec, shell, node and top take the scenario's name.
    """
    duration_ns = None
    if for_ is not None:
        try:
            duration_ns = exactly(parse(for_, TIME), for_, TIME)
        except UnitError as error:
            raise ControlError(f"--for: {error.message}", error.hint) from None
        if duration_ns < 1_000_000:
            raise ControlError("--for: too short", 'write for example --for "60 s"')
    with ExitStack() as stack:
        loaded = open_scenario(scenario, set)
        held = bring_up(stack, loaded, output, rootless=rootless, quiet=quiet, duration_ns=duration_ns, force=force)
        if not quiet:
            stderr(f"up: {len(loaded.hosts)} hosts, run {held.run_id}; Ctrl-C takes it down")
        try:
            held.wait(None)
        except KeyboardInterrupt:
            # What it was held for has come.
            return 0
    if held.failure is not None:
        raise ControlError(f"the network went down: {held.failure}", "", 3)
    return 0


def bring_up(
    stack: ExitStack,
    scenario: Scenario,
    output: Output,
    *,
    rootless: bool,
    quiet: bool,
    duration_ns: int | None = None,
    force: bool = False,
) -> Held:
    """A held network that is taken down with `stack`."""
    from timebound.engine import runs, written
    from timebound.engine.hold import hold

    plan = runs.plan_of(scenario)
    place = registry.temporary() if output is None else output
    folder = folders.prepare(place, written.held(plan), force=force)
    if output is None:
        stack.callback(folders.discard, folder)

    def tell(event: dict[str, object]) -> None:
        if event.get("event") == "log" and not quiet:
            stderr(str(event.get("message", "")))

    return stack.enter_context(hold(scenario, plan, folder, rootless=rootless, duration_ns=duration_ns, tell=tell))
