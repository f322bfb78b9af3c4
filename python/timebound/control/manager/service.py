"""The running manager: the intermediary's events, the store's changes and the clock come in over one queue, and one thread acts on them."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from timebound import __version__
from timebound.control.manager import desk as desks
from timebound.control.manager import groups
from timebound.control.manager.announce import Announcer
from timebound.control.manager.audit import LONGEST, Audit
from timebound.control.manager.configuration import Configuration
from timebound.control.manager.host import OTHER_FILES, connections_that_fit, reached_at
from timebound.control.manager.metrics import Figures, registry
from timebound.control.manager.reach import Reach
from timebound.control.quiet import Quiet
from timebound.control.srt.rows import GroupRow, ManagerRow, VerdictRow
from timebound.control.srt.rules import Pulse
from timebound.control.srt.store import Change, Delete, NotYoursError, Put, Store
from timebound.control.systemd import tell_systemd
from timebound.control.text import shortened
from timebound.control.web import Web

BEAT_S = 1.0
NAMESAKE_S = 5 * BEAT_S
"""Another manager with this name is spoken of for so long after its last beat."""
POLL_MS = 250
MOST_AT_ONCE = 1000
"""Things that are acted on together, in one transaction."""
MOST_WAITING = 20_000
"""Things that wait to be acted on; beyond, the intermediary keeps its events and in the end answers by itself."""
EVERYTHING = ("#",)
MOST_FILTERS = 256
HUNG_S = 10.0
"""The service is not well when nothing has been looked at for so long."""
CROWDED = "connections were closed that the broker had not accepted yet: too many of one address, or too much memory"
FEWEST_CONNECTIONS = 16
"""With room for fewer, and more wanted, it is not ready."""

log = logging.getLogger("timebound.manager")


class Core(Protocol):
    """The intermediary (`timebound._core.Manager`)."""

    def addresses(self) -> list[tuple[str, int]]: ...
    def poll(self, timeout_ms: int) -> list[str]: ...
    def verdict(self, verdict: str) -> None: ...
    def control(self, alive: bool) -> None: ...
    def groups(self, groups: str) -> None: ...
    def stats(self) -> str: ...
    def stop(self) -> None: ...


_Thing = str | tuple[Change, ...] | None
"""An event of the intermediary; changes of the table; something else is due."""


class Service:
    """A manager that serves from its making until `close`; `run` does its work."""

    def __init__(self, said: Configuration, core: Core, store: Store, row: ManagerRow | None = None) -> None:
        """`core` serves already; the store is written as `Writer(Role.MANAGER, said.name)`, and was opened with `row` (`first_row`) as wanted.

        Raises:
            OSError: a file or address of the configuration cannot be used.
        """
        self.name = said.name
        self._core, self._store = core, store
        self._desk = desks.Desk(said.policy)
        self._audit = Audit(said.audit)
        self._inbox: queue.Queue[_Thing] = queue.Queue(MOST_WAITING)
        self._stopping = threading.Event()
        self._pulse = Pulse()
        self._row = row or first_row(said, core)
        self._beats: deque[int] = deque([self._row.beat_ns] if row is not None else [], maxlen=30)
        self._namesake_until = 0.0
        self._told: tuple[str, ...] | None = None
        """Filters of clients, as the intermediary has said last."""
        self._inherited: tuple[str, ...] | None = None
        """Filters of a former life of this manager; `None`: the table was not seen yet."""
        self._next_beat = 0.0
        self._looked = time.monotonic()
        self._since_ns = time.time_ns()
        self._states: Counter[str] = Counter()
        self._reopen = False
        self._peering: str | None = None if said.core["peer"] is None else ""
        """What the intermediary was told of other networks; `None`: it exchanges nothing."""
        self._relay: bool = said.core["peer"] is not None and said.core["peer"]["relay"]
        self._groups: set[str] = set()
        """To which it sends."""
        self.figures = Figures(core.stats, lambda: {state.value: self._states[state.value] for state in desks.State})
        self._wanted: int = said.core["limits"]["connections"]
        self._fits = connections_that_fit(self._wanted)
        self._reach = Reach(said.core["broker"]["address"], said.core["broker"]["port"])
        self._poller = threading.Thread(target=self._poll, name="manager-poll", daemon=True)
        # Questions come from the moment at which it is made: it needs all that stands above.
        self._web = Web(*said.http, registry(self.figures), self._healthy, self._ready)
        self._crowded = Quiet(log, CROWDED)
        self._seen: Counter[str] = Counter()
        """Strangers that were refused or crowded out, by which of the two, as the intermediary said last."""
        self._crowd: Counter[str] = Counter()
        """Of these, those that were not told yet."""
        self._announcer = Announcer(said.announce, said.name, said.core["broker"]) if said.announce else None

    @property
    def web_port(self) -> int:
        """Where metrics and health are served."""
        return self._web.port

    def run(self) -> None:
        """Works until `stop` is called, then leaves in order: clients are let go, the table is cleared, a last word is said."""
        self._store.watch(self._put)
        self._store.on_connected(lambda connected: self._put(None))
        self._poller.start()
        self._announce_state()
        tell_systemd("READY=1")
        log.info(
            "serving",
            extra={"at": [f"{address}:{port}" for address, port in self._core.addresses()], "manager": self.name},
        )
        if self._fits < self._wanted:
            log.warning(
                "the limit of open files leaves room for fewer connections than limits.connections",
                extra={"room": self._fits, "limit": self._wanted, "hint": self._room_hint()},
            )
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._leave()

    def stop(self) -> None:
        """Makes `run` end; may be called from a signal handler."""
        self._stopping.set()

    def reopen_audit(self) -> None:
        """The audit log was moved away; may be called from a signal handler."""
        self._reopen = True

    def _put(self, thing: _Thing) -> None:
        """Waits while there is too much to do, but not for a service that ends."""
        while not self._stopping.is_set():
            try:
                return self._inbox.put(thing, timeout=0.2)
            except queue.Full:
                continue
        return None

    def _poll(self) -> None:
        """Takes the intermediary's events as fast as they are worked on, and no faster."""
        while not self._stopping.is_set():
            for text in self._core.poll(POLL_MS):
                self._put(text)

    def _turn(self) -> None:
        things: list[_Thing] = []
        try:
            things.append(self._inbox.get(timeout=max(0.0, min(0.25, self._next_beat - time.monotonic()))))
            while len(things) < MOST_AT_ONCE:
                things.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        self._looked = time.monotonic()
        self._look_for_control()
        if self._inherited is None:
            self._look_at_interests()
        self._act(desks.join(self._on(thing) for thing in things))
        if any(_concerns_peers(thing) for thing in things):
            self._look_for_groups()
        if time.monotonic() >= self._next_beat:
            self._beat()

    def _on(self, thing: _Thing) -> desks.Doing:
        now_ns = time.time_ns()
        if isinstance(thing, str):
            try:
                return self._desk.event(thing, now_ns)
            except desks.EventError:
                log.exception("an event of the intermediary cannot be read")
                return desks.Doing()
        return desks.join(self._desk.verdict(row, now_ns) for row in self._verdicts(thing or ()))

    def _verdicts(self, changes: tuple[Change, ...]) -> list[VerdictRow]:
        found = []
        for change in changes:
            if not isinstance(change, Put):
                continue
            if isinstance(change.row, VerdictRow):
                found.append(change.row)
            elif (
                isinstance(change.row, ManagerRow)
                and change.row.id == self.name
                and change.row.beat_ns not in self._beats
                and change.row != self._store.former.managers.get(self.name)
            ):
                self.figures.count("namesakes")
                self._namesake_until = time.monotonic() + NAMESAKE_S
                log.error("another manager uses this name", extra={"manager": self.name})
        return found

    def _act(self, doing: desks.Doing) -> None:
        if doing.changes:
            self._write(doing)
        if doing.interests is not None:
            self._told = doing.interests
            self._look_at_interests()
        for row in doing.verdicts:
            self._core.verdict(json.dumps(desks.verdict_json(row)))
        self._audit.write(doing.audit)
        self.figures.count("audit_entries", len(doing.audit))
        self.figures.count("forbidden", doing.forbidden)
        for words, about in doing.log:
            level = logging.INFO if words == desks.WORKS_AGAIN else logging.WARNING
            log.log(level, words, extra={"about": shortened(about, LONGEST)})
        if self._announcer is not None:
            for id, request in doing.touched.items():
                self._announcer.request(id, self._about(request) if request is not None else None)
            for id, group in doing.groups.items():
                self._announcer.group(id, group if id in self._groups else None)

    def _look_for_groups(self) -> None:
        """The intermediary is told what it has to do with other networks, if that has changed."""
        if self._peering is None or not self._store.connected:
            return
        wanted = groups.wanted(self._store.snapshot(), self.name, relay=self._relay)
        text = json.dumps(wanted, sort_keys=True)
        if text == self._peering:
            return
        self._peering = text
        sends = {each["id"] for each in wanted["sends"]}
        gone, self._groups = self._groups - sends, sends
        if self._announcer is not None:
            for id in gone:
                self._announcer.group(id, None)
        try:
            self._core.groups(text)
        except ValueError:
            log.exception("what the table says of groups cannot be done")
        else:
            log.info("groups", extra={"sends": sorted(sends), "receives": [each["id"] for each in wanted["receives"]]})

    def _write(self, doing: desks.Doing) -> None:
        """All changes together; where one of them is refused for good, one by one, so that it spoils no other."""
        self.figures.count("store_transactions")
        try:
            self._store.transact(doing.changes, wait_s=0)
            return
        except (NotYoursError, ValueError):
            log.warning("the store refused changes", exc_info=True)
        for change in doing.changes:
            try:
                self._store.transact([change], wait_s=0)
            except (NotYoursError, ValueError) as error:
                id = change.id if isinstance(change, Delete) else change.row.id
                more = self._desk.unwritable([id], f"the table cannot hold it: {error}", time.time_ns())
                doing.verdicts += more.verdicts
                doing.audit += more.audit
                doing.touched |= more.touched

    def _about(self, request: desks.Request) -> dict[str, Any]:
        verdict, row = request.verdict, request.row
        found: dict[str, Any] = {
            "client_id": request.asker.client_id, "side": row.side.value, "topic": row.topic, "state": request.state.value,
        }  # fmt: skip
        if verdict is not None and verdict.revision == row.revision:
            ways = [
                list(channel.links)
                for channel in self._store.snapshot().channels.values()
                if row.id in channel.requests
            ]
            found |= {
                "priority": verdict.priority,
                "bound_ns": verdict.bound_ns,
                "reason": verdict.reason,
                "ways": ways,
            }
        return found

    def _look_for_control(self) -> None:
        why = self._why_without_control()
        if why == self._desk.without_control:
            return
        before, now_ns = self._desk.without_control, time.time_ns()
        if bool(why) != bool(before):
            self._core.control(not why)
        self._act(self._desk.control(why, now_ns))
        self.figures.state(store=self._store.connected, control=not why)
        self._since_ns = now_ns
        if not why:
            log.info("channels are guaranteed", extra={"manager": self.name})
        elif not before:
            self.figures.count("control_lost")
            log.warning("best effort from now on", extra={"manager": self.name, "why": why})
        else:
            log.warning("still best effort", extra={"manager": self.name, "why": why})
        self._announce_state()

    def _why_without_control(self) -> str:
        if not self._store.connected:
            return "the table is out of reach"
        controllers = self._store.snapshot().controllers
        now = time.monotonic_ns()
        self._pulse.observe({row.id: row.beat_ns for row in controllers.values()}, time.time_ns(), now)
        return "" if self._pulse.alive(now) else "no controller is alive"

    def _announce_state(self) -> None:
        if self._announcer is None:
            return
        why = self._desk.without_control
        state = "best-effort" if why else "guaranteed"
        self._announcer.state({"state": state, "why": why, "since_ns": self._since_ns, "version": __version__})

    def _look_at_interests(self) -> None:
        """What managers of other networks are to relay here.

        Sessions outlive a manager that was killed, and their clients need not have come back: so what its row said is wanted still, and everything
        until that row was seen.
        """
        if not self._relay:
            return
        if self._inherited is None and self._store.connected:
            before = self._store.former.managers.get(self.name)
            self._inherited = before.interests if before is not None else ()
        interests = EVERYTHING if self._inherited is None else both(self._inherited, self._told or ())
        if interests != self._row.interests:
            # With the next beat, which is now.
            self._row, self._next_beat = replace(self._row, interests=interests), 0.0

    def _beat(self) -> None:
        self._next_beat = time.monotonic() + BEAT_S
        beat_ns = time.time_ns()
        self._beats.append(beat_ns)
        self._store.transact([Put(replace(self._row, beat_ns=beat_ns))], wait_s=0)
        self._states = Counter(request.state.value for request in self._desk.requests.values())
        self.figures.state(store=self._store.connected, control=not self._desk.without_control)
        self._look_for_groups()
        self._look_at_strangers()
        self._act(self._desk.summed_up(beat_ns))
        tell_systemd("WATCHDOG=1")
        if self._reopen:
            self._reopen = False
            self._audit.reopen()

    def _look_at_strangers(self) -> None:
        """Who was kept out is told at most once a minute, however many there were."""
        strangers = json.loads(self._core.stats())["strangers"]
        now = Counter({key: int(strangers[key]) for key in ("refused", "crowded_out")})
        before, self._seen = self._seen, now
        self._crowd += now - before
        last = strangers["last"] or ""
        if self._crowded.count(time.monotonic(), last, (now - before).total()):
            told, self._crowd = self._crowd, Counter()
            figures = {key: told[key] for key in now}
            self._audit.write([{"event": "strangers", "at_ns": time.time_ns(), **figures, "last": last}])

    def _healthy(self) -> tuple[bool, dict[str, Any]]:
        well = time.monotonic() - self._looked < HUNG_S and (self._poller.is_alive() or not self._poller.ident)
        return well, {"healthy": well}

    def _ready(self) -> tuple[bool, dict[str, Any]]:
        """Does it serve clients? Not without its broker, but without store and controller; what it says of them is for people."""
        reason = self._why_not_ready()
        why = self._desk.without_control
        found = {
            "ready": not reason, "reason": reason, "guaranteed": not why, "why": why, "store": self._store.trouble or "connected",
        }  # fmt: skip
        if time.monotonic() < self._namesake_until:
            found["namesake"] = (
                f"another manager of this table is called {self.name}, too: each takes the other's row for its own"
            )
        return not reason, found

    def _why_not_ready(self) -> str:
        if self._stopping.is_set():
            return "the manager is leaving"
        if not self._poller.ident:
            return "the manager has not started yet"
        if not self._poller.is_alive():
            return "nobody takes the events of the intermediary any more"
        if self._fits < min(self._wanted, FEWEST_CONNECTIONS):
            return f"the limit of open files leaves room for {self._fits} connections: {self._room_hint()}"
        return self._reach.trouble()

    def _room_hint(self) -> str:
        return (
            f"systemd: LimitNOFILE={2 * self._wanted + OTHER_FILES}, shell: ulimit -n {2 * self._wanted + OTHER_FILES}"
        )

    def _leave(self) -> None:
        tell_systemd("STOPPING=1")
        log.info("leaving", extra={"manager": self.name})
        self._stopping.set()
        self._core.stop()
        steps: list[Callable[[], object]] = [
            lambda: self._audit.write(self._desk.summed_up(time.time_ns(), last=True).audit),
            lambda: self._store.transact([Delete("managers", self.name)], wait_s=2.0),
            self._store.close,
            self._web.close,
            self._audit.close,
        ]
        if self._announcer is not None:
            announcer = self._announcer
            steps.append(lambda: announcer.close({"state": "stopped"}))
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("leaving")


def first_row(said: Configuration, core: Core) -> ManagerRow:
    """What a manager says of itself from the beginning on, so that nobody takes one that was killed and starts again for one that is gone."""
    addresses, ports = reached_at(core.addresses())
    broker = said.core["broker"]
    peer = said.core["peer"]
    where = (
        {"peer_address": peer["address"], "peer_port": peer["port"], "peer_sealed": peer["tls"] is not None}
        if peer is not None
        else {}
    )
    return ManagerRow(
        id=said.name, addresses=addresses, ports=ports, broker_address=broker["address"], broker_port=broker["port"], version=__version__,
        beat_ns=time.time_ns(), network=said.core["network"], interests=EVERYTHING if peer is not None and peer["relay"] else (), **where,
    )  # fmt: skip


def both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Filters that match what any of these do; everything where they would be too many."""
    found = {*one, *other}
    return EVERYTHING if len(found) > MOST_FILTERS or "#" in found else tuple(sorted(found))


def _concerns_peers(thing: _Thing) -> bool:
    """May it change what is exchanged with other networks?"""
    if thing is None or isinstance(thing, str):
        return False
    return any(
        isinstance(change.row, GroupRow | ManagerRow)
        if isinstance(change, Put)
        else change.table in ("groups", "managers")
        for change in thing
    )
