"""`timebound controller`: guaranteed channels through OpenFlow switches."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from timebound.cli import was_interrupted
from timebound.cli.common import EXIT_INPUT, AsJson, print_json, stderr, stdout

EXIT_HOST = 3


def register(app: App) -> None:
    """Adds the verb."""
    app.command(controller)


def controller(
    configuration: Annotated[str | None, Parameter(help="The configuration file (docs/controller.md).")] = None,
    /,
    *,
    check_config: Annotated[
        bool, Parameter(name="--check-config", negative=(), help="Check the file, and start nothing.")
    ] = False,
    schema: Annotated[
        bool, Parameter(negative=(), help="Print the JSON Schema of the file, and start nothing.")
    ] = False,
    new_token: Annotated[
        Literal["read", "admin"] | None,
        Parameter(name="--new-token", help="Print a new bearer token, and its line for the file of tokens."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Decide what managers ask for, reserve it in the network, prove it, and tell them.

    Watches the table of requirements, plans with the bounds of `timebound predict`, installs channels in OpenFlow 1.3 switches, and serves
    REST and a live page. Needs the extra `control`.
    """
    try:
        from timebound.control.controller import configuration as files
    except ModuleNotFoundError as error:
        return _missing(error)
    if schema:
        print_json(files.json_schema())
        return 0
    if new_token is not None:
        from timebound.control.controller.tokens import new_token as made

        token, line = made(new_token, new_token)
        stdout(line)
        stderr(f"the token, shown once: {token}")
        return 0
    if configuration is None:
        stderr("error: name a configuration file, or ask for --schema")
        return EXIT_INPUT
    found = files.read(configuration)
    for warning in found.warnings:
        stderr(warning.render())
    if check_config:
        if json:
            print_json({"valid": True, "name": found.name, "warnings": len(found.warnings)})
        else:
            stdout(f"{found.name}: well formed")
        return 0
    return _serve(found)


def _serve(found: object) -> int:
    try:
        from timebound.control.controller.configuration import Configuration
        from timebound.control.controller.run import configure_logs, serve
        from timebound.control.controller.tokens import TokenError
        from timebound.control.srt.store import StoreError
    except ModuleNotFoundError as error:
        return _missing(error)
    assert isinstance(found, Configuration)
    configure_logs(found.log)
    if was_interrupted():
        raise KeyboardInterrupt
    try:
        serve(found)
    except (StoreError, TokenError, ValueError) as error:
        hint = getattr(error, "hint", "")
        stderr(f"error: {error}" + (f"\n  = hint: {hint}" if hint else ""))
        return EXIT_INPUT
    except OSError as error:
        stderr(f"error: {error}")
        return EXIT_HOST
    return 0


def _missing(error: ModuleNotFoundError) -> int:
    from timebound.engine.programs import CONTROL_EXTRA

    stderr(f"error: {error.name} is not installed\n  = hint: {CONTROL_EXTRA}")
    return EXIT_HOST
