"""Multicast trees in the switches: installed from the ends to the beginning, proven to every end, changed in place, taken out. On the event loop.

Orders for one group are carried out one after the other; an order that is outdated before its turn is left out (as in `reservations`). States:
`states`. A tree that has lost a link is *broken* until another is ordered, or the link is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from timebound.control.enforcer import GroupOrder
from timebound.control.openflow.branches import Branch, Branches, as_channel, branches_of, program
from timebound.control.openflow.channels import Program, WayError, known_links
from timebound.control.openflow.frames import Frame
from timebound.control.openflow.network import Network
from timebound.control.openflow.probes import NotProvenError, OutdatedError
from timebound.control.openflow.reservations import REPLANNED_WITHIN_S, QueueCheck, Report, Reservations
from timebound.control.openflow.rules import Rule, Tables, channel_cookie
from timebound.control.openflow.session import SwitchError
from timebound.control.openflow.states import Event, after
from timebound.control.openflow.switchbox import Found
from timebound.control.srt.rows import ChannelState
from timebound.control.topology import PortId, Topology

log = logging.getLogger(__name__)

_NOTHING = Branches((), ())


@dataclass(slots=True)
class _Held:
    """A group that somebody wants."""

    order: GroupOrder
    state: ChannelState = ChannelState.PLANNED
    branches: Branches = _NOTHING
    """What is in the switches, or about to be."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    orders: int = 0
    due: bool = False
    """As in `reservations.Held`."""

    @property
    def id(self) -> str:
        return self.order.row.id

    @property
    def part(self) -> str:
        return f"group {self.id}"

    @property
    def cookie(self) -> int:
        return channel_cookie(self.id)


class Trees:
    """All multicast groups. The `Listener` of a `Network`: it hands on to the channels, whose knowledge of the network it uses."""

    def __init__(self, channels: Reservations, report: Report) -> None:
        self._channels = channels
        self._report = report
        self._held: dict[str, _Held] = {}
        self._leaving: dict[str, _Held] = {}
        """As in `Reservations`."""
        self._cookies: dict[int, str] = {}
        self._network: Network
        self._queued: Callable[[PortId], bool]
        self._queues_ready: QueueCheck

    def attach(self, network: Network, queued: Callable[[PortId], bool], queues_ready: QueueCheck) -> None:
        """The second half; see `Reservations.attach`."""
        self._network, self._queued, self._queues_ready = network, queued, queues_ready

    def keep(self, rule: Rule) -> bool:
        """Is a rule of a channel or group, which no part wants, to stay?"""
        held = self._held.get(self._cookies.get(rule.cookie, ""))
        return self._channels.keep(rule) if held is None else not held.branches.switches

    def names(self) -> dict[int, str]:
        """Channels and groups by the cookie of their rules."""
        return self._channels.names() | self._cookies

    # Orders ------------------------------------------------------------------------------------------------------------------

    def install(self, order: GroupOrder) -> None:
        """See `Enforcer.install_group`."""
        held = self._held.get(order.row.id)
        if held is None:
            # As in `Reservations.install`.
            held = self._held[order.row.id] = self._leaving.pop(order.row.id, _Held(order))
        held.order, held.due = order, True
        self._cookies[held.cookie] = held.id
        self._order(held, self._install)

    def remove(self, id: str) -> bool:
        """See `Enforcer.remove`; is it a group?"""
        held = self._held.pop(id, None)
        if held is None:
            return False
        self._leaving[id] = held
        self._order(held, self._remove)
        return True

    def _order(self, held: _Held, work: Callable[[_Held, int], Awaitable[None]]) -> None:
        held.orders += 1
        self._network.spawn(self._in_turn(held, work, held.orders))

    async def _in_turn(self, held: _Held, work: Callable[[_Held, int], Awaitable[None]], order: int) -> None:
        async with held.turn:
            if held.orders == order:
                with contextlib.suppress(OutdatedError):
                    await work(held, order)

    def _step(self, held: _Held, event: Event, reason: str = "") -> None:
        held.state = after(held.state, event)
        if self._held.get(held.id) is held:
            self._report(held.id, held.state, reason)

    # Installing --------------------------------------------------------------------------------------------------------------

    async def _install(self, held: _Held, order: int) -> None:
        try:
            branches = await self._branches(held)
            await self._put(held, branches, order)
        except (WayError, ValueError, SwitchError) as error:
            held.branches = _NOTHING
            held.due = held.due and held.orders != order
            self._step(held, Event.FAILED, str(error))
        except NotProvenError as error:
            self._step(held, Event.FAILED, str(error))

    async def _branches(self, held: _Held) -> Branches:
        """The tree's ports. A controller that has just begun waits for links and switches that it may not have found yet."""
        while True:
            try:
                found = branches_of(held.order.row.links, known_links(self._network.learned.topology()))
                dead = self._dead(found)
                if dead:
                    raise SwitchError(dead)
                if not self._ready(found):
                    raise SwitchError("a switch of the tree is not connected")
                return found
            except (WayError, SwitchError):
                if self._network.settled:
                    raise
                await asyncio.sleep(0.05)

    async def _put(self, held: _Held, branches: Branches, order: int) -> None:
        """From the ends to the first switch, so that a branch is there before anything is sent into it; then the proof; then what is left of the old tree goes."""
        for branch in branches.switches:
            for port in branch.out_ports:
                out = PortId(branch.switch, port)
                if self._queued(out) and (reason := await self._queues_ready(out)):
                    raise SwitchError(f"queues of port {port} of {self._channels.named(branch.switch)}: {reason}")
        async with self._channels.places:
            if held.orders != order:
                raise OutdatedError
            await self._put_now(held, branches, order)

    async def _put_now(self, held: _Held, branches: Branches, order: int) -> None:
        plan = self._program(held, branches)
        boxes = self._network.boxes
        old = [datapath for datapath, box in boxes.items() if box.part(held.part) is not None]
        found: dict[int, Found] = {}
        for level in levels(branches):
            answers = await asyncio.gather(*(self._put_one(held, plan, branch) for branch in level))
            found |= {branch.switch: answer for branch, answer in zip(level, answers, strict=True)}
        held.branches = branches
        if held.orders == order:
            held.due = False
        self._step(held, Event.CONFIRMED)
        channel = as_channel(held.order)
        for way in branches.ways:
            last = found[way[-1].switch]
            await self._channels.prober.prove(
                channel, way, last, lambda: held.orders != order, named=self._channels.named
            )
        self._step(held, Event.PROVED)
        changed = [d for d in plan.tables if boxes[d].part(held.part) != plan.tables[d]]
        leftover = [datapath for datapath in old if datapath not in plan.tables]
        if changed or leftover:
            self._network.spawn(self._drain(held, plan, [*leftover, *changed], order))

    def _program(self, held: _Held, branches: Branches) -> Program:
        numbers = {
            branch.switch: self._network.boxes[branch.switch].numbers_for(
                held.part, held.cookie, with_group=len(branch.out_ports) > 1
            )
            for branch in branches.switches
        }
        return program(held.order, branches, numbers, self._queued)

    async def _put_one(self, held: _Held, plan: Program, branch: Branch) -> Found:
        """Puts a switch's share in beside what is there of the old tree, and reads it back."""
        box, share = self._network.boxes[branch.switch], plan.tables[branch.switch]
        tables = Tables()
        if (old := box.part(held.part)) is not None:
            tables.add(old.rules.values(), old.meters.values(), old.groups.values())
        tables.add(share.rules.values(), share.meters.values(), share.groups.values())
        try:
            await box.put(held.part, tables)
            return await box.verify(share, held.cookie)
        except SwitchError as error:
            raise SwitchError(f"switch {self._channels.named(branch.switch)}: {error}") from error

    async def _drain(self, held: _Held, plan: Program, datapaths: list[int], order: int) -> None:
        """Frames that are under way on the old tree still find its rules for a while."""
        await asyncio.sleep(self._network.settings.times.drain_ns / 1e9)
        async with held.turn:
            if held.orders != order:
                return
            for datapath in datapaths:
                with contextlib.suppress(SwitchError):  # it goes when the switch is back
                    await self._network.boxes[datapath].put(held.part, plan.tables.get(datapath))

    async def _remove(self, held: _Held, order: int) -> None:
        """First the switch that sends into the tree, then, when it is empty, the others."""
        boxes = [box for box in self._network.boxes.values() if box.part(held.part) is not None]
        first = held.branches.switches[0].switch if held.branches.switches else None
        boxes.sort(key=lambda box: box.datapath != first)
        held.state, held.branches = ChannelState.PLANNED, _NOTHING
        for number, box in enumerate(boxes):
            if number == 1:
                await asyncio.sleep(self._network.settings.times.drain_ns / 1e9)
            if held.orders != order:
                return
            with contextlib.suppress(SwitchError):  # it goes when the switch is back
                await box.put(held.part, None)
        if self._leaving.get(held.id) is held:
            del self._leaving[held.id]
            self._cookies.pop(held.cookie, None)

    # What happens in the network ---------------------------------------------------------------------------------------------

    def changed(self, topology: Topology) -> None:
        """`Listener`."""
        self._channels.changed(topology)
        for held in list(self._held.values()):
            if not held.branches.switches:
                if held.state is ChannelState.BROKEN and self._possible(held):
                    self._order(held, self._install)
            elif dead := self._dead(held.branches):
                if held.state is not ChannelState.BROKEN:
                    self._network.spawn(self._break_later(held, dead, held.orders))
            elif held.state is ChannelState.BROKEN and self._ready(held.branches):
                self._order(held, self._install)

    def switch_ready(self, datapath: int) -> None:
        """`Listener`: its rules were made good; trees over it are proved anew."""
        self._channels.switch_ready(datapath)
        for held in list(self._held.values()):
            switches = {branch.switch for branch in held.branches.switches}
            if not switches or datapath in switches:
                self._order(held, self._install)

    def switch_lost(self, datapath: int) -> None:
        """`Listener`."""
        self._channels.switch_lost(datapath)

    def probe_caught(self, frame: Frame, at: PortId, *, astray: bool) -> bool:
        """`Listener`."""
        return self._channels.probe_caught(frame, at, astray=astray)

    async def _break_later(self, held: _Held, reason: str, order: int) -> None:
        """Whoever plans trees has heard of the link as well, and nearly always orders another one at once: then this one was never given up."""
        await asyncio.sleep(REPLANNED_WITHIN_S)
        if held.orders == order and not held.due and self._held.get(held.id) is held and self._dead(held.branches):
            self._order(held, self._break_for(reason))

    def _break_for(self, reason: str) -> Callable[[_Held, int], Awaitable[None]]:
        async def break_it(held: _Held, order: int) -> None:
            if held.due or (not self._dead(held.branches) and held.state is not ChannelState.PROVEN):
                # It has perhaps outdated what was under way.
                await self._install(held, order)
            elif self._dead(held.branches):
                self._step(held, Event.FAILED, reason)

        return break_it

    def _possible(self, held: _Held) -> bool:
        try:
            found = branches_of(held.order.row.links, known_links(self._network.learned.topology()))
        except WayError:
            return False
        return not self._dead(found) and self._ready(found)

    def _dead(self, branches: Branches) -> str:
        """Why something of a tree carries nothing; nothing if all of it does."""
        return next((dead for way in branches.ways if (dead := self._channels.dead(way))), "")

    def _ready(self, branches: Branches) -> bool:
        return all(self._channels.ready(way) for way in branches.ways)


def levels(branches: Branches) -> Iterator[list[Branch]]:
    """Switches of the same depth, the deepest first."""
    for depth in range(max((branch.depth for branch in branches.switches), default=-1), -1, -1):
        yield [branch for branch in branches.switches if branch.depth == depth]
