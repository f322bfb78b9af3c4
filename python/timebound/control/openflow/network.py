"""The switches as a whole: who is connected, what is learned, best effort kept up to date. On the event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from timebound.control.openflow import codec, forwarding, frames, lldp
from timebound.control.openflow.description import describe
from timebound.control.openflow.frames import ARP_REQUEST, BROADCAST, ETH_IPV4, ETH_IPV6, SINK_MAC, Frame
from timebound.control.openflow.learned import Learned, SeenPort
from timebound.control.openflow.rules import Action, Kind, Output, Rule, SetField, Tables, kind_of
from timebound.control.openflow.session import Session, SwitchError
from timebound.control.openflow.settings import Settings
from timebound.control.openflow.switchbox import FIXED, HOSTS, SwitchBox
from timebound.control.quiet import Quiet, quieten
from timebound.control.topology import PortId, Topology

log = logging.getLogger(__name__)

_TICK_S = 0.05
MOST_STRANGERS = 256
"""Connections at a time whose handshake is not complete; for one more the oldest of them is closed."""
MOST_STRANGERS_OF_ONE = 128
"""Of one address: many switches of one computer connect at once when it starts."""
HANDSHAKE_S = 10.0
MOST_AWAY = 64
"""Switches that nobody names and that are gone, remembered at a time: who comes back soon has its hosts and links at once."""
_SYNC_DELAY_S = 0.005
"""Best effort follows a change after this time, so that changes that come together cost one computation."""
_ALIVE_S = 1.0
"""A switch answers an echo by then, or another connection takes its place."""
_LATE = 3
"""So many times what it takes to settle, it waits longer for switches that come late: Open vSwitch tries every 8 s unless it is told otherwise."""
_LLDP_MAC = "06:74:62:00:00:02"


class Listener(Protocol):
    """Who keeps channels in these switches."""

    def changed(self, topology: Topology) -> None:
        """The topology is another one."""

    def switch_ready(self, datapath: int) -> None:
        """A switch is connected, and has what it is to have."""

    def switch_lost(self, datapath: int) -> None:
        """The connection of a switch is gone."""

    def probe_caught(self, frame: Frame, at: PortId, *, astray: bool) -> bool:
        """A frame came to the controller; was it a probe?"""


class Network:
    """Everything that is no channel."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        keep_channel: Callable[[Rule], bool],
        unreadable: Callable[[], None],
    ) -> None:
        """`keep_channel`: is this rule of a channel, found in a switch and wanted by nobody, to stay? `unreadable`: a malformed message came."""
        self.settings = settings
        self._unreadable = unreadable
        self.boxes: dict[int, SwitchBox] = {}
        times = settings.times
        self.learned = Learned(
            describe(settings),
            lost_after_ns=times.lldp_lost_after_ns,
            edge_after_ns=times.edge_after_ns,
            grace_ns=times.grace_ns,
            most_hosts=settings.most_hosts_per_port,
        )
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._keep_channel = keep_channel
        self._key = secrets.token_bytes(32)
        self._lldp_due: dict[PortId, float] = {}
        self._unheard = False
        """A switch has become ready since the last tick."""
        self._echo_due = 0.0
        self._dirty = asyncio.Event()
        self._forwarding = forwarding.Forwarding(self.learned.topology())
        self._settled_at = self._loop.time() + times.settle_ns / 1e9
        self._settled_at_last = self._settled_at + _LATE * times.settle_ns / 1e9
        self._settled = False
        self._stopping = False
        self._listed = {switch.datapath for switch in settings.switches}
        self._sessions: set[Session] = set()
        self._crowded = Quiet(log, "openflow: connections were closed: too many without a handshake")
        self._too_slow = Quiet(log, "openflow: connections were closed: no handshake in time")
        self._twins = Quiet(
            log, "openflow: switches were turned away: another one with the same datapath id is connected"
        )
        self._contests: dict[int, Session] = {}
        """By datapath id: who wants to take the place of a switch that is asked whether it is alive."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Life --------------------------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Listens, and returns the port. Raises `OSError` where that is impossible, `ValueError` where it would be insecure."""
        settings = self.settings
        if settings.tls is None and not settings.insecure and not is_loopback(settings.host):
            raise ValueError(
                f"OpenFlow on {settings.host} without TLS: give key and certificates, or listen on loopback"
            )
        context = settings.tls.server() if settings.tls else None
        quieten(self._loop, log)
        self._server = await self._loop.create_server(
            self._accept,
            settings.host,
            settings.port,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
        )
        self.spawn(self._tick_for_ever())
        self.spawn(self._sync_for_ever())
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self) -> Session:
        return Session(self, self.settings.times.confirm_ns / 1e9)

    async def stop(self) -> None:
        """Lets go of all switches; what is in them stays."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in list(self._sessions):
            session.close("the controller ends")
        for _turn in range(10):
            # Connections end by callbacks of the loop.
            await asyncio.sleep(0)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the network; an exception that it leaves is logged."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("openflow: a task failed", exc_info=task.exception())

    def now_ns(self) -> int:
        """The loop's clock."""
        return int(self._loop.time() * 1e9)

    @property
    def settled(self) -> bool:
        """Has it had the time to find what is there?"""
        return self._settled

    # Switches ----------------------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """`session.Events`."""
        self._sessions.add(session)
        if self._stopping:
            session.close("the controller ends")
            return
        # Who has not said who he is takes no place from those who have, and an address none from the others.
        strangers = [each for each in self._sessions if not each.up and not each.is_closing]
        from_there = [each for each in strangers if each.host == session.host]
        crowd = from_there if len(from_there) > MOST_STRANGERS_OF_ONE else strangers
        if crowd is from_there or len(strangers) > MOST_STRANGERS:
            self._crowded.count(self._loop.time())
            min(crowd, key=lambda each: each.opened).close("too many connections without a handshake")

    def closed(self, session: Session) -> None:
        """`session.Events`."""
        self._sessions.discard(session)

    def switch_up(self, session: Session) -> None:
        """`session.Events`."""
        datapath = session.datapath
        if self.settings.only_listed and datapath not in self._listed:
            session.close(f"switch {datapath:016x} is not one of the site's")
            return
        box = self.boxes.setdefault(datapath, SwitchBox(datapath))
        if box.session is None:
            self._take(box, session)
        elif datapath in self._contests:
            self._turn_away(session, box.session)
        else:
            # It has connected anew before its old connection was found dead; or it is another one with the same id.
            self._contests[datapath] = session
            self.spawn(self._contest(box, box.session, session))

    def _take(self, box: SwitchBox, session: Session) -> None:
        box.session = session
        box.ready.clear()
        log.info("openflow: switch %016x connected from %s", box.datapath, session.peer)
        self.spawn(self._begin(box, session))

    async def _contest(self, box: SwitchBox, old: Session, new: Session) -> None:
        """A switch that still answers keeps its place: two with one datapath id would take it from each other for ever."""
        asked = self._loop.time()
        old.ping()
        try:
            while not old.is_closing and old.heard <= asked and self._loop.time() - asked < _ALIVE_S:
                await asyncio.sleep(_TICK_S / 5)
        finally:
            del self._contests[box.datapath]
        if new.is_closing:
            return
        if old.heard > asked and not old.is_closing and box.session is old:
            self._turn_away(new, old)
            return
        if box.session is old:
            box.session = None
            old.close("the switch has opened another connection")
        if box.session is None:
            self._take(box, new)
        else:
            self._turn_away(new, box.session)

    def _turn_away(self, session: Session, other: Session) -> None:
        self._twins.count(
            self._loop.time(), f"{session.datapath:016x} from {session.peer}, connected from {other.peer}"
        )
        session.close("another switch with its datapath id is connected")

    async def _begin(self, box: SwitchBox, session: Session) -> None:
        try:
            await box.read(session)
            if box.session is not session:
                return
            changed = self.learned.switch_connected(box.datapath, session.ports, self.now_ns())
            if not self._settled:
                changed |= self._remember(box)
                self._settle_later()
            if changed:
                self._topology_changed()
            box.want(FIXED, forwarding.fixed(box.datapath, self.settings.punt_packets_per_s))
            try:
                await box.sync(self._keep)
            except SwitchError as error:
                log.warning(
                    "openflow: switch %016x: %s; tried without a meter for what hosts send us", box.datapath, error
                )
                box.want(FIXED, forwarding.fixed(box.datapath, None))
                await box.sync(self._keep)
        except SwitchError as error:
            session.close(f"it cannot be set up: {error}")
            return
        if box.session is session:
            box.ready.set()
            self._lldp_now(box.datapath)
            self._dirty.set()
            self._listener.switch_ready(box.datapath)

    def switch_down(self, session: Session, reason: str) -> None:
        """`session.Events`."""
        box = self.boxes.get(session.datapath)
        if box is None or box.session is not session:
            return
        if self._stopping:
            return
        log.warning("openflow: switch %016x is gone: %s", session.datapath, reason)
        box.session = None
        box.ready.clear()
        if not self.learned.knows(session.datapath) and self._is_strange(session.datapath):
            # It never said what is in it.
            del self.boxes[session.datapath]
        self.learned.switch_disconnected(session.datapath, self.now_ns())
        self._listener.switch_lost(session.datapath)

    def port_status(self, session: Session, port: SeenPort, *, gone: bool) -> None:
        """`session.Events`."""
        if not self._is_current(session):
            return
        if gone:
            changed = self.learned.port_gone(port.id)
        else:
            changed = self.learned.port_seen(port, self.now_ns())
            self._lldp_due.pop(port.id, None)
        if changed:
            self._topology_changed()
            self._send_lldp()

    def _is_current(self, session: Session) -> bool:
        """Does it speak for the switch whose datapath id it says?"""
        box = self.boxes.get(session.datapath)
        return box is not None and box.session is session

    def _forget_strangers(self) -> bool:
        """Switches that are gone and that nobody names or needs were perhaps never there. Is the topology another one now?"""
        forget_ns = self.settings.times.forget_ns
        away = [(since, datapath) for since, datapath in self.learned.away() if self._is_strange(datapath)]
        news = False
        for number, (since, datapath) in enumerate(away):
            if self.now_ns() - since >= forget_ns or len(away) - number > MOST_AWAY:
                news |= self.learned.forget(datapath)
                del self.boxes[datapath]
                for port in [port for port in self._lldp_due if port.switch == datapath]:
                    del self._lldp_due[port]
        return news

    def _is_strange(self, datapath: int) -> bool:
        box = self.boxes.get(datapath)
        return datapath not in self._listed and box is not None and box.session is None and not box.has_channels

    def _keep(self, rule: Rule) -> bool:
        """Is a rule of ours, which nobody wants, to stay for now?"""
        kind = kind_of(rule.cookie)
        if kind is Kind.CHANNEL:
            return self._keep_channel(rule)
        return kind is Kind.HOST and not self._settled

    def clean(self) -> None:
        """Takes out of all switches what nobody wants."""
        for box in self.boxes.values():
            if box.ready.is_set():
                self.spawn(self._cleaned(box))

    async def _cleaned(self, box: SwitchBox) -> None:
        try:
            await box.sync(self._keep)
        except SwitchError as error:
            log.warning("openflow: switch %016x: %s", box.datapath, error)

    # Time --------------------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._loop.time()
            if self._unheard:
                self._lldp_again()
            self._send_lldp()
            expired = self.learned.expire(self.now_ns())
            if self._forget_strangers() or expired:
                self._topology_changed()
            if now >= self._echo_due:
                self._echo_due = now + self.settings.times.echo_period_ns / 1e9
                self._echo(now)
            if not self._settled:
                self._settled = now >= self._settled_at
                missing = any(not self._is_ready(datapath) for datapath in self._listed)
                if (self._settled or not missing) and self.learned.recover(self.now_ns(), at_last=self._settled):
                    self._topology_changed()
                if self._settled:
                    self.learned.forget_found()
                    # What was kept of hosts that did not come goes with the next rules.
                    self._dirty.set()
                    self.clean()

    def _is_ready(self, datapath: int) -> bool:
        box = self.boxes.get(datapath)
        return box is not None and box.ready.is_set()

    def _echo(self, now: float) -> None:
        for session in list(self._sessions):
            if not session.up and now - session.opened > HANDSHAKE_S:
                self._too_slow.count(now)
                session.close("no handshake in time")
            elif now - session.heard > self.settings.times.echo_lost_after_ns / 1e9:
                session.close("it has been silent for too long")
            elif session.up:
                session.ping()

    def _remember(self, box: SwitchBox) -> bool:
        """Hosts that a controller before this one has learned, from the rules that it left. Is the topology another one now?"""
        changed = False
        for rule, number in box.hosts_present():
            mac = _target(rule)
            out = next((action.port for action in rule.actions if isinstance(action, Output)), None)
            if mac is not None and out is not None:
                address = str(ipaddress.IPv4Address(number)) if 0 < number < 1 << 32 else None
                changed |= self.learned.host_found(mac, address, PortId(box.datapath, out))
        return changed

    def _settle_later(self) -> None:
        """A switch that comes late gets the time in which its links and hosts are found, if not for ever: one may come and go."""
        times = self.settings.times
        needed = (2 * times.edge_after_ns) / 1e9
        self._settled_at = min(max(self._settled_at, self._loop.time() + needed), self._settled_at_last)

    def _lldp_now(self, datapath: int) -> None:
        """A switch hears and is heard from now on: its own frames go at once, and those of ports from which it may have missed one at the next tick."""
        for port in [port for port in self._lldp_due if port.switch == datapath]:
            del self._lldp_due[port]
        self._send_lldp()
        self._unheard = True

    def _lldp_again(self) -> None:
        self._unheard = False
        for port in self.learned.unheard_ports():
            self._lldp_due.pop(port, None)

    def _send_lldp(self) -> None:
        now = self._loop.time()
        period = self.settings.times.lldp_period_ns / 1e9
        ttl = max(1, round(self.settings.times.lldp_lost_after_ns / 1e9))
        for port in self.learned.live_ports():
            box = self.boxes.get(port.id.switch)
            if box is None or not box.ready.is_set() or now < self._lldp_due.get(port.id, 0.0):
                continue
            self._lldp_due[port.id] = now + period
            self._send_out(box, lldp.frame(port.id, _LLDP_MAC, self._key, ttl), [port.id.number])

    def unreadable(self, session: Session) -> None:
        """`session.Events`."""
        self._unreadable()

    # Frames of hosts ---------------------------------------------------------------------------------------------------------

    def packet_in(self, session: Session, in_port: int, cookie: int, data: bytes) -> None:
        """`session.Events`."""
        if not self._is_current(session):
            return
        at = PortId(session.datapath, in_port)
        if cookie == forwarding.LLDP_COOKIE:
            out = lldp.sender(data, self._key)
            if out is not None and self.learned.link_heard(out, at, self.now_ns()):
                self._topology_changed()
            return
        frame = frames.read(data)
        if frame is None:
            return
        if cookie == forwarding.PROBE_COOKIE or frame.destination == SINK_MAC:
            self._listener.probe_caught(frame, at, astray=cookie != forwarding.PROBE_COOKIE)
            return
        if self.learned.host_seen(frame.source, frame.sender, at, self.now_ns()):
            self._topology_changed()
        self._pass_on(frame, data, at)

    def _pass_on(self, frame: Frame, data: bytes, at: PortId) -> None:
        """What no rule took: answered from what is known, sent to where its target is, or out of all ports that lead to hosts."""
        if frame.ipv4 is not None and frame.ipv4.protocol == frames.IGMP:
            # Its sender is known now; whom it wants to hear is nobody's business here.
            return
        if self.learned.is_link_port(at):
            # From another switch: it was sent for a host that has just gone, and must not go round.
            return
        if frame.arp is not None and frame.arp.operation == ARP_REQUEST and frame.destination == BROADCAST:
            mac = self.learned.mac_of(frame.arp.target)
            if mac is not None and mac != frame.source:
                reply = frames.arp_reply(mac, frame.arp.target, frame.arp.sender_mac, frame.arp.sender)
                self._send_out(self.boxes[at.switch], reply, [at.number])
                return
        known = None if frame.is_group else self.learned.places().get(frame.destination)
        targets = [known] if known is not None else self.learned.edge_ports(self.now_ns())
        per_switch: dict[int, list[int]] = {}
        for port in targets:
            if port != at:
                per_switch.setdefault(port.switch, []).append(port.number)
        unmark: list[Action] = (
            [SetField("ip_dscp", forwarding.BEST_EFFORT)] if frame.kind in (ETH_IPV4, ETH_IPV6) else []
        )
        for datapath, ports in per_switch.items():
            self._send_out(self.boxes[datapath], data, ports, unmark)

    def _send_out(self, box: SwitchBox, data: bytes, ports: list[int], before: list[Action] | None = None) -> None:
        session = box.session
        if session is not None and box.ready.is_set():
            actions: list[Action] = [*(before or ()), *(Output(port) for port in ports)]
            session.send([codec.packet_out(session.switch, data, actions)])

    # Best effort -------------------------------------------------------------------------------------------------------------

    def _topology_changed(self) -> None:
        self._listener.changed(self.learned.topology())
        self._dirty.set()

    async def _sync_for_ever(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_SYNC_DELAY_S)
            self._dirty.clear()
            self._forwarding = forwarding.Forwarding(self.learned.topology())
            places = self.learned.places()
            addresses = {mac: self.learned.first_address(mac) for mac in places}
            unknown = self.learned.unknown_ports()
            ready = [box for box in self.boxes.values() if box.ready.is_set()]
            puts: list[Coroutine[Any, Any, None]] = []
            for box in ready:
                rules = self._forwarding.rules(box.datapath, places, addresses)
                if not self._settled:
                    found = (rule for rule, _number in box.hosts_present())
                    rules += [rule for rule in found if self.learned.is_awaited(_target(rule) or "")]
                ports = [port.number for port in unknown if port.switch == box.datapath]
                metered = forwarding.PUNT_METER in box.present.meters
                puts.append(self._put_hosts(box, rules + forwarding.unknown_port_rules(ports, metered=metered)))
            await asyncio.gather(*puts)

    async def _put_hosts(self, box: SwitchBox, rules: list[Rule]) -> None:
        tables = Tables()
        tables.add(rules)
        try:
            await box.put(HOSTS, tables)
        except SwitchError as error:
            log.warning("openflow: switch %016x: best effort is not as it is to be: %s", box.datapath, error)


def _target(rule: Rule) -> str | None:
    """The MAC address that a rule is for."""
    mac = dict(rule.match).get("eth_dst")
    return mac if isinstance(mac, str) else None


def is_loopback(host: str) -> bool:
    """Is this address reachable from this machine alone?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
