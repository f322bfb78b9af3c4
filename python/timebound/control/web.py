"""Metrics and health over HTTP, for services: `/metrics`, `/healthz`, `/readyz`. Standard library, because a service must not need more."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MOST_CONNECTIONS = 32
"""At a time, a thread each; for one more the oldest is closed, so that whoever only waits keeps nobody out."""
LONGEST_S = 10.0
"""From the beginning of a connection to the end of its answer."""
QUIET_S = 60.0
"""Between two lines in the log about clients that were too slow."""
GATHER_S = 3.0
"""From the first of them to their line."""

log = logging.getLogger("timebound.web")

Health = Callable[[], tuple[bool, dict[str, Any]]]
"""Is it well, and what there is to say about it."""


class Web:
    """An HTTP server on a thread of its own."""

    def __init__(self, address: str, port: int, metrics: CollectorRegistry, healthy: Health, ready: Health) -> None:
        """Begins to serve.

        Raises:
            OSError: the address, which it names, is taken, or is none of this host.
        """
        self._metrics = make_wsgi_app(metrics)
        self._answers = {"/healthz": healthy, "/readyz": ready}
        kind = _Server6 if ":" in address else _Server
        try:
            self._server = kind((address, port), _Handler)
        except OSError as error:
            host = f"[{address}]" if ":" in address else address
            raise OSError(error.errno, f"HTTP cannot listen at {host}:{port}: {error.strerror or error}") from error
        self._server.set_app(self._serve)
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
        status, headers, body = self._answer(environ)
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", [("Allow", "GET, HEAD")], b""
        if path == "/metrics":
            return self._exposed(environ)
        if path not in self._answers:
            return "404 Not Found", [("Content-Type", "text/plain")], b"/metrics, /healthz, /readyz\n"
        well, what = self._answers[path]()
        status = "200 OK" if well else "503 Service Unavailable"
        return status, [("Content-Type", "application/json")], json.dumps(what).encode() + b"\n"

    def _exposed(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], object]:
            said.append((status, headers))
            return lambda _: None

        body = b"".join(self._metrics({**environ, "REQUEST_METHOD": "GET"}, start))
        ((status, headers),) = said
        return status, headers, body


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        """Connections with the moment of their beginning, the oldest first; an infinite one is closed already, and its thread about to end."""
        self._slow, self._quiet_until, self._gathering = 0, 0.0, False
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # Such as no file left: who waits goes on waiting, and the loop would turn without end.
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= 2 * MOST_CONNECTIONS:
                full = True
            else:
                full = False
                waiting = [each for each, began in self._open.items() if began != float("inf")]
                self._break_off(waiting[: len(waiting) + 1 - MOST_CONNECTIONS])
                self._open[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: ends what takes too long, however it passes its time."""
        super().service_actions()
        now = time.monotonic()
        with self._lock:
            self._break_off([each for each, began in self._open.items() if now - began > LONGEST_S])
            slow = self._slow
            if not slow or now < self._quiet_until:
                return
            if not self._gathering:
                # They come in numbers: a line that tells of the first alone would be the only one for a minute.
                self._gathering, self._quiet_until = True, now + GATHER_S
                return
            self._gathering = False
            self._slow, self._quiet_until = 0, now + QUIET_S
        log.warning("connections of HTTP were closed: too slow, or too many", extra={"connections": slow})

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            self._break_off(list(self._open))

    def _break_off(self, these: list[socket.socket]) -> None:
        """Wakes their threads, which close them; with the lock."""
        for each in these:
            self._slow += 1
            self._open[each] = float("inf")
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.failed(sys.exc_info()[1])

    def failed(self, error: BaseException | None) -> None:
        """A connection that came to no good end."""
        if isinstance(error, TimeoutError):
            with self._lock:
                self._slow += 1
        elif not isinstance(error, OSError):
            log.error("a question over HTTP failed", exc_info=error)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Answering(ServerHandler):
    """Its word about failures is a line of the log, as all others are."""

    request_handler: _Handler

    def log_exception(self, exc_info: Any) -> None:
        self.request_handler.server.failed(exc_info[1])


class _Handler(WSGIRequestHandler):
    server: _Server
    timeout = LONGEST_S

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif self.parse_request():
            asked: Any = self.rfile
            answer: Any = self.wfile
            answering = _Answering(asked, answer, sys.stderr, self.get_environ(), multithread=True)
            answering.request_handler = self
            application = self.server.get_app()
            assert application is not None
            answering.run(application)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
