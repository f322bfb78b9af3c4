"""The manager's HTTP: who is slow, or says nothing, costs little and keeps nobody out."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from timebound.control import web


def well() -> tuple[bool, dict[str, object]]:
    return True, {"well": True}


@pytest.fixture
def made() -> Iterator[web.Web]:
    metrics = CollectorRegistry()
    Gauge("some_figure", "A figure", registry=metrics).set(7)
    found = web.Web("127.0.0.1", 0, metrics, well, well)
    yield found
    found.close()


def ask(port: int, path: str = "/healthz", method: str = "GET") -> tuple[int, str | None, bytes]:
    """Status, Content-Length, and what came until the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        stream.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = http.client.HTTPResponse(stream, method="GET")
        answer.begin()
        # Not by the length: a body where there is to be none would be missed.
        rest = b"" if answer.fp is None else answer.fp.read()
        return answer.status, answer.getheader("Content-Length"), rest


def until(true: Callable[[], bool], limit_s: float = 10.0) -> bool:
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def serving() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def half_open(port: int, number: int) -> list[socket.socket]:
    found = []
    for _ in range(number):
        stream = socket.create_connection(("127.0.0.1", port), timeout=10)
        stream.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        found.append(stream)
    return found


def test_half_open_connections_are_bounded_and_keep_nobody_out(
    made: web.Web, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = serving()
    streams = half_open(made.port, 300)
    try:
        assert ask(made.port)[0] == 200
        assert serving() - before <= 2 * web.MOST_CONNECTIONS
        assert until(lambda: serving() - before <= web.MOST_CONNECTIONS), "those that were closed are gone"
        assert until(lambda: bool(caplog.records))
        assert ask(made.port)[0] == 200
    finally:
        for stream in streams:
            stream.close()
    time.sleep(1.2)
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (line.name, line.exc_info) == ("timebound.web", None)
    assert line.__dict__["connections"] > 100, "all of them, not the first alone"
    assert capfd.readouterr().err == "", "nothing but the log"


@pytest.mark.parametrize("drip", (b"", b"x"))
def test_a_connection_ends_in_time_whatever_comes(
    made: web.Web,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    drip: bytes,
) -> None:
    """A byte now and then had kept a connection for ever, and silence ended in a traceback."""
    monkeypatch.setattr(web, "LONGEST_S", 0.5)
    monkeypatch.setattr(web._Handler, "timeout", 0.5)
    (stream,) = half_open(made.port, 1)
    with stream:
        stream.settimeout(0.1)
        began, ended = time.monotonic(), False
        while not ended and time.monotonic() - began < 8:
            try:
                stream.sendall(drip)
                ended = not stream.recv(1000)
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
    assert until(lambda: bool(caplog.records))
    assert [record.exc_info for record in caplog.records if record.levelno >= logging.WARNING] == [None]
    assert capfd.readouterr().err == ""


def test_who_does_not_read_the_answer_writes_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.3)
    large = {"all": "x" * 30_000_000}
    made = web.Web("127.0.0.1", 0, CollectorRegistry(), lambda: (True, large), well)
    try:
        with socket.create_connection(("127.0.0.1", made.port)) as stream:
            stream.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            before = time.monotonic()
            assert until(lambda: serving() > 0)
            assert until(lambda: serving() == 0) and time.monotonic() - before < 9
    finally:
        made.close()
    assert capfd.readouterr().err == ""


def test_a_defect_is_a_line_of_the_log(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> tuple[bool, dict[str, object]]:
        raise KeyError("what it wanted")

    made = web.Web("127.0.0.1", 0, CollectorRegistry(), broken, well)
    try:
        assert ask(made.port)[0] == 500
        assert ask(made.port, "/readyz")[0] == 200
    finally:
        made.close()
    (line,) = caplog.records
    assert line.name == "timebound.web" and line.exc_info is not None and isinstance(line.exc_info[1], KeyError)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ("/metrics", "/healthz", "/readyz", "/elsewhere"))
def test_head_is_get_without_a_body(made: web.Web, path: str) -> None:
    status, length, body = ask(made.port, path)
    assert length == str(len(body)) and body
    assert ask(made.port, path, "HEAD") == (status, length, b"")
    assert ask(made.port, path, "POST")[0] == 405


def test_a_taken_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"HTTP cannot listen at 127.0.0.1:{port}: Address already in use"):
            web.Web("127.0.0.1", port, CollectorRegistry(), well, well)
