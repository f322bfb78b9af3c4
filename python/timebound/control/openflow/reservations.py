"""Channels in the switches: installed, proven, moved to their backup, found again, taken out. On the event loop.

Orders for one channel are carried out one after the other, by one task; an order that is outdated before its turn is left out. What the switches do
not confirm, or a probe does not prove, is broken, with the reason. An order that finds nothing left to do has perhaps outdated another one, which then
did not come to its end: so each sees to it that what was asked for is installed (`Held.due`), and that what is installed is proven.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from timebound.control.openflow.channels import (
    Hops,
    Program,
    WayError,
    check_backup,
    first_mark,
    flow_of,
    hops_of,
    known_links,
    program,
)
from timebound.control.openflow.frames import Frame
from timebound.control.openflow.network import Network
from timebound.control.openflow.probes import NotProvenError, OutdatedError, Prober
from timebound.control.openflow.rules import Rule, Tables, channel_cookie
from timebound.control.openflow.session import SwitchError
from timebound.control.openflow.states import Event, after
from timebound.control.openflow.switchbox import Found
from timebound.control.srt.rows import ChannelRow, ChannelState
from timebound.control.topology import PortId, Topology

log = logging.getLogger(__name__)

Report = Callable[[str, ChannelState, str], None]
QueueCheck = Callable[[PortId], Awaitable[str]]
"""Waits until a port's queues are as they are to be; says why they are not, or nothing."""


REPLANNED_WITHIN_S = 0.25
"""So long nobody is told that a channel, or a tree, without another way has lost a link."""
_AT_ONCE = 8
"""Channels that are installed and proven at the same time; more would only wait for the processor, while the clocks of their probes run."""


@dataclass(slots=True)
class Held:
    """A channel that somebody wants."""

    row: ChannelRow
    backup_links: tuple[str, ...]
    state: ChannelState
    hops: Hops = ()
    """The way that the first switch uses, or is to use."""
    backup: Hops = ()
    first: int | None = None
    """The switch that has the meter."""
    note: str = ""
    """What is to be known of it while it is proven."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    orders: int = 0
    """Counts orders; one that is not the last when its turn comes is outdated."""
    due: bool = False
    """What was asked for last is not in the switches yet: an order that is outdated before it is leaves it to the next one."""

    @property
    def part(self) -> str:
        """Its part in switches."""
        return f"channel {self.row.id}"


class Reservations:
    """All channels. The `Listener` of a `Network`."""

    def __init__(self, report: Report, changed: Callable[[Topology], None], returned: Callable[[int], None]) -> None:
        """`report`: states of channels; `returned`: a switch has come back."""
        self._returned = returned
        self._report = report
        self._changed = changed
        self._held: dict[str, Held] = {}
        self._leaving: dict[str, Held] = {}
        """Nobody wants them any more, and they are not out of the switches yet."""
        self._cookies: dict[int, str] = {}
        self._adopting = True
        self._network: Network
        self.prober: Prober
        """Also of others who must prove what they have put into switches."""
        self._queued: Callable[[PortId], bool]
        self._queues_ready: QueueCheck
        self._live: set[tuple[PortId, PortId | None]] = set()
        self._ports_up: set[PortId] = set()
        self.places = asyncio.Semaphore(_AT_ONCE)
        """Also of multicast trees."""
        self._switches_up: set[int] = set()

    def attach(self, network: Network, queued: Callable[[PortId], bool], queues_ready: QueueCheck) -> None:
        """Both know each other; this is the second half."""
        self._network, self._queued, self._queues_ready = network, queued, queues_ready
        self.prober = Prober(network.boxes, queued, network.settings.times.probe_ns / 1e9)
        network.spawn(self._adopt())

    async def _adopt(self) -> None:
        await asyncio.sleep(self._network.settings.times.adopt_ns / 1e9)
        self.adopted()

    def adopted(self) -> None:
        """Everything that is wanted was asked for: channels that are found in switches beside are taken out from now on."""
        if self._adopting:
            self._adopting = False
            self._network.clean()

    def keep(self, rule: Rule) -> bool:
        """Is a rule of a channel, which no part wants, to stay?"""
        held = self._held.get(self._cookies.get(rule.cookie, ""))
        return self._adopting if held is None else not held.hops

    def names(self) -> dict[int, str]:
        """Channels by the cookie of their rules."""
        return dict(self._cookies)

    # Orders ------------------------------------------------------------------------------------------------------------------

    def install(self, row: ChannelRow, backup: tuple[str, ...]) -> None:
        """See `Enforcer.install`."""
        held = self._held.get(row.id)
        if held is None:
            # One that is just leaving the switches comes back in its own turn: it would take the new one's rules with it.
            held = self._held[row.id] = self._leaving.pop(row.id, Held(row, backup, ChannelState.PLANNED))
            self._cookies[channel_cookie(row.id)] = row.id
        held.row, held.backup_links, held.note, held.due = row, backup, "", True
        self._order(held, self._install)

    def remove(self, channel: str) -> None:
        """See `Enforcer.remove`."""
        held = self._held.pop(channel, None)
        if held is not None:
            self._leaving[channel] = held
            self._order(held, self._remove)

    def _order(self, held: Held, work: Callable[[Held, int], Awaitable[None]]) -> None:
        held.orders += 1
        self._network.spawn(self._in_turn(held, work, held.orders))

    async def _in_turn(self, held: Held, work: Callable[[Held, int], Awaitable[None]], order: int) -> None:
        async with held.turn:
            if held.orders == order:
                with contextlib.suppress(OutdatedError):
                    await work(held, order)
                lost = self.dead(held.hops) or self.dead(held.backup)
                is_last = held.orders == order and self._held.get(held.row.id) is held
                if is_last and held.state is ChannelState.BROKEN and lost:
                    # The link went before these ways were known to be the channel's, so nobody has looked for the other one.
                    self._reconsider(held)

    def _step(self, held: Held, event: Event, reason: str = "") -> None:
        held.state = after(held.state, event)
        if self._held.get(held.row.id) is held:
            self._report(held.row.id, held.state, reason)

    # Installing --------------------------------------------------------------------------------------------------------------

    async def _install(self, held: Held, order: int) -> None:
        try:
            self._check_alone(held)
            hops, backup = await self._ways(held)
            await self._put(held, hops, backup, order, asked=True)
        except (WayError, ValueError, SwitchError) as error:
            # What is in switches may be of an older order, with another way: it is not what was asked for.
            held.hops = held.backup = ()
            held.due = held.due and held.orders != order
            self._step(held, Event.FAILED, str(error))
        except NotProvenError as error:
            self._step(held, Event.FAILED, str(error))

    def _check_alone(self, held: Held) -> None:
        flow = flow_of(held.row), first_mark(held.row)
        for other in self._held.values():
            if other is not held and (flow_of(other.row), first_mark(other.row)) == flow:
                raise ValueError(f"channel {other.row.id} is for the same frames")

    async def _ways(self, held: Held) -> tuple[Hops, Hops]:
        """Ports of both ways. A controller that has just begun waits for links and switches that it may not have found yet."""
        while True:
            try:
                links = known_links(self._network.learned.topology())
                hops = hops_of(held.row.links, links)
                backup = hops_of(held.backup_links, links) if held.backup_links else ()
                check_backup(hops, backup)
                if backup and (gone := self.dead(hops)) and not self.dead(backup):
                    # The link went while the order was on its way.
                    self._check_live(backup)
                    held.note = f"on its backup way: {gone}"
                    return backup, ()
                self._check_live(hops)
                lost = self.dead(backup) if backup else ""
                held.note = f"its backup way is gone: {lost}" if lost else ""
                return hops, () if lost else backup
            except (WayError, SwitchError):
                if self._network.settled:
                    raise
                await asyncio.sleep(0.05)

    def _check_live(self, hops: Hops) -> None:
        dead = self.dead(hops)
        if dead:
            raise SwitchError(dead)
        for hop in hops:
            box = self._network.boxes.get(hop.switch)
            if box is None or not box.ready.is_set():
                raise SwitchError(f"switch {self.named(hop.switch)} is not connected")

    async def _put(self, held: Held, hops: Hops, backup: Hops, order: int, *, asked: bool = False) -> None:
        """The new way complete before the first switch uses it; then the proof; then the rest of the old way goes. `asked`: it is what was asked for last."""
        await self._await_queues(hops, backup)
        async with self.places:
            if held.orders != order:
                raise OutdatedError
            await self._put_now(held, hops, backup, order, asked)

    async def _put_now(self, held: Held, hops: Hops, backup: Hops, order: int, asked: bool) -> None:
        plan = self._program(held, hops, backup)
        found_again = not held.hops
        old = [datapath for datapath, box in self._network.boxes.items() if box.part(held.part) is not None]
        later = [datapath for datapath in plan.tables if datapath != plan.first]
        found = dict(
            zip(later, await asyncio.gather(*(self._put_one(held, plan, d, both=True) for d in later)), strict=True)
        )
        found[plan.first] = await self._put_one(held, plan, plan.first, both=False)
        held.hops, held.backup = hops, backup
        if asked and held.orders == order:
            held.due = False
        self._step(held, Event.CONFIRMED, held.note)
        if found_again and not self._adopting:
            # What another controller may have left of it in switches that are not on its way.
            self._network.clean()
        await self._prove(held, order, found)
        leftover = [datapath for datapath in old if datapath not in plan.tables]
        changed = [d for d in later if self._network.boxes[d].part(held.part) != plan.tables[d]]
        if leftover or changed:
            self._network.spawn(self._drain(held, plan, [*leftover, *changed], order))

    async def _await_queues(self, hops: Hops, backup: Hops) -> None:
        for hop in (*hops, *backup):
            if self._queued(hop.out):
                reason = await self._queues_ready(hop.out)
                if reason:
                    raise SwitchError(f"queues of port {hop.out_port} of {self.named(hop.switch)}: {reason}")

    def _program(self, held: Held, hops: Hops, backup: Hops) -> Program:
        first = hops[0].switch
        held.first = first
        meter, group = self._network.boxes[first].numbers_for(
            held.part, channel_cookie(held.row.id), with_group=bool(backup)
        )
        return program(held.row, hops, backup, meter, group, self._queued)

    async def _put_one(self, held: Held, plan: Program, datapath: int, *, both: bool) -> Found:
        """Puts a switch's share in and reads it back, in one round trip. `both`: what is there of the old way stays beside it."""
        box, share = self._network.boxes[datapath], plan.tables[datapath]
        tables = Tables()
        if both and (old := box.part(held.part)) is not None:
            tables.add(old.rules.values())
        tables.add(share.rules.values(), share.meters.values(), share.groups.values())
        try:
            # The questions are behind the orders on the same connection, so the answers are of what was ordered.
            put, found = await asyncio.gather(
                box.put(held.part, tables),
                box.verify(tables, channel_cookie(held.row.id)),
                return_exceptions=True,
            )
            if isinstance(put, BaseException):
                raise put
            if isinstance(found, BaseException):
                raise found
            return found
        except SwitchError as error:
            raise SwitchError(f"switch {self.named(datapath)}: {error}") from error

    async def _prove(self, held: Held, order: int, found: Mapping[int, Found]) -> None:
        def outdated() -> bool:
            return held.orders != order

        last = found[held.hops[-1].switch]
        await self.prober.prove(held.row, held.hops, last, outdated, named=self.named)
        if held.backup:
            try:
                await self.prober.prove(held.row, held.backup, last, outdated, named=self.named, spare=True)
            except NotProvenError as error:
                raise NotProvenError(f"on its backup way, {error}") from error
        self._step(held, Event.PROVED, held.note)

    async def _drain(self, held: Held, plan: Program, datapaths: list[int], order: int) -> None:
        """Frames that are under way on the old way still find its rules for a while."""
        await asyncio.sleep(self._network.settings.times.drain_ns / 1e9)
        async with held.turn:
            if held.orders != order:
                return
            for datapath in datapaths:
                box = self._network.boxes[datapath]
                try:
                    await box.put(held.part, plan.tables.get(datapath))
                except SwitchError as error:
                    log.info(
                        "openflow: switch %s keeps rules of %s for now: %s", self.named(datapath), held.row.id, error
                    )

    async def _remove(self, held: Held, order: int) -> None:
        """First the switch that sends into the way, then, when the way is empty, the others."""
        boxes = [box for box in self._network.boxes.values() if box.part(held.part) is not None]
        boxes.sort(key=lambda box: box.datapath != held.first)
        # Should it be asked for again before it is gone, nothing of it is there.
        held.state, held.hops, held.backup = ChannelState.PLANNED, (), ()
        for number, box in enumerate(boxes):
            if number == 1:
                await asyncio.sleep(self._network.settings.times.drain_ns / 1e9)
            if held.orders != order:
                return
            try:
                await box.put(held.part, None)
            except SwitchError as error:
                log.info(
                    "openflow: %s goes from switch %s when it is back: %s",
                    held.row.id,
                    self.named(box.datapath),
                    error,
                )
        if self._leaving.get(held.row.id) is held:
            del self._leaving[held.row.id]
            self._cookies.pop(channel_cookie(held.row.id), None)

    # What happens in the network ---------------------------------------------------------------------------------------------

    def changed(self, topology: Topology) -> None:
        """`Listener`."""
        self._changed(topology)
        self._live = {(link.out, link.into) for link in topology.links.values() if link.up and link.out is not None}
        self._ports_up = {port.id for port in topology.ports.values() if port.up}
        self._switches_up = {switch.datapath for switch in topology.switches.values() if switch.connected}
        for held in list(self._held.values()):
            self._reconsider(held)

    def switch_ready(self, datapath: int) -> None:
        """`Listener`: its rules were made good, so what is broken may be whole again; everything on it is proved anew."""
        self._returned(datapath)
        for held in list(self._held.values()):
            if any(hop.switch == datapath for hop in (*held.hops, *held.backup)) or not held.hops:
                self._order(held, self._again)

    def switch_lost(self, datapath: int) -> None:
        """`Listener`: a channel that has another way does not wait whether the switch comes back."""
        for held in list(self._held.values()):
            inner = {hop.switch for hop in held.hops[1:-1]}
            if datapath in inner and held.backup and not self.dead(held.backup, {datapath}):
                self._order(held, self._fail_over_for(held.hops, f"switch {self.named(datapath)} is gone"))

    def probe_caught(self, frame: Frame, at: PortId, *, astray: bool) -> bool:
        """`Listener`."""
        return self.prober.caught(frame, at, astray=astray)

    def _reconsider(self, held: Held) -> None:
        broken = held.state is ChannelState.BROKEN
        dead = self.dead(held.hops)
        if broken and (dead or not held.hops) and self._possible(held):
            # The way that was asked for is there (again), perhaps with other numbers of ports.
            self._order(held, self._install)
        elif not held.hops:
            return
        elif dead and held.backup and not self.dead(held.backup):
            self._order(held, self._fail_over_for(held.hops, dead))
        elif dead:
            if not broken:
                self._network.spawn(self._break_later(held, dead, held.orders))
        elif held.backup and (lost := self.dead(held.backup)):
            # While it is being proven, too: the proof of a backup way that is gone would fail, and the channel with it.
            held.backup, held.note = (), f"its backup way is gone: {lost}"
            self._order(held, self._again)
        elif broken and self.ready(held.hops):
            self._order(held, self._again)

    def _possible(self, held: Held) -> bool:
        """Is the way that was asked for there now?"""
        try:
            hops = hops_of(held.row.links, known_links(self._network.learned.topology()))
        except WayError:
            return False
        return not self.dead(hops) and self.ready(hops)

    def ready(self, hops: Hops) -> bool:
        """Are all switches of a way connected, and read?"""
        return all(hop.switch in self._network.boxes and self._network.boxes[hop.switch].ready.is_set() for hop in hops)

    def dead(self, hops: Hops, without: set[int] | None = None) -> str:
        """Why a way carries nothing; nothing if it does, or if there is none."""
        if not hops:
            return ""
        for hop in hops:
            if hop.switch not in self._switches_up or hop.switch in (without or ()):
                return f"switch {self.named(hop.switch)} is gone"
        for hop, following in itertools.pairwise(hops):
            if (hop.out, PortId(following.switch, following.in_port)) not in self._live:
                return f"the link from {self.named(hop.switch)} to {self.named(following.switch)} is down"
        for end in (PortId(hops[0].switch, hops[0].in_port), hops[-1].out):
            if end not in self._ports_up:
                return f"port {end.number} of {self.named(end.switch)} is down"
        return ""

    def named(self, datapath: int) -> str:
        """A switch's name."""
        switches = self._network.learned.topology().switches.values()
        return next((switch.name for switch in switches if switch.datapath == datapath), f"{datapath:016x}")

    # Repair ------------------------------------------------------------------------------------------------------------------

    async def _again(self, held: Held, order: int) -> None:
        """Confirms and proves what is there; installs it where nothing is, or what was asked for is not there yet."""
        if held.due or not held.hops:
            await self._install(held, order)
            return
        try:
            self._check_live(held.hops)
            await self._put(held, held.hops, held.backup, order)
        except (SwitchError, NotProvenError) as error:
            self._step(held, Event.FAILED, str(error))

    async def _see_to_it(self, held: Held, order: int) -> None:
        """What is left to do for an order that is not needed any more: it may have outdated another one in the midst of its work."""
        if held.due or held.state is not ChannelState.PROVEN:
            await self._again(held, order)

    def _fail_over_for(self, gone: Hops, reason: str) -> Callable[[Held, int], Awaitable[None]]:
        async def fail_over(held: Held, order: int) -> None:
            if not held.backup or held.hops != gone:
                await self._see_to_it(held, order)
                return
            log.warning("openflow: channel %s goes to its backup way: %s", held.row.id, reason)
            held.note = f"on its backup way: {reason}"
            hops, held.backup = held.backup, ()
            held.hops = hops
            try:
                # The later switches have their rules since it was installed: the first one alone must change, and at once.
                plan = self._program(held, hops, ())
                await self._put_one(held, plan, plan.first, both=False)
                if not held.due:
                    await self._put(held, hops, (), order)
            except (SwitchError, NotProvenError) as error:
                self._step(held, Event.FAILED, f"{reason}; on its backup way, {error}")
            if held.due:
                await self._install(held, order)

        return fail_over

    async def _break_later(self, held: Held, reason: str, order: int) -> None:
        """Whoever plans ways has heard of the link as well, and nearly always orders another one at once: then this one was never given up."""
        await asyncio.sleep(REPLANNED_WITHIN_S)
        # What is due has its own end: it is there, or it says why not.
        if held.orders == order and not held.due and self._held.get(held.row.id) is held and self.dead(held.hops):
            self._order(held, self._break_for(reason))

    def _break_for(self, reason: str) -> Callable[[Held, int], Awaitable[None]]:
        async def break_it(held: Held, order: int) -> None:
            if not self.dead(held.hops) or held.due:
                await self._see_to_it(held, order)
            elif self._possible(held):
                await self._install(held, order)
            elif held.state is not ChannelState.BROKEN:
                self._step(held, Event.FAILED, f"{reason}, and no other way is installed")

        return break_it
