"""Programs that kept their broker waiting: who did not acknowledge, or did not read, and for how long.

A broker sends no more than so many messages of QoS 1 and 2 that are not acknowledged (MQTT 5.0, section 4.9), and none while the receive window is closed (RFC
9293, section 3.8.6). The next ones wait there, or are dropped, which is not the broker's doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timebound.engine import records
from timebound.engine.own_names import Programs

if TYPE_CHECKING:
    import polars as pl

LEAST_NS = 10_000_000
"""Shorter times are nobody's complaint (crates/live/src/plane/own/held.rs)."""
WORTH_NS = 100_000_000
"""From here on a note tells of it, late messages or not."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Run times, ns."""

    flow: str
    receiver: str
    is_window: bool
    start_ns: int
    end_ns: int
    is_over: bool


@dataclass(slots=True)
class Held:
    """When programs kept their brokers waiting."""

    waits: list[Wait] = field(default_factory=list)

    def during(self, receiver: str, start_ns: int, end_ns: int) -> int:
        """For how much of a time the program on a node did."""
        found, done = 0, start_ns
        mine = (wait for wait in self.waits if wait.receiver == receiver)
        for wait in sorted(mine, key=lambda wait: wait.start_ns):
            begin, end = max(done, wait.start_ns), min(wait.end_ns, end_ns)
            found += max(0, end - begin)
            done = max(done, end)
        return found

    def since(self, time_ns: int) -> Held:
        """The same with times that count from another one."""
        waits = [
            Wait(wait.flow, wait.receiver, wait.is_window, wait.start_ns - time_ns, wait.end_ns - time_ns, wait.is_over)
            for wait in self.waits
        ]
        return Held(waits)


def held(programs: Programs, endpoints: pl.DataFrame, live: Mapping[str, Any]) -> Held:
    """What a program took to acknowledge counts from when the message was there. `endpoints`: with the messages of programs."""
    import polars as pl

    plan, found = programs.plan, Held()
    hosts = plan.host_numbers()
    came: dict[tuple[int, str], dict[int, int]] = {}
    for each in (live.get("own") or {}).get("held") or []:
        node, is_window = programs.nodes.get(each["source"], ""), each["why"] == "window"
        for number in each["flows"]:
            flow = programs.flow(number)
            if node not in flow.programs or node not in flow.receivers:
                continue
            start = each["from_ns"]
            if not is_window:
                if (number, node) not in came:
                    is_it = (pl.col("flow") == number) & (pl.col("receiver") == hosts[node])
                    rows = endpoints.filter(is_it & (pl.col("kind") == records.RECEIVED))
                    came[number, node] = dict(rows.select("sequence", "time_ns").iter_rows())
                start = max(start, came[number, node].get(each["number"], start))
            if each["until_ns"] - start >= LEAST_NS:
                found.waits.append(Wait(flow.name, node, is_window, start, each["until_ns"], each["is_over"]))
    return found


def notes(programs: Programs, found: Held) -> list[str]:
    """Who kept brokers waiting for long."""
    alike: dict[tuple[str, str, bool, bool], list[Wait]] = {}
    run = programs.plan.scenario.run
    for wait in found.waits:
        is_for_long = wait.end_ns - wait.start_ns >= WORTH_NS
        if is_for_long and wait.end_ns >= run.warm_up_ns and wait.start_ns < run.warm_up_ns + run.duration_ns:
            key = (wait.flow, wait.receiver, wait.is_window, wait.is_over or wait.is_window)
            alike.setdefault(key, []).append(wait)
    said = []
    for (flow, receiver, is_window, is_over), waits in alike.items():
        who = f"The {programs.name(receiver)}"
        at = (min(wait.start_ns for wait in waits) - run.warm_up_ns) / 1e9
        when = f"at {at:.3f} s" if at >= 0 else "before the measured time"
        longest = max(wait.end_ns - wait.start_ns for wait in waits) / 1e9
        if is_window:
            whole = Held(waits).during(receiver, 0, run.warm_up_ns + run.duration_ns) / 1e9
            said.append(
                f"{who} did not read for {whole:.3f} s (its receive window was closed), first {when}: messages of {flow!r} waited at the broker meanwhile."
            )
        elif is_over:
            said.append(
                f"{who} took up to {longest:.3f} s to acknowledge {len(waits):,} messages of {flow!r}, the first of which came {when}: a broker sends only so many that are not "
                "acknowledged, and what is behind them waits there or is dropped."
            )
        else:
            said.append(
                f"{who} did not acknowledge {len(waits):,} messages of {flow!r}, the first of which came {when}: a broker sends only so many that are not acknowledged, and "
                "what is behind them waits there or is dropped."
            )
    return said
