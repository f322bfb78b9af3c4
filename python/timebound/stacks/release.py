"""Release patterns of flows, for the simulator (`ReleaseDecl`) and for the endpoints (`Release`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from timebound.scenario.model import Flow
from timebound.scenario.model_media import TokenBucket
from timebound.stacks.plan import PlanError

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


def bucket_times(bucket: TokenBucket, size_bytes: int, path: str) -> tuple[int, int]:
    """Period and jitter of releases of `size_bytes` wire bytes that a token bucket lets pass, ns: at most
    `floor((d + jitter) / period) + 1` in a window `d`.

    Raises:
        PlanError: a burst that never lets a release pass.
    """
    if bucket.burst_bytes < size_bytes:
        raise PlanError(
            path,
            f"a burst of {bucket.burst_bytes} bytes never lets a message pass, which takes {size_bytes} bytes on the wire",
            f"burst: {size_bytes} B, or more",
        )
    period = bucket.time_ns(size_bytes)
    return period, max(0, bucket.time_ns(bucket.burst_bytes) - period)


def simulated(flow: Flow, frames: tuple[int, ...]) -> dict[str, Any]:
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
            return {"kind": "poisson", "mean_gap_ns": flow.period_ns, "frame_bytes": max(frames)}
        case "trace":
            times = [start + time for time in flow.trace_ns]
            return {"kind": "trace", "times_ns": times, "frame_bytes": max(frames)}
        case "token-bucket":
            return {"kind": "greedy", "offset_ns": flow.offset_ns, "frames_bytes": list(frames)}


def is_bounded(flow: Flow) -> bool:
    """Does the flow keep a least time between releases?"""
    return flow.pattern != "poisson"


def emulated(flow: Flow, seed: int, message_bytes: int | None = None) -> dict[str, Any]:
    """`Release` of the flow's endpoint; a token bucket needs the wire bytes of a message. One message of its burst is kept back, for
    the lateness of its host."""
    patterns: dict[str, dict[str, Any]] = {
        "periodic": {"kind": "periodic", "period_ns": flow.period_ns},
        "sporadic": {"kind": "sporadic", "period_ns": flow.period_ns, "mean_extra_ns": flow.mean_extra_ns},
        "poisson": {"kind": "poisson", "mean_gap_ns": flow.period_ns},
        "trace": {"kind": "trace", "times_ns": list(flow.trace_ns)},
    }
    if flow.token_bucket is not None and message_bytes is not None:
        patterns["token-bucket"] = {
            "kind": "token-bucket",
            "period_ns": flow.token_bucket.time_ns(message_bytes),
            "burst": max(1, flow.token_bucket.burst_bytes // message_bytes - 1),
        }
    return {
        "offset_ns": flow.start_ns
        + (offset(flow, seed) if flow.pattern in ("periodic", "token-bucket") else (flow.offset_ns or 0)),
        "jitter_ns": flow.jitter_ns,
        "pattern": patterns[flow.pattern],
        "seed": stream_seed(seed, f"{flow.name}/release"),
    }
