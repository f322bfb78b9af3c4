"""Which message is which where no number, or only the low byte of it, fits into the payload."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from timebound.engine import records
from timebound.engine.short import Guesses, Passed, match, resolve
from timebound.scenario import load
from timebound.stacks import build_plan

MS = 1_000_000

SCENARIO = """name: tiny
network:
  nodes: {{a: host, b: host, c: host, s: switch}}
  links: [[a, s], [b, s], [c, s]]
flows:
  - {{name: tiny, from: a, to: c, size: {size} B, period: 1 ms, deadline: 1 ms}}
stack: {stack}
"""


def passed(sequence: list[int], time_ns: list[int]) -> Passed:
    return Passed(np.array(sequence, np.int64), np.array(time_ns, np.int64))


def sent(count: int) -> Passed:
    return passed(list(range(count)), [n * MS for n in range(count)])


@pytest.mark.parametrize("size", [0, 1, 2, 23])
def test_messages_of_a_client_that_joined_late_are_not_the_first_ones(size: int) -> None:
    # The receiver begins at message 700 of 1000: it counts from zero, or from the low byte.
    own = [n if size >= 4 else n % (1 << 8 * size) for n in range(700, 1000)] if size else list(range(300))
    matched = match(sent(1000), passed(own, [n * MS + 40_000 for n in range(700, 1000)]), size)
    assert matched.sequence.tolist() == list(range(700, 1000))
    assert matched.certain == (size >= 2)


def test_an_outage_longer_than_the_number_moves_nobody_after_it_and_is_a_guess() -> None:
    there = [*range(100), *range(500, 1000)]
    # What a receiver makes of the low bytes: 500 has that of 244, and that is nearest.
    own = [*range(100), *range(244, 744)]
    matched = match(sent(1000), passed(own, [n * MS + 300_000 for n in there]), 1)
    assert matched.sequence.tolist() == there and not matched.certain


def test_lost_messages_with_a_number_are_no_guess_and_empty_ones_are() -> None:
    there = [n for n in range(600) if n % 7]
    times = [n * MS + 300_000 for n in there]
    with_number = match(sent(600), passed(there, times), 1)
    assert with_number.sequence.tolist() == there and with_number.certain
    empty = match(sent(600), passed(list(range(len(there))), times), 0)
    assert empty.sequence.tolist() == there and not empty.certain


def test_a_delay_longer_than_the_number_is_a_guess_once_one_is_lost() -> None:
    # Message 0 is lost and all others take 256 ms: by time alone each could be its 256th successor, and just in time.
    after = passed(list(range(1, 900)), [(n + 256) * MS for n in range(1, 900)])
    assert not match(sent(900), after, 1).certain


def test_order_counts_for_more_than_time_where_nothing_is_missing() -> None:
    # All wait 5.5 ms: by time alone each would be its fifth successor.
    matched = match(sent(50), passed(list(range(50)), [n * MS + 5_500_000 for n in range(50)]), 0)
    assert matched.sequence.tolist() == list(range(50)) and matched.certain


def test_empty_messages_that_come_together_are_different_ones() -> None:
    # Message 0 is lost, and messages 3 to 7 come at once after a pause.
    after = passed(list(range(9)), [MS, 2 * MS, 7 * MS, 7 * MS, 7 * MS, 7 * MS, 7 * MS, 8 * MS, 9 * MS])
    assert match(sent(10), after, 0).sequence.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_copy_is_the_message_that_it_copies() -> None:
    after = passed([0, 0, 1, 2], [10_000, 20_000, MS + 10_000, 2 * MS + 10_000])
    matched = match(sent(3), after, 1)
    assert matched.sequence.tolist() == [0, 0, 1, 2] and matched.certain


def test_nothing_came() -> None:
    assert match(sent(3), passed([], []), 0).sequence.tolist() == []


def message(kind: int, sequence: int, time_ns: int, receiver: int = 2**32 - 1, flags: int = 0) -> tuple[int, ...]:
    return (kind, 1, flags, 0, receiver, sequence, 0, 0, sequence * MS, time_ns)


def told(
    stack: str,
    size: int,
    crossed: list[list[tuple[int, int, int, int]]],
    sent: list[int],
    came: list[tuple[int, int]],
    late_ns: int = 0,
    again: int = -1,
) -> tuple[list[int], list[list[int]], Guesses]:
    """The numbers of what came and of the frames of each part of the way. Frames: (number, sent, arrived or -1, messages)."""
    plan = build_plan(load(SCENARIO.format(size=size, stack=stack)))
    receiver = plan.host_numbers()["c"]
    segments = plan.segments["tiny", "c"]
    rows = []
    for segment, frames in zip(segments, crossed, strict=True):
        for sequence, ingress, delivered, messages in frames:
            dropped = delivered < 0
            flags = records.HAS_SEQUENCE | (records.DROPPED if dropped else 0)
            to = None if dropped else segment.destination
            rows.append((segment.stream, to, flags, 0, sequence, ingress, delivered, late_ns, messages))
    schema = {"name": pl.String, "receiver": pl.String, "flags": pl.UInt16, "flow": pl.UInt32, "sequence": pl.UInt32}
    schema |= {"ingress_ns": pl.Int64, "delivered_ns": pl.Int64, "lateness_ns": pl.UInt32, "messages": pl.UInt32}
    table = np.array(
        [message(records.SENT, n, at) for n, at in enumerate(sent)]
        + [message(records.RECEIVED, n, at, receiver, int(n == again)) for n, at in came],
        dtype=records.MESSAGE,
    )
    messages = pl.DataFrame({name: np.ascontiguousarray(table[name]) for name in table.dtype.names or ()})
    resolved, received, guesses = resolve(plan, pl.DataFrame(rows, schema=schema, orient="row"), messages)
    parts = [resolved.filter(pl.col("name") == segment.stream)["sequence"].to_list() for segment in segments]
    return received.filter(pl.col("kind") == records.RECEIVED)["sequence"].to_list(), parts, guesses


MQTT = "{mqtt: {broker: b}}"
US = 1_000


def test_what_tcp_sends_again_keeps_its_number_behind_what_had_overtaken_it() -> None:
    # Message 1 is dropped, 2 and 3 arrive before it comes again: the broker has 1, 2 and 3 at that moment, in this order.
    sent = [n * MS for n in range(5)]
    up = [(n, n * MS + 10 * US, n * MS + 20 * US, 1) for n in (0, 2, 3, 4)]
    up += [(1, MS + 10 * US, -1, 7), (1, 3 * MS + 500 * US, 3 * MS + 510 * US, 1)]
    out = [0, 3 * MS + 520 * US, 3 * MS + 521 * US, 3 * MS + 522 * US, 4 * MS]
    down = [(n, at + 100 * US, at + 110 * US, 1) for n, at in enumerate(out)]
    came = [(n, at + 120 * US) for n, at in enumerate(out)]
    numbers, (there, back), guesses = told(MQTT, 0, [up, down], sent, came)
    assert numbers == [0, 1, 2, 3, 4] and guesses == {}
    assert there == [0, 2, 3, 4, 1, 1] and back == [0, 1, 2, 3, 4]


def test_an_empty_message_that_a_broker_dropped_makes_the_others_a_guess() -> None:
    sent = [n * MS for n in range(6)]
    up = [(n, at + 10 * US, at + 20 * US, 1) for n, at in enumerate(sent)]
    kept = [at for n, at in enumerate(sent) if n != 2]
    down = [(n, at + 30 * US, at + 40 * US, 1) for n, at in enumerate(kept)]
    came = [(n, at + 50 * US) for n, at in enumerate(kept)]
    numbers, _, guesses = told(MQTT, 0, [up, down], sent, came)
    assert numbers == [0, 1, 3, 4, 5]
    assert "6 came to a part of their way and 5 left it" in guesses["tiny", "c"]


def test_empty_datagrams_that_the_network_lost_are_no_guess() -> None:
    sent = [n * MS for n in range(6)]
    frames = [(n, at + 10 * US, -1 if n in (0, 3) else at + 20 * US, 1) for n, at in enumerate(sent)]
    came = [(n, sent[real] + 30 * US) for n, real in enumerate([1, 2, 4, 5])]
    numbers, (crossed,), guesses = told("udp", 0, [frames], sent, came)
    assert numbers == [1, 2, 4, 5] and guesses == {}
    assert crossed == list(range(6))
    # One more that a full socket dropped: nobody saw which.
    numbers, _, guesses = told("udp", 0, [frames], sent, came[1:])
    assert numbers == [2, 4, 5] and ("tiny", "c") in guesses


def test_the_numbers_of_one_byte_that_wrap_are_whole_again() -> None:
    sent = [n * MS for n in range(700)]
    lost = {5, 300, 301, 650}
    frames = [(n, at + 10 * US, -1 if n in lost else at + 20 * US, 1) for n, at in enumerate(sent)]
    there = [n for n in range(700) if n not in lost]
    numbers, _, guesses = told("udp", 1, [frames], sent, [(n, n * MS + 30 * US) for n in there])
    assert numbers == there and guesses == {}
    assert all(first < second for first, second in pairwise(numbers))


@pytest.mark.parametrize("size", [0, 1])
def test_a_receiver_that_ran_before_the_hand_over_was_stamped_makes_no_guess(size: int) -> None:
    # On a busy machine the stamp of the hand-over may be later than that of the reception, here by 2 ms.
    sent = [n * MS for n in range(6)]
    frames = [(n, at + 10 * US, -1 if n == 0 else at + 20 * US, 1) for n, at in enumerate(sent)]
    came = [(real - (not size), sent[real] + 30 * US) for real in range(1, 6)]
    numbers, _, guesses = told("udp", size, [frames], sent, came, late_ns=2 * MS)
    assert numbers == [1, 2, 3, 4, 5] and guesses == {}


@pytest.mark.parametrize("size", [0, 1])
def test_an_empty_message_that_came_again_may_hide_one_that_was_lost(size: int) -> None:
    sent = [n * MS for n in range(4)]
    frames = [(n, at + 10 * US, at + 20 * US, 1) for n, at in enumerate(sent)]
    came = [(n, at + 50 * US) for n, at in enumerate(sent)]
    _, _, guesses = told(MQTT, size, [frames, frames], sent, came, again=2)
    assert bool(guesses) == (size == 0)
