"""`timebound manager`: the real-time manager in front of an MQTT broker."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from timebound.cli import was_interrupted
from timebound.cli.common import EXIT_INPUT, Given, print_json, stderr

if TYPE_CHECKING:
    from timebound.control.manager.configuration import Configuration

EXIT_HOST = 3


def register(app: App) -> None:
    """Adds the verb."""
    app.command(manager)


def manager(
    configuration: Annotated[
        Given | None, Parameter(help="The configuration file (docs/manager.md; --schema for editors).")
    ] = None,
    /,
    *,
    check_config: Annotated[bool, Parameter(negative=(), help="Only check the file; start nothing.")] = False,
    schema: Annotated[bool, Parameter(negative=(), help="Print the JSON Schema of the file instead.")] = False,
) -> int:
    """Serve MQTT clients in front of a broker, and ask for guaranteed channels for those who want them.

    Clients and broker notice nothing: MQTT 3.1.1 and 5 over TCP, TLS and WebSocket. Requirements in user properties become rows of the table that
    `timebound controller` watches; without table or controller everything goes on as best effort. Ends with SIGTERM.
    """
    from timebound.control.manager.configuration import json_schema, load

    if schema:
        print_json(json_schema())
        return 0
    if configuration is None:
        stderr("error: name a configuration file (docs/manager.md)")
        return EXIT_INPUT
    said, warnings = load(configuration)
    for warning in warnings:
        stderr(warning.render())
    if check_config:
        stderr(f"{configuration}: well formed")
        return 0
    return _serve(said)


def _serve(said: Configuration) -> int:
    import importlib.util
    import json
    import logging

    from timebound._core import Manager

    for needed in ("structlog", "paho", "prometheus_client"):
        if importlib.util.find_spec(needed) is None:
            from timebound.engine.programs import CONTROL_EXTRA

            stderr(f"error: {needed} is not installed\n  = hint: {CONTROL_EXTRA}")
            return EXIT_HOST
    # Clients come back within a second and do not wait for more than the intermediary, so everything else is loaded after it.
    failure = core = None
    try:
        core = Manager(json.dumps(said.core))
    except (ValueError, OSError) as error:
        failure = str(error)

    from timebound.control import logs
    from timebound.control.manager.service import Service, first_row
    from timebound.control.srt.store import Put, Role, StoreError, Writer, open_store

    logs.begin(said.log_format, said.log_level)
    log = logging.getLogger("timebound.manager")
    if core is None:
        log.error("cannot serve", extra={"why": failure})
        return EXIT_HOST
    try:
        writer, row = Writer(Role.MANAGER, said.name), first_row(said, core)
        store = open_store(said.store_url, writer, tls=said.store_tls, wanted=[Put(row)])
        service = Service(said, core, store, row)
    except (StoreError, OSError) as error:
        core.stop()
        log.error("cannot serve", extra={"why": str(error)})
        return EXIT_HOST

    def stop(number: int, frame: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, lambda number, frame: service.reopen_audit())
    if was_interrupted():
        service.stop()
    service.run()
    return 0
