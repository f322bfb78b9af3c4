"""Packets that leave in common TCP segments: what a stream can put on the wire whose jitter reaches its period.

TCP cuts a stream of bytes, not packets. Those that wait at a sender at the same time may leave in one segment (Nagle's algorithm, RFC 1122, section
4.2.3.4, which mosquitto leaves on for its bridges; a sender that gathers what it writes; a kernel that appends to what it could not send yet). With
jitter `J` and period `T` a packet leaves between `kT` and `kT + J`, so at most `floor(J / T) + 1` packets of a stream can be in a segment, and of a direction
of a connection so many of each kind. Each segment is charged to one packet: the first of the stream in it that ends there, or else the one in which it lies.

- A packet of `s` bytes is charged at most `floor(s / MSS) + 1` segments, those that it fills and the one that holds its end; one, where all that can
  wait together fits into a segment. With their headers these are `W` bytes.
- In a closed window of length `d` bytes of at most `floor((d + J) / T) + 1` packets leave, so at most `W (1 + J / T) + (W / T) d` bytes do: a
  token bucket, whose largest frame is a segment with all that can wait together.
- A packet of another kind that lies in such a segment is one that waits behind it: it is in the segment's size, and in its own declaration as well.

A stream of which at most one packet waits at a time stays as it is declared: each is written by itself and leaves at once (TCP_NODELAY). Where a sender gathers
packets of different kinds all the same, the stack declares frames that hold one of each (`mqtt_connection`; `timebound.engine.together`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from timebound.stacks.wire import ETHERNET, IPV4_HEADER, TCP_HEADER, Wire

if TYPE_CHECKING:
    from timebound.stacks.plan import Stream


@dataclass(frozen=True, slots=True)
class Packets:
    """What a stream brings to one direction of a TCP connection."""

    direction: str
    """Which direction of which connection: streams with the same text share it."""
    size_bytes: int
    mtu: int
    count: int = 1
    """Packets of one release."""
    least_bytes: int | None = None
    """Of the least packet; `None`: all have `size_bytes`."""
    known: bool = True
    """Is the TCP of both ends ours?"""
    wire: Wire = ETHERNET
    gathers: bool = False
    """May it leave in a segment with packets of other kinds at any jitter? Then the frames of the largest kind have room for one of each."""

    @property
    def largest_segment(self) -> int:
        """Payload of a full segment."""
        return self.mtu - IPV4_HEADER - TCP_HEADER


@dataclass(frozen=True, slots=True)
class Joined:
    """The arrivals of a stream whose packets may leave in common segments: a token bucket."""

    packets: int
    """Packets of the stream that a segment can hold."""
    frame_bytes: int
    """The largest frame."""
    smallest_frame: int
    rate_bps: int
    burst_bytes: int
    whole_bytes: int
    """What a release takes, which is what the jitter of a period brings."""

    @classmethod
    def of(cls, packets: Packets, period_ns: int, jitter_ns: int, together_bytes: int) -> Joined:
        """`together_bytes` is all that can wait at the sender at once, of every kind."""
        largest, size = packets.largest_segment, packets.size_bytes
        fits = together_bytes <= largest
        least = 1 if not fits else size if packets.least_bytes is None else packets.least_bytes
        wire = packets.wire
        frame = wire.segment(min(largest, together_bytes))
        whole = packets.count * (size + wire.ack * (1 if fits else size // largest + 1))
        return cls(
            packets=at_once(packets, period_ns, jitter_ns),
            frame_bytes=frame,
            # The end of a packet that others pushed into a segment of its own.
            smallest_frame=wire.framing.shortest(wire.least_segment(least, known=packets.known)),
            rate_bps=-(-whole * 8_000_000_000 // period_ns),
            # What lies in a segment beside the stream's own packets is in no burst of these.
            burst_bytes=max(_burst(whole, period_ns, jitter_ns), frame),
            whole_bytes=whole,
        )

    def burst_ns(self, period_ns: int, jitter_ns: int) -> int:
        """The time in which the burst for that jitter comes at the rate, rounded up: what an analysis takes for it gives the bucket of `of`."""
        burst = max(_burst(self.whole_bytes, period_ns, jitter_ns), self.frame_bytes)
        return -(-burst * 8_000_000_000 // self.rate_bps)

    def arrival(self) -> dict[str, object]:
        """The JSON of an `ArrivalDecl`."""
        return {
            "kind": "token-bucket",
            "rate_bps": self.rate_bps,
            "burst_bytes": self.burst_bytes,
            "min_frame_bytes": self.smallest_frame,
            "max_frame_bytes": self.frame_bytes,
        }


def _burst(whole: int, period_ns: int, jitter_ns: int) -> int:
    return whole + -(-whole * jitter_ns // period_ns)


def at_once(packets: Packets, period_ns: int, jitter_ns: int) -> int:
    """Packets of a stream that can wait at its sender at the same time."""
    return packets.count * (jitter_ns // period_ns + 1)


def joined(streams: Iterable[Stream]) -> dict[str, Joined]:
    """The streams, by name, whose packets can leave in segments with others, for the jitters that they have."""
    directions: dict[str, list[tuple[Stream, Packets, int, int]]] = {}
    for stream in streams:
        if stream.tcp is not None and stream.period_ns is not None and not stream.one_at_a_time:
            number = at_once(stream.tcp, stream.period_ns, stream.jitter_ns)
            directions.setdefault(stream.tcp.direction, []).append((stream, stream.tcp, stream.period_ns, number))
    found: dict[str, Joined] = {}
    for kinds in directions.values():
        together = sum(packets.size_bytes * number for _, packets, _, number in kinds)
        for stream, packets, period_ns, number in kinds:
            if number > packets.count:
                found[stream.name] = Joined.of(packets, period_ns, stream.jitter_ns, together)
    return found


def with_joined(streams: Mapping[str, Stream]) -> dict[str, Stream]:
    """The streams, each as it leaves its sender with the jitter that it has."""
    found = joined(streams.values())
    return {
        name: stream if stream.joined == found.get(name) else replace(stream, joined=found.get(name))
        for name, stream in streams.items()
    }
