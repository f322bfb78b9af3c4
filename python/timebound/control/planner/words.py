"""Why a request is refused, in words for people."""

from __future__ import annotations

from timebound.control.planner.demand import Demand
from timebound.control.planner.judge import Bound, Judged
from timebound.control.planner.state import State
from timebound.control.srt.rows import Side
from timebound.scenario.units import format_time

MOST_TOLD = 3


def refusal_words(demand: Demand, judged: Judged, state: State) -> str:
    """Whose deadline would break, where, and by how much; at most a few, the request's own first."""
    broken = judged.breaches()
    broken.sort(key=lambda bound: not _is_own(bound, demand))
    told = [_told(bound, demand) for bound in broken[:MOST_TOLD]]
    told += list(judged.full[: max(0, MOST_TOLD - len(told))])
    rest = len(broken) + len(judged.full) - len(told)
    if rest > 0:
        told.append(f"and {rest} more")
    return "; ".join(told)


def _is_own(bound: Bound, demand: Demand) -> bool:
    return demand in (bound.pair.publisher, bound.pair.subscriber)


def _told(bound: Bound, demand: Demand) -> str:
    pair = bound.pair
    deadline = pair.deadline_ns or 0
    if bound.bound_ns is None:
        return f"{_whose(bound, demand)} would have no bound: {bound.reason}"
    excess = bound.bound_ns - deadline
    return (
        f"{_whose(bound, demand)} takes up to {format_time(bound.bound_ns)} ({bound.where}), "
        f"{format_time(excess)} more than {_deadline(bound, demand)} {format_time(deadline)}"
    )


def _whose(bound: Bound, demand: Demand) -> str:
    pair = bound.pair
    topic = pair.publisher.topic
    if pair.subscriber is None:
        return "it" if pair.publisher == demand else f"{topic!r} to its broker"
    if pair.publisher == demand:
        return f"it, to the subscriber of {pair.subscriber.topic!r} on {pair.ends.client},"
    if pair.subscriber == demand:
        return f"{topic!r}, which it subscribes to,"
    return f"{topic!r} to {pair.ends.client}"


def _deadline(bound: Bound, demand: Demand) -> str:
    pair = bound.pair
    owner = pair.publisher
    if pair.subscriber is not None and pair.subscriber.deadline_ns == pair.deadline_ns:
        owner = pair.subscriber
    if owner == demand:
        return "its period, the deadline where none is stated:" if owner.derived else "its deadline of"
    return "the publisher's deadline of" if owner.side is Side.PUBLISH else "the subscriber's deadline of"
