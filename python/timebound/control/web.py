"""Metrics and health over HTTP, for services: `/metrics`, `/healthz`, `/readyz`. Standard library, because a service must not need more."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger("timebound.web")

Health = Callable[[], tuple[bool, dict[str, Any]]]
"""Is it well, and what there is to say about it."""


class Web:
    """An HTTP server on a thread of its own."""

    def __init__(self, address: str, port: int, metrics: CollectorRegistry, healthy: Health, ready: Health) -> None:
        """Begins to serve.

        Raises:
            OSError: the address is taken, or is none of this host.
        """
        self._metrics = make_wsgi_app(metrics)
        self._answers = {"/healthz": healthy, "/readyz": ready}
        kind = _Server6 if ":" in address else _Server
        self._server = make_server(address, port, self._serve, server_class=kind, handler_class=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return []
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start)
            return found
        if path not in self._answers:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics, /healthz, /readyz\n"]
        well, what = self._answers[path]()
        start("200 OK" if well else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps(what).encode() + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 16


class _Server6(_Server):
    import socket

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
