"""The service as the command starts it: store, switches, decisions, HTTP; and its end on SIGTERM or SIGINT."""

from __future__ import annotations

import importlib.util
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from timebound.control.controller.audit import Audit
from timebound.control.controller.configuration import Configuration
from timebound.control.controller.metrics import Metrics
from timebound.control.controller.service import Service
from timebound.control.controller.tokens import read_tokens
from timebound.control.enforcer import Enforcer
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.srt.store import Role, Store, Writer, open_store
from timebound.control.systemd import tell_systemd

if TYPE_CHECKING:
    import uvicorn

for _needed in ("fastapi", "uvicorn"):
    if importlib.util.find_spec(_needed) is None:
        raise ModuleNotFoundError(f"No module named {_needed!r}", name=_needed)


@dataclass(slots=True)
class Running:
    """A controller with its open doors."""

    service: Service
    server: uvicorn.Server
    socket: socket.socket
    url: str


def configure_logs(kind: str) -> None:
    """Logs of this service and of what it uses to standard error, as text or as JSON lines. No secrets are logged: none is ever in an event."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: Any = (
        structlog.processors.JSONRenderer()
        if kind == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    # What the store and others log has its particulars in `extra`.
    foreign = [structlog.stdlib.ExtraAdder(), *shared]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=last, foreign_pre_chain=foreign))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)


@contextmanager
def running(
    configuration: Configuration, *, store: Store | None = None, enforcer: Enforcer | None = None
) -> Iterator[Running]:
    """Everything started, except that nobody serves HTTP yet: `Running.server` does, with its `run` or `serve`.

    Raises:
        StoreError, TokenError, OSError, ValueError: a part that cannot be started.
    """
    http = configuration.http
    with ExitStack() as ends:
        tokens = None if http.tokens is None else read_tokens(http.tokens)
        door = socket.create_server((http.listen, http.port), family=_family(http.listen))
        ends.callback(door.close)
        scheme = "http" if http.certificate is None else "https"
        host = f"[{http.listen}]" if ":" in http.listen else http.listen
        url = f"{scheme}://{host}:{door.getsockname()[1]}"
        audit = Audit(configuration.audit)
        metrics = Metrics()
        if enforcer is None:
            enforcer = OpenFlowEnforcer(configuration.switches, metrics.unreadable.inc)
        ends.callback(enforcer.close)
        if store is None:
            writer = Writer(Role.CONTROLLER, configuration.name)
            store = open_store(configuration.store_url, writer, adopt=True, tls=configuration.store_tls)
        ends.callback(store.close)
        service = Service(
            configuration.name,
            store,
            enforcer,
            configuration.site,
            audit=audit,
            metrics=metrics,
            url=url,
            backups=configuration.backups,
            grace_ns=configuration.grace_ns,
            alive=lambda: tell_systemd("WATCHDOG=1"),
            expected={switch.name for switch in configuration.switches.switches},
        )
        service.start()
        ends.callback(service.close)
        # Switches and managers wait for what stands above, so the rest is loaded after it: HTTP is a good part of a start, and its callers wait
        # at the open door.
        import uvicorn

        from timebound.control.controller.door import BACKLOG, Door, Server, allow_files
        from timebound.control.controller.rest import application

        allow_files()
        server = Server(
            uvicorn.Config(
                application(service, tokens, http.listen),
                http=Door,
                ws="none",
                backlog=BACKLOG,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_keyfile=None if http.key is None else str(http.key),
                ssl_certfile=None if http.certificate is None else str(http.certificate),
            )
        )
        yield Running(service, server, door, url)


def serve(configuration: Configuration) -> None:
    """Runs until SIGTERM or SIGINT. Reservations stay in the switches, and in the table, for the controller that comes next."""
    with running(configuration) as found:
        structlog.get_logger("timebound.controller").info("listening", url=found.url)
        tell_systemd("READY=1")
        # uvicorn raises the signal that ended it once more when it is done: to be told to end is no failure.
        before = {number: signal.signal(number, lambda *_: _end(found)) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            found.server.run(sockets=[found.socket])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        tell_systemd("STOPPING=1")


def _end(found: Running) -> None:
    found.server.should_exit = True


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
