"""Release patterns of flows, for the simulator (`ReleaseDecl`) and for the endpoints (`Release`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from timebound.scenario.model import Flow

DSCP_PER_CLASS = 8
"""The class selector code points (RFC 2474, section 4.2.2)."""


def stream_seed(seed: int, name: str) -> int:
    """A 64-bit seed for the random stream `name` of a run."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def offset(flow: Flow, seed: int) -> int:
    """The first nominal release of a flow, from its start: as stated, else drawn within its period."""
    if flow.offset_ns is not None:
        return flow.offset_ns
    return stream_seed(seed, f"{flow.name}/offset") % flow.period_ns


def content(flow: Flow) -> str | None:
    """The text that the flow's messages carry behind their measurement header."""
    return None if flow.content is None else Path(flow.content).read_text(encoding="utf-8")


def simulated(flow: Flow, frame: int) -> dict[str, Any]:
    """`ReleaseDecl` of the flow's data stream. A flow that joins late is simulated from the start where its pattern knows no
    times: all flows at once is the worst case."""
    start = flow.start_ns
    match flow.pattern:
        case "periodic":
            stated = start or flow.offset_ns is not None
            return {"kind": "periodic", "offset_ns": start + (flow.offset_ns or 0) if stated else None}
        case "sporadic":
            return {"kind": "sporadic", "mean_extra_ns": flow.mean_extra_ns}
        case "poisson":
            return {"kind": "poisson", "mean_gap_ns": flow.period_ns, "frame_bytes": frame}
        case "trace":
            return {"kind": "trace", "times_ns": [start + time for time in flow.trace_ns], "frame_bytes": frame}


def is_bounded(flow: Flow) -> bool:
    """Does the flow keep a least time between releases?"""
    return flow.pattern != "poisson"


def emulated(flow: Flow, seed: int) -> dict[str, Any]:
    """`Release` of the flow's endpoint."""
    patterns: dict[str, dict[str, Any]] = {
        "periodic": {"kind": "periodic", "period_ns": flow.period_ns},
        "sporadic": {"kind": "sporadic", "period_ns": flow.period_ns, "mean_extra_ns": flow.mean_extra_ns},
        "poisson": {"kind": "poisson", "mean_gap_ns": flow.period_ns},
        "trace": {"kind": "trace", "times_ns": list(flow.trace_ns)},
    }
    return {
        "offset_ns": flow.start_ns + (offset(flow, seed) if flow.pattern == "periodic" else (flow.offset_ns or 0)),
        "jitter_ns": flow.jitter_ns,
        "pattern": patterns[flow.pattern],
        "seed": stream_seed(seed, f"{flow.name}/release"),
    }
