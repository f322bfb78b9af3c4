"""One OpenFlow 1.3 connection of a switch, on an asyncio loop. Bytes are coded by os-ken; its hub, threads and application manager are not used:

its native hub cannot end a connection's sending thread nor a listener, keeps one controller per process, and lets two threads use one TLS
object at a time. An asyncio protocol needs neither threads nor queues, and is closed when it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from timebound.control.openflow.codec import PORT_DOWN_STATES, Message
from timebound.control.openflow.learned import SeenPort
from timebound.control.openflow.lengths import check_answer
from timebound.control.quiet import Quiet
from timebound.control.topology import PortId

log = logging.getLogger(__name__)

_LEFT = Quiet(log, "openflow: left before the handshake was complete", logging.INFO)
VERSION = ofp.OFP_VERSION
_HEADER_SIZE = 8
_MOST_UNSENT = 16 << 20
"""A switch that reads so little that more than this waits for it is of no use."""


class SwitchError(Exception):
    """A switch refused something, or did not answer."""


class Events(Protocol):
    """Who is told of what a switch says unasked."""

    def opened(self, session: Session) -> None:
        """A connection is there; nothing was said yet."""

    def closed(self, session: Session) -> None:
        """The connection is gone, whatever was said on it; after `switch_down`, if that is said."""

    def switch_up(self, session: Session) -> None:
        """The handshake is complete."""

    def switch_down(self, session: Session, reason: str) -> None:
        """The connection is gone, after `switch_up`."""

    def port_status(self, session: Session, port: SeenPort, *, gone: bool) -> None:
        """A port is new, has changed, or was taken out."""

    def packet_in(self, session: Session, in_port: int, cookie: int, data: bytes) -> None:
        """A rule sent a frame to the controller."""

    def unreadable(self, session: Session) -> None:
        """A message is malformed; the connection ends with it."""


@dataclass(slots=True)
class _Batch:
    """Messages that a barrier follows."""

    xids: frozenset[int]
    done: asyncio.Future[list[str]]
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Question:
    done: asyncio.Future[list[Any]]
    body: list[Any] = field(default_factory=list)


class Session(asyncio.Protocol):
    """Messages to a switch and what it answers. All methods belong to the loop's thread."""

    def __init__(self, events: Events, confirm_s: float) -> None:
        """`confirm_s`: a switch answers by then."""
        self._events = events
        self._confirm_s = confirm_s
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._xid = 0
        self._batches: dict[int, _Batch] = {}
        self._questions: dict[int, _Question] = {}
        self._greeted = False
        self._ports_asked: int | None = None
        self._handlers: dict[int, Callable[[Message], None]] = {
            ofp.OFPT_HELLO: self._hello,
            ofp.OFPT_ERROR: self._error,
            ofp.OFPT_ECHO_REQUEST: self._echo,
            ofp.OFPT_FEATURES_REPLY: self._features,
            ofp.OFPT_MULTIPART_REPLY: self._multipart,
            ofp.OFPT_BARRIER_REPLY: self._barrier,
            ofp.OFPT_PORT_STATUS: self._port_status,
            ofp.OFPT_PACKET_IN: self._packet_in,
        }
        self.switch = ProtocolDesc(version=VERSION)
        """What os-ken's messages want to know."""
        self.datapath = 0
        self.ports: list[SeenPort] = []
        """As of the handshake."""
        self.peer = ""
        self.up = False
        self.host = ""
        """The address of `peer`."""
        self.opened = 0.0
        """Loop time at which the connection was there."""
        self.heard = 0.0
        """Loop time at which the switch said something last."""
        self.reason = "the switch closed the connection"

    # Transport ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Says hello first, as both sides do."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        self.peer, self.host = str(name), str(name[0]) if isinstance(name, tuple) else str(name)
        self.opened = self.heard = asyncio.get_running_loop().time()
        self._events.opened(self)
        self.send([parser.OFPHello(self.switch, [parser.OFPHelloElemVersionBitmap([VERSION])])])

    def data_received(self, data: bytes) -> None:
        """Takes whole messages out of what has come so far."""
        self.heard = asyncio.get_running_loop().time()
        self._buffer += data
        offset = 0
        while len(self._buffer) - offset >= _HEADER_SIZE:
            version, kind, length, xid = ofproto_parser.header(memoryview(self._buffer)[offset : offset + _HEADER_SIZE])
            if length < _HEADER_SIZE:
                self.close(f"a message of {length} bytes")
                return
            if not self._greeted and kind not in (ofp.OFPT_HELLO, ofp.OFPT_ERROR):
                self.close("it did not say hello first")
                return
            if len(self._buffer) - offset < length:
                break
            self._message(version, kind, length, xid, bytes(self._buffer[offset : offset + length]))
            offset += length
            if self._transport is None or self._transport.is_closing():
                return
        del self._buffer[:offset]

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody will answer any more."""
        reason = str(error) if error else self.reason
        self._transport = None
        for future in [batch.done for batch in self._batches.values()] + [q.done for q in self._questions.values()]:
            if not future.done():
                _fail(future, f"the connection is gone: {reason}")
        self._batches.clear()
        self._questions.clear()
        if self.up:
            self.up = False
            self._events.switch_down(self, reason)
        else:
            _LEFT.count(asyncio.get_running_loop().time(), f"{self.peer}: {reason}")
        self._events.closed(self)

    @property
    def is_closing(self) -> bool:
        """Has it ended, or is it about to?"""
        return self._transport is None or self._transport.is_closing()

    def close(self, reason: str) -> None:
        """Ends the connection. Rules stay in the switch."""
        self.reason = reason
        if self._transport is not None:
            # Not `close`: a switch that reads nothing would keep the connection open.
            self._transport.abort()

    # Sending -----------------------------------------------------------------------------------------------------------------

    def send(self, messages: Iterable[Message]) -> list[int]:
        """Sends, and returns the transaction ids."""
        xids: list[int] = []
        parts: list[bytes] = []
        for message in messages:
            if message.xid is None:
                self._xid = self._xid % 0x7FFFFFFF + 1
                message.set_xid(self._xid)
            message.serialize()
            xids.append(message.xid)
            parts.append(bytes(message.buf))
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(parts))
            if self._transport.get_write_buffer_size() > _MOST_UNSENT:
                self.close("the switch does not read")
        return xids

    async def confirmed(self, messages: Sequence[Message]) -> list[str]:
        """Sends, waits for a barrier behind it, and returns what the switch refused. Raises `SwitchError` where it does not answer."""
        self._check()
        xids = self.send(messages)
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        (barrier,) = self.send([parser.OFPBarrierRequest(self.switch)])
        self._batches[barrier] = _Batch(frozenset(xids), done)
        return await self._answer(done, lambda: self._batches.pop(barrier, None))

    async def ask(self, request: Message) -> list[Any]:
        """The whole answer to a multipart request. Raises `SwitchError` where it is refused or does not come."""
        self._check()
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        (xid,) = self.send([request])
        self._questions[xid] = _Question(done)
        return await self._answer(done, lambda: self._questions.pop(xid, None))

    def _check(self) -> None:
        if self._transport is None or self._transport.is_closing():
            raise SwitchError("the switch is not connected")

    async def _answer(self, done: asyncio.Future[list[Any]], forget: Callable[[], object]) -> list[Any]:
        try:
            return await asyncio.wait_for(done, self._confirm_s)
        except TimeoutError:
            # What it has done of what it was told is unknown now; it will be read when it comes back.
            self.close("it does not answer")
            raise SwitchError(f"no answer within {self._confirm_s:g} s") from None
        finally:
            forget()

    # Receiving ---------------------------------------------------------------------------------------------------------------

    def _message(self, version: int, kind: int, length: int, xid: int, data: bytes) -> None:
        # A hello may be of any version; it says which ones its sender knows.
        if version != VERSION and kind not in (ofp.OFPT_HELLO, ofp.OFPT_ERROR):
            self.close(f"a message of OpenFlow version {version:#04x} after OpenFlow 1.3 was agreed on")
            return
        if kind == ofp.OFPT_HELLO and VERSION not in (versions := hello_versions(version, data)):
            error = parser.OFPErrorMsg(self.switch, ofp.OFPET_HELLO_FAILED, ofp.OFPHFC_INCOMPATIBLE, b"OpenFlow 1.3")
            self.send([error])
            self.reason = f"it does not speak OpenFlow 1.3; its versions: {sorted(versions)}"
            if self._transport is not None:
                self._transport.close()
            return
        handler = self._handlers.get(kind)
        if handler is None:
            return
        if kind == ofp.OFPT_HELLO:
            handler(None)
            return
        try:
            if kind == ofp.OFPT_MULTIPART_REPLY:
                check_answer(data)
            # Not `ofproto_parser.msg`: it logs a traceback with all bytes of what it cannot read.
            message = parser.msg_parser(self.switch, VERSION, kind, length, xid, data)
        except Exception as error:  # os-ken raises whatever a malformed message makes it stumble over
            self._events.unreadable(self)
            self.close(f"a message of type {kind} and {length} bytes that cannot be read: {error!r}")
            return
        handler(message)

    def _hello(self, message: Message) -> None:
        if self._greeted:
            return
        self._greeted = True
        self.send([parser.OFPFeaturesRequest(self.switch)])

    def _features(self, message: Message) -> None:
        if self.datapath:
            return
        self.datapath = int(message.datapath_id)
        config = parser.OFPSetConfig(self.switch, ofp.OFPC_FRAG_NORMAL, ofp.OFPCML_NO_BUFFER)
        xids = self.send([config, parser.OFPPortDescStatsRequest(self.switch, 0)])
        self._ports_asked = xids[1]
        self._questions[xids[1]] = _Question(asyncio.get_running_loop().create_future())

    def _ports_known(self, ports: list[Any]) -> None:
        """At once, not by way of the future: what the switch says next of its ports must not be missed."""
        self.ports = [seen for seen in (self._seen(port) for port in ports) if seen is not None]
        self.up = True
        self._events.switch_up(self)

    def _seen(self, port: Any) -> SeenPort | None:
        if port.port_no > ofp.OFPP_MAX:
            return None
        name = port.name.decode("utf-8", "replace") if isinstance(port.name, bytes) else str(port.name)
        up = not (port.state & PORT_DOWN_STATES or port.config & ofp.OFPPC_PORT_DOWN)
        return SeenPort(PortId(self.datapath, int(port.port_no)), name, port.hw_addr, up, int(port.curr_speed) * 1000)

    def _echo(self, message: Message) -> None:
        reply = parser.OFPEchoReply(self.switch, data=message.data)
        reply.set_xid(message.xid)
        self.send([reply])

    def ping(self) -> None:
        """Makes a switch that is alive say so."""
        self.send([parser.OFPEchoRequest(self.switch, data=b"")])

    def _error(self, message: Message) -> None:
        text = f"{ofp.ofp_error_type_to_str(message.type)}, {ofp.ofp_error_code_to_str(message.type, message.code)}"
        question = self._questions.pop(message.xid, None)
        if question is not None and not question.done.done():
            _fail(question.done, f"refused: {text}")
            return
        for batch in self._batches.values():
            if message.xid in batch.xids:
                batch.errors.append(text)
                return
        log.warning("openflow: %016x says: %s", self.datapath, text)

    def _multipart(self, message: Message) -> None:
        question = self._questions.get(message.xid)
        if question is None:
            return
        body = message.body
        question.body += body if isinstance(body, list) else [body]
        if not message.flags & ofp.OFPMPF_REPLY_MORE:
            del self._questions[message.xid]
            if not question.done.done():
                question.done.set_result(question.body)
            if message.xid == self._ports_asked and not self.up:
                self._ports_known(question.body)

    def _barrier(self, message: Message) -> None:
        batch = self._batches.pop(message.xid, None)
        if batch is not None and not batch.done.done():
            batch.done.set_result(batch.errors)

    def _port_status(self, message: Message) -> None:
        seen = self._seen(message.desc)
        if seen is not None and self.up:
            self._events.port_status(self, seen, gone=message.reason == ofp.OFPPR_DELETE)

    def _packet_in(self, message: Message) -> None:
        in_port = message.match.get("in_port")
        if in_port is not None and self.up:
            self._events.packet_in(self, int(in_port), int(message.cookie), bytes(message.data))


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    future.set_exception(SwitchError(reason))
    # Whether anybody waits for it or not: nothing is to be logged of it.
    future.exception()


def hello_versions(version: int, data: bytes) -> set[int]:
    """Versions that a hello offers: those of its bitmap, or all up to its own (OpenFlow 1.3.5, section 6.3.1). Pure."""
    offset = _HEADER_SIZE
    while offset + 8 <= len(data):
        kind, length = struct.unpack_from("!HH", data, offset)
        if kind == ofp.OFPHET_VERSIONBITMAP and length >= 8:
            (bitmap,) = struct.unpack_from("!I", data, offset + 4)
            return {number for number in range(32) if bitmap >> number & 1}
        offset += max(8, -(-length // 8) * 8)
    return set(range(1, version + 1))
