"""Numbers for `summary.json`: quantiles, microseconds, time series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.measured import Measured

QUANTILES = np.linspace(0.0, 1.0, 101)
MOST_SERIES_POINTS = 240


def micros(nanos: float | int | None) -> float | None:
    """Nanoseconds as microseconds with three decimals: nothing is rounded away."""
    return None if nanos is None else round(float(nanos) / 1000.0, 3)


def spread(values: pl.Series) -> dict[str, float | None] | None:
    """`min`, `p50`, `p99`, `max` in microseconds; None where nothing was measured."""
    present = values.drop_nulls().to_numpy()
    if present.size == 0:
        return None
    low, middle, high, top = np.quantile(present, [0.0, 0.5, 0.99, 1.0])
    return {"min": micros(low), "p50": micros(middle), "p99": micros(high), "max": micros(top)}


def middle_and_top(values: pl.Series) -> dict[str, float | None] | None:
    """`p50` and `max` in microseconds."""
    found = spread(values)
    return None if found is None else {"p50": found["p50"], "max": found["max"]}


def quantiles(values: pl.Series) -> list[float | None] | None:
    """The 101 quantiles in microseconds."""
    present = values.drop_nulls().to_numpy()
    if present.size == 0:
        return None
    return [micros(value) for value in np.quantile(present, QUANTILES)]


def series_steps(duration_ns: int) -> tuple[int, int]:
    """Length of a step of the time series (one second, more for long runs), and their number."""
    step = max(1_000_000_000, -(-duration_ns // MOST_SERIES_POINTS))
    return step, max(1, -(-duration_ns // step))


def flow_series(measured: Measured, duration_ns: int) -> dict[str, Any]:
    """p50 and maximum of the network latency per flow and step (one second, or longer for long runs)."""
    import polars as pl

    step, steps = series_steps(duration_ns)
    rows = (
        measured.messages.filter(pl.col("network_ns").is_not_null())
        .with_columns(step=pl.col("released_ns") // step)
        .group_by("flow", "receiver", "step", maintain_order=True)
        .agg(pl.col("network_ns").median().alias("p50"), pl.col("network_ns").max().alias("max"))
    )
    flows: dict[str, dict[str, list[float | None]]] = {}
    for row in rows.iter_rows(named=True):
        entry = flows.setdefault(
            f"{row['flow']}>{row['receiver']}", {"p50_us": [None] * steps, "max_us": [None] * steps}
        )
        if 0 <= row["step"] < steps:
            entry["p50_us"][row["step"]] = micros(row["p50"])
            entry["max_us"][row["step"]] = micros(row["max"])
    return {"time_s": [round(i * step / 1e9, 3) for i in range(steps)], "flows": flows}
