"""Packets of different kinds in one TCP segment: a small one that shares the segment of a larger one arrives with that.

Where a sender may write a packet of each kind at once (`Packets.gathers`), the stack declares the frames of each kind with room for the smaller ones beside
it. So every segment can be charged to the largest packet in it, and no stream sends more than it declares. The smaller ones have left with that
segment: their own frames are not sent, and their bound is no less than that of the larger kind, counted from their actual release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from timebound.stacks import Stream

if TYPE_CHECKING:
    from timebound.engine.outcome import Outcome

Key = tuple[str, str]


@dataclass(slots=True)
class Together:
    """The directions of a plan's connections whose packets may leave together."""

    directions: list[list[Key]] = field(default_factory=list)
    """Streams with their receivers, by direction."""
    later: dict[Key, int] = field(default_factory=dict)
    """By how much the bound of a stream at its receiver was raised last, ns."""

    @classmethod
    def of(cls, streams: Mapping[str, Stream]) -> Together:
        found: dict[str, list[Key]] = {}
        for stream in streams.values():
            if stream.tcp is not None and stream.tcp.gathers:
                keys = found.setdefault(stream.tcp.direction, [])
                keys += [(stream.name, receiver) for receiver in stream.destinations]
        return cls([keys for keys in found.values() if len(keys) > 1])

    def added(self, streams: Mapping[str, Stream], outcomes: Mapping[Key, Outcome]) -> dict[Key, Outcome]:
        """The outcomes, of each kind of packets no less than those of the larger ones."""
        found = dict(outcomes)
        self.later = {}
        for keys in self.directions:
            largest: Outcome | None = None
            for key in sorted(keys, key=lambda key: -streams[key[0]].largest_frame):
                own = found[key]
                if own.actual_ns is None or own.nominal_ns is None:
                    largest = largest if largest is not None and largest.actual_ns is None else own
                elif largest is None or (largest.actual_ns is not None and largest.actual_ns <= own.actual_ns):
                    largest = own
                elif largest.actual_ns is None:
                    found[key] = replace(largest, path=own.path)
                else:
                    self.later[key] = later = largest.actual_ns - own.actual_ns
                    found[key] = replace(own, actual_ns=own.actual_ns + later, nominal_ns=own.nominal_ns + later)
        return found
