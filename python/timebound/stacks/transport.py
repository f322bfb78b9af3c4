"""TCP connections as what limits a sender: one direction each, with everything that shares its window."""

from __future__ import annotations

from dataclasses import dataclass, field

Way = tuple[str, str, str]
"""(connection, sender, receiver)."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Segments with payload that a stream brings to a connection: so many per period."""

    stream: str
    segments: int
    period_ns: int


@dataclass(slots=True)
class Carrier:
    """One direction of a connection: what it carries, and the streams of the other direction that can bring its acknowledgements."""

    sender: str
    receiver: str
    segment_bytes: int
    """Payload of the largest segment."""
    carried: list[Carried] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    @property
    def largest_message(self) -> int:
        """Segments that are written at once, at most."""
        return max((one.segments for one in self.carried), default=0)
