"""`timebound emulate`: real clients and brokers over the emulated network."""

from __future__ import annotations

from cyclopts import App

from timebound.cli.common import AsJson, Output, Quiet, ScenarioName, Settings
from timebound.cli.run import Rootless, TakeInterface, execute


def register(app: App) -> None:
    """Adds the verb."""
    app.command(emulate)


def emulate(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    output: Output = None,
    rootless: Rootless = False,
    take_interface: TakeInterface = (),
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run the real stacks (brokers, clients, your programs) in network namespaces over the emulated network.

    Every host has its own kernel stack; links, queues and switches are the same code as in the simulator. The bounds are
    worked out too, so that what is measured can be held against them.
    """
    parts = {"predict", "emulate"}
    return execute(
        scenario, set, output, parts, json=json, quiet=quiet, rootless=rootless, take_interfaces=take_interface
    )
