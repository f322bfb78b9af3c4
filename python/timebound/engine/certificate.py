"""What a run's fidelity certificate says beside its verdict: the course of the emulator's error, and how it compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebound.engine import figures

if TYPE_CHECKING:
    import polars as pl

POINTS = 600
"""Most points of the course; longer runs are folded to the worst of several windows."""


def course(windows: pl.DataFrame | None, warm_up_ns: int) -> dict[str, list[float | None]] | None:
    """Lateness and longest overrun over run time (seconds, warm-up included), microseconds; `None` without a history.

    A point stands for one or more windows: the highest p50, p99 and maximum of these, `None` where no frame left.
    """
    import polars as pl

    if windows is None or windows.is_empty():
        return None
    every = -(-windows["start_ns"].n_unique() // POINTS)
    left = pl.col("frames") > 0
    folded = (
        windows.sort("start_ns")
        .with_columns(pl.col("start_ns").rank("dense").sub(1).floordiv(every).alias("point"))
        .group_by("point", maintain_order=True)
        .agg(
            ((pl.col("start_ns").min() + warm_up_ns) / 1e9).alias("time_s"),
            *(pl.col(f"lateness_{name}_ns").filter(left).max().alias(name) for name in ("p50", "p99", "max")),
            pl.col("overrun_ns").max().alias("overrun"),
        )
    )
    found: dict[str, list[float | None]] = {"time_s": [round(value, 3) for value in folded["time_s"]]}
    for name in ("p50", "p99", "max", "overrun"):
        found[f"{name}_us"] = [None if value is None else figures.micros(value) for value in folded[name]]
    return found


def compared(flows: list[dict[str, Any]], lateness_p99_us: float) -> dict[str, Any] | None:
    """The p99 of the lateness as a share of the smallest slack before a deadline; where no flow has a deadline and messages,
    of the smallest median network latency. `None` where there is neither."""
    slacks = [
        (flow["deadline_us"] - flow["application_us"]["max"], flow)
        for flow in flows
        if flow["deadline_us"] is not None and flow["application_us"] is not None
    ]
    met = [(slack, flow) for slack, flow in slacks if slack > 0]
    latencies = [(flow["latency_us"]["p50"], flow) for flow in flows if flow["latency_us"] is not None]
    for what, found in (("deadline slack", met), ("median network latency", latencies)):
        if found:
            value, flow = min(found, key=lambda entry: entry[0])
            if value > 0:
                return {
                    "with": what,
                    "flow": flow["flow"],
                    "receiver": flow["receiver"],
                    "value_us": round(value, 3),
                    "share": round(lateness_p99_us / value, 6),
                }
    return None


def one_line(precision: dict[str, Any]) -> str | None:
    """The certificate in one line for the terminal; `None` where nothing was emulated."""
    if precision["verdict"] == "not-run":
        return None
    late, overruns = precision["lateness_us"], precision["overruns"]
    parts = [
        f"{precision['frames']} frames late by p50 {_time(late['p50'])}, p99 {_time(late['p99'])}, max {_time(late['max'])}",
        f"longest overrun {_time(overruns['longest_us'])}",
    ]
    if precision["ring_lost"]:
        parts.append(f"{precision['ring_lost']} lost in the ring")
    if precision["steal"] >= 0.001:
        parts.append(f"{precision['steal'] * 100:.1f} % of the CPUs stolen")
    against = precision.get("compared")
    if against is not None:
        parts.append(f"p99 is {_percent(against['share'])} of the smallest {against['with']} ({against['flow']})")
    return f"fidelity: {precision['verdict']}: {'; '.join(parts)}"


def _time(micros: float) -> str:
    return f"{micros:.0f} us" if micros < 1000 else f"{micros / 1000:.1f} ms"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share >= 0.001 else f"{share * 100:.2g} %"
