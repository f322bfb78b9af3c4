"""Packets that leave in common TCP segments: what is declared for them covers every segmentation that TCP can make of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.stacks.joined import Joined, Packets, at_once, joined
from timebound.stacks.plan import Stream

HEADERS = 90
"""Of a segment on the wire: 14 + 20 + 32 + 4 + 20 bytes."""


@dataclass
class Sender:
    """TCP with what was written and has not left. It sends whatever fills segments, and the rest when it is told to, all of it."""

    largest: int
    queue: list[tuple[int, int]] = field(default_factory=list)
    """Packets with their bytes that are left."""
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    """Time, bytes on the wire, packets."""

    def send(self, now: int, *, everything: bool) -> None:
        while self.queue and (everything or sum(left for _, left in self.queue) >= self.largest):
            room, packets = self.largest, 0
            while self.queue and room:
                number, left = self.queue[0]
                took = min(room, left)
                room, packets = room - took, packets + 1
                self.queue[0] = (number, left - took)
                if took == left:
                    self.queue.pop(0)
            self.sent.append((now, self.largest - room + HEADERS, packets))


def segments(seed: int, size: int, period: int, jitter: int, largest: int) -> list[tuple[int, int, int]]:
    """What a sender puts on the wire that holds packets back as it likes, none longer than the jitter after its nominal time."""
    draw = random.Random(seed)
    sender = Sender(largest)
    # Senders in a hurry, those that wait as long as they may, and all between.
    haste = draw.choice([0.0, 0.1, 0.5, 1.0])
    number = draw.randint(1, 14)
    written = 0
    events: list[tuple[int, int]] = []
    for k in range(number):
        written = max(written, k * period + draw.choice([0, jitter, draw.randint(0, jitter)]))
        events.append((written, k))
    events += [(k * period + jitter, -1) for k in range(number)]
    events.sort(key=lambda event: (event[0], event[1] < 0))
    for now, k in events:
        if k >= 0:
            sender.queue.append((k, size))
        overdue = any(first * period + jitter <= now for first, _ in sender.queue)
        if draw.random() < 0.5:
            sender.send(now, everything=False)
        if overdue or draw.random() < haste:
            sender.send(now, everything=True)
    assert not sender.queue
    return sender.sent


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 3_000),
    period=st.integers(1_000, 100_000),
    share=st.floats(0, 12),
    mtu=st.sampled_from([88, 127, 576, 1500, 9000]),
)
def test_a_token_bucket_covers_every_segmentation(seed: int, size: int, period: int, share: float, mtu: int) -> None:
    jitter = int(period * share)
    packets = Packets("a", size, mtu)
    found = Joined.of(packets, period, jitter, size * at_once(packets, period, jitter))
    sent = segments(seed, size, period, jitter, packets.largest_segment)
    assert sum(wire - HEADERS for _, wire, _ in sent) % size == 0
    for start, (first, _, _) in enumerate(sent):
        total = 0
        for last, wire, together in sent[start:]:
            assert found.smallest_frame <= wire <= found.frame_bytes <= mtu + 38
            assert together <= found.packets
            total += wire
            assert total <= found.burst_bytes + found.rate_bps * (last - first) / 8e9


def test_the_bound_of_a_segment_is_reached() -> None:
    """As many packets as are said can really be in one, and the burst is no larger than what may come at once."""
    packets = Packets("a", 100, 1500)
    found = Joined.of(packets, 1_000, 2_500, 300)
    assert (found.packets, found.frame_bytes, found.smallest_frame) == (3, 390, 190)
    assert found.burst_bytes == 190 * 3.5 and found.rate_bps == 190 * 8_000_000
    # Packets of half a segment: one of three lies across a border.
    found = Joined.of(replace(packets, size_bytes=800), 1_000, 2_500, 2_400)
    assert (found.frame_bytes, found.smallest_frame, found.burst_bytes) == (1538, 91, 890 * 3.5)


def stream(name: str, size: int, jitter: int, *, direction: str = "a") -> Stream:
    return Stream(
        name=name,
        source="h",
        destinations=("b",),
        priority=0,
        role="data",
        frames_bytes=(size + HEADERS,),
        release={"kind": "periodic", "offset_ns": None},
        period_ns=1_000_000,
        jitter_ns=jitter,
        tcp=Packets(direction, size, 1500),
    )


@pytest.mark.parametrize("jitter", [0, 999_999])
def test_what_never_waits_for_its_own_kind_stays_as_it_is(jitter: int) -> None:
    assert joined([stream("data", 100, jitter), stream("release", 6, jitter)]) == {}


def test_from_a_jitter_of_one_period_on_two_can_be_in_a_segment_with_what_else_waits() -> None:
    found = joined([stream("data", 100, 1_000_000), stream("release", 6, 0), stream("other", 500, 0, direction="b")])
    assert list(found) == ["data"]
    assert found["data"].packets == 2 and found["data"].frame_bytes == 2 * 100 + 6 + HEADERS


def test_a_stream_without_declared_arrivals_is_left_alone() -> None:
    assert joined([replace(stream("data", 100, 5_000_000), period_ns=None)]) == {}
