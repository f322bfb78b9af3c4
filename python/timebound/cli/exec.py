"""`timebound exec`: a command in chosen hosts of an experiment."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated, Any

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Settings, open_scenario, print_json, stderr, whole
from timebound.cli.run import Rootless
from timebound.cli.target import NodeRange, host_names
from timebound.engine import registry
from timebound.engine.command import Commands, Outcome, worst
from timebound.engine.control import ControlError, Link, environment, here, pick_nodes


def register(app: App) -> None:
    """Adds the verb."""
    app.command(execute, name="exec")


def execute(
    run: Annotated[
        str,
        Parameter(
            help="A running experiment: its scenario (name or file), run id or run folder; or a scenario that is not "
            "running, whose network is then brought up for this command."
        ),
    ],
    nodes: NodeRange,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, help="The command and its arguments, after `--`.")],
    set: Settings = (),
    env: Annotated[
        tuple[str, ...], Parameter(name="--env", negative=(), help="A variable for the command, as NAME=VALUE.")
    ] = (),
    limit: Annotated[int, Parameter(converter=whole, help="Most commands at a time.")] = 32,
    timeout: Annotated[float | None, Parameter(help="Seconds after which a command is ended (exit code 124).")] = None,
    rootless: Rootless = False,
    json: AsJson = False,
) -> int:
    """Run a command in hosts of an experiment: timebound exec hello 'h[1-60]' -- ip address

    Output of several hosts is prefixed with the host's name; with one host the command has this terminal's input and
    outputs. The exit code is the worst of all: 124 for one that ran out of time, 127 for one that could not be started.
    Commands end with the experiment, and with this one.
    """
    if not command:
        raise ControlError("no command", "write it after --: timebound exec hello h1 -- ip address")
    if limit < 1 or (timeout is not None and timeout <= 0):
        raise ControlError("--limit and --timeout must be positive", "leave them out for 32 at a time and no timeout")
    variables = environment(env)
    with ExitStack() as stack:
        link = stack.enter_context(Link(_socket(stack, run, set, rootless)))
        chosen = pick_nodes(nodes, host_names(link))
        several = len(chosen) > 1
        commands = Commands(
            link,
            command,
            environment=variables,
            folder=here(),
            limit=limit,
            timeout_s=timeout,
            sink=None if json else _print,
        )
        outcomes = commands.run(chosen) if several or json else commands.run_attached(chosen[0])
        return _close(outcomes, json=json)


def _close(outcomes: dict[str, Outcome], *, json: bool) -> int:
    if json:
        print_json({name: outcome.as_json() for name, outcome in outcomes.items()})
    else:
        for name, outcome in outcomes.items():
            if outcome.error is not None:
                stderr(f"{name}: {outcome.error}")
            elif outcome.exit_code and len(outcomes) > 1:
                stderr(f"{name}: exit code {outcome.exit_code}")
    return worst(outcomes)


def _socket(stack: ExitStack, run: str, settings: tuple[str, ...], rootless: bool) -> str:
    """That of the running experiment, or of a network that is brought up for the command."""
    if registry.matching(run):
        if settings:
            raise ControlError("--set has no meaning for an experiment that is running", "leave it out", 2)
        return registry.find(run).socket
    from timebound.cli.up import bring_up

    held = bring_up(stack, open_scenario(run, settings), None, rootless=rootless, quiet=True)
    return registry.find(held.run_id).socket


def _print(node: str, kind: int, lines: bytes) -> None:
    stream: Any = sys.stdout.buffer if kind == 1 else sys.stderr.buffer
    prefix = f"{node}: ".encode()
    stream.write(b"".join(prefix + line for line in lines.splitlines(keepends=True)))
    stream.flush()
