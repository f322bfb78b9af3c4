"""Messages that the nodes' own programs publish or receive: what the wire tells of them takes the place of what built-in clients write down.

The data plane has told them by topic and numbered them where their publisher sends them (crates/live/src/plane/own.rs). A program's message
counts as released and sent when its first frame is at the first port, and as received by a program when its last frame leaves the last one:
what the programs themselves need before and after is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from timebound.engine import own_held, own_said, records, short
from timebound.scenario.model import Flow, MqttStack
from timebound.stacks import Plan

if TYPE_CHECKING:
    import polars as pl


@dataclass(slots=True)
class Seen:
    """Frames and messages with those of programs, and what is to be said of them."""

    frames: pl.DataFrame
    endpoints: pl.DataFrame
    first: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """(flow, receiver) of programs -> the first message that came there, None where none did: whoever has not subscribed yet is owed none."""
    guesses: short.Guesses = field(default_factory=dict)
    unread: dict[tuple[str, str], str] = field(default_factory=dict)
    """(flow, receiver) -> why not all of its messages could be read."""
    held: own_held.Held = field(default_factory=own_held.Held)
    """When programs kept their brokers waiting, in run time."""
    notes: list[str] = field(default_factory=list)
    """What was not seen, or is not as declared."""


def complete(plan: Plan, frames: pl.DataFrame, endpoints: pl.DataFrame, live: Mapping[str, Any]) -> Seen:
    """Adds the messages of programs to what built-in clients wrote down; `frames` have the names of their streams."""
    flows = {flow.name: flow for flow in plan.scenario.flows}
    if not any(flow.programs for flow in flows.values()):
        return Seen(frames, endpoints)
    told = live.get("own") or {}
    seen = Seen(_with_joined(plan, frames, told.get("joined") or []), endpoints)
    for number, leg in enumerate(plan.legs):
        flow = flows[leg.flow]
        if flow.programs:
            came = {name: own_said.arrived(plan, number, name, live) for name in leg.receivers}
            gone = own_said.gone(plan, flow, live)
            _Leg(plan, flow, number, came, gone, told.get("flows", {}).get(str(number)) or {}, seen).complete()
    said = own_said.say(plan, seen.endpoints, live)
    seen.unread, seen.held = said.unread, said.held
    seen.notes += said.notes
    return seen


def owed(messages: pl.DataFrame, seen: Seen) -> pl.DataFrame:
    """Without the messages of before a program had subscribed."""
    import polars as pl

    for (flow, receiver), first in seen.first.items():
        is_it = (pl.col("flow") == flow) & (pl.col("receiver") == receiver)
        is_before = pl.lit(True) if first is None else pl.col("sequence") < first
        messages = messages.filter(~(is_it & is_before))
    return messages


@dataclass(frozen=True, slots=True)
class _Leg:
    """One sender of a flow."""

    plan: Plan
    flow: Flow
    number: int
    receivers: Mapping[str, own_said.Arrived]
    """With what came there on its topic, whoever sent it."""
    gone: Mapping[str, int]
    """Receivers where from some run time on nobody took datagrams."""
    told: Mapping[str, int]
    seen: Seen

    def complete(self) -> None:
        import polars as pl

        own = self.seen.frames.filter((pl.col("flow") == self.number) & (pl.col("flags") & records.HAS_SEQUENCE > 0))
        streams = [self.plan.segments[self.flow.name, receiver] for receiver in self.receivers]
        if self.flow.is_own:
            sent = self._sent(own.filter(pl.col("name").is_in({parts[0].stream for parts in streams})))
            if sent.is_empty():
                self._note(f"none came from the program on {self.flow.source}")
            self._add(records.SENT, sent, 0)
        for receiver, parts in zip(self.receivers, streams, strict=True):
            here = own.filter((pl.col("name") == parts[-1].stream) & (pl.col("receiver") == receiver))
            came = self._came(here)
            if receiver in self.flow.programs:
                self.seen.first[self.flow.name, receiver] = came["sequence"].min() if came.height else None  # type: ignore[assignment]
                if came.is_empty():
                    self._note(f"{self.receivers[receiver].words()} to the program on {receiver}")
            if self.flow.is_own or receiver in self.flow.programs:
                certain = self._receive(receiver, came)
                self._judge(receiver, certain, own, came)

    def _sent(self, rows: pl.DataFrame) -> pl.DataFrame:
        """When the first frame of each message was at the first port."""
        import polars as pl

        whole = short.each_message(rows, alone=False)
        begun = whole.group_by("sequence").agg(pl.col("ingress_ns").min().alias("time_ns"))
        return begun.sort("sequence")

    def _came(self, rows: pl.DataFrame) -> pl.DataFrame:
        """When the last frame of each message left the last port. TCP hands over none before those that were sent before it."""
        import polars as pl

        good = (pl.col("flags") & (records.DROPPED | records.DAMAGED) == 0) & pl.col("delivered_ns").ge(0)
        whole = short.each_message(rows.filter(good), alone=False)
        there = pl.col("delivered_ns") + pl.col("lateness_ns").cast(pl.Int64)
        came = whole.group_by("sequence").agg(there.max().alias("time_ns")).sort("sequence")
        is_stream = isinstance(self.plan.scenario.stack, MqttStack)
        return came.with_columns(pl.col("time_ns").cum_max()) if is_stream else came

    def _receive(self, receiver: str, came: pl.DataFrame) -> bool:
        """Notes what was received, and whether it is more than a guess which messages these were."""
        import polars as pl

        number = self.plan.host_numbers()[receiver]
        is_stream = isinstance(self.plan.scenario.stack, MqttStack)
        is_it = (pl.col("flow") == self.number) & (pl.col("receiver") == number) & (pl.col("kind") == records.RECEIVED)
        if receiver in self.gone:
            came = self._taken(receiver, came)
        if receiver in self.flow.programs or not is_stream:
            # A built-in subscriber knows empty datagrams of others for messages, and has counted them as well.
            self.seen.endpoints = self.seen.endpoints.filter(~is_it)
            self._add(records.RECEIVED, came, number)
            return True
        # A built-in subscriber has counted what came, in the order of the connection.
        counted = self.seen.endpoints.filter(is_it).sort("time_ns", maintain_order=True)
        self.seen.endpoints = self.seen.endpoints.filter(~is_it)
        if came.is_empty():
            return counted.is_empty()
        from_then = pl.col("time_ns") + short.CLOCKS_NS >= int(came["time_ns"][0])
        counted = counted.filter(from_then)
        matched = short.match(short.passage(came, "time_ns"), short.passage(counted, "time_ns"), 0)
        numbered = counted.with_columns(pl.Series("sequence", matched.sequence.astype(np.uint32)))
        self.seen.endpoints = pl.concat([self.seen.endpoints, numbered])
        return matched.certain

    def _taken(self, receiver: str, came: pl.DataFrame) -> pl.DataFrame:
        """Without the datagrams that came when the program had ended."""
        import polars as pl

        ended, run = self.gone[receiver], self.plan.scenario.run
        lost = came.filter(
            pl.col("time_ns").is_between(max(ended + 1, run.warm_up_ns), run.warm_up_ns + run.duration_ns)
        ).height
        if lost:
            at = (ended - run.warm_up_ns) / 1e9
            when = f"at {at:.3f} s" if at >= 0 else "before the measured time"
            self.seen.notes.append(
                f"The program on {receiver} ended {when}: {lost:,} datagrams of {self.flow.name!r} that came from then on count as lost (its host answered some of "
                "them with ICMP: no socket was there)."
            )
        return came.filter(pl.col("time_ns") <= ended)

    def _add(self, kind: int, table: pl.DataFrame, receiver: int) -> None:
        """Adds messages to those of built-in clients."""
        import polars as pl

        columns: dict[str, Any] = {"kind": kind, "qos": self.flow.qos, "flags": 0, "flow": self.number}
        columns |= {"receiver": receiver, "size": self.flow.size_bytes, "reserved": 0}
        whole = table.with_columns(nominal_ns=pl.col("time_ns"), **{k: pl.lit(v) for k, v in columns.items()})
        schema = self.seen.endpoints.schema
        self.seen.endpoints = pl.concat(
            [self.seen.endpoints, whole.select(pl.col(name).cast(kind) for name, kind in schema.items())]
        )

    def _judge(self, receiver: str, certain: bool, own: pl.DataFrame, came: pl.DataFrame) -> None:
        """Says where it is a guess which messages were received."""
        missing = 0
        if came.height:
            first, last = int(came["sequence"][0]), int(came["sequence"][-1])
            missing = last - first + 1 - came.height
        name = f"Messages of {self.flow.name!r} to {receiver!r}"
        if not certain:
            why = f"{name} bear no number of ours, and not as many came out of the network as were received"
        elif self.told.get("ambiguous") and (missing or self._unfinished(own, came)):
            why = f"{name} are alike (or were sent again, with DUP), and not all that were sent came: which ones did is a guess by order"
        elif self.told.get("unmatched"):
            count = self.told["unmatched"]
            why = (
                f"{name} were joined by {count:,} that cannot be told to be one of its publisher's: sent again on the way (MQTT's DUP), altered, or published on the "
                "topic by other programs"
            )
        else:
            return
        self.seen.guesses[self.flow.name, receiver] = f"{why}; single latencies may be those of other messages."

    def _unfinished(self, own: pl.DataFrame, came: pl.DataFrame) -> bool:
        """Were later messages sent than any that came?"""
        return came.is_empty() or int(own["sequence"].max()) > int(came["sequence"][-1])  # type: ignore[arg-type]

    def _note(self, what: str) -> None:
        stack = self.plan.scenario.stack
        where = f"in datagrams to port {own_said.port(self.plan, self.number)}"
        if isinstance(stack, MqttStack):
            where = f"on the topic {self.flow.topic!r}, in MQTT without TLS, to or from the port of its broker"
        encrypted = self.told.get("encrypted") or 0
        seen = f" ({encrypted} connections were encrypted)" if encrypted else ""
        self.seen.notes.append(f"Messages of {self.flow.name!r} are not measured: {what} {where}{seen}.")


def _with_joined(plan: Plan, frames: pl.DataFrame, joined: list[dict[str, int]]) -> pl.DataFrame:
    """A frame that holds messages of several flows has one record, of the first: the others get copies of it."""
    import polars as pl

    if not joined or frames.is_empty():
        return frames
    names = [stream.name for stream in plan.streams]
    wanted = pl.DataFrame(joined).unique(maintain_order=True)
    wanted = wanted.with_columns(
        other=pl.col("stream").map_elements(lambda n: names[n], return_dtype=pl.String),
        name=pl.col("in_stream").map_elements(lambda n: names[n], return_dtype=pl.String),
    ).select(
        "name",
        "other",
        pl.col("in_flow").cast(pl.UInt32).alias("flow"),
        pl.col("in_sequence").cast(pl.UInt32).alias("sequence"),
        pl.col("flow").cast(pl.UInt32).alias("other_flow"),
        pl.col("sequence").cast(pl.UInt32).alias("other_sequence"),
    )
    rows = frames.filter(pl.col("flags") & records.HAS_SEQUENCE > 0)
    rows = rows.group_by("name", "flow", "sequence", "receiver", maintain_order=True).last().select(frames.columns)
    copies = rows.join(wanted, on=["name", "flow", "sequence"], how="inner", maintain_order="left").with_columns(
        pl.col("other").alias("name"),
        pl.col("other_flow").alias("flow"),
        pl.col("other_sequence").alias("sequence"),
        pl.lit(1, dtype=frames.schema["messages"]).alias("messages"),
        (pl.col("flags") & ~records.CONTINUED).cast(frames.schema["flags"]).alias("flags"),
    )
    return pl.concat([frames, copies.select(frames.columns)])
