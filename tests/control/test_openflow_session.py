"""A connection to a switch: the handshake, answers, refusals, and whatever else a switch may send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from timebound.control.controller.configuration import read
from timebound.control.controller.run import running
from timebound.control.openflow import codec, forwarding
from timebound.control.openflow.channels import flow_match
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.openflow.frames import TCP, UDP, FiveTuple, Frame
from timebound.control.openflow.learned import SeenPort
from timebound.control.openflow.lengths import LengthError, check_answer
from timebound.control.openflow.network import Network
from timebound.control.openflow.rules import Bucket, Group, Meter, Output, Rule, SetField, SetQueue, ToGroup
from timebound.control.openflow.session import Session, SwitchError, hello_versions
from timebound.control.openflow.settings import Settings, Times
from timebound.control.topology import PortId, Topology

RULE = Rule(
    50000,
    flow_match(FiveTuple(UDP, "10.0.0.1", 5000, "10.0.0.2", 6000), 3, 40),
    (SetField("ip_dscp", 40), SetQueue(5), ToGroup(9), Output(4)),
    0x7462030000000001,
    7,
)
METER = Meter(7, 1000, 24)
GROUP = Group(9, (Bucket(4, (SetQueue(5), Output(4))), Bucket(6, (Output(6),))))


class Transport(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Heard:
    """Notes what a session tells."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def opened(self, session: Session) -> None:
        pass

    def closed(self, session: Session) -> None:
        self.said.append(("closed",))

    def switch_up(self, session: Session) -> None:
        self.said.append(("up", session.datapath, [port.name for port in session.ports]))

    def switch_down(self, session: Session, reason: str) -> None:
        self.said.append(("down", reason))

    def port_status(self, session: Session, port: SeenPort, *, gone: bool) -> None:
        self.said.append(("port", port.name, port.up, gone))

    def packet_in(self, session: Session, in_port: int, cookie: int, data: bytes) -> None:
        self.said.append(("frame", in_port, cookie, data))

    def unreadable(self, session: Session) -> None:
        self.said.append(("unreadable",))


def message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


def port(number: int, name: str, state: int = 4) -> bytes:
    return struct.pack("!I4x6s2x16s8I", number, b"\x0e" * 6, name.encode(), 0, state, 0, 0, 0, 0, 10_000_000, 0)


FEATURES = message(ofp.OFPT_FEATURES_REPLY, struct.pack("!QIBB2xII", 5, 0, 254, 0, 0, 0))


def answer(kind: int, body: bytes, xid: int = 0) -> bytes:
    return message(ofp.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", kind, 0) + body, xid)


def serialized(made: Any) -> bytes:
    made.set_xid(1)
    made.serialize()
    return bytes(made.buf)


def flow_stats() -> bytes:
    """As a switch would describe `RULE`: what a flow mod says, behind other counters."""
    modification = serialized(codec.flow_mod(Session(Heard(), 1).switch, RULE))
    rest = modification[48:]
    head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(rest), 0, 1, 2, RULE.priority, 0, 0, 0, RULE.cookie, 3, 4)
    return head + rest


def group_stats() -> bytes:
    buckets = serialized(codec.group_mod(Session(Heard(), 1).switch, GROUP, ofp.OFPGC_ADD))[16:]
    return struct.pack("!HBxI", 8 + len(buckets), ofp.OFPGT_FF, GROUP.id) + buckets


def meter_stats() -> bytes:
    bands = serialized(codec.meter_mod(Session(Heard(), 1).switch, METER, ofp.OFPMC_ADD))[16:]
    return struct.pack("!HHI", 8 + len(bands), ofp.OFPMF_KBPS | ofp.OFPMF_BURST, METER.id) + bands


def connected() -> tuple[Session, Transport, Heard]:
    heard = Heard()
    session, transport = Session(heard, 0.2), Transport()
    session.connection_made(transport)
    session.data_received(message(ofp.OFPT_HELLO) + FEATURES)
    asked = xid_of(transport, ofp.OFPT_MULTIPART_REQUEST)
    ports = port(1, "s1-s2") + port(2, "s1-h1", ofp.OFPPS_LINK_DOWN) + port(ofp.OFPP_LOCAL, "s1")
    session.data_received(answer(ofp.OFPMP_PORT_DESC, ports, asked))
    return session, transport, heard


def xid_of(transport: Transport, kind: int) -> int:
    """Of the last message of a kind that was sent."""
    data, found = bytes(transport.sent), 0
    while data:
        _version, this, length, xid = struct.unpack_from("!BBHI", data)
        found = xid if this == kind else found
        data = data[length:]
    return found


async def step(work: Any, *received: bytes, session: Session) -> Any:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    for data in received:
        session.data_received(data)
    return await task


def test_a_switch_is_up_when_its_ports_are_known() -> None:
    async def work() -> None:
        session, _transport, heard = connected()
        assert heard.said == [("up", 5, ["s1-s2", "s1-h1"])]
        assert [(p.up, p.speed_bps) for p in session.ports] == [(True, 10_000_000_000), (False, 10_000_000_000)]
        session.data_received(message(ofp.OFPT_PORT_STATUS, b"\x02" + bytes(7) + port(1, "s1-s2", ofp.OFPPS_LINK_DOWN)))
        assert heard.said[-1] == ("port", "s1-s2", False, False)
        session.connection_lost(None)
        assert [said[0] for said in heard.said[-2:]] == ["down", "closed"]

    asyncio.run(work())


def test_rules_meters_and_groups_are_read_as_they_were_written() -> None:
    async def work() -> None:
        session, transport, _heard = connected()
        for request, kind, stats, decode, wanted in (
            (parser.OFPFlowStatsRequest, ofp.OFPMP_FLOW, flow_stats(), codec.rule_from, RULE),
            (parser.OFPMeterConfigStatsRequest, ofp.OFPMP_METER_CONFIG, meter_stats(), codec.meter_from, METER),
            (parser.OFPGroupDescStatsRequest, ofp.OFPMP_GROUP_DESC, group_stats(), codec.group_from, GROUP),
        ):
            task = asyncio.ensure_future(session.ask(request(session.switch)))
            await asyncio.sleep(0)
            session.data_received(answer(kind, stats + stats, xid_of(transport, ofp.OFPT_MULTIPART_REQUEST)))
            assert [decode(entry) for entry in await task] == [wanted, wanted]

    asyncio.run(work())


@given(
    st.sampled_from([TCP, UDP]), st.ip_addresses(v=4), st.integers(0, 65535), st.integers(1, 2**32 - 1), st.booleans()
)
def test_a_match_is_encoded_as_os_ken_does(
    protocol: int, address: Any, number: int, in_port: int, marked: bool
) -> None:
    flow = FiveTuple(protocol, str(address), number, "10.0.0.2", 65535 - number)
    fields = flow_match(flow, in_port, 40 if marked else None)
    theirs, ours = bytearray(b"head"), bytearray(b"head")
    length = parser.OFPMatch(**dict(fields)).serialize(theirs, 4)
    assert codec._Match(fields).serialize(ours, 4) == length
    assert ours == theirs


def test_fixed_rules_are_encoded_as_os_ken_does() -> None:
    everything = [*forwarding.fixed(7, 500).rules.values(), *forwarding.host_rules("0a:00:00:00:00:01", "10.0.0.1", 3)]
    for rule in everything:
        theirs, ours = bytearray(), bytearray()
        parser.OFPMatch(**dict(rule.match)).serialize(theirs, 0)
        codec._Match(rule.match).serialize(ours, 0)
        assert ours == theirs


def test_what_a_switch_refuses_belongs_to_the_barrier_that_follows() -> None:
    async def work() -> None:
        session, transport, _heard = connected()
        task = asyncio.ensure_future(session.confirmed([codec.flow_mod(session.switch, RULE)]))
        await asyncio.sleep(0)
        wrong = xid_of(transport, ofp.OFPT_FLOW_MOD)
        refusal = struct.pack("!HH", ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL) + bytes(64)
        session.data_received(message(ofp.OFPT_ERROR, refusal, wrong))
        session.data_received(message(ofp.OFPT_BARRIER_REPLY, xid=xid_of(transport, ofp.OFPT_BARRIER_REQUEST)))
        (error,) = await task
        assert "TABLE_FULL" in error

    asyncio.run(work())


def test_a_switch_that_does_not_answer_is_let_go() -> None:
    async def work() -> None:
        session, transport, _heard = connected()
        with pytest.raises(SwitchError, match=r"no answer within 0\.2 s"):
            await session.confirmed([])
        assert transport.closed
        with pytest.raises(SwitchError, match="not connected"):
            await session.confirmed([])

    asyncio.run(work())


class Reserves:
    """Keeps no channels."""

    def changed(self, topology: Topology) -> None:
        pass

    def switch_ready(self, datapath: int) -> None:
        pass

    def switch_lost(self, datapath: int) -> None:
        pass

    def probe_caught(self, frame: Frame, at: PortId, *, astray: bool) -> bool:
        return False


class Server:
    """In the place of the one that listens."""

    def __init__(self) -> None:
        self.sockets = [socket.create_server(("127.0.0.1", 0))]

    def close(self) -> None:
        self.sockets[0].close()


def test_a_connection_is_kept_that_was_accepted_just_before_the_silent_ones_are_looked_for() -> None:
    """It had counted as silent since the beginning of time, so nobody asked whether it is alive, and the controller's end left it open."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        accepted: list[Callable[[], Session]] = []

        async def create_server(accept: Callable[[], Session], *_: object, **__: object) -> Server:
            accepted.append(accept)
            return Server()

        loop.create_server = create_server  # type: ignore[method-assign, assignment]
        times = Times(echo_period_ns=0)
        network = Network(Settings(port=0, times=times), Reserves(), lambda rule: True, lambda: None)
        await network.start()
        session, transport = accepted[0](), Transport()
        await asyncio.sleep(0.2)
        session.connection_made(transport)
        await network.stop()
        assert transport.closed

    asyncio.run(work())


def test_versions_of_a_hello() -> None:
    bitmap = struct.pack("!HHI", 1, 8, 1 << 4 | 1 << 1)
    assert hello_versions(6, message(0, bitmap)) == {1, 4}
    assert hello_versions(4, message(0)) == {1, 2, 3, 4}
    assert hello_versions(4, message(0, bytes(8) + bitmap)) == {1, 4}
    assert hello_versions(1, message(0, b"\xff" * 5)) == {1}


SAMPLES = [
    (ofp.OFPMP_FLOW, flow_stats()),
    (ofp.OFPMP_GROUP_DESC, group_stats()),
    (ofp.OFPMP_METER_CONFIG, meter_stats()),
    (ofp.OFPMP_PORT_DESC, port(1, "a")),
    (ofp.OFPMP_METER, struct.pack("!IH6xIQQII", 7, 40, 1, 2, 3, 4, 5)),
]


@settings(max_examples=400, deadline=2000)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4), st.data())
def test_no_answer_keeps_the_controller_busy_for_ever(
    sample: tuple[int, bytes], changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Bytes of real answers are changed and cut off: the answer is read, or the switch is let go."""

    async def work() -> None:
        session, transport, _heard = connected()
        body = bytearray(sample[1] * 2)
        for at, value in changes:
            body[at % len(body)] = value
        body = body[: data.draw(st.integers(0, len(body)))]
        session.data_received(answer(sample[0], bytes(body), 77) + message(ofp.OFPT_ECHO_REQUEST, b"?"))
        assert transport.closed or b"?" in transport.sent

    asyncio.run(work())


@settings(max_examples=300, deadline=2000)
@given(st.binary(max_size=200))
def test_no_stream_of_bytes_is_too_strange(data: bytes) -> None:
    async def work() -> None:
        for kind in (b"", bytes([4, ofp.OFPT_PACKET_IN]), bytes([4, ofp.OFPT_PORT_STATUS]), bytes([4, ofp.OFPT_ERROR])):
            session, _transport, _heard = connected()
            session.data_received(kind + (struct.pack("!HI", 8 + len(data), 1) if kind else b"") + data)

    asyncio.run(work())


def test_a_length_of_zero_is_refused_before_it_is_walked_along() -> None:
    for kind, stats in SAMPLES[:3]:
        with pytest.raises(LengthError):
            check_answer(answer(kind, bytes(2) + stats[2:]))
        check_answer(answer(kind, stats))


def test_a_malformed_frame_of_a_switch_is_one_line_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """os-ken had logged a traceback, and all bytes of the message."""

    async def work() -> Session:
        session, transport, heard = connected()
        session.data_received(message(ofp.OFPT_PACKET_IN, b"\0" * 5))
        assert transport.closed and heard.said[-1] == ("unreadable",)
        return session

    with caplog.at_level("DEBUG"):
        reason = asyncio.run(work()).reason
    assert reason.startswith("a message of type 10 and 13 bytes that cannot be read: ") and "\n" not in reason
    assert not [record for record in caplog.records if record.exc_info or record.name.startswith("os_ken")]


def test_malformed_messages_of_switches_are_in_the_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("store: {url: 'file:srt.db'}\nopenflow: {port: 0}\nhttp: {port: 0}\n")
    with running(read(file)) as found:
        assert isinstance(found.service.enforcer, OpenFlowEnforcer)
        before = found.service.metrics.text().decode()
        assert "timebound_controller_openflow_unreadable_total 0.0" in before
        with socket.create_connection(("127.0.0.1", found.service.enforcer.port), timeout=10) as switch:
            switch.sendall(message(ofp.OFPT_HELLO) + message(ofp.OFPT_PACKET_IN, b"\0" * 5))
            with contextlib.suppress(ConnectionResetError):
                while switch.recv(4096):
                    pass
        assert "timebound_controller_openflow_unreadable_total 1.0" in found.service.metrics.text().decode()
    assert "Traceback" not in caplog.text
