"""Whoever reaches the controller's port can say that he is a switch: what that may leave behind, and who he may be."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from tests.control.test_openflow_session import message, port
from timebound.control.controller.configuration import read
from timebound.control.controller.run import running
from timebound.control.openflow import network
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.openflow.network import Network
from timebound.control.quiet import QUIET_S


class Fake:
    """Says that it is a switch with two ports and nothing in it, and does whatever it is told."""

    def __init__(self, at: int, datapath: int) -> None:
        self.datapath, self.ended = datapath, False
        self.is_mute = False
        """It answers nothing, as a connection whose other end has lost its power."""
        self._socket = socket.create_connection(("127.0.0.1", at), timeout=20)
        self._socket.sendall(message(ofp.OFPT_HELLO))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while more := self._socket.recv(65536):
                buffer += more
                while len(buffer) >= 8 and len(buffer) >= (length := struct.unpack_from("!H", buffer, 2)[0]):
                    self._answer(buffer[:length])
                    buffer = buffer[length:]
        self.ended = True

    def _answer(self, request: bytes) -> None:
        if self.is_mute:
            return
        kind, (xid,) = request[1], struct.unpack_from("!I", request, 4)
        if kind == ofp.OFPT_FEATURES_REQUEST:
            body = struct.pack("!QIBB2xII", self.datapath, 0, 254, 0, 0, 0)
            self._socket.sendall(message(ofp.OFPT_FEATURES_REPLY, body, xid))
        elif kind == ofp.OFPT_MULTIPART_REQUEST:
            (asked,) = struct.unpack_from("!H", request, 8)
            body = port(1, "a", 0) + port(2, "b", 0) if asked == ofp.OFPMP_PORT_DESC else b""
            self._socket.sendall(message(ofp.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", asked, 0) + body, xid))
        elif kind == ofp.OFPT_BARRIER_REQUEST:
            self._socket.sendall(message(ofp.OFPT_BARRIER_REPLY, b"", xid))
        elif kind == ofp.OFPT_ECHO_REQUEST:
            self._socket.sendall(message(ofp.OFPT_ECHO_REPLY, request[8:], xid))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def enforcer(tmp_path: Path) -> Iterator[OpenFlowEnforcer]:
    file = tmp_path / "controller.yaml"
    switches = "[{name: s7, datapath: 7}]"
    file.write_text(f"store: {{url: 'file:srt.db'}}\nopenflow: {{port: 0, switches: {switches}}}\nhttp: {{port: 0}}\n")
    with running(read(file)) as found:
        assert isinstance(found.service.enforcer, OpenFlowEnforcer)
        forget_after(found.service.enforcer, 600_000_000)
        yield found.service.enforcer


def until(holds: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def known(enforcer: OpenFlowEnforcer) -> dict[int, bool]:
    return {switch.datapath: switch.connected for switch in enforcer.topology().switches.values()}


def test_invented_switches_are_forgotten_and_those_of_the_site_are_not(enforcer: OpenFlowEnforcer) -> None:
    fakes = [Fake(enforcer.port, datapath) for datapath in (7, 1001, 1002)]
    assert until(lambda: known(enforcer) == {7: True, 1001: True, 1002: True})
    for fake in fakes:
        fake.close()
    assert until(lambda: known(enforcer) == {7: False})
    assert set(ports(enforcer)) == {7}
    assert until(lambda: set(boxes(enforcer)) == {7})
    # It comes back as what it is.
    again = Fake(enforcer.port, 1001)
    assert until(lambda: known(enforcer) == {7: False, 1001: True})
    again.close()


def test_of_many_invented_switches_few_are_remembered_for_a_while(
    enforcer: OpenFlowEnforcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MOST_AWAY", 2)
    forget_after(enforcer, 3_600_000_000_000)
    for datapath in range(2001, 2011):
        fake = Fake(enforcer.port, datapath)
        assert until(lambda datapath=datapath: known(enforcer).get(datapath) is True)  # type: ignore[misc]
        fake.close()
    assert until(lambda: set(known(enforcer)) == {2009, 2010})


def test_a_switch_keeps_its_place_from_another_one_with_its_datapath_id(
    enforcer: OpenFlowEnforcer, caplog: pytest.LogCaptureFixture
) -> None:
    assert QUIET_S >= 60
    first = Fake(enforcer.port, 42)
    assert until(lambda: known(enforcer) == {42: True})
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            twin = Fake(enforcer.port, 42)
            assert until(lambda twin=twin: twin.ended)  # type: ignore[misc]
    assert not first.ended and known(enforcer) == {42: True}
    (line,) = [record for record in caplog.records if "turned away" in record.message]
    assert "000000000000002a from " in line.last and "connected from " in line.last  # type: ignore[attr-defined]
    assert not [record for record in caplog.records if "is gone" in record.message]
    first.close()


def test_a_switch_that_does_not_answer_any_more_gives_its_place_to_a_new_connection(
    enforcer: OpenFlowEnforcer,
) -> None:
    old = Fake(enforcer.port, 42)
    assert until(lambda: known(enforcer) == {42: True} and boxes(enforcer)[42].ready.is_set())
    time.sleep(0.1)
    old.is_mute = True
    new = Fake(enforcer.port, 42)
    assert until(lambda: old.ended, 5) and not new.ended
    assert until(lambda: boxes(enforcer)[42].ready.is_set())
    time.sleep(0.3)
    assert not new.ended and known(enforcer) == {42: True}
    new.close()


def forget_after(enforcer: OpenFlowEnforcer, forget_ns: int) -> None:
    found = owner(enforcer)
    found.settings = replace(found.settings, times=replace(found.settings.times, forget_ns=forget_ns))


def owner(enforcer: OpenFlowEnforcer) -> Network:
    found = enforcer._reservations._network
    assert isinstance(found, Network)
    return found


def boxes(enforcer: OpenFlowEnforcer) -> dict[int, network.SwitchBox]:
    return owner(enforcer).boxes


def ports(enforcer: OpenFlowEnforcer) -> list[int]:
    return [port.switch for port in enforcer.topology().ports]
