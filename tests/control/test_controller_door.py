"""Who connects to a controller and says nothing, or little: others are let in all the same, and the log does not grow with it."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from timebound.control.controller import door
from timebound.control.controller.configuration import read
from timebound.control.controller.run import Running, running
from timebound.control.openflow import network
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.quiet import Quiet, Sparing, quieten

HELLO = bytes([4, 0, 0, 8, 0, 0, 0, 1])
SITE = "store: {url: 'file:srt.db'}\nopenflow: {port: 0}\nhttp: {port: 0}\n"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Running]:
    file = tmp_path / "controller.yaml"
    file.write_text(SITE)
    with running(read(file)) as found:
        thread = threading.Thread(target=found.server.run, kwargs={"sockets": [found.socket]}, daemon=True)
        thread.start()
        yield found
        found.server.should_exit = True
        thread.join(20)


def port_of(found: Running) -> int:
    return int(found.socket.getsockname()[1])


def answered(found: Running) -> str:
    with urllib.request.urlopen(f"{found.url}/healthz", timeout=10) as answer:
        return str(json.loads(answer.read()))


def ended(connection: socket.socket, within_s: float) -> bool:
    end = time.monotonic() + within_s
    try:
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(4096):
                return True
    except ConnectionError:
        return True
    except TimeoutError:
        pass
    return False


def connect(port: int, count: int, first: bytes) -> list[socket.socket]:
    made = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        with contextlib.suppress(ConnectionError):
            connection.sendall(first)
        made.append(connection)
    return made


def test_half_requests_keep_nobody_out(controller: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        half = connect(port_of(controller), 320, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert answered(controller)
        # As many as may be there, and one more has its turn by the end of the one that waits for the longest.
        assert sum(ended(each, 0.01) for each in half[:200]) == 200
        assert len(controller.server.server_state.connections) <= door.MOST_CONNECTIONS
        assert answered(controller)
    lines = [record for record in caplog.records if "connections of HTTP were closed" in record.message]
    assert len(lines) <= 1
    for each in half:
        each.close()


def test_a_request_that_does_not_end_is_ended(controller: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LONGEST_S", 0.5)
    head = b"POST /api/v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    for first in (b"", b"GET / HT", head):
        (connection,) = connect(port_of(controller), 1, first)
        end = time.monotonic() + 20
        # A byte now and then does not help.
        while time.monotonic() < end:
            try:
                connection.sendall(b"x")
                connection.settimeout(0.1)
                if not connection.recv(4096):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() < end, first
        connection.close()
    # A stream of events waits for nothing: it stays, whatever it sends.
    (stream,) = connect(port_of(controller), 1, b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert not ended(stream, 2.0)
    stream.close()


def test_connections_without_a_handshake_keep_no_switch_out(
    controller: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MOST_STRANGERS_OF_ONE", 16)
    assert isinstance(controller.service.enforcer, OpenFlowEnforcer)
    port = controller.service.enforcer.port
    silent = connect(port, 60, b"")
    assert sum(ended(each, 0.5) for each in silent[:40]) == 40
    (switch,) = connect(port, 1, HELLO)
    switch.settimeout(10)
    found = b""
    while len(found) < 16 and (more := switch.recv(4096)):
        found += more
    # Its hello, and then what it asks every switch first.
    assert (found[1], found[9]) == (0, 5)
    for each in [*silent, switch]:
        each.close()


def test_a_handshake_that_does_not_end_is_ended(controller: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HANDSHAKE_S", 0.3)
    assert isinstance(controller.service.enforcer, OpenFlowEnforcer)
    (connection,) = connect(controller.service.enforcer.port, 1, HELLO)
    end = time.monotonic() + 30
    echo = bytes([4, 2, 0, 8, 0, 0, 0, 2])
    while time.monotonic() < end:
        try:
            connection.sendall(echo)
            connection.settimeout(0.1)
            if not connection.recv(4096):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    assert time.monotonic() < end


def test_without_files_the_log_has_a_line_a_minute_and_the_service_goes_on() -> None:
    """In a process of its own, whose files are used up."""
    script = f"""
import asyncio, logging, os, resource, socket, sys
from timebound.control.quiet import quieten
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
async def work():
    loop = asyncio.get_running_loop()
    quieten(loop, logging.getLogger("here"))
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog={door.BACKLOG})
    port = server.sockets[0].getsockname()[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    mine = []
    try:
        while True:
            mine.append(socket.socket())
    except OSError:
        pass
    mine.pop().close()
    for one in mine[-20:]:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    await asyncio.sleep(3)
    print("done", flush=True)
    os._exit(0)
asyncio.run(work())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr
    assert done.stderr.count("no connection can be taken in") == 1 and len(done.stderr) < 500, done.stderr[:2000]


def test_a_quiet_line_counts(caplog: pytest.LogCaptureFixture) -> None:
    quiet = Quiet(logging.getLogger("here"), "again")
    with caplog.at_level(logging.INFO):
        for second in (0.0, 1.0, 59.0, 60.0, 61.0):
            quiet.count(second, f"at {second}")
    assert [(record.__dict__["times"], record.__dict__["last"]) for record in caplog.records] == [
        (1, "at 0.0"),
        (3, "at 60.0"),
    ]
    sparing = Sparing("often")
    records = [logging.LogRecord("a", 30, "", 1, message, (), None) for message in ("often", "often", "other", "other")]
    assert [sparing.filter(record) for record in records] == [True, False, True, True]


def test_other_errors_of_a_loop_are_said_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    loop = asyncio.new_event_loop()
    quieten(loop, logging.getLogger("here"))
    for number in (errno.EMFILE, errno.EMFILE):
        loop.call_exception_handler({"message": "accept", "exception": OSError(number, "full")})
    loop.call_exception_handler({"message": "a task failed", "exception": ValueError("x")})
    loop.close()
    assert [record.message.split("\n")[0] for record in caplog.records] == [
        "no connection can be taken in",
        "a task failed",
    ]
