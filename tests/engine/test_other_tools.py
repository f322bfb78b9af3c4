"""Bounds beside those of other tools, on the networks of a random corpus where they were once looser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timebound import _core

ROUNDING_NS = 8
"""At rates whose bytes take no whole nanoseconds our events vary by a nanosecond before and one behind each of the (up to four) ports. The others
were given whole times for every frame."""
FOUND = json.loads((Path(__file__).parent / "other_tools.json").read_text())


def declaration(found: dict[str, Any]) -> dict[str, Any]:
    def direction(rate: int, delay: int) -> dict[str, Any]:
        impairments = {"corruption": 0.0, "corruption_drops": False, "duplication": 0.0, "outages": []}
        return {
            "rate_bps": rate * 1_000_000,
            "delay_ns": delay,
            "queue": {"kind": "strict-priority"},
            "buffer_bytes": 1_000_000_000,
            "impairments": impairments,
        }

    return {
        "nodes": [
            {"name": name, "kind": kind, "switching_min_ns": 0, "switching_max_ns": 0}
            for kind, names in (("host", found["hosts"]), ("switch", found["switches"]))
            for name in names
        ],
        "links": [
            {
                "a": a,
                "b": b,
                "forward": direction(rate, delay),
                "backward": direction(rate, delay),
                "half_duplex": False,
            }
            for a, b, rate, delay in found["links"]
        ],
        "streams": [
            {
                "name": name,
                "source": source,
                "destinations": destinations,
                "class": priority,
                "role": "data",
                "arrival": {"kind": "periodic", "period_ns": period, "jitter_ns": jitter, "frames_bytes": [size]},
                "release": {"kind": "periodic", "offset_ns": None},
                "deadline_ns": None,
                "route": None,
            }
            for name, source, destinations, priority, period, jitter, size in found["streams"]
        ],
        "best_effort_frame_bytes": found["best_effort_bytes"],
    }


@pytest.mark.parametrize("found", FOUND["networks"], ids=range(len(FOUND["networks"])))
def test_no_bound_is_looser_than_what_other_tools_find(found: dict[str, Any]) -> None:
    network = _core.Network(json.dumps(declaration(found)))
    answer = json.loads(network.brief(json.dumps({"jitter_override": {}, "method": "bound"})))
    bounds = {
        f"{stream[0]}>{receiver}": row[1]
        for stream, rows in zip(found["streams"], answer["streams"], strict=True)
        for receiver, row in zip(stream[2], rows, strict=True)
    }
    assert bounds.keys() == found["limits"].keys()
    limits = {key: min(both) + ROUNDING_NS for key, both in found["limits"].items()}
    looser = {key: (bounds[key], limit) for key, limit in limits.items() if bounds[key] > limit}
    assert not looser
