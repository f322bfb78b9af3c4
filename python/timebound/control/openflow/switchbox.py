"""What is in one switch and what is to be, part by part. On the event loop.

A part is what one purpose puts into the switch (`fixed`, `hosts`, each channel). Parts outlive a connection: when the switch comes back it is read,
and what differs is made good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from os_ken.ofproto import ofproto_v1_3_parser as parser

from timebound.control.openflow import codec
from timebound.control.openflow.rules import (
    Difference,
    Kind,
    Match,
    Rule,
    Tables,
    ToGroup,
    difference,
    is_ours,
    kind_of,
    match,
    value_of,
)
from timebound.control.openflow.session import Session, SwitchError

FIXED, HOSTS = "fixed", "hosts"
_FULL = (1 << 64) - 1
_FIRST_METER, _FIRST_GROUP = 2, 1


@dataclass(frozen=True, slots=True)
class Found:
    """What a switch says of the rules of one cookie."""

    rules: dict[tuple[int, Match], Rule]
    packets: dict[tuple[int, Match], int]
    """Frames that each rule took so far."""


class SwitchBox:
    """One switch, connected or not."""

    def __init__(self, datapath: int) -> None:
        self.datapath = datapath
        self.session: Session | None = None
        self.present = Tables()
        """What the switch has of ours once it has done what it was told. Orders are done in their order, so the next ones are reckoned from it."""
        self.ready = asyncio.Event()
        """Set while it is connected and was read."""
        self._parts: dict[str, Tables] = {}
        self._foreign_meters: set[int] = set()
        self._foreign_groups: set[int] = set()
        self._reserved: dict[str, tuple[int | None, int | None]] = {}
        """Meters and groups that parts are about to use."""
        self._under_way: list[Difference] = []
        self._since_read: list[Difference] | None = None

    @property
    def connected(self) -> Session:
        """Its connection. Raises `SwitchError` while there is none, or it was not read yet."""
        if self.session is None or not self.ready.is_set():
            raise SwitchError("the switch is not connected")
        return self.session

    @property
    def has_channels(self) -> bool:
        """Has anything but best effort put a part in?"""
        return not set(self._parts) <= {FIXED, HOSTS}

    def part(self, name: str) -> Tables | None:
        """What a purpose has put in."""
        return self._parts.get(name)

    def wanted(self) -> Tables:
        """All parts together."""
        merged = Tables()
        for part in self._parts.values():
            merged.add(part.rules.values(), part.meters.values(), part.groups.values())
        return merged

    # Reading -----------------------------------------------------------------------------------------------------------------

    async def read(self, session: Session) -> None:
        """Reads everything that a switch has; rules with foreign cookies, and what they use, are left alone."""
        self._since_read = since = list(self._under_way)
        flows, meters, groups = await asyncio.gather(
            session.ask(parser.OFPFlowStatsRequest(session.switch)),
            _or_nothing(session.ask(parser.OFPMeterConfigStatsRequest(session.switch))),
            _or_nothing(session.ask(parser.OFPGroupDescStatsRequest(session.switch))),
        )
        present = Tables()
        foreign = [stats for stats in flows if not is_ours(int(stats.cookie))]
        self._foreign_meters = {number for stats in foreign for number in _meters_of(stats)}
        self._foreign_groups = {number for stats in foreign for number in _groups_of(stats)}
        present.add([_rule(stats) for stats in flows if is_ours(int(stats.cookie))])
        for stats in meters:
            _keep(present.meters, int(stats.meter_id), stats, codec.meter_from, self._foreign_meters)
        for stats in groups:
            _keep(present.groups, int(stats.group_id), stats, codec.group_from, self._foreign_groups)
        self.present = present
        for diff in since:
            # Perhaps the answers are from before it, perhaps from after it: afterwards both are the same.
            self._done(diff)
        if self._since_read is since:
            self._since_read = None

    async def rules_of(self, cookie: int) -> Found:
        """The rules with a cookie as the switch has them now. Raises `SwitchError`."""
        session = self.connected
        flows = await session.ask(parser.OFPFlowStatsRequest(session.switch, cookie=cookie, cookie_mask=_FULL))
        rules = [(_rule(stats), int(stats.packet_count)) for stats in flows]
        return Found({rule.key: rule for rule, _ in rules}, {rule.key: count for rule, count in rules})

    async def verify(self, part: Tables, cookie: int) -> Found:
        """Reads back what a part, whose rules have this cookie, has put in. Raises `SwitchError` naming what is missing or other than it was sent."""
        session = self.connected
        questions: list[Any] = [self.rules_of(cookie)]
        questions += [session.ask(parser.OFPMeterConfigStatsRequest(session.switch, 0, id)) for id in part.meters]
        if part.groups:
            questions.append(session.ask(parser.OFPGroupDescStatsRequest(session.switch)))
        answers = await asyncio.gather(*questions)
        found: Found = answers[0]
        if any(found.rules.get(key) != rule for key, rule in part.rules.items()):
            raise SwitchError("a rule is not in the switch as it was sent")
        for meter, answer in zip(part.meters.values(), answers[1:], strict=False):
            if [codec.meter_from(stats) for stats in answer] != [meter]:
                raise SwitchError(f"meter {meter.id} is not in the switch as it was sent")
        if part.groups:
            there = {int(stats.group_id): stats for stats in answers[-1]}
            for group in part.groups.values():
                if group.id not in there or codec.group_from(there[group.id]) != group:
                    raise SwitchError(f"group {group.id} is not in the switch as it was sent")
        return found

    def hosts_present(self) -> Iterable[tuple[Rule, int]]:
        """Rules to hosts that are in the switch, with the number that their cookie carries."""
        return [(r, value_of(r.cookie)) for r in self.present.rules.values() if kind_of(r.cookie) is Kind.HOST]

    # Writing -----------------------------------------------------------------------------------------------------------------

    def want(self, name: str, tables: Tables | None) -> Tables:
        """Notes what a part is to be (`None`: nothing), and returns what it was."""
        old = self._parts.pop(name, Tables())
        if tables is not None:
            self._parts[name] = tables
        else:
            self._reserved.pop(name, None)
        return old

    async def put(self, name: str, tables: Tables | None) -> None:
        """Puts a part in, in the place of what it was, and waits until the switch confirmed. Raises `SwitchError`; the part is noted all the same
        and made good when the switch comes back.
        """
        old = self.want(name, tables)
        self.connected  # noqa: B018 - raises
        await self._carry_out(self._difference(old, tables or Tables(), name))

    def _difference(self, old: Tables, new: Tables, name: str) -> Difference:
        """Of one part alone: a switch may hold thousands of rules."""
        others = [part for other, part in self._parts.items() if other != name]
        present = Tables()
        for key in {*old.rules, *new.rules}:
            if key in self.present.rules and (key in new.rules or not any(key in part.rules for part in others)):
                present.rules[key] = self.present.rules[key]
        present.meters = {id: self.present.meters[id] for id in {*old.meters, *new.meters} & {*self.present.meters}}
        present.groups = {id: self.present.groups[id] for id in {*old.groups, *new.groups} & {*self.present.groups}}
        return difference(present, new)

    async def sync(self, keep: Callable[[Rule], bool]) -> None:
        """Makes the switch what it is to be; rules that nobody wants are taken out unless `keep` says otherwise. Raises `SwitchError`."""
        wanted = self.wanted()
        for key, rule in self.present.rules.items():
            if key not in wanted.rules and keep(rule):
                self._retain(wanted, rule)
        await self._carry_out(difference(self.present, wanted))

    def _retain(self, wanted: Tables, rule: Rule) -> None:
        wanted.add([rule])
        if rule.meter in self.present.meters and rule.meter is not None:
            wanted.meters.setdefault(rule.meter, self.present.meters[rule.meter])
        for action in rule.actions:
            if isinstance(action, ToGroup) and action.group in self.present.groups:
                wanted.groups.setdefault(action.group, self.present.groups[action.group])

    async def _carry_out(self, diff: Difference) -> None:
        if not diff:
            return
        session = self.session
        if session is None:
            raise SwitchError("the switch is not connected")
        self._done(diff)
        self._under_way.append(diff)
        if self._since_read is not None:
            self._since_read.append(diff)
        try:
            refused = await session.confirmed(codec.rule_messages(session.switch, diff))
        finally:
            self._under_way.remove(diff)
        if refused:
            # Nobody knows what of it is there now; so look.
            await self.read(session)
            raise SwitchError(f"it refuses: {'; '.join(dict.fromkeys(refused))}")

    def _done(self, diff: Difference) -> None:
        for rule in diff.stale_rules:
            self.present.rules.pop(rule.key, None)
        for group in diff.stale_groups:
            self.present.groups.pop(group, None)
        for meter in diff.stale_meters:
            self.present.meters.pop(meter, None)
        self.present.add(diff.rules, (*diff.meters, *diff.changed_meters), (*diff.groups, *diff.changed_groups))

    # Numbers -----------------------------------------------------------------------------------------------------------------

    def numbers_for(self, name: str, cookie: int, *, with_group: bool) -> tuple[int, int | None]:
        """Meter and group for a part: those that its rules in the switch use already, or the smallest that nobody uses."""
        there = self.numbers_of(cookie)
        meter, group = self._reserved.get(name, there)
        if meter is None:
            meter = self._free(_FIRST_METER, {*self.present.meters, *self._foreign_meters}, "meters", 0)
        if group is None and with_group:
            group = self._free(_FIRST_GROUP, {*self.present.groups, *self._foreign_groups}, "groups", 1)
        self._reserved[name] = meter, group
        return meter, group

    def _free(self, first: int, used: set[int], kind: str, place: int) -> int:
        used |= {id for part in self._parts.values() for id in getattr(part, kind)}
        used |= {id for numbers in self._reserved.values() if (id := numbers[place]) is not None}
        return next(id for id in range(first, 1 << 32) if id not in used)

    def numbers_of(self, cookie: int) -> tuple[int | None, int | None]:
        """Meter and group that the rules with a cookie use in this switch already."""
        rules = [rule for rule in self.present.rules.values() if rule.cookie == cookie]
        meters = [rule.meter for rule in rules if rule.meter is not None]
        groups = [action.group for rule in rules for action in rule.actions if isinstance(action, ToGroup)]
        return next(iter(meters), None), next(iter(groups), None)


def _rule(stats: Any) -> Rule:
    try:
        return codec.rule_from(stats)
    except codec.NotOurKindError:
        # Of ours by its cookie, but not as we write rules now: it equals nothing that is wanted, and so it is replaced or removed.
        return Rule(int(stats.priority), match(**dict(stats.match.items())), (), int(stats.cookie))


def _keep(into: dict[int, Any], number: int, stats: Any, decode: Callable[[Any], Any], foreign: set[int]) -> None:
    if number in foreign:
        return
    try:
        into[number] = decode(stats)
    except codec.NotOurKindError:
        foreign.add(number)


def _meters_of(stats: Any) -> list[int]:
    return [int(step.meter_id) for step in stats.instructions if hasattr(step, "meter_id")]


def _groups_of(stats: Any) -> list[int]:
    actions = [action for step in stats.instructions for action in getattr(step, "actions", ())]
    return [int(action.group_id) for action in actions if hasattr(action, "group_id")]


async def _or_nothing(question: Any) -> Sequence[Any]:
    """A switch without meters or groups refuses to list them."""
    try:
        return await question  # type: ignore[no-any-return]
    except SwitchError as error:
        if "refused" in str(error):
            return []
        raise
