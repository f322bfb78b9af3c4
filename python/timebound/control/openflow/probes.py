"""The proof of a channel: frames of its own 5-tuple through its own rules, and what they moved. On the event loop.

Two frames are sent, again and again until both are proven or time is up (a meter may drop one while its bucket is empty). What comes of any of them
counts until then, however late: on a busy machine a switch may need longer for a frame than there is between two of them.

- one enters the first switch at the host's port and goes through that switch's own table; it bears a source address that only the last
  switch hands to the controller. It must come there, at the right port, with the right mark.
- one enters the last switch as if it came from there, and leaves at the host, who ignores it: its destination address is nobody's. The channel's rule
  at that switch must have counted it.

Where queues are the switches' own, the counters of the promised queue must have moved at every switch. They count other frames of that class,
too, so a counter that moved proves less than one that did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from timebound.control.openflow import codec
from timebound.control.openflow.channels import Hop, Hops, first_mark, flow_match, flow_of, mark_of, sending
from timebound.control.openflow.frames import FiveTuple, Frame, probe, probe_number
from timebound.control.openflow.rules import Action, Output, Priority, SetField, channel_cookie
from timebound.control.openflow.session import SwitchError
from timebound.control.openflow.switchbox import Found, SwitchBox
from timebound.control.srt.rows import ChannelRow
from timebound.control.topology import PortId

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.1
_DISCARD = 9
"""Port (RFC 863)."""
_NOBODY = 0
"""No switch has this datapath id (OVS refuses it), so no rule catches probes for it."""


class NotProvenError(Exception):
    """Why a channel is not proven."""


class OutdatedError(Exception):
    """Nobody needs this proof any more: another order for the channel waits."""


@dataclass(frozen=True, slots=True)
class Caught:
    """A probe that a switch handed to the controller."""

    at: PortId
    mark: int
    astray: bool
    """Not by the rule that catches probes: some switch had no rule for it."""


class _Sent:
    """The probes that one proof has sent from the first switch to the last, and what was seen of them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.came: asyncio.Queue[Caught] = asyncio.Queue()
        self.reason = ""
        """Why what came is no proof: it says more than that something else did not come."""


class Prober:
    """Sends probes and waits for them."""

    def __init__(self, boxes: Mapping[int, SwitchBox], queued: Callable[[PortId], bool], within_s: float) -> None:
        self._boxes = boxes
        self._queued = queued
        self._within_s = within_s
        self._key = secrets.token_bytes(32)
        self._number = 0
        self._waiting: dict[int, _Sent] = {}

    def caught(self, frame: Frame, at: PortId, *, astray: bool) -> bool:
        """A frame came to the controller; is it a probe of ours?"""
        number = probe_number(frame, self._key)
        if number is None or frame.ipv4 is None:
            return False
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.came.put_nowait(Caught(at, frame.ipv4.dscp, astray))
        return True

    async def prove(
        self,
        channel: ChannelRow,
        hops: Hops,
        last: Found,
        outdated: Callable[[], bool],
        *,
        named: Callable[[int], str],
        spare: bool = False,
    ) -> None:
        """Raises `NotProvenError` with the reason, or `OutdatedError` as soon as `outdated`. `spare`: a backup way, which the first switch does not use now: it is told to use it for the probe.

        `last`: the channel's rules at its last switch, read before any probe was sent. `named`: names of switches, for reasons.
        """
        sent = _Sent()
        try:
            await self._prove(channel, hops, last, outdated, named, spare, sent)
        except SwitchError as error:
            raise NotProvenError(str(error)) from error
        finally:
            for number in sent.numbers:
                self._waiting.pop(number, None)

    async def _prove(
        self,
        channel: ChannelRow,
        hops: Hops,
        last: Found,
        outdated: Callable[[], bool],
        named: Callable[[int], str],
        spare: bool,
        sent: _Sent,
    ) -> None:
        queues = [hop for hop in hops if self._queued(hop.out)]
        before = await self._queue_counts(queues, channel.priority)
        taken = self._count(channel, hops, last)
        deadline = asyncio.get_running_loop().time() + self._within_s
        wait_s, arrived, delivered = _FIRST_WAIT_S, len(hops) == 1, False
        while True:
            self._send_last(channel, hops)
            reason, count = await asyncio.gather(
                _nothing() if arrived else self._send_through(channel, hops, named, spare, sent, wait_s),
                self._taken(channel, hops),
            )
            arrived, delivered = not reason, delivered or count > taken
            if not reason and not delivered:
                reason = f"the channel's rule at {named(hops[-1].switch)} did not take a frame"
            reason = reason or await self._unmoved(queues, channel.priority, before, named)
            if not reason:
                return
            if outdated():
                raise OutdatedError
            if asyncio.get_running_loop().time() >= deadline:
                raise NotProvenError(reason)
            if arrived:
                await asyncio.sleep(min(wait_s, 0.02))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _send_through(
        self, channel: ChannelRow, hops: Hops, named: Callable[[int], str], spare: bool, sent: _Sent, wait_s: float
    ) -> str:
        """One more frame from the first switch to the last; why none that came by then is a proof, or nothing."""
        first, last, mark = hops[0], hops[-1], mark_of(channel.priority)
        self._number += 1
        sent.numbers.append(self._number)
        self._waiting[self._number] = sent
        actions: tuple[Action, ...] = (Output(ofp.OFPP_TABLE),)
        if spare:
            actions = (SetField("ip_dscp", mark), *sending(first.out, channel.priority, self._queued))
        frame = probe(_probed(channel), last.switch, self._number, self._key)
        before = first_mark(channel)
        if before is not None:
            frame = marked(frame, before)
        self._send(first, frame, actions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while reason := _wrong(await sent.came.get(), last, mark, named):
                    sent.reason = reason
                return ""
        return sent.reason or f"a probe from {named(first.switch)} did not reach {named(last.switch)}"

    def _send_last(self, channel: ChannelRow, hops: Hops) -> None:
        """One frame through the last switch's own rule, out to the host."""
        frame = probe(_probed(channel), _NOBODY, 0, self._key)
        mark = mark_of(channel.priority) if len(hops) > 1 else first_mark(channel)
        if mark is not None:
            frame = marked(frame, mark)
        self._send(hops[-1], frame, (Output(ofp.OFPP_TABLE),))

    def _send(self, hop: Hop, frame: bytes, actions: tuple[Action, ...]) -> None:
        session = self._boxes[hop.switch].connected
        session.send([codec.packet_out(session.switch, frame, actions, hop.in_port)])

    # Counters ----------------------------------------------------------------------------------------------------------------

    async def _unmoved(
        self, queues: list[Hop], queue: int, before: dict[PortId, int], named: Callable[[int], str]
    ) -> str:
        now = await self._queue_counts(queues, queue)
        for hop in queues:
            if now[hop.out] <= before[hop.out]:
                where = f"port {hop.out_port} of {named(hop.switch)}"
                return (
                    f"queue {queue} of {where} did not move: frames do not pass it (see `queues` in docs/controller.md)"
                )
        return ""

    async def _taken(self, channel: ChannelRow, hops: Hops) -> int:
        return self._count(channel, hops, await self._boxes[hops[-1].switch].rules_of(channel_cookie(channel.id)))

    @staticmethod
    def _count(channel: ChannelRow, hops: Hops, found: Found) -> int:
        """Frames that the channel's rule at the last switch has counted."""
        mark = mark_of(channel.priority) if len(hops) > 1 else first_mark(channel)
        key = (int(Priority.CHANNEL), flow_match(flow_of(channel), hops[-1].in_port, mark))
        if key not in found.packets:
            raise NotProvenError("the channel's rule is not in its last switch")
        return found.packets[key]

    async def _queue_counts(self, hops: list[Hop], queue: int) -> dict[PortId, int]:
        async def count(hop: Hop) -> int:
            session = self._boxes[hop.switch].connected
            stats = await session.ask(parser.OFPQueueStatsRequest(session.switch, 0, hop.out_port, queue))
            return sum(int(entry.tx_packets) for entry in stats)

        counts = await asyncio.gather(*(count(hop) for hop in hops))
        return {hop.out: number for hop, number in zip(hops, counts, strict=True)}


def _wrong(caught: Caught, last: Hop, mark: int, named: Callable[[int], str]) -> str:
    """Why a probe that came is no proof, or nothing."""
    at = named(caught.at.switch)
    if caught.astray:
        return f"a probe strayed: {at} has no rule for it"
    if caught.at != PortId(last.switch, last.in_port):
        return f"a probe came in at port {caught.at.number} of {at}, not at port {last.in_port}"
    if caught.mark != mark:
        return f"a probe came to {at} with mark {caught.mark} in place of {mark}"
    return ""


def _probed(channel: ChannelRow) -> FiveTuple:
    """The frames of a channel, with a port in the place of one that may be any."""
    flow = flow_of(channel)
    return replace(flow, source_port=flow.source_port or _DISCARD, destination_port=flow.destination_port or _DISCARD)


def marked(frame: bytes, mark: int) -> bytes:
    """An Ethernet frame with a plain IPv4 header, with another DSCP and the checksum that goes with it (RFC 1624)."""
    header = bytearray(frame[14:34])
    old = int.from_bytes(header[0:2], "big")
    header[1] = mark << 2
    total = (~int.from_bytes(header[10:12], "big") & 0xFFFF) + (~old & 0xFFFF) + int.from_bytes(header[0:2], "big")
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (~total & 0xFFFF).to_bytes(2, "big")
    return frame[:14] + bytes(header) + frame[34:]


async def _nothing() -> str:
    return ""
