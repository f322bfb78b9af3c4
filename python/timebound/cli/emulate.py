"""`timebound emulate`: real clients and brokers over the emulated network."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import EXIT_INPUT, AsJson, ForceFolder, Given, Output, Quiet, ScenarioName, Settings, stderr
from timebound.cli.run import Rootless, TakeInterface, execute

MachineName = Annotated[
    str | None, Parameter(name="--machine", help="Emulate this machine's part of `network.machines`.")
]
Token = Annotated[
    Given | None, Parameter(name="--token", help="File with the secret that both machines share (mode 600).")
]
Wait = Annotated[float, Parameter(name="--wait", help="Seconds to wait for the other machine.")]


def register(app: App) -> None:
    """Adds the verb."""
    app.command(emulate)


def emulate(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    output: Output = None,
    force: ForceFolder = False,
    rootless: Rootless = False,
    take_interface: TakeInterface = (),
    machine: MachineName = None,
    token: Token = None,
    wait: Wait = 120.0,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run the real stacks (brokers, clients, your programs) in network namespaces over the emulated network.

    Every host has its own kernel stack; links, queues and switches are the same code as in the simulator. The bounds are
    worked out too, so that what is measured can be held against them.

    With `--machine`, this computer emulates its part of a network that names two under `network.machines`; start the other
    part on the other computer.
    """
    parts = {"predict", "emulate"}
    part = None
    if machine is not None:
        from timebound.engine.runs import Machine

        if token is None:
            stderr("error: --machine needs --token FILE, the secret that both machines share")
            stderr("  = hint: head -c 32 /dev/urandom | base64 > token; chmod 600 token; copy it to the other machine")
            return EXIT_INPUT
        part = Machine(machine, token, wait)
    return execute(
        scenario,
        set,
        output,
        parts,
        json=json,
        quiet=quiet,
        force=force,
        rootless=rootless,
        take_interfaces=take_interface,
        machine=part,
    )
