"""The jitters of answers, worked out until nothing changes any more: a fixed point of the analysis, in few rounds.

A round analyses the network with the jitters that are known and looks with which ones answers leave then. From below, and upwards alone, that leads to
the least fixed point. Four things shorten it, and none of them can make a bound unsafe: what is returned is always a *point* whose own
analysis says that no answer is later than the point has it, and of such a point every bound holds (were some answer the first of all to be later than it says, all
that came before would have been within it, and the analysis covers exactly that).

- *Chains* (`_arrivals`). PUBREC, PUBREL and PUBCOMP wait for each other: whoever leaves later arrives later by as much at least, so a round goes through whole chains.
- *Leaps*. Where small steps follow each other for long (feedback of almost 1, or a staircase that catches up with itself by and by), a point far ahead on
  the same way is tried. If it settles all there have bounds, and shorter leaps are tried; if it does not, steps go on from where they were.
- *No end* (`_endless`). Where feedback is above 1 there is no fixed point; that shows long before jitters pass the longest time there is.
- *Lowering*. Where a point settled although its answers are earlier than it has them, those are tried in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from timebound.engine.causes import Causes
from timebound.engine.core import Network
from timebound.engine.outcome import Outcome, brief_outcomes
from timebound.engine.servers import Servers
from timebound.engine.together import Together
from timebound.engine.windows import Windows
from timebound.scenario.units import LONGEST_NS
from timebound.stacks import Follows, Plan, Stream

MOST_ROUNDS = 200
"""Steps from below, in all networks of a prediction together; what still changes then has no bound."""
PATIENCE = 48
"""Steps in one network before a leap, and between leaps."""
STRIDE = 4
"""Steps whose sum is taken for the direction of a leap."""
FAR, GROWTH = 100, 1.1
"""What is so many periods late, and becomes later by so much more in each of three strides, does so for ever."""
ENDS_SOON = 0.75
"""Where a stride is less than this part of the one before, steps go on: they come to their end soon."""
FIRST_LEAP, WIDER = 4.0, 4.0
"""In strides: the first leap, and by how much the next one is longer."""
FARTHEST = 3.0
"""The longest leap, in the jitters that there are: work grows with jitters, and what needs more is hardly ever bounded."""
SHORTER = 5
"""Shorter leaps that are tried after one that settled."""
LANDING = 6
"""Rounds in which a leap has to settle."""
LOWERED_ON_THE_WAY, PRECISION = 12, 1e-4
"""Points below that at which a leap settled which are tried, and the least gain (of the sum of jitters) that counts, as long as a shorter one may be better."""
MOST_LOWERED = 64
"""Points below the last one which are tried."""

Outcomes = Mapping[tuple[str, str], Outcome]


@dataclass(slots=True)
class Point:
    """Jitters of answers (ns), and what brokers and windows have come to with them."""

    jitters: dict[str, int]
    servers: Servers
    windows: Windows

    def at(self, jitters: dict[str, int]) -> Point:
        """The same brokers and windows with other jitters, to go on from by themselves."""
        return Point(jitters, self.servers.copy(), self.windows.copy())


@dataclass(slots=True)
class Look:
    """What one analysis says of a point."""

    analysis: dict[str, Any]
    outcomes: dict[tuple[str, str], Outcome]
    arrivals: dict[str, int | Outcome]
    """Answers, and the jitters with which they leave, or why nothing is known of that."""
    later: dict[str, int]
    """Those that are later than the point has them."""
    slower: list[str]
    """Brokers that respond later."""
    held: bool
    """Does a window hold something back for longer?"""
    broken: dict[str, Outcome]
    """Answers that promise nothing any more."""

    @property
    def settled(self) -> bool:
        return not self.later and not self.slower and not self.held


@dataclass(slots=True)
class Settling:
    """The search for one plan, over all the networks that it leads to; `rounds` counts analyses."""

    plan: Plan
    together: Together
    causes: Causes
    method: str
    lowers: bool = True
    """False where the search begins above nothing: it is to come out no lower than one that begins there, as steps alone do."""
    rounds: int = 0
    steps: int = 0
    network: Network = field(init=False)
    streams: dict[str, Stream] = field(init=False)

    def settle(self, network: Network, streams: dict[str, Stream], point: Point) -> tuple[Point, Look]:
        """Looks for a fixed point at or above `point`, or for the first answers that have none (`Look.broken`; the point is that far, then)."""
        self.network, self.streams = network, streams
        past = [dict(point.jitters)]
        due = PATIENCE
        while True:
            look = self._step(point)
            point.jitters |= look.later
            if look.broken or look.settled:
                break
            past.append(dict(point.jitters))
            if endless := self._endless(past, look):
                look = replace(look, broken=endless)
                break
            if len(past) > due:
                stride, before = (
                    _forward(past[-1 - STRIDE], past[-1]),
                    _forward(past[-1 - 2 * STRIDE], past[-1 - STRIDE]),
                )
                if sum(stride.values()) < ENDS_SOON * sum(before.values()):
                    due += PATIENCE // 4
                    continue
                due = len(past) + PATIENCE
                if (found := self._leap(point, stride)) is not None:
                    point, look = found
                    break
        if not look.broken and self.lowers:
            point, look = self._lowered(point, look, MOST_LOWERED, 0)
        # The last look need not be that of the point.
        self.together.added(streams, look.outcomes)
        return point, look

    def _endless(self, past: list[dict[str, int]], look: Look) -> dict[str, Outcome]:
        """The answers that are latest, where all grow for ever: far beyond their periods arrivals are no stairs any more but grow with jitters in proportion,
        and what grows by more each stride is drawn to no fixed point."""
        if len(past) <= 3 * STRIDE or not look.later:
            return {}
        periods = sum(self.streams[name].period_ns or 0 for name in look.later)
        if sum(look.later.values()) < FAR * periods:
            return {}
        marks = [_sum(past[-1 - number * STRIDE]) for number in range(4)]
        first, second, third = (after - before for after, before in pairwise(marks))
        if first < GROWTH * second or second < GROWTH * third:
            return {}
        latest = max(look.later.values())
        return {
            name: _without(f'arrivals of stream "{name}" {_ENDLESS}')
            for name, jitter in look.later.items()
            if 2 * jitter > latest
        }

    def _step(self, point: Point) -> Look:
        """A look at a point that no fixed point is below."""
        self.steps += 1
        return self._look(point, last=self.steps > MOST_ROUNDS, note=True)

    def _look(self, point: Point, *, last: bool = False, note: bool = False) -> Look:
        """Analyses a point, and lets brokers and windows follow. `last`: what still changes promises nothing; `note`: first causes are kept."""
        self.rounds += 1
        streams, servers, windows, jitters = self.streams, point.servers, point.windows, point.jitters
        written = windows.written(jitters, streams)
        analysis = self.network.brief(overriding(written, streams), self.method)
        outcomes = self.causes.cut(brief_outcomes(analysis, streams, written))
        if note:
            self.causes.note(outcomes)
        outcomes = self.together.added(streams, outcomes)
        slower = servers.update(outcomes)
        held, stuck = windows.update(streams, jitters, outcomes)
        if last:
            for broker in slower:
                servers.fail(broker, f"response times of broker {broker} {_UNSETTLED}")
        arrivals = _arrivals(self.plan, servers, streams, outcomes, jitters)
        later = {
            name: jitter for name, jitter in arrivals.items() if isinstance(jitter, int) and jitter > jitters[name]
        }
        broken = {name: jitter for name, jitter in arrivals.items() if isinstance(jitter, Outcome)}
        # Any fixed point is safe, so those that settle keep their bounds. Jitters that feed back grow without limit, and past the longest
        # time of a declaration at last.
        broken |= {
            name: _without(f'arrivals of stream "{name}" {_ENDLESS if jitter > LONGEST_NS else _UNSETTLED}')
            for name, jitter in later.items()
            if last or jitter > LONGEST_NS
        }
        broken |= {name: _without(reason) for name, reason in stuck.items() if name not in broken}
        if last and held:
            broken |= {
                name: _without(f'waits of stream "{name}" for TCP\'s window {_UNSETTLED}') for name in windows.waits
            }
        broken |= {
            name: _without(f'several packets of stream "{name}" could share a segment, which is not declared')
            for name, jitter in arrivals.items()
            if name not in broken and isinstance(jitter, int) and _meet(streams[name], jitter)
        }
        return Look(analysis, outcomes, arrivals, later, slower, held, broken)

    def _land(self, point: Point, rounds: int = LANDING) -> tuple[Point, Look] | None:
        """A fixed point at or a little above `point`, which may lie above others; None where so many rounds do not lead to one."""
        before: int | None = None
        for _ in range(rounds):
            look = self._look(point)
            if look.broken:
                return None
            if look.settled:
                return point, look
            grown = sum(jitter - point.jitters[name] for name, jitter in look.later.items())
            if before is not None and grown >= before:
                return None
            before = grown
            point.jitters |= look.later
        return None

    def _leap(self, point: Point, stride: Mapping[str, int]) -> tuple[Point, Look] | None:
        """A fixed point ahead of `point` in the direction of `stride`; None where none was found. `point` stays as it is."""
        if not stride:
            return None
        share = max(step / point.jitters[name] for name, step in stride.items())

        def tried(length: float) -> tuple[Point, Look] | None:
            ahead = {name: point.jitters[name] + int(step * length) for name, step in stride.items()}
            found = self._land(point.at({**point.jitters, **ahead}))
            return None if found is None else self._lowered(*found, LOWERED_ON_THE_WAY, PRECISION)

        too_short, length = 0.0, FIRST_LEAP
        while (found := tried(length)) is None:
            too_short, length = length, length * WIDER
            if length * share > FARTHEST:
                return None
        for _ in range(SHORTER):
            middle = (too_short + length) / 2
            if (closer := tried(middle)) is None:
                too_short = middle
            elif _total(closer[0]) < _total(found[0]) * (1 - PRECISION):
                length, found = middle, closer
            else:
                break
        return found

    def _lowered(self, point: Point, look: Look, rounds: int, gain: float) -> tuple[Point, Look]:
        """The point, or one below it that settles as well: after so many rounds, or where one brings no more than that part of the sum of jitters."""
        for _ in range(rounds):
            least = {name: self.streams[name].jitter_ns for name in point.jitters}
            lower = {
                name: max(least[name], jitter) for name, jitter in look.arrivals.items() if isinstance(jitter, int)
            }
            if lower == point.jitters:
                break
            found = self._land(point.at(lower), rounds=2)
            if found is None or _total(found[0]) >= (before := _total(point)):
                break
            point, look = found
            if _total(point) > before * (1 - gain):
                break
        return point, look


def _sum(jitters: Mapping[str, int]) -> int:
    return sum(jitters.values())


def _total(point: Point) -> int:
    return _sum(point.jitters)


def _forward(then: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """What became later, and by how much."""
    return {name: jitter - then[name] for name, jitter in now.items() if jitter > then[name]}


def _meet(stream: Stream, jitter_ns: int) -> bool:
    """Could two packets of the stream wait at its sender at the same time, where the declared frames are for one?"""
    return stream.one_at_a_time and stream.period_ns is not None and jitter_ns >= stream.period_ns


def overriding(jitters: Mapping[str, int], streams: Mapping[str, Stream]) -> dict[str, int]:
    """What the core takes in place of declared jitters."""
    return {name: streams[name].observed_jitter(jitter) for name, jitter in jitters.items()}


def _without(reason: str) -> Outcome:
    return Outcome("no-finite-bound", reason=reason)


_ENDLESS = "grow without end, since answers make each other later"
_UNSETTLED = f"did not settle within {MOST_ROUNDS} rounds of the analysis"


def _arrivals(
    plan: Plan, servers: Servers, streams: Mapping[str, Stream], outcomes: Outcomes, jitters: Mapping[str, int]
) -> dict[str, int | Outcome]:
    """The jitters with which all streams of `jitters` leave their hosts, or why there is no bound of them.

    A stream that leaves later than was analysed arrives later by as much at least, which is at once told to what follows it.
    """
    found: dict[str, int | Outcome] = {name: _arrival(plan, servers, streams[name], outcomes) for name in jitters}
    known, counted = dict(outcomes), dict(jitters)
    for _ in jitters:  # no chain is longer
        later = {name: at for name, at in found.items() if isinstance(at, int) and at > counted[name]}
        if not later:
            break
        for name, jitter in later.items():
            for receiver in streams[name].destinations:
                outcome = known[name, receiver]
                if outcome.nominal_ns is not None:
                    nominal_ns = outcome.nominal_ns + jitter - counted[name]
                    known[name, receiver] = replace(outcome, nominal_ns=nominal_ns)
        counted |= later
        told = {
            name: _arrival(plan, servers, streams[name], known) for name, at in found.items() if isinstance(at, int)
        }
        # What would be past the limit only because it was told so may yet be spared: those that get there first promise nothing then.
        found |= {name: at for name, at in told.items() if isinstance(at, int) and at <= LONGEST_NS}
    return found


def _arrival(plan: Plan, servers: Servers, stream: Stream, outcomes: Outcomes) -> int | Outcome:
    """The jitter with which a stream that follows another leaves its host, or why there is no bound of it."""
    assert stream.follows is not None
    latest = 0
    for follows in (stream.follows, *stream.follows.also):
        found = _after(plan, servers, follows, outcomes)
        if isinstance(found, Outcome):
            return found
        latest = max(latest, found)
    return latest


def _after(plan: Plan, servers: Servers, follows: Follows, outcomes: Outcomes) -> int | Outcome:
    if follows.through is not None:
        packet = plan.packets[follows.through]
        jitter, response = servers.jitter(packet, outcomes), servers.responses[packet.broker]
        if jitter is None or response.span_ns is None:
            return Outcome(
                "no-finite-bound", reason=response.reason or f"packets reach broker {packet.broker} without bound"
            )
        return jitter + response.span_ns + follows.held_ns
    assert follows.stream is not None
    before = outcomes[follows.stream, follows.destination]
    if before.nominal_ns is None or before.best_ns is None:
        return before
    return before.nominal_ns - before.best_ns + follows.extra_ns
