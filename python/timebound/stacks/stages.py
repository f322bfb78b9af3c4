"""What a message passes between its nominal release and its receivers, and what a broker does on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """MQTT packets of one kind that reach a broker whose service time is known: work that its server does, first in, first out.

    They arrive with the frames of `stream` (a packet of several frames with the last of them); without a stream they come from a client on
    the broker's own host, `extra_ns` after the broker was done with `after`, or after their nominal release where `after` is None.
    """

    name: str
    broker: str
    flow: str
    work_ns: int
    period_ns: int | None
    stream: str | None = None
    after: str | None = None
    extra_ns: int = 0


@dataclass(frozen=True, slots=True)
class Crossing:
    """The frames of a stream cross the network to one of its receivers."""

    stream: str
    destination: str


@dataclass(frozen=True, slots=True)
class Working:
    """A broker deals with a packet; `packet` is None where nothing is known of the broker's own time."""

    broker: str
    packet: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A host takes up to `span_ns`, as declared."""

    span_ns: int


@dataclass(frozen=True, slots=True)
class Slowest:
    """Several ways at the same time, all of which must have come to their end."""

    branches: tuple[tuple[Step, ...], ...]


Step = Crossing | Working | Waiting | Slowest


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a message's way as reports show it: a segment of the network, a broker, the handshake of QoS 2 that comes before
    a broker may forward (MQTT 5.0, section 4.3.3: both brokers here pass a message on when its PUBREL arrives), or the time for which TCP
    may hold a message of a bridge back."""

    kind: Literal["network", "handshake", "broker", "hold"]
    name: str
    """`publish`, `bridge`, `multicast`, `deliver`, `direct`, or the broker's node."""
    steps: tuple[Step, ...]
