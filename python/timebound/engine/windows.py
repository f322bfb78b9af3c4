"""TCP's windows: how long the segments of a message may wait for acknowledgements before they may be sent.

With a window of `W` segments that never shrinks (nothing is lost), segment `k` leaves when it is written or when segment `k - W` has been acknowledged,
whichever is later, and every acknowledgement is there one round `R` after its segment left. So it waits at most

    max over j >= 1 of  j R - t(j W + 1),    t(n): the least time within which n segments can be written (from periods and jitters)

which is nothing where the window holds all that is written within one round, and finite where `W` per round is more than what is written in the mean.
`R` is the bound of the segments' way, plus that of the acknowledgements', plus the time for which an acknowledgement may be delayed. The waiting is jitter
of the stream on the network, on which `R` depends: `predict` looks for the least fixed point of both. A window counts as it is at first: that it grows is
never counted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from timebound.scenario.model_tcp import UNKNOWN_WINDOW
from timebound.stacks import Plan, Stream
from timebound.stacks.mqtt_connection import HOST_JITTER_NS
from timebound.stacks.transport import Carrier, Way
from timebound.stacks.wire import DELAYED_ACK_NS

if TYPE_CHECKING:
    from timebound.engine.outcome import Outcome

Outcomes = Mapping[tuple[str, str], "Outcome"]

LONGEST_DELAYED_ACK_NS = 500_000_000
"""RFC 1122, section 4.2.3.2; Linux delays no longer than its smoothed round trip (tcp_send_delayed_ack), and 40 ms."""
TICK_NS = 10_000_000
"""A kernel's timers come up to one tick late; the slowest tick is that of CONFIG_HZ=100."""
MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Limit:
    """The window of one direction of a connection, and whose it is; `segments` is `None` where nothing can be said (pacing)."""

    segments: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a window costs a message."""

    segments: int
    """The window."""
    reason: str
    round_ns: int
    wait_ns: int

    @property
    def count(self) -> int:
        """Rounds that the longest wait spans."""
        return -(-self.wait_ns // self.round_ns)

    @property
    def text(self) -> str:
        rounds = "1 round" if self.count == 1 else f"{self.count} rounds"
        return f"window of {self.segments} segments: {rounds} of {self.round_ns / 1e6:.3f} ms"


Arrival = tuple[int, int, int]
"""(segments, period, jitter)."""


def at_once(arrivals: list[Arrival], span_ns: int) -> int:
    """The most segments that are written within a time."""
    return sum(segments * ((span_ns + jitter) // period + 1) for segments, period, jitter in arrivals)


def wait_ns(window: int, round_ns: int, arrivals: list[Arrival]) -> int | None:
    """The longest wait of a segment; `None`: more is written than the window lets through."""
    if at_once(arrivals, round_ns) <= window:
        return 0
    rate = sum(segments / period for segments, period, _ in arrivals)
    spare = window - rate * round_ns
    if spare <= window * 1e-9:
        return None
    # Of j rounds, j (W - rate R) segments more could leave than are written, whatever was written at once before.
    last = sum(segments * (jitter / period + 1) for segments, period, jitter in arrivals) / spare + 2
    if last > MOST_STEPS:
        return None
    longest, span = 0, 0
    for step in range(1, int(last) + 1):
        # The least time within which so many are written: the next instant at which one of the streams may write.
        while at_once(arrivals, span) < step * window + 1:
            span = min(((span + jitter) // period + 1) * period - jitter for _, period, jitter in arrivals)
        longest = max(longest, step * round_ns - span)
    return longest


def limit_of(plan: Plan, carrier: Carrier) -> Limit | None:
    """The window that holds back what a connection carries; `None`: it is enough for whatever can be under way, as emulation sets it."""
    sender, receiver = plan.scenario.node(carrier.sender).sender, plan.scenario.node(carrier.receiver).sender
    if sender.is_paced:
        return Limit(None, f"TCP of {carrier.sender} paces what it sends, and nothing is known of its rate")
    found: list[Limit] = []
    size = carrier.segment_bytes
    unknown = [name for name, tcp in ((carrier.sender, sender), (carrier.receiver, receiver)) if not tcp.known]
    # What fits into ten segments finds the window open: it begins so, and a sender that is never idle lets it grow.
    if unknown and sum(one.segments for one in carrier.carried) > UNKNOWN_WINDOW:
        found.append(
            Limit(UNKNOWN_WINDOW, f"nothing is known of TCP of {unknown[0]}: ten segments after idle time (RFC 6928)")
        )
    if sender.initial_window is not None:
        found.append(Limit(sender.initial_window, f"the initial window of {carrier.sender}"))
    if sender.send_buffer is not None:
        found.append(Limit(sender.send_buffer // size, f"the send buffer of {carrier.sender}"))
    if receiver.receive_window is not None:
        found.append(Limit(receiver.receive_window // size, f"the receive window of {carrier.receiver}"))
    return min(found, key=lambda limit: limit.segments or 0, default=None)


def round_ns(carrier: Carrier, outcomes: Outcomes) -> int | None:
    """The bounded round trip of a segment and its acknowledgement; `None` where one of both has no bound."""
    there = [outcomes[one.stream, carrier.receiver].actual_ns for one in carrier.carried]
    back = [outcomes[name, carrier.sender].actual_ns for name in carrier.answers]
    if not there or not back or None in there or None in back:
        return None
    way = max(span for span in there if span is not None) + max(span for span in back if span is not None)
    delayed = max(DELAYED_ACK_NS, min(LONGEST_DELAYED_ACK_NS, way + DELAYED_ACK_NS))
    return way + delayed + TICK_NS + HOST_JITTER_NS


@dataclass(slots=True)
class Windows:
    """The windows of a plan's connections that may hold something back."""

    limits: dict[Way, Limit] = field(default_factory=dict)
    carriers: dict[Way, Carrier] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    """Stream -> how long its segments may wait."""
    rounds: dict[str, Rounds] = field(default_factory=dict)
    """Stream whose segments may wait -> why."""

    @classmethod
    def of(cls, plan: Plan) -> Windows:
        found = cls()
        for way, carrier in plan.carriers.items():
            if carrier.carried and (limit := limit_of(plan, carrier)) is not None:
                found.limits[way], found.carriers[way] = limit, carrier
        return found

    def copy(self) -> Windows:
        """The same windows with the same waits, to go on from by themselves."""
        return Windows(self.limits, self.carriers, dict(self.waits), dict(self.rounds))

    def update(
        self, streams: Mapping[str, Stream], jitters: Mapping[str, int], outcomes: Outcomes
    ) -> tuple[bool, dict[str, str]]:
        """Follows the outcomes: did a wait become longer, and which streams have none that is bounded, for what reason?

        `jitters`: those with which the streams are written, as far as they are not those of `streams`.
        """
        longer = False
        failed: dict[str, str] = {}
        for way, limit in self.limits.items():
            carrier = self.carriers[way]
            names = [one.stream for one in carrier.carried]
            if any(streams[name].period_ns is None for name in names):
                continue
            found = self._look(carrier, limit, streams, jitters, outcomes)
            if isinstance(found, str):
                failed |= dict.fromkeys(names, found)
            elif found.wait_ns > max(self.waits.get(name, 0) for name in names):
                longer = True
                self.waits |= dict.fromkeys(names, found.wait_ns)
                self.rounds |= dict.fromkeys(names, found)
        return longer, failed

    def _look(
        self,
        carrier: Carrier,
        limit: Limit,
        streams: Mapping[str, Stream],
        jitters: Mapping[str, int],
        outcomes: Outcomes,
    ) -> Rounds | str:
        if limit.segments is None:
            return limit.reason
        span = round_ns(carrier, outcomes)
        if span is None:
            keys = [(one.stream, carrier.receiver) for one in carrier.carried]
            keys += [(name, carrier.sender) for name in carrier.answers]
            why = next((f": {outcomes[key].reason}" for key in keys if outcomes[key].reason), "")
            return f"TCP's window waits for acknowledgements, which have no bound{why}"
        arrivals = [
            (one.segments, one.period_ns, jitters.get(one.stream, streams[one.stream].jitter_ns))
            for one in carrier.carried
        ]
        under_way = at_once(arrivals, span)
        held = f"TCP's window holds {limit.segments} segments ({limit.reason}), {under_way} can be under way"
        found = wait_ns(limit.segments, span, arrivals) if limit.segments > 0 else None
        if found is None:
            return f"{held}: more is sent than it lets through in a round of {span / 1e6:.3f} ms"
        if found and len(arrivals) > 1:
            return f"{held}, and packets of several kinds could wait together and share segments"
        if any(found and jitter + found >= period for _, period, jitter in arrivals):
            return f"{held}, and several messages could wait together and share segments"
        return Rounds(limit.segments, limit.reason, span, found)

    def written(self, jitters: Mapping[str, int], streams: Mapping[str, Stream]) -> dict[str, int]:
        """The jitters with which segments leave: those with which they are written and the longest wait."""
        later = {
            name: jitters.get(name, streams[name].jitter_ns) + wait
            for name, wait in self.waits.items()
            if wait and streams[name].period_ns is not None
        }
        return {**jitters, **later}

    def added(self, outcomes: Outcomes) -> dict[tuple[str, str], Outcome]:
        """The outcomes with what a message's last segment waits beyond its first: the frames' own bounds know of it as jitter alone."""
        return {
            key: outcome
            if outcome.actual_ns is None or not self.waits.get(key[0])
            else replace(outcome, actual_ns=outcome.actual_ns + self.waits[key[0]])
            for key, outcome in outcomes.items()
        }

    def observed(
        self, streams: Mapping[str, Stream], later: Mapping[str, int], outcomes: Outcomes
    ) -> dict[tuple[str, str], Outcome]:
        """`added`, for what was observed: rounds take longer where frames came later than declared."""
        there = self.copy()
        names = {one.stream for carrier in self.carriers.values() for one in carrier.carried}
        written = {name: max(later.get(name, 0), streams[name].jitter_ns - self.waits.get(name, 0)) for name in names}
        _, failed = there.update(streams, written, outcomes)
        return {
            key: replace(outcome, kind="no-finite-bound", actual_ns=None, nominal_ns=None, reason=failed[key[0]])
            if key[0] in failed and outcome.reason is None
            else outcome
            for key, outcome in there.added(outcomes).items()
        }
