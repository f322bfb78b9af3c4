"""What an analysis of the core says of each stream at each receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timebound.stacks import Stream


@dataclass(frozen=True, slots=True)
class Outcome:
    """The bound of one stream at one receiver, ns; all None with a reason where there is none.

    `actual_ns` counts from the actual release (what a measured network latency is compared with), `nominal_ns` from the
    nominal one, `best_ns` is the least possible for the first frame of a release, `whole_ns` for all of them.
    """

    kind: str
    actual_ns: int | None = None
    nominal_ns: int | None = None
    best_ns: int | None = None
    whole_ns: int | None = None
    reason: str | None = None
    path: tuple[str, ...] = ()


def brief_outcomes(
    analysis: dict[str, Any], streams: dict[str, Stream], jitters: Mapping[str, int]
) -> dict[tuple[str, str], Outcome]:
    """As `outcomes_of`, of a brief analysis: streams, and their receivers, come in the order in which they were declared."""
    found = {}
    for stream, leaves in zip(streams.values(), analysis["streams"], strict=True):
        for receiver, leaf in zip(stream.destinations, leaves, strict=True):
            if isinstance(leaf, list):
                nominal, actual, best, whole = leaf
                nominal += _lateness(stream, jitters)
                found[stream.name, receiver] = Outcome("bound", actual, nominal, best, whole)
            else:
                found[stream.name, receiver] = Outcome(leaf["kind"], reason=leaf["reason"])
    return found


def _lateness(stream: Stream, jitters: Mapping[str, int]) -> int:
    """The time from the nominal to the actual release, where the core knows of no nominal one: of packets that may have waited for others."""
    return 0 if stream.joined is None else max(stream.jitter_ns, jitters.get(stream.name, 0))


def outcomes_of(
    analysis: dict[str, Any], streams: dict[str, Stream], jitters: Mapping[str, int] | None = None
) -> dict[tuple[str, str], Outcome]:
    """An analysis of the core as outcomes by stream and receiver. `jitters`: those that took the place of the streams'."""
    found = {}
    for result in analysis["streams"]:
        stream = streams[result["stream"]]
        for leaf in result["leaves"]:
            outcome = leaf["outcome"]
            if outcome["kind"] == "bound":
                entry = Outcome(
                    kind="bound",
                    actual_ns=outcome["from_actual_ns"],
                    nominal_ns=outcome["from_nominal_ns"] + _lateness(stream, jitters or {}),
                    best_ns=outcome["best_case_ns"],
                    whole_ns=outcome["best_whole_ns"],
                    path=tuple(hop["name"] for hop in outcome["hops"]),
                )
            else:
                entry = Outcome(kind=outcome["kind"], reason=outcome["reason"])
            found[stream.name, leaf["receiver"]] = entry
    return found
