"""What the worst case of the little network is: the safe bound beside a model that knows means alone.

The network is a line of M links with M - 1 switches between publisher and subscriber. A bound needs a promise that Poisson
arrivals do not give; here it is a least distance of N/lambda between two messages of N packets. One full frame of undeclared best
effort is assumed on every port, as everywhere in Timebound.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

from timebound import _core
from timebound.reproduce.velox.model import Parameters
from timebound.scenario.framing import ETHERNET

NANOS = 1_000_000_000
READINGS = (
    ("as-counted", "the packet's bits are all that is on the wire, as the paper counts"),
    ("ethernet", "the packet is an IP packet in an Ethernet frame"),
)


def bounds(parameters: Parameters) -> list[dict[str, Any]]:
    """One entry per reading: `frame_bytes` on the wire, `utilisation` of a link, `bound_us` or the `reason` why there is none.

    Raises:
        ValueError: a packet that no frame can carry.
    """
    return [_bound(parameters, name, words) for name, words in READINGS]


def _bound(parameters: Parameters, name: str, words: str) -> dict[str, Any]:
    frame = -(-parameters.packet_bits // 8)
    if name == "ethernet":
        frame = ETHERNET.wire(frame)
    network = _core.Network(json.dumps(declaration(parameters, frame)))
    outcome = json.loads(network.bounds("{}"))["streams"][0]["leaves"][0]["outcome"]
    found = {
        "reading": name,
        "words": words,
        "frame_bytes": frame,
        "utilisation": float(parameters.arrivals_per_s * frame * 8 / parameters.link_bps),
        "bound_us": None,
        "reason": None,
    }
    if outcome["kind"] == "bound":
        return found | {"bound_us": outcome["from_actual_ns"] / 1000}
    return found | {"reason": outcome["reason"]}


def declaration(parameters: Parameters, frame_bytes: int) -> dict[str, Any]:
    """The network as `Declaration` of the model. Periods are rounded down and delays up: never less traffic, never a faster network."""
    p = parameters
    names = ["publisher", *(f"s{number}" for number in range(1, p.hops)), "subscriber"]
    processing = p.processing_us * 1000
    nodes = [
        {"name": name, "kind": "host"}
        if name in (names[0], names[-1])
        else {
            "name": name,
            "kind": "switch",
            "switching_min_ns": math.floor(processing),
            "switching_max_ns": math.ceil(processing),
        }
        for name in names
    ]
    direction = {
        "rate_bps": p.link_bps,
        "delay_ns": math.ceil(p.propagation_us * 1000),
        "queue": {"kind": "strict-priority"},
        "buffer_bytes": 2**30,
    }
    period = max(1, math.floor(Fraction(p.packets * NANOS) / p.arrivals_per_s))
    arrival = {"kind": "periodic", "period_ns": period, "jitter_ns": 0, "frames_bytes": [frame_bytes] * p.packets}
    return {
        "nodes": nodes,
        "links": [
            {"a": a, "b": b, "forward": direction, "backward": direction}
            for a, b in itertools.pairwise(names)
        ],
        "streams": [
            {
                "name": "topic", "source": names[0], "destinations": [names[-1]], "class": 7, "role": "data",
                "arrival": arrival, "release": {"kind": "periodic"},
            }
        ],
        "best_effort_frame_bytes": ETHERNET.full,
    }  # fmt: skip
