"""What only the Parquet tables of a run folder hold: the whole distribution of the emulator's lateness, and when it was late.

A report without them is complete enough, so a table that is absent is no error, and one that cannot be read is said to be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Shares of frames that are later than a quantile; each step is about half of the one before.
TAIL = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)
MOST_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Lateness:
    """`tail`: (share of frames, lateness in us that this share exceeds). `seconds`: (time in s, p99 in us, maximum in us)."""

    frames: int
    tail: tuple[tuple[float, float], ...]
    seconds: tuple[tuple[float, float, float], ...]


class UnreadError(Exception):
    """A table that is there and cannot be read; the message says which, why, and what is left out."""


def read_lateness(folder: Path) -> Lateness | None:
    """The lateness in `frames.parquet`, or `None` where there is none.

    Raises:
        UnreadError: the table is cut off, or of another form.
    """
    path = folder / "frames.parquet"
    if not path.is_file():
        return None
    try:
        import polars as pl
    except ImportError:
        return None
    try:
        frames = (
            pl.scan_parquet(path)
            .select(
                pl.col("delivered_ns").cast(pl.Int64).alias("at"),
                (pl.col("lateness_ns").cast(pl.Float64) / 1000).alias("late"),
            )
            .drop_nulls()
            .collect()
        )
        late = frames["late"]
        if late.is_empty():
            return None
        tail = [(share, late.quantile(1 - share, "higher")) for share in TAIL if share * len(late) >= 1]
        seconds = (
            frames.group_by((pl.col("at") // 1_000_000_000).alias("second"))
            .agg(pl.col("late").quantile(0.99, "higher").alias("p99"), pl.col("late").max().alias("max"))
            .sort("second")
            .head(MOST_SECONDS)
        )
        return Lateness(
            frames=len(late),
            tail=tuple((share, value) for share, value in tail if value is not None),
            seconds=tuple((float(second), p99, highest) for second, p99, highest in seconds.iter_rows()),
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        why = str(error).strip().partition("\n")[0]
        left_out = "the emulator's lateness, and when it was late, are left out"
        raise UnreadError(f"{path} cannot be read ({why}): {left_out}") from error
