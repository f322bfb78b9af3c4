"""Token buckets and time slots of a resolved scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """In any closed window `d` at most `burst_bytes + rate_bps d / 8` bytes on the wire."""

    rate_bps: int
    burst_bytes: int

    def time_ns(self, size_bytes: int) -> int:
        """Time in which so many bytes come at the rate, rounded up."""
        return -(-size_bytes * 8 * 1_000_000_000 // self.rate_bps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """`SlotsDecl`: when one end of a link may send."""

    cycle_ns: int
    slots_ns: tuple[tuple[int, int], ...]
    """(start, length), in order."""

    @property
    def longest_ns(self) -> int:
        """Length of the longest slot."""
        return max(length for _, length in self.slots_ns)

    def overlaps(self, other: Slots) -> bool:
        """Do both send at a time? Both have the same cycle."""
        return any(
            at < start + length and start < at + width
            for at, width in self.slots_ns
            for start, length in other.slots_ns
        )

    def declaration(self) -> dict[str, Any]:
        """`SlotsDecl` of the model."""
        return {"cycle_ns": self.cycle_ns, "slots_ns": [list(slot) for slot in self.slots_ns]}
