"""Records of a run: fixed-size binary files, as live and endpoints write them, read into polars frames.

`frames.bin` and `endpoints.bin` grow while the run goes on; a last record that was cut off is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

FRAME = np.dtype(
    [
        ("stream", "<u4"),
        ("leaf", "<u2"),
        ("flags", "<u2"),
        ("flow", "<u4"),
        ("sequence", "<u4"),
        ("wire", "<u4"),
        ("payload", "<u4"),
        ("ingress_ns", "<i8"),
        ("delivered_ns", "<i8"),
        ("lateness_ns", "<u4"),
        ("messages", "<u4"),
    ]
)
"""One frame of a declared stream at one receiver (crates/live/src/records.rs); `lateness_ns` and `messages` (how many begin in
the frame) only where it was delivered."""

MESSAGE = np.dtype(
    [
        ("kind", "u1"),
        ("qos", "u1"),
        ("flags", "<u2"),
        ("flow", "<u4"),
        ("receiver", "<u4"),
        ("sequence", "<u4"),
        ("size", "<u4"),
        ("reserved", "<u4"),
        ("nominal_ns", "<i8"),
        ("time_ns", "<i8"),
    ]
)
"""One message sent, received or acknowledged (crates/endpoints/src/record.rs)."""

DROPPED, RETRANSMISSION, DAMAGED, COPY, HAS_SEQUENCE, CONTINUED, NO_PAYLOAD = 1, 2, 4, 8, 16, 32, 64
SENT, RECEIVED, ACKNOWLEDGED = 0, 1, 2
HELD = 2
"""In the flags of a message that was sent: its connection did not take it at once."""


def read_frames(path: Path) -> pl.DataFrame:
    """All frame records; empty where there is no file."""
    return _read(path, FRAME)


def read_messages(path: Path) -> pl.DataFrame:
    """All message records; empty where there is no file."""
    return _read(path, MESSAGE)


def _read(path: Path, layout: np.dtype[np.void]) -> pl.DataFrame:
    import polars as pl

    size = path.stat().st_size // layout.itemsize if path.exists() else 0
    records = np.fromfile(path, dtype=layout, count=size) if size else np.empty(0, dtype=layout)
    names = layout.names or ()
    return pl.DataFrame({name: np.ascontiguousarray(records[name]) for name in names})
