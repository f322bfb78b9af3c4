"""All decisions of the controller's service: rows and news of the network in, orders out. No threads, no clock, no input or output.

A verdict `granted` is written only when every channel that the request's flows need is proven; one that is refused is written at once. While a
channel is put in the place of another (another way, another rate) what was granted stays granted: the network changes it without loss.
After a start nothing is decided before the network is known (`ready`): a controller that comes back must not take reservations for lost because
switches and hosts have not reported yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from timebound.control.controller.channels import Held
from timebound.control.controller.groups import HeldGroup
from timebound.control.enforcer import GroupOrder
from timebound.control.planner import (
    Answers,
    Refused,
    Site,
    State,
    World,
    answers,
    decide,
    keep_up,
    offer_for,
    restore,
    settled,
    urgency,
    with_backup,
)
from timebound.control.planner.judge import MANY
from timebound.control.srt.rows import (
    ChannelRow,
    ChannelState,
    GroupRow,
    Offer,
    Outcome,
    RequestRow,
    Tables,
    VerdictRow,
)
from timebound.control.srt.store import Change, Delete, Put
from timebound.control.topology import Topology


@dataclass(frozen=True, slots=True)
class Told:
    """Something for the audit log: what happened to a request or channel."""

    what: str
    """`verdict`, `withdrawn`, `channel`, `group`."""
    id: str
    text: str
    outcome: str = ""


@dataclass(slots=True)
class Orders:
    """What is to be done outside, in this order: removals, installations, changes of the table."""

    remove: list[str] = field(default_factory=list)
    install: list[tuple[ChannelRow, tuple[str, ...]]] = field(default_factory=list)
    groups: list[GroupOrder] = field(default_factory=list)
    """To be installed."""
    changes: list[Change] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    decided: int = 0
    """How many requests were decided."""


@dataclass(slots=True)
class _Refusal:
    """What a request was told that is not granted."""

    revision: int
    refused: Refused
    offer: Offer


class Desk:
    """The controller's mind. Call `step` after any of the others."""

    def __init__(self, site: Site, *, backups: bool = True, grace_ns: int = 3_000_000_000) -> None:
        self.site = site
        self.backups = backups
        self.grace_ns = grace_ns
        self.tables = Tables()
        self.topology = Topology({}, {}, {}, {})
        self.alive: frozenset[str] | None = None
        """Managers whose beats are fresh; `None`: all."""
        self.state = State()
        self.answers = Answers()
        self.held: dict[str, Held] = {}
        self.groups: dict[str, HeldGroup] = {}
        self.refusals: dict[str, _Refusal] = {}
        self.ready = False
        self._began_ns: int | None = None
        self._read = False
        self._retry: list[str] = []
        self._offerless: list[str] = []
        """Refused requests that are told what would be admitted when there is time."""
        self._unbacked: list[str] = []
        self._revoked: set[tuple[str, int]] = set()
        self._changed = False
        self._orders = Orders()
        self.breath: Callable[[], object] = lambda: None
        """See `World.breath`."""

    # News -------------------------------------------------------------------------------------------------------------------

    def know_tables(self, tables: Tables, alive: frozenset[str] | None = None) -> None:
        """The table as it is now, and which managers are alive. Verdicts and channels are read from it once: nobody else writes them, and what
        was written last may not be in it yet."""
        self.tables, self.alive, self._read = self.seen(tables), alive, True

    def seen(self, tables: Tables) -> Tables:
        """The table with verdicts and channels as they were written last."""
        if not self.ready:
            return tables
        ours = self.tables
        return replace(tables, verdicts=ours.verdicts, channels=ours.channels, groups=ours.groups)

    def know_topology(self, topology: Topology) -> None:
        """The network as it is now. What was refused may fit now."""
        if topology != self.topology:
            self.topology = topology
            # Rates and delays may be others, too.
            self.state = self.state.with_judged(None)
            self._retry = list(self.refusals)

    def know_channel(self, channel: str, state: ChannelState, reason: str, now_ns: int) -> None:
        """News of a reservation: a channel's or a group's."""
        group = self.groups.get(channel)
        if group is not None:
            later = group.told(state, reason, now_ns)
            if later is not group:
                self.groups[channel] = later
                self._orders.told.append(Told("group", channel, reason, later.state.value))
            return
        held = self.held.get(channel)
        if held is None:
            return
        after = held.told(state, reason, now_ns)
        if after is not held:
            self.held[channel] = after
            self._orders.told.append(Told("channel", channel, reason, after.state.value))

    def revoke(self, request: str, by: str) -> None:
        """An administrator takes a grant back: it is refused until the client asks anew."""
        row = self.tables.requests.get(request)
        if row is None:
            return
        self.state = self.state.without([request])
        refused = Refused(request, Outcome.REFUSED, f"taken back by {by}")
        self.refusals[request] = _Refusal(row.revision, refused, Offer())
        self._revoked.add((request, row.revision))
        self._changed = True

    def retry(self, request: str) -> None:
        """A refused request is decided once more."""
        self._revoked = {(name, revision) for name, revision in self._revoked if name != request}
        if self.refusals.pop(request, None) is not None:
            self._changed = True

    # Decisions --------------------------------------------------------------------------------------------------------------

    def world(self) -> World:
        """What the planner sees: rows of managers that are alive."""
        return World(self.topology, self.site, living(self.tables, self.alive), self.breath)

    def step(self, now_ns: int) -> Orders:
        """Decides whatever is to be decided now (ns since 1970)."""
        if self._began_ns is None:
            self._began_ns = now_ns
        world = self.world()
        if not self.ready:
            if not self._is_known(now_ns):
                return self._taken()
            self._begin(world)
        before = self.state
        kept = keep_up(world, self.state)
        if kept.released:
            self._retry = list(self.refusals)
        pending = [*kept.displaced, *self._new(world, kept.state, set(kept.displaced))]
        decided = decide(world, kept.state, pending)
        self._orders.decided += len(pending)
        self.state = settled(world, decided.state)
        for request in pending:
            self.refusals.pop(request, None)
        for request, refused in decided.refused.items():
            row = world.tables.requests.get(request)
            if row is not None:
                self.refusals[request] = _Refusal(row.revision, refused, self._offer(world, request, refused))
        if self.state != before or pending or self._changed:
            self._replan(world, None if self._changed else before)
            self._changed = False
        self._install(now_ns)
        self._tell(world, now_ns)
        return self._taken()

    def _offer(self, world: World, request: str, refused: Refused) -> Offer:
        """What would be admitted in the place of a request; with many streams, where each of its twenty-odd predictions takes long, later."""
        if self.state.judged is not None and len(self.state.judged.declared) > MANY:
            if request not in self._offerless:
                self._offerless.append(request)
            return Offer()
        return offer_for(world, self.state, refused)

    def idle(self, now_ns: int) -> Orders | None:
        """A piece of work that can wait: an offer to who was refused, asking once more for what was refused, or a disjoint way. `None`: there is none."""
        if not self.ready:
            return None
        world = self.world()
        while self._offerless:
            request = self._offerless.pop(0)
            refusal = self.refusals.get(request)
            row = world.tables.requests.get(request)
            if refusal is not None and row is not None and row.revision == refusal.revision:
                self.refusals[request] = replace(refusal, offer=offer_for(world, self.state, refusal.refused))
                self._tell(world, now_ns)
                return self._taken()
        while self._retry:
            request = self._retry.pop(0)
            row = world.tables.requests.get(request)
            if request in self.refusals and row is not None and (request, row.revision) not in self._revoked:
                decided = decide(world, self.state, [request])
                if request in decided.state.granted:
                    del self.refusals[request]
                    self.state = decided.state
                    self._replan(world, None)
                return self.step(now_ns)
        while self._unbacked and self.backups:
            connection = self._unbacked.pop(0)
            if connection in self.state.routes:
                after = with_backup(world, self.state, connection)
                if after is not self.state:
                    self.state = after
                    self.answers = answers(world, after)
                    return self.step(now_ns)
                return Orders()
        return None

    def _taken(self) -> Orders:
        orders, self._orders = self._orders, Orders()
        return orders

    def _is_known(self, now_ns: int) -> bool:
        """Has the table been read, and are all links there that reservations go over? Or was there time enough for them?"""
        assert self._began_ns is not None
        if not self._read:
            return False
        if now_ns - self._began_ns >= self.grace_ns:
            return True
        rows: tuple[ChannelRow | GroupRow, ...] = (*self.tables.channels.values(), *self.tables.groups.values())
        links = {name for row in rows for name in row.links}
        up = {link.name for link in self.topology.links.values() if link.up}
        return bool(links) and links <= up

    def _begin(self, world: World) -> None:
        """The state as the table tells it; what it has in the network is ordered again, in the place of itself."""
        self.ready = True
        self.state = settled(world, restore(world))
        self._replan(world, None)
        for name in self.tables.channels:
            if name not in self.answers.channels:
                self._orders.remove.append(name)
                self._orders.changes.append(Delete("channels", name))
        for name in self.tables.groups:
            if name not in self.answers.groups:
                self._orders.remove.append(name)
                self._orders.changes.append(Delete("groups", name))

    def _new(self, world: World, state: State, displaced: set[str]) -> list[str]:
        """Requests that nobody has decided yet, or that have changed since."""
        found = []
        for request, row in world.tables.requests.items():
            if request in state.granted or request in displaced:
                continue
            refusal = self.refusals.get(request)
            if refusal is None or refusal.revision != row.revision:
                found.append(request)
        return sorted(found, key=lambda request: (world.tables.requests[request].asked_ns, request))

    def _replan(self, world: World, before: State | None) -> None:
        self.answers = answers(world, self.state)
        # Every grant takes something from the others' disjoint ways.
        if before is None or before.granted != self.state.granted or before.routes != self.state.routes:
            self._unbacked = urgency_of_connections(world, self.state)

    # Orders -----------------------------------------------------------------------------------------------------------------

    def _install(self, now_ns: int) -> None:
        for name in [name for name in self.held if name not in self.answers.channels]:
            del self.held[name]
            self._orders.remove.append(name)
            self._orders.told.append(Told("channel", name, "nobody needs it any more", "removed"))
        for name, row in self.answers.channels.items():
            backup = self.answers.backups.get(name, ())
            held = self.held.get(name)
            due = held is not None and held.retry_ns is not None and now_ns >= held.retry_ns
            if held is not None and held.is_for(row, backup) and not due:
                self.held[name] = held.renamed(row)
                continue
            self.held[name] = (held or Held(row)).ordered(row, backup, now_ns)
            self._orders.install.append((self.held[name].row, backup))
        self._install_groups(now_ns)

    def _install_groups(self, now_ns: int) -> None:
        for name in [name for name in self.groups if name not in self.answers.groups]:
            del self.groups[name]
            self._orders.remove.append(name)
            self._orders.told.append(Told("group", name, "nobody needs it any more", "removed"))
        for name, order in self.answers.groups.items():
            held = self.groups.get(name)
            due = held is not None and held.retry_ns is not None and now_ns >= held.retry_ns
            if held is not None and held.is_for(order) and not due:
                self.groups[name] = held.renamed(order)
                continue
            # After a start the row tells what managers use already.
            found = held or HeldGroup(order, self.tables.groups.get(name))
            self.groups[name] = found.ordered(order, now_ns)
            self._orders.groups.append(self.groups[name].order)

    def _tell(self, world: World, now_ns: int) -> None:
        """The table as it should be, against the table as it is."""
        changes = self._orders.changes
        for name, held in self.held.items():
            there = self.tables.channels.get(name)
            if there is None or replace(there, changed_ns=held.row.changed_ns) != held.row:
                changes.append(Put(held.row))
        changes += [Delete("channels", name) for name in self.tables.channels if name not in self.held]
        for name, group in self.groups.items():
            shown, stands = group.shown, self.tables.groups.get(name)
            if shown is not None and (stands is None or replace(stands, changed_ns=shown.changed_ns) != shown):
                changes.append(Put(shown))
        changes += [Delete("groups", name) for name in self.tables.groups if name not in self.groups]
        for request, row in world.tables.requests.items():
            verdict = self._verdict(request, row)
            there_verdict = self.tables.verdicts.get(request)
            if verdict is None or (there_verdict is not None and replace(there_verdict, decided_ns=0) == verdict):
                continue
            changes.append(Put(replace(verdict, decided_ns=now_ns)))
            self._orders.told.append(Told("verdict", request, verdict.reason, verdict.outcome.value))
        for request in self.tables.verdicts:
            if request not in world.tables.requests:
                changes.append(Delete("verdicts", request))
                self.refusals.pop(request, None)
                self._orders.told.append(Told("withdrawn", request, "", "withdrawn"))
        for request in [request for request in self.refusals if request not in world.tables.requests]:
            del self.refusals[request]
        # What the store will say soon is known already: the same change is not made twice.
        self.tables = after(self.tables, changes)

    def _verdict(self, request: str, row: RequestRow) -> VerdictRow | None:
        """What a request is to be told now; `None`: nothing new."""
        refusal = self.refusals.get(request)
        if refusal is not None:
            return VerdictRow(
                id=request,
                revision=refusal.revision,
                outcome=refusal.refused.outcome,
                reason=refusal.refused.reason,
                priority=0,
                bound_ns=None,
                offer=refusal.offer,
            )
        granted = self.answers.verdicts.get(request)
        if granted is None or granted.revision != row.revision:
            return None
        both: dict[str, Held | HeldGroup] = {**self.held, **self.groups}
        channels = [both[name] for name in self.answers.needs[request] if name in both]
        broken = [held for held in channels if held.state is ChannelState.BROKEN]
        if broken:
            reason = f"it could not be reserved: {broken[0].reason} ({broken[0].row.id}); tried again"
            return replace(
                granted, outcome=Outcome.UNAVAILABLE, reason=reason, priority=0, bound_ns=None, shared_with=()
            )
        if all(held.state is ChannelState.PROVEN for held in channels):
            return granted
        return None

    def next_ns(self) -> int | None:
        """When something is to be done without news: a broken channel is ordered again, the grace after the start ends."""
        waiting: tuple[Held | HeldGroup, ...] = (*self.held.values(), *self.groups.values())
        times = [held.retry_ns for held in waiting if held.retry_ns is not None]
        if not self.ready and self._read and self._began_ns is not None:
            times.append(self._began_ns + self.grace_ns)
        return min(times, default=None)


def urgency_of_connections(world: World, state: State) -> list[str]:
    """Connections in the order in which they are given disjoint ways: the most urgent first."""
    order = urgency(world, dict(state.granted), state.granted.keys())
    return list(dict.fromkeys(state.granted[request].connection for request in order))


def living(tables: Tables, alive: frozenset[str] | None) -> Tables:
    """The table without the connections and requests of managers that are gone."""
    if alive is None or alive >= tables.managers.keys():
        return tables
    connections = {name: row for name, row in tables.connections.items() if row.manager in alive}
    return replace(
        tables,
        managers={name: row for name, row in tables.managers.items() if name in alive},
        connections=connections,
        requests={name: row for name, row in tables.requests.items() if row.connection in connections},
    )


def after(tables: Tables, changes: Iterable[Change]) -> Tables:
    """The table with verdicts, channels and groups changed."""
    verdicts, channels, groups = dict(tables.verdicts), dict(tables.channels), dict(tables.groups)
    for change in changes:
        match change:
            case Put(VerdictRow() as row):
                verdicts[row.id] = row
            case Put(ChannelRow() as channel):
                channels[channel.id] = channel
            case Put(GroupRow() as group):
                groups[group.id] = group
            case Delete("groups", name):
                groups.pop(name, None)
            case Delete("verdicts", name):
                verdicts.pop(name, None)
            case Delete("channels", name):
                channels.pop(name, None)
            case _:
                pass
    return replace(tables, verdicts=verdicts, channels=channels, groups=groups)
