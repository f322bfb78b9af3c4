"""Which message is which, where a payload has no room for a measurement header.

A payload of 1 to 3 bytes has the low bytes of its sequence number, one of 4 to 23 all of it, an empty one nothing. Data plane and
receivers number such messages by what fits and by their order on a connection (crates/wire/src/short.rs). What the sender wrote down is
the truth: here, one part of the way after the other, what went in is matched with what came out. Where as many came out as went in they
are the same, in order. Otherwise each is the latest one with its low bytes that had gone in by then, and unless order says the same
that is a guess: the report says so, and a flow with a deadline is not called met for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from timebound.engine import records
from timebound.stacks import Plan, Segment

if TYPE_CHECKING:
    import polars as pl

WHOLE_NUMBER_BYTES = 4
"""Payloads from here on have all of their sequence number."""
CLOCKS_NS = 50_000
"""By so much the stamps of kernel and endpoints may be off: what came out may seem to be that much older than what went in."""
DUPLICATE = 1
"""In the flags of a message that was received: MQTT's own mark of what is sent again (crates/endpoints/src/record.rs)."""

Numbers = npt.NDArray[np.int64]
Guesses = dict[tuple[str, str], str]
"""(flow, receiver) -> what is not certain of its messages."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Messages that passed a place, in their order there."""

    sequence: Numbers
    time_ns: Numbers


@dataclass(frozen=True, slots=True)
class Matched:
    """The sender's numbers of what came out, and whether they are more than a guess."""

    sequence: Numbers
    certain: bool


def resolve(plan: Plan, frames: pl.DataFrame, endpoints: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, Guesses]:
    """Frames (with the names of their streams) and messages with the sender's sequence numbers, and what is not certain of them."""
    sizes = {flow.name: flow.size_bytes for flow in plan.scenario.flows}
    # What a program publishes the data plane has numbered.
    own = {flow.name for flow in plan.scenario.flows if flow.is_own}
    small = [n for n, leg in enumerate(plan.legs) if sizes[leg.flow] < WHOLE_NUMBER_BYTES and leg.flow not in own]
    guesses: Guesses = {}
    if small and not endpoints.is_empty():
        frames, endpoints = frames.with_row_index("row"), endpoints.with_row_index("row")
        in_frames = frames["sequence"].to_numpy().astype(np.int64)
        in_messages = endpoints["sequence"].to_numpy().astype(np.int64)
        for number in small:
            _Flow(plan, number, sizes[plan.legs[number].flow], in_frames, in_messages, guesses).resolve(
                frames, endpoints
            )
        frames, endpoints = _with(frames, in_frames), _with(endpoints, in_messages)
    return frames, endpoints, guesses


def _with(table: pl.DataFrame, sequence: Numbers) -> pl.DataFrame:
    import polars as pl

    return table.drop("row").with_columns(pl.Series("sequence", sequence.astype(np.uint32)))


@dataclass(frozen=True, slots=True)
class _Flow:
    """One sender of a flow."""

    plan: Plan
    number: int
    size: int
    in_frames: Numbers
    in_messages: Numbers
    guesses: Guesses

    def resolve(self, frames: pl.DataFrame, endpoints: pl.DataFrame) -> None:
        import polars as pl

        leg, hosts = self.plan.legs[self.number], self.plan.host_numbers()
        own = endpoints.filter(pl.col("flow") == self.number).sort("time_ns", maintain_order=True)
        sent = own.filter(pl.col("kind") == records.SENT)
        if sent.is_empty():
            return
        numbered = pl.col("flags") & records.HAS_SEQUENCE > 0
        crossed = frames.filter((pl.col("flow") == self.number) & numbered)
        for receiver in leg.receivers:
            passed = passage(sent, "time_ns")
            for segment in self.plan.segments[leg.flow, receiver]:
                passed = self._cross(passed, crossed.filter(pl.col("name") == segment.stream), segment, receiver)
            came = own.filter((pl.col("kind") == records.RECEIVED) & (pl.col("receiver") == hosts[receiver]))
            if came.is_empty():
                continue
            matched = match(passed, passage(came, "time_ns"), self.size)
            self.in_messages[came["row"].to_numpy()] = matched.sequence
            # As many may be one that was lost and one that came twice.
            doubled = self.size == 0 and not came.filter(pl.col("flags") & DUPLICATE > 0).is_empty()
            self._judge(matched.certain and not doubled, receiver, len(passed.sequence), came.height)

    def _cross(self, passed: Passed, rows: pl.DataFrame, segment: Segment, receiver: str) -> Passed:
        """Gives the frames of one part of the way their numbers; the messages that arrive at its end."""
        import polars as pl

        if rows.is_empty():
            # All that went in may have been crossed elsewhere (on another machine): what comes out tells.
            return passed
        is_shared, datagrams = segment.stream in self.plan.shared, segment.name == "direct"
        whole = each_message(rows, alone=is_shared)
        firsts = whole.group_by("sequence").agg(pl.col("ingress_ns").min())
        if datagrams:
            firsts = firsts.sort("ingress_ns", "sequence")
        else:
            # Of a dropped segment only the first message is known: none went in after the one behind it.
            firsts = firsts.sort("sequence").with_columns(pl.col("ingress_ns").cum_min(reverse=True))
        own = passage(firsts, "ingress_ns")
        if is_shared and self.size == 0 and own.sequence.max() < len(passed.sequence):
            # Not all of them are seen here, but the data plane has counted them all.
            matched = Matched(passed.sequence[own.sequence], True)
        else:
            matched = match(passed, own, self.size)
            self._judge(matched.certain, receiver, len(passed.sequence), len(own.sequence))
        known = dict(zip(own.sequence.tolist(), matched.sequence.tolist(), strict=True))
        self.in_frames[rows["row"].to_numpy()] = [known.get(each, each) for each in rows["sequence"].to_list()]
        if is_shared:
            return passed
        names = firsts.select("sequence").with_columns(true=matched.sequence)
        return _arrived(whole.filter(pl.col("receiver") == segment.destination), names, datagrams)

    def _judge(self, certain: bool, receiver: str, before: int, after: int) -> None:
        flow = self.plan.legs[self.number].flow
        if not certain:
            self.guesses.setdefault(
                (flow, receiver),
                f"Messages of {flow!r} to {receiver!r} have {self.size} B, no room for a number that tells them apart: {before:,} came to a "
                f"part of their way and {after:,} left it. Which ones is a guess by order and time, so single latencies may be those of other messages.",
            )


def each_message(rows: pl.DataFrame, *, alone: bool) -> pl.DataFrame:
    """One row per message: a segment may bring several, and the end of the one before the first that begins. `alone`: the first is all
    that is known of it."""
    import polars as pl

    # A dropped frame has no count (a port stands in its place).
    is_alone = pl.lit(alone) | (pl.col("flags") & records.DROPPED > 0)
    before = ~is_alone & (pl.col("flags") & records.CONTINUED > 0) & (pl.col("messages") > 0)
    begun = pl.when(is_alone).then(1).otherwise(pl.col("messages").cast(pl.Int64).clip(1))
    more = pl.int_ranges(pl.when(before).then(-1).otherwise(0), begun.cast(pl.Int64), dtype=pl.Int64)
    return (
        rows.with_columns(more=more)
        .explode("more")
        .with_columns(pl.col("sequence").cast(pl.Int64) + pl.col("more"))
        .filter(pl.col("sequence") >= 0)
    )


def _arrived(whole: pl.DataFrame, names: pl.DataFrame, datagrams: bool) -> Passed:
    """What the receiver's end of a part of the way has of these messages. `names`: their numbers and true ones, in the order of sending."""
    import polars as pl

    # No frame is handed over before its time. When it really was is stamped afterwards, perhaps after its receiver has run.
    good = (pl.col("flags") & (records.DROPPED | records.DAMAGED) == 0) & pl.col("delivered_ns").ge(0)
    there = whole.filter(good)
    if datagrams:
        there = there.join(names, on="sequence", how="left", maintain_order="left")
        there = there.sort("delivered_ns", maintain_order=True)
    else:
        # TCP hands over each once, whatever came how often, and none before those that were sent before it.
        first = there.group_by("sequence").agg(pl.col("delivered_ns").min())
        there = names.join(first, on="sequence", how="inner", maintain_order="left")
        there = there.with_columns(pl.col("delivered_ns").cum_max())
    return Passed(there["true"].to_numpy().astype(np.int64), there["delivered_ns"].to_numpy().astype(np.int64))


def passage(table: pl.DataFrame, time: str) -> Passed:
    return Passed(table["sequence"].to_numpy().astype(np.int64), table[time].to_numpy().astype(np.int64))


def match(before: Passed, after: Passed, size: int) -> Matched:
    """The numbers of what came `after`, whose own are right in the low bytes that fit into `size`; unmatched ones stay as they are."""
    span = 1 << (8 * min(size, WHOLE_NUMBER_BYTES))
    low_before, low_after = before.sequence % span, after.sequence % span
    if len(after.sequence) == len(before.sequence):
        in_order = bool((low_before == low_after).all())
        if in_order and bool((before.time_ns <= after.time_ns + CLOCKS_NS).all()):
            return Matched(before.sequence.copy(), True)
    found = after.sequence.copy()
    unmatched = 0
    for low in np.unique(low_after):
        there, here = np.flatnonzero(low_before == low), np.flatnonzero(low_after == low)
        latest = np.searchsorted(before.time_ns[there], after.time_ns[here] + CLOCKS_NS, side="right") - 1
        if size == 0 and len(here) <= len(there):
            # Nothing tells them apart but their order: each is one of its own, the latest possible.
            latest = np.minimum.accumulate((latest - np.arange(len(here)))[::-1])[::-1] + np.arange(len(here))
        good = latest >= 0
        unmatched += int((~good).sum())
        found[here[good]] = before.sequence[there[latest[good]]]
    # Order (the numbers that they had) and time (the latest that can be) are two witnesses: where they agree nothing else is possible but
    # that half of all numbers of this size, or more, were lost in a row or under way at once.
    certain = size > 0 and not unmatched and bool((found == after.sequence).all())
    return Matched(found, certain)
