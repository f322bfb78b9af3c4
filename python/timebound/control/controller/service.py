"""The thread that owns the desk, with the store and the network around it.

Whatever happens elsewhere becomes an item of one queue: rows of the table, topologies, states of channels. The thread takes all that wait (so a
hundred requests that come together are decided together), steps the desk once, and carries its orders out: none of them waits. What is left
over is done when the queue is empty.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog

from timebound import __version__
from timebound.control.controller.audit import Audit
from timebound.control.controller.desk import Desk, Orders
from timebound.control.controller.metrics import Metrics
from timebound.control.controller.view import view
from timebound.control.enforcer import Enforcer
from timebound.control.planner import Site, lay_out
from timebound.control.srt.rows import ChannelState, ControllerRow, Outcome, VerdictRow
from timebound.control.srt.rules import Pulse
from timebound.control.srt.store import Delete, Put, Store
from timebound.control.topology import Topology

log = structlog.get_logger("timebound.controller")

BEAT_NS = 1_000_000_000
STALE_NS = 5_000_000_000
"""A manager whose beat has not changed for so long is gone, and what it asked for is given back."""
_LONGEST_WAIT_S = 0.25
_PATIENCE_NS = 10_000_000_000
"""Health: a thread that has not come round for so long is stuck."""


@dataclass(frozen=True, slots=True)
class _News:
    kind: Literal["table", "topology", "channel", "revoke", "retry", "end"]
    content: Any = None


class Service:
    """`start` begins, `close` ends it; reservations stay in the network, for the controller that comes next. `alive` is called every second
    in which the thread comes round."""

    def __init__(
        self,
        name: str,
        store: Store,
        enforcer: Enforcer,
        site: Site,
        *,
        audit: Audit | None = None,
        metrics: Metrics | None = None,
        url: str | None = None,
        backups: bool = True,
        grace_ns: int = 3_000_000_000,
        alive: Callable[[], None] = lambda: None,
        expected: Collection[str] = (),
        wall: Callable[[], int] = time.time_ns,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.name, self.store, self.enforcer, self.url = name, store, enforcer, url
        self.metrics = metrics or Metrics()
        self.audit = audit or Audit(None)
        self._desk = Desk(site, backups=backups, grace_ns=grace_ns)
        # Switches of the site: what `readiness` waits for.
        self._expected = frozenset(expected)
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._pulse = Pulse(STALE_NS)
        self._alive, self._wall, self._clock = alive, wall, clock
        self._beaten_ns = 0
        self._beats: deque[int] = deque(maxlen=30)
        self._others_pulse = Pulse(STALE_NS)
        self._others: frozenset[str] = frozenset()
        self._came_round_ns = clock()
        self._began_ns = wall()
        self._changed = threading.Condition()
        self._shown = 0
        self._view: dict[str, Any] = view(self._desk, wall(), connected=False)
        self._granted = (self._desk.world(), self._desk.state)
        self._answered: dict[str, int] = {}
        """Requests with the revision of which a verdict has been written, by whoever decided."""
        self._more = False
        self._adopted = False
        self._ended = False
        self._desk.breath = self._breathe
        self._thread = threading.Thread(target=self._run, name=f"controller-{name}", daemon=True)

    def start(self) -> None:
        """Begins to watch and to decide."""
        self.enforcer.watch(
            lambda topology: self._news.put(_News("topology", topology)),
            lambda channel, state, reason: self._news.put(_News("channel", (channel, state, reason))),
        )
        self._news.put(_News("topology", self.enforcer.topology()))
        self.store.watch(lambda _: self._news.put(_News("table")))
        self._news.put(_News("table"))
        self._thread.start()
        log.info("controller started", name=self.name, version=__version__)

    def close(self) -> None:
        """Ends the thread. The beat is taken out, so that managers know at once."""
        if self._thread.is_alive():
            self._news.put(_News("end"))
            self._thread.join()
        self.audit.close()

    # For others -------------------------------------------------------------------------------------------------------------

    @property
    def view(self) -> dict[str, Any]:
        """The latest document (`view`); not to be changed."""
        return self._view

    @property
    def scenario(self) -> str:
        """What is granted, as a scenario file."""
        world, state = self._granted
        return lay_out(world, state).scenario.to_yaml()

    def wait(self, known: int, timeout_s: float) -> int:
        """Waits until there is a later document than number `known`; the number of the latest."""
        with self._changed:
            self._changed.wait_for(lambda: self._shown != known or self._ended, timeout_s)
            return self._shown

    @property
    def ended(self) -> bool:
        """Is it over?"""
        return self._ended

    def revoke(self, request: str, by: str) -> None:
        """Takes a grant back until the client asks anew."""
        self._news.put(_News("revoke", (request, by)))

    def retry(self, request: str) -> None:
        """Decides a refused request once more."""
        self._news.put(_News("retry", request))

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Does it do its work? And the parts that matter."""
        turning = not self._ended and self._clock() - self._came_round_ns < _PATIENCE_NS
        parts = {"deciding": turning, "store": self.store.connected, "network_known": bool(self._view["ready"])}
        return turning and self.store.connected, parts

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Can it decide about whatever a client of the site asks? And what is missing."""
        well, parts = self.health()
        topology = self.enforcer.topology()
        here = {name for name, switch in topology.switches.items() if switch.connected}
        joined = {link.source for link in topology.links.values() if link.up}
        missing = sorted(self._expected - here)
        alone = sorted(self._expected & here - joined) if len(self._expected) > 1 else []
        parts |= {"switches": len(here), "switches_missing": missing, "switches_without_links": alone}
        return well and bool(here) and bool(parts["network_known"]) and not missing and not alone, parts

    # The thread -------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                self._came_round_ns = self._clock()
        finally:
            self.store.transact([Delete("controllers", self.name)], wait_s=1.0)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _turn(self) -> bool:
        news = self._take()
        if any(item.kind == "end" for item in news):
            return False
        try:
            self._beat()
            worth = self._learn(news)
            if worth or self._is_due():
                began = self._clock()
                orders = self._desk.step(self._wall())
                self.metrics.planning.observe((self._clock() - began) / 1e9)
                self._carry_out(orders)
                self._more = True
            elif not news:
                left = self._desk.idle(self._wall())
                self._more = left is not None
                if left is not None:
                    self._carry_out(left)
        except Exception:
            # A defect must not end the service: MQTT goes on as best effort, and the next turn may do.
            self.metrics.failures.inc()
            log.exception("a step failed")
            time.sleep(0.1)
        return True

    def _take(self) -> list[_News]:
        """All that waits; if there is none, what comes first, for a while."""
        found: list[_News] = []
        try:
            found.append(self._news.get(timeout=self._patience_s()))
            while True:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found

    def _patience_s(self) -> float:
        if self._more:
            return 0.0
        due = self._desk.next_ns()
        return _LONGEST_WAIT_S if due is None else min(_LONGEST_WAIT_S, max(0.0, (due - self._wall()) / 1e9))

    def _is_due(self) -> bool:
        due = self._desk.next_ns()
        return due is not None and due <= self._wall()

    def _learn(self, news: list[_News]) -> bool:
        """Tells the desk; is there anything to decide?"""
        desk, worth = self._desk, False
        for item in news:
            if item.kind == "topology":
                topology: Topology = item.content
                worth = worth or topology != desk.topology
                desk.know_topology(topology)
            elif item.kind == "channel":
                channel, state, reason = item.content
                desk.know_channel(channel, ChannelState(state), reason, self._wall())
                worth = True
            elif item.kind == "revoke":
                desk.revoke(*item.content)
                worth = True
            elif item.kind == "retry":
                desk.retry(item.content)
                worth = True
        tables = self.store.snapshot()
        beats = {row.id: row.beat_ns for row in tables.managers.values()}
        self._pulse.observe(beats, self._wall(), self._clock())
        alive = self._pulse.alive(self._clock())
        self._look_for_others(tables.controllers)
        # A beat alone is no news to anybody but the pulse.
        bare = {name: replace(row, beat_ns=0) for name, row in tables.managers.items()}
        tables = desk.seen(replace(tables, managers=bare, controllers={}))
        if self.store.connected and (tables != desk.tables or alive != desk.alive):
            desk.know_tables(tables, alive)
            self._answered = {id: at for id, at in self._answered.items() if id in tables.requests}
            self._answered |= {id: verdict.revision for id, verdict in tables.verdicts.items()}
            worth = True
        return worth

    def _look_for_others(self, rows: Mapping[str, ControllerRow]) -> None:
        """Two that decide about one table write over each other: that is told, since neither can know who is meant to."""
        own = rows.get(self.name)
        beats = {name: row.beat_ns for name, row in rows.items() if name != self.name}
        if own is not None and own.beat_ns > self._began_ns and own.beat_ns not in self._beats:
            # Its beats come under our name.
            beats[self.name] = own.beat_ns
        self._others_pulse.observe(beats, self._wall(), self._clock())
        others = self._others_pulse.alive(self._clock())
        for name in sorted(others - self._others):
            same = "another controller uses this name" if name == self.name else "another controller decides as well"
            log.error(same, name=name, hint="stop one of them: each answers, and the last one counts")
        self._others = others

    def _breathe(self) -> None:
        """In the midst of a decision. What is asked by way of REST is worked out by other threads, whose life says nothing of this one's."""
        if threading.current_thread() is self._thread:
            self._beat()

    def _beat(self) -> None:
        now = self._clock()
        if self._beaten_ns and now - self._beaten_ns < BEAT_NS:
            return
        self._beaten_ns = now
        self._alive()
        row = ControllerRow(id=self.name, version=__version__, beat_ns=self._wall(), url=self.url)
        self._beats.append(row.beat_ns)
        self.store.transact([Put(row)], wait_s=0)

    def _carry_out(self, orders: Orders) -> None:
        for channel in orders.remove:
            self.enforcer.remove(channel)
        for row, backup in orders.install:
            self.enforcer.install(row, backup)
        for order in orders.groups:
            self.enforcer.install_group(order)
        self._say_adopted()
        if orders.changes:
            self.store.transact(orders.changes, wait_s=0)
        self._note(orders)
        self._show()

    def _say_adopted(self) -> None:
        """Once everything that is wanted is ordered after the start, what else is found in switches is nobody's."""
        if self._desk.ready and not self._adopted:
            self._adopted = True
            self.enforcer.adopted()

    def _note(self, orders: Orders) -> None:
        desk = self._desk
        self.metrics.decisions.inc(orders.decided)
        for change in orders.changes:
            if isinstance(change, Put) and isinstance(change.row, VerdictRow):
                verdict = change.row
                self.metrics.verdicts.labels(verdict.outcome.value).inc()
                request = desk.tables.requests.get(verdict.id)
                first = self._answered.get(verdict.id) != verdict.revision
                self._answered[verdict.id] = verdict.revision
                # One that is renewed says nothing of how long its client waited.
                if first and request is not None and verdict.outcome is Outcome.GRANTED:
                    self.metrics.proven.observe(max(0.0, (verdict.decided_ns - request.asked_ns) / 1e9))
        for told in orders.told:
            log.info(told.what, id=told.id, outcome=told.outcome, reason=told.text)
        self.audit.write(orders.told, desk.tables, self._wall())

    def _show(self) -> None:
        connected = self.store.connected
        found = view(self._desk, self._wall(), connected=connected)
        self.metrics.show(self._desk, connected)
        with self._changed:
            self._view, self._granted = found, (self._desk.world(), self._desk.state)
            self._shown += 1
            self._changed.notify_all()
