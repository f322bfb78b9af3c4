"""Requests as demands: every attribute that the bounds need, stated, derived or defaulted; or why that cannot be done."""

from __future__ import annotations

from dataclasses import dataclass

from timebound.control.planner.site import LEAST_URGENT, MOST_URGENT, Site
from timebound.control.srt.rows import RequestRow, Side
from timebound.scenario.units import LONGEST_NS, format_time
from timebound.stacks.wire import MEASUREMENT_HEADER_BYTES, Wire, mqtt_publish

LARGEST_BYTES = 16_000_000
"""As of a scenario's messages."""
LONGEST_TOPIC = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A request with everything that it means. Of a subscriber size, period and jitter are 0: they are those of its publishers."""

    request: str
    revision: int
    connection: str
    side: Side
    topic: str
    deadline_ns: int | None
    """`None`: a subscriber that is content with its publishers' deadlines."""
    qos: int
    priority: int | None
    """As asked for; `None`: by the deadline, and of a subscriber without one as its publishers."""
    size_bytes: int = 0
    """Payload and properties of one message."""
    period_ns: int = 0
    jitter_ns: int = 0
    derived: bool = False
    """Is the deadline the period, for want of another?"""


@dataclass(frozen=True, slots=True)
class Unclear:
    """A request that says too little, or what cannot be."""

    reason: str


def demand_of(row: RequestRow, site: Site, rate_bps: int | None) -> Demand | Unclear:
    """What a request means; `rate_bps` is that of the client's link, by which a transmission time becomes a size."""
    asked = row.requirements
    priority = asked.priority
    if priority is not None and not LEAST_URGENT <= priority <= MOST_URGENT:
        why = "best effort, for which nothing is reserved" if priority < LEAST_URGENT else "the network's own"
        return Unclear(
            f"class {priority} is {why}: ask for rt-priority {LEAST_URGENT} to {MOST_URGENT}, or leave it out"
        )
    if not site.priorities:
        priority = None
    if asked.deadline_ns is not None and not 0 < asked.deadline_ns <= LONGEST_NS:
        return Unclear(f"a deadline of {format_time(asked.deadline_ns)} is not possible")
    qos = 1 if asked.qos is None else asked.qos
    if row.side is Side.SUBSCRIBE:
        return Demand(
            request=row.id,
            revision=row.revision,
            connection=row.connection,
            side=row.side,
            topic=row.topic,
            deadline_ns=asked.deadline_ns,
            qos=qos,
            priority=priority,
        )
    if len(row.topic) > LONGEST_TOPIC:
        return Unclear(f"the topic has more than {LONGEST_TOPIC} characters")
    size = asked.size_bytes
    if size is None and asked.transmission_ns is not None and rate_bps is not None:
        size = _size_of(asked.transmission_ns, rate_bps, row.topic, Wire(site.framing))
    if size is None:
        return Unclear("it says neither the size of a message nor its time of transmission: add rt-size")
    if size > LARGEST_BYTES:
        return Unclear(f"a message of {size} bytes is larger than the {LARGEST_BYTES} that are planned for")
    period = asked.period_ns
    if period is None and asked.bandwidth_bps is not None and asked.bandwidth_bps[1] > 0:
        # At most so many bits of payload in a second: rounded to the shorter period.
        period = max(1, size * 8 * 1_000_000_000 // asked.bandwidth_bps[1])
    if period is None:
        return Unclear("it says no least time between two messages: add rt-period (or rt-bandwidth)")
    if not 0 < period <= LONGEST_NS:
        return Unclear(f"a period of {format_time(period)} is not possible")
    jitter = site.jitter_ns if asked.jitter_ns is None else asked.jitter_ns
    if jitter > LONGEST_NS:
        return Unclear(f"a jitter of {format_time(jitter)} is not possible")
    return Demand(
        request=row.id,
        revision=row.revision,
        connection=row.connection,
        side=row.side,
        topic=row.topic,
        deadline_ns=period if asked.deadline_ns is None else asked.deadline_ns,
        qos=qos,
        priority=priority,
        size_bytes=max(size + site.properties_bytes, MEASUREMENT_HEADER_BYTES),
        period_ns=period,
        jitter_ns=jitter,
        derived=asked.deadline_ns is None,
    )


def _size_of(transmission_ns: int, rate_bps: int, topic: str, wire: Wire) -> int:
    """The largest payload that is sent within a time of transmission (C, with all overheads) at a rate; 0 where none is."""
    wire_bytes = -(-transmission_ns * rate_bps // 8_000_000_000)
    low, high = 0, max(0, min(wire_bytes, LARGEST_BYTES + 1))
    while low < high:
        middle = (low + high + 1) // 2
        if sum(wire.tcp(mqtt_publish(topic, middle, 1, True)[0])) <= wire_bytes:
            low = middle
        else:
            high = middle - 1
    return low
