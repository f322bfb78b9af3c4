"""What made messages late, and whether it was the machine: then nothing is said of the network.

Of a late message it is known when it was due, written, at the first port, through the network, at and out of brokers, and received. The longest of the times
that it waited outside the network names the cause, unless the network alone took longer than the deadline. Waiting for a CPU is told from being slow by what the
kernel counts for programs and endpoints (`nodes.parquet`), a window from slowness by what the connection did not take or sent only later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from timebound.engine import records
from timebound.engine.own_held import Held
from timebound.engine.predict import Prediction

if TYPE_CHECKING:
    import polars as pl

WORDS = {
    "network": "by the network alone",
    "arrivals": "by a network that was sent more than declared",
    "broker": "by the time in brokers",
    "window": "by TCP, which waited for its window before it sent",
    "retransmission": "by frames that were lost and sent again",
    "release": "by Timebound's own publisher, which released them late",
    "cpu": "by programs and endpoints that waited for a CPU",
    "emulator": "by the emulator, which handed frames over late",
    "endpoints": "by publishers and subscribers that were slow, not by network or brokers",
    "unknown": "of unknown shares",
}
LATE_BY = tuple(WORDS)
MACHINE = ("release", "cpu", "emulator")
"""Causes that say nothing of network, brokers or programs: a run whose messages are late by these is disturbed."""

OF_MESSAGES = ("entered_ns", "spread_ns", "left_ns", "emulator_ns")
"""Columns of messages that only this room reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """The times of a late message, ns."""

    deadline_ns: int
    over_ns: int
    """By how much it was late."""
    network_ns: int | None
    bound_ns: int | None = None
    """Of the network, for what is declared."""
    waits: Mapping[str, int]
    """Causes other than the network, with what the message waited for each."""
    repeated_ns: int = 0
    """For how long of its way lost frames of its connections were missing."""
    cpu_ns: Mapping[str, int] = field(default_factory=dict)
    """How long those who answer for a wait had no CPU meanwhile."""
    held_ns: int = 0
    """How long its subscriber, a program, kept the broker waiting."""

    def cause(self) -> str:
        """One of `LATE_BY`."""
        if self.network_ns is not None and self.network_ns > self.deadline_ns:
            return "arrivals" if self.bound_ns is not None and self.network_ns > self.bound_ns else "network"
        name = max(self.waits, key=lambda wait: self.waits[wait])
        longest = self.waits[name]
        if self.repeated_ns and 2 * self.repeated_ns >= longest:
            return "retransmission"
        if 2 * self.cpu_ns.get(name, 0) >= longest > 0:
            return "cpu"
        if name in ("broker", "unknown") and 2 * self.held_ns >= longest > 0:
            return "endpoints"
        if self.network_ns is not None and longest < min(self.over_ns, self.network_ns):
            # Without any of these it would have been late all the same.
            return "network"
        return name


class Waits:
    """How long programs and built-in clients of nodes waited for a CPU, from the samples of `nodes.parquet`. What the limit of a node kept from running did not
    wait for the machine: a slow node is what the scenario asks for."""

    def __init__(self, nodes: pl.DataFrame | None) -> None:
        import polars as pl

        self._of: dict[str, dict[str, Any]] = {}
        if nodes is None:
            return
        for key, table in nodes.partition_by("node", as_dict=True).items():
            throttled = pl.col("throttled_ns").fill_null(0)
            ours = table.sort("t_ns").select(
                "t_ns", *(pl.col(name) - throttled for name in ("wait_ns", "client_wait_ns"))
            )
            self._of[str(key[0])] = {name: ours[name].to_numpy() for name in ours.columns}

    def of(self, node: str, who: str, start_ns: int, end_ns: int) -> int:
        """`who`: `wait_ns` for programs, `client_wait_ns` for clients. Between the samples around a time."""
        known = self._of.get(node)
        if known is None:
            return 0
        first = max(0, int(np.searchsorted(known["t_ns"], start_ns, side="right")) - 1)
        last = min(len(known["t_ns"]) - 1, int(np.searchsorted(known["t_ns"], end_ns)))
        return max(0, int(known[who][last] - known[who][first]))


class Repeats:
    """When frames of a stream were missing at its receiver: from the loss of one until one that was sent again arrived. Whatever came behind it waited there."""

    def __init__(self, frames: pl.DataFrame) -> None:
        import polars as pl

        self._of: dict[str, list[tuple[int, int]]] = {}
        flags = pl.col("flags")
        has_payload = flags & (records.COPY | records.NO_PAYLOAD) == 0
        again = frames.filter(has_payload & (flags & (records.DROPPED | records.RETRANSMISSION) > 0))
        columns = ("name", "flags", "ingress_ns", "delivered_ns")
        for name, kind, ingress, delivered in again.sort("ingress_ns").select(columns).iter_rows():
            spans = self._of.setdefault(name, [])
            if kind & records.DROPPED:
                if not spans or spans[-1][1] != FOREVER:
                    spans.append((ingress, FOREVER))
            elif spans and spans[-1][1] == FOREVER and delivered is not None:
                spans[-1] = (spans[-1][0], delivered)

    def during(self, streams: Iterable[str], start_ns: int, end_ns: int) -> int:
        """How much of a time the longest of these streams missed frames."""
        return max(
            (
                sum(max(0, min(end, end_ns) - max(begin, start_ns)) for begin, end in self._of.get(stream, ()))
                for stream in streams
            ),
            default=0,
        )


FOREVER = 2**62


def with_causes(
    prediction: Prediction,
    messages: pl.DataFrame,
    frames: pl.DataFrame,
    nodes: pl.DataFrame | None,
    told: set[str],
    held: Held,
) -> pl.DataFrame:
    """Adds `cause`, null but for late messages, and drops what only this needs. `told`: nodes that were stopped or paused by order. All times count from the end
    of the warm-up."""
    import polars as pl

    plan = prediction.plan
    flows = {flow.name: flow for flow in plan.scenario.flows}
    slow = {host.name for host in plan.scenario.hosts if host.is_limited} | told
    waits, repeats = Waits(nodes), Repeats(frames)
    late = messages.filter(pl.col("outcome") == "late")
    found = []
    for row in late.iter_rows(named=True):
        flow = flows[row["flow"]]
        parts = plan.segments[row["flow"], row["receiver"]]
        brokers = {part.destination for part in parts[:-1]}
        span = (row["released_ns"], row["received_ns"])
        own, there = (
            waits.of(node, "wait_ns" if node in flow.programs else "client_wait_ns", *span)
            for node in (flow.source, row["receiver"])
        )
        bounds = [prediction.segment(part).actual_ns for part in parts]
        found.append(
            Late(
                deadline_ns=flow.deadline_ns or 0,
                over_ns=span[1] - span[0] - (flow.deadline_ns or 0),
                network_ns=None if row["broker_ns"] is None else row["network_ns"],
                bound_ns=None if None in bounds else sum(bound for bound in bounds if bound is not None),
                waits=_waits(row, flow.jitter_ns or 0, flow.source in slow),
                repeated_ns=repeats.during((part.stream for part in parts), row["sent_ns"], span[1]),
                held_ns=held.during(row["receiver"], *span),
                cpu_ns={
                    "broker": sum(waits.of(broker, "wait_ns", *span) for broker in brokers),
                    "window": own,
                    "endpoints": max(own, there),
                    "unknown": max(own, there, *(waits.of(broker, "wait_ns", *span) for broker in brokers)),
                },
            ).cause()
        )
    key = ["flow", "receiver", "sequence"]
    causes = late.select(key).with_columns(pl.Series("cause", found, dtype=pl.String))
    return messages.join(causes, on=key, how="left", maintain_order="left").drop(OF_MESSAGES)


def _waits(row: Mapping[str, Any], jitter_ns: int, is_slow: bool) -> dict[str, int]:
    """What a message waited for outside the network. `is_slow`: its publisher may be late by the scenario's own order."""
    late = max(0, row["sent_ns"] - row["released_ns"] - jitter_ns)
    release, held, slow = (0, late, 0) if row["held"] else (0, 0, late) if is_slow else (late, 0, 0)
    if row["network_ns"] is None or row["broker_ns"] is None:
        return {"unknown": row["received_ns"] - row["sent_ns"] + slow, "release": release, "window": held}
    return {
        "release": release,
        "window": held + max(0, row["entered_ns"] - row["sent_ns"]) + row["spread_ns"],
        "broker": row["broker_ns"],
        "endpoints": slow + max(0, row["received_ns"] - row["left_ns"]),
        "emulator": row["emulator_ns"],
    }


def late_by(messages: pl.DataFrame) -> dict[str, int]:
    """How many messages were late by each cause."""
    found = Counter(messages["cause"].drop_nulls().to_list())
    return {name: found[name] for name in LATE_BY}


def late_words(late: Mapping[str, Any]) -> str:
    """What `late_by` found, in one clause; empty where it found nothing."""
    return ", ".join(f"{late[name]} {text}" for name, text in WORDS.items() if late.get(name))
