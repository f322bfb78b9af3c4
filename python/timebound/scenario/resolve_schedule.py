"""`at` -> events of links: targets, profiles, repetitions and ramps expanded, each event with whole conditions.

An order is one change of one target at one time. Orders are taken in the order of time; what a ramp has still to do waits
among them, so that each step starts from the conditions of its own time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from timebound.scenario import shape
from timebound.scenario.conditions import (
    CHANGED,
    RAMPED,
    Profiles,
    apply_change,
    apply_profile,
    interpolate,
    stated_keys,
    value_of,
)
from timebound.scenario.context import Context
from timebound.scenario.lifecycle import is_node_target
from timebound.scenario.model import Direction, Event
from timebound.scenario.resolve_network import Net
from timebound.scenario.targets import Way, link_ways
from timebound.scenario.tree import Path
from timebound.scenario.units import TIME, UnitError, exactly, format_time, parse

MOST_EVENTS = 100_000
DEFAULT_STEPS = 10
ORIGINAL = "original"


def event_times(at: dict[str, dict[str, shape.Change]], duration_ns: int, context: Context) -> dict[int, str]:
    """Time -> key of `at`, as far as the times can be read."""
    timed: dict[int, str] = {}
    for key in at:
        try:
            time = exactly(parse(key, TIME), key, TIME)
            if time in timed:
                context.key_error(("at", key), f"{key} is the same time as {timed[time]}", "write them as one")
            timed[time] = key
        except UnitError as error:
            context.key_error(("at", key), error.message, error.hint)
    for time, key in sorted(timed.items()):
        if time > duration_ns:
            context.key_error(("at", key), f"{key} lies behind the end of the run", "make run.duration longer")
    return timed


def resolve_events(
    at: dict[str, dict[str, shape.Change]],
    times: dict[int, str],
    net: Net,
    profiles: Profiles,
    end_ns: int,
    context: Context,
) -> tuple[Event, ...]:
    """Events in the order of time; each carries the link's whole conditions from then on."""
    schedule = _Schedule(net, profiles, end_ns, context)
    for time, key in sorted(times.items()):
        for target, change in at[key].items():
            if not is_node_target(target):
                schedule.add(time, target, change, ("at", key, target))
    return schedule.run()


@dataclass(frozen=True, slots=True)
class _Order:
    """A change of one target at one time; a `step` of a ramp carries the number of steps left with it."""

    path: Path
    label: str
    ways: tuple[Way, ...]
    change: shape.Change
    step: int = 0
    """0: the order itself; k: the k-th step of its ramp."""


@dataclass(slots=True)
class _Link:
    up: list[bool]
    directions: list[Direction]


class _Schedule:
    def __init__(self, net: Net, profiles: Profiles, end_ns: int, context: Context) -> None:
        self.net = net
        self.profiles = profiles
        self.end_ns = end_ns
        self.context = context
        self.queue: list[tuple[int, int, int, _Order]] = []
        self.serial = 0
        self.links: dict[int, _Link] = {}
        self.ramps: dict[tuple[int, int, str], tuple[int, int, Path, Direction]] = {}
        """(link, way, key) -> start and end of the ramp, its order, the direction from which it started."""
        self.events: list[Event] = []

    def add(self, time: int, target: str, change: shape.Change, path: Path) -> None:
        """An order of the file with its repetitions."""
        context = self.context
        if change.state is not None:
            context.key_error(path, f"{change.state} is an order for a node", "write link s1-s4: {up: false}")
        ways = link_ways(target, self.net, path, context)
        if not self._is_sound(time, change, path):
            return
        self._check_rates(ways, change, path)
        order = _Order(path, " ".join(target.split()), tuple(ways), change)
        last = min(self.end_ns, self.end_ns if change.until is None else change.until)
        count = 1 if change.every is None else max(0, last - time) // change.every + 1
        if count * max(1, len(ways)) > MOST_EVENTS:
            context.error(path, f"more than {MOST_EVENTS} changes", "make every longer, or name fewer links")
            return
        for turn in range(count):
            self._push(time + turn * (change.every or 0), 1, order)

    def _is_sound(self, time: int, change: shape.Change, path: Path) -> bool:
        context, before = self.context, len(self.context.sources.problems)
        keys = stated_keys(change)
        if change.every == 0:
            context.error((*path, "every"), "repeated every 0 s", "state the time from one to the next")
        if change.until is not None and change.every is None:
            context.error((*path, "until"), "until belongs to every", "write every: 10 s as well")
        elif change.until is not None and change.until > self.end_ns:
            context.error((*path, "until"), "until lies behind the end of the run", "make run.duration longer")
        elif change.until is not None and change.until < time:
            context.error((*path, "until"), "until lies before the first time", "write a later time")
        if change.steps is not None and change.over is None:
            context.error((*path, "steps"), "steps belong to over", "write over: 10 s as well")
        if change.conditions is not None and change.conditions != ORIGINAL:
            self.profiles.find(change.conditions, (*path, "conditions"), context)
        if change.over is not None:
            wrong = next((key for key in keys if key not in RAMPED), None)
            if wrong is not None or change.conditions is not None:
                name = (wrong or "conditions").replace("_", "-")
                context.error((*path, name), f"{name} cannot change over time", f"ramps are for {', '.join(RAMPED)}")
            elif not keys:
                context.error((*path, "over"), "a ramp of nothing", f"state one of {', '.join(RAMPED)}")
            if time + change.over > self.end_ns:
                context.error((*path, "over"), "the ramp ends behind the end of the run", "make run.duration longer")
            if change.over < (change.steps or DEFAULT_STEPS):
                context.error((*path, "over"), "a ramp of less than 1 ns per step", "make it longer")
            if change.every is not None and change.over > change.every:
                context.error((*path, "over"), "the ramp is longer than every: it would overlap itself", "shorten it")
        return len(context.sources.problems) == before

    def _check_rates(self, ways: list[Way], change: shape.Change, path: Path) -> None:
        profile = None if change.conditions in (None, ORIGINAL) else self.profiles.known.get(change.conditions or "")
        if change.rate is None and (profile is None or profile.rate is None):
            return
        for link, way in ways:
            if (self.net.links[link].forward, self.net.links[link].backward)[way].trace is not None:
                key = "rate" if change.rate is not None else "conditions"
                self.context.error((*path, key), "the rate of this link follows its trace", "change something else")
                return

    def _push(self, time: int, rank: int, order: _Order) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (time, rank, self.serial, order))

    def run(self) -> tuple[Event, ...]:
        """Everything in order of time; at one time the steps of ramps come first."""
        while self.queue:
            time, _, _, order = heapq.heappop(self.queue)
            if time > self.end_ns:
                continue
            for link in dict.fromkeys(index for index, _ in order.ways):
                if len(self.events) >= MOST_EVENTS:
                    self.context.error(("at",), f"more than {MOST_EVENTS} changes", "use fewer steps or links")
                    return tuple(self.events)
                self._change(time, link, [way for index, way in order.ways if index == link], order)
            steps = order.change.steps or DEFAULT_STEPS
            if order.change.over is not None and order.step < steps:
                start = time - order.change.over * order.step // steps
                step = order.step + 1
                self._push(start + order.change.over * step // steps, 0, replace(order, step=step))
        return tuple(self.events)

    def _change(self, time: int, index: int, ways: list[int], order: _Order) -> None:
        link = self.net.links[index]
        state = self.links.setdefault(index, _Link([True, True], [link.forward, link.backward]))
        before = _Link(list(state.up), list(state.directions))
        for way in ways:
            if order.change.over is not None:
                state.directions[way] = self._ramp(time, (index, way), state.directions[way], order)
            else:
                self._assign(time, (index, way), state, order)
        if order.change.over is None or order.step > 0:
            self._record(time, index, ways, order, before, state)

    def _assign(self, time: int, place: Way, state: _Link, order: _Order) -> None:
        index, way = place
        change = order.change
        direction = state.directions[way]
        if change.conditions is not None:
            link = self.net.links[index]
            direction = (link.forward, link.backward)[way]
            if change.conditions != ORIGINAL:
                direction = apply_profile(direction, self.profiles.known[change.conditions], order.path, self.context)
        direction = apply_change(direction, change, order.path, self.context)
        self._check_free(time, place, order, (*stated_keys(change), *(RAMPED if change.conditions else ())))
        state.directions[way] = direction
        if change.up is not None:
            state.up[way] = change.up

    def _ramp(self, time: int, place: Way, direction: Direction, order: _Order) -> Direction:
        change = order.change
        assert change.over is not None
        keys = stated_keys(change)
        if order.step == 0:
            self._check_free(time, place, order, keys)
            for key in keys:
                self.ramps[(*place, key)] = (time, time + change.over, order.path, direction)
            goal = apply_change(direction, change, order.path, self.context)
            for key in keys:
                if interpolate(direction, goal, key, 1, 2) is None:
                    self.context.error(
                        (*order.path, key), f"{key} has another kind before", "ramps join values of one kind"
                    )
            return direction
        steps = change.steps or DEFAULT_STEPS
        for key in keys:
            start = self.ramps[(*place, key)][3]
            goal = apply_change(start, change, order.path, self.context)
            middle = interpolate(start, goal, key, order.step, steps)
            if middle is not None:
                direction = apply_change(direction, middle, order.path, self.context)
        return direction

    def _check_free(self, time: int, place: Way, order: _Order, keys: tuple[str, ...]) -> None:
        for key in keys:
            ramp = self.ramps.get((*place, key))
            if ramp is not None and time < ramp[1]:
                link = self.net.links[place[0]]
                span = f"{format_time(ramp[0])} to {format_time(ramp[1])}"
                message = f"{key} of {link.a}-{link.b} changes at {format_time(time)} within its ramp from {span}"
                self.context.key_error(order.path, message, "let the ramp end first")
                return

    def _record(self, time: int, index: int, ways: list[int], order: _Order, before: _Link, after: _Link) -> None:
        """The event, or one for each direction where these differ: an event has one text for all it changes."""
        keys = tuple(sorted(stated_keys(order.change)))
        groups: list[tuple[list[int], tuple[str, ...]]] = []
        for way in ways:
            mine = keys
            if order.change.conditions is not None:
                mine = tuple(sorted({*keys, *_differing(before.directions[way], after.directions[way])}))
            first = groups[0] if groups else None
            if first and first[1] == mine and all(_same(after, first[0][0], way, key) for key in mine):
                first[0].append(way)
            else:
                groups.append(([way], mine))
        # One after the other: the first does not know of the second.
        for members, changed in groups:
            for way in members:
                before.up[way], before.directions[way] = after.up[way], after.directions[way]
            link = self.net.links[index]
            self.context.remember(f"events[{len(self.events)}]", order.path)
            self.events.append(
                Event(
                    at_ns=time,
                    link=index,
                    up_forward=before.up[0],
                    up_backward=before.up[1],
                    forward=before.directions[0],
                    backward=before.directions[1],
                    ways=(0 in members, 1 in members),
                    target=self._target(index, members, link.a, link.b),
                    changed=changed,
                    note=_note(order),
                )
            )

    def _target(self, index: int, members: list[int], a: str, b: str) -> str:
        twins = self.net.links_between(a, b)
        number = f"#{twins.index(index)}" if len(twins) > 1 else ""
        if len(members) == 2:
            return f"link {a}-{b}{number}"
        return f"link {a}->{b}{number}" if members == [0] else f"link {b}->{a}{number}"


def _differing(before: Direction, after: Direction) -> list[str]:
    return [key for key in CHANGED if value_of(before, key) != value_of(after, key)]


def _same(state: _Link, one: int, other: int, key: str) -> bool:
    if key == "up":
        return state.up[one] == state.up[other]
    return bool(value_of(state.directions[one], key) == value_of(state.directions[other], key))


def _note(order: _Order) -> str | None:
    """What the report says at this time; the steps of a ramp between its ends say nothing."""
    change = order.change
    what = [change.conditions] if change.conditions is not None else []
    what += [key.replace("_", "-") for key in sorted(stated_keys(change))]
    if change.up is not None:
        what = ["up" if key == "up" and change.up else "down" if key == "up" else key for key in what]
    if change.over is None:
        return f"{order.label}: {', '.join(what)}"
    steps = change.steps or DEFAULT_STEPS
    if order.step not in (1, steps):
        return None
    return f"{order.label}: {', '.join(what)} ({'ramp begins' if order.step == 1 else 'ramp ends'})"
