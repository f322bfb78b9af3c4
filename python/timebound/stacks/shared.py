"""Connections that several flows share: which class each direction has, and how large its segments can be.

TCP cuts a stream of bytes, not messages: packets that wait at a sender at the same time leave in common segments. What is declared for such
a direction is safe for that, by charging every segment to the first PUBLISH in it:

- A segment that holds the end of a message, or lies within one, is charged to the first such message. A message of `s` bytes is charged at
  most `floor(s / MSS) + 1` segments: those that it fills, and the one that holds its end.
- As long as no two packets of one kind wait together (of a publisher: no more than its declared jitter allows), a segment holds at most one packet of each kind (PUBLISH of each flow, each kind of
  acknowledgement, a ping), so none is larger than all of them together, nor than the MSS. That they do not is what
  `Stream.one_at_a_time` demands: at the sender the jitter of every stream that answers or passes on stays below its period. Prediction gives no bound where it does not.
- Whichever message is looked at, the segments can be charged to it instead, so the bound of its stream holds for it; the others only ever
  count more bytes than are sent, as every segment has one header where several are declared.
- A segment without a PUBLISH holds acknowledgements and a ping alone, and is charged to any of them: each is declared with all of them.
- An acknowledgement in a segment with a PUBLISH arrives with that: its bound is no less than that of the messages (`timebound.engine.together`).

A direction has the highest class of the flows whose messages it carries, or, where it carries answers alone, that of the other direction: the
network tells frames apart by addresses and ports, and knows no more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timebound.scenario.model import Flow
from timebound.stacks.wire import (
    IPV4_HEADER,
    MQTT_ACKNOWLEDGEMENT,
    MQTT_PING,
    TCP_HEADER,
    Wire,
    mqtt_publish,
)

FROM_SENDER = {0: 0, 1: 0, 2: 1}
"""Acknowledgements that the sender of a PUBLISH sends: PUBREL of QoS 2 (MQTT 5.0, section 4.3)."""
FROM_RECEIVER = {0: 0, 1: 1, 2: 2}
"""Those that its receiver sends: PUBACK; PUBREC and PUBCOMP."""


@dataclass(frozen=True, slots=True)
class SharedDirection:
    """One direction of a connection."""

    priority: int
    batch_bytes: int | None
    """All kinds of packets of this direction together, one of each; `None` where a single flow uses the connection."""
    answer_bytes: int
    """All but messages."""
    has_messages: bool

    def message_frames(self, message_bytes: int, mtu: int, wire: Wire) -> tuple[int, ...]:
        """Wire sizes of the segments that are charged to a message of so many bytes."""
        assert self.batch_bytes is not None
        largest = mtu - IPV4_HEADER - TCP_HEADER
        if self.batch_bytes <= largest:
            return (wire.segment(self.batch_bytes),)
        return (wire.packet(mtu),) * (message_bytes // largest + 1)

    def answer_frames(self, alone: tuple[int, ...], mtu: int, wire: Wire) -> tuple[int, ...]:
        """Wire sizes of an acknowledgement that is declared as `alone` on a connection of its own."""
        if self.batch_bytes is None:
            return alone
        return (wire.packet(min(mtu, self.answer_bytes + IPV4_HEADER + TCP_HEADER)),)


@dataclass(frozen=True, slots=True)
class SharedConnection:
    """A connection and the flows on it."""

    flows: tuple[str, ...]
    up: SharedDirection
    """From the client to the broker."""
    down: SharedDirection

    @property
    def is_shared(self) -> bool:
        """Has it more than one flow?"""
        return len(self.flows) > 1

    @property
    def first(self) -> str:
        """The flow with which the keep-alives of the connection are declared."""
        return self.flows[0]


def shared_connections(flows: Iterable[Flow], topics: Mapping[str, str], version5: bool) -> dict[str, SharedConnection]:
    """The connections that flows name."""
    users: dict[str, list[Flow]] = {}
    for flow in flows:
        if flow.connection is not None:
            users.setdefault(flow.connection, []).append(flow)
    return {name: _connection(found, topics, version5) for name, found in users.items()}


def _connection(flows: list[Flow], topics: Mapping[str, str], version5: bool) -> SharedConnection:
    up = [flow for flow in flows if flow.after is None]
    down = [flow for flow in flows if flow.after is not None]
    alone = len(flows) == 1
    classes = [max((flow.priority for flow in there), default=None) for there in (up, down)]
    sent, answers = [0, 0], [0, 0]
    for flow in flows:
        size = mqtt_publish(topics[flow.name], flow.size_bytes, flow.qos, version5)[0]
        there, back = (0, 1) if flow.after is None else (1, 0)
        # A publisher's own jitter is known: so many of its messages can wait together.
        together = 1 if flow.after is not None else flow.jitter_ns // flow.period_ns + 1
        sent[there] += size * together
        answers[there] += FROM_SENDER[flow.qos] * MQTT_ACKNOWLEDGEMENT
        answers[back] += FROM_RECEIVER[flow.qos] * MQTT_ACKNOWLEDGEMENT
    ways = [
        SharedDirection(
            priority=_priority(classes[side], classes[1 - side]),
            batch_bytes=None if alone else sent[side] + answers[side] + MQTT_PING,
            answer_bytes=answers[side] + MQTT_PING,
            has_messages=bool((up, down)[side]),
        )
        for side in (0, 1)
    ]
    return SharedConnection(tuple(flow.name for flow in flows), ways[0], ways[1])


def _priority(own: int | None, other: int | None) -> int:
    found = own if own is not None else other
    assert found is not None
    return found
