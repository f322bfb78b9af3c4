"""The jitter that explains a stream's arrivals: against its definition, window by window."""

from __future__ import annotations

import math

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.engine.observed import arrivals, name_streams, worst_latencies
from timebound.engine.records import CONTINUED, DROPPED, HAS_SEQUENCE
from timebound.scenario import load
from timebound.stacks import Plan, build_plan

PERIOD = 10_000_000
TEXT = """
name: one
network: {nodes: {a: host, b: host}, links: [{between: [a, b], rate: 100 Mbit/s}]}
flows: [{name: alpha, from: a, to: b, size: 100 B, period: 10 ms}]
stack: {udp: {}}
"""


def plan() -> Plan:
    return build_plan(load(TEXT))


def frames(times: list[int], flags: int = HAS_SEQUENCE, payload: int = 100) -> pl.DataFrame:
    count = len(times)
    return pl.DataFrame(
        {
            "stream": [0] * count,
            "leaf": [0] * count,
            "flags": [flags] * count,
            "sequence": list(range(count)),
            "wire": [166] * count,
            "payload": [payload] * count,
            "ingress_ns": times,
            "delivered_ns": [time + 20_000 for time in times],
            "lateness_ns": [0] * count,
            "messages": [1] * count,
        },
        schema_overrides={"stream": pl.UInt32, "leaf": pl.UInt16, "flags": pl.UInt16, "messages": pl.UInt32},
    )


def jitter_of(table: pl.DataFrame) -> int | None:
    laid = plan()
    streams = {stream.name: stream for stream in laid.streams}
    return arrivals(laid, streams, name_streams(laid, table))["alpha/direct"].jitter_ns


def test_strictly_periodic_arrivals_have_no_jitter() -> None:
    assert jitter_of(frames([5 + k * PERIOD for k in range(10)])) == 0


def test_one_late_release_is_its_own_jitter() -> None:
    assert jitter_of(frames([0, PERIOD + 400_000, 2 * PERIOD])) == 400_000


def test_a_pause_is_no_jitter_but_a_burst_after_it_is() -> None:
    assert jitter_of(frames([0, 5 * PERIOD, 6 * PERIOD])) == 0
    assert jitter_of(frames([0, 5 * PERIOD, 5 * PERIOD])) == PERIOD


def test_a_segment_with_two_messages_counts_as_two_at_once() -> None:
    assert jitter_of(frames([0, 2 * PERIOD], payload=200)) == PERIOD


def test_dropped_frames_arrived_at_the_first_port_too() -> None:
    table = pl.concat([frames([0, PERIOD]), frames([PERIOD + 5], DROPPED | HAS_SEQUENCE)])
    assert jitter_of(table) == PERIOD - 5


def test_two_segments_of_one_message_are_one_release() -> None:
    parts = frames([0, 1_000, PERIOD, PERIOD + 1_000], HAS_SEQUENCE | CONTINUED, payload=50)
    assert jitter_of(parts) == 0


def test_a_segment_with_the_end_of_one_and_the_start_of_the_next_belongs_to_both() -> None:
    # 150 bytes at 0 are message 0 and half of message 1, one period before its time.
    assert jitter_of(frames([0, 3 * PERIOD], payload=150)) == PERIOD


@settings(deadline=None)
@given(st.lists(st.integers(0, 10 * PERIOD), min_size=1, max_size=12))
def test_the_jitter_is_the_least_that_explains_every_window(times: list[int]) -> None:
    times = sorted(times)
    jitter = jitter_of(frames(times))
    assert jitter is not None

    def explains(candidate: int) -> bool:
        # A closed window from arrival i to arrival k holds k - i + 1 frames; the curve allows floor((d + J) / T) + 1.
        return all(
            k - i + 1 <= math.floor((times[k] - times[i] + candidate) / PERIOD) + 1
            for i in range(len(times))
            for k in range(i, len(times))
        )

    assert explains(jitter)
    assert jitter == 0 or not explains(jitter - 1)


def test_the_worst_latency_leaves_dropped_frames_out() -> None:
    laid = plan()
    table = pl.concat([frames([0]), frames([1], DROPPED)])
    assert worst_latencies(name_streams(laid, table)) == {("alpha/direct", "b"): 20_000}
