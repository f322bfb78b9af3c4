"""`paths.parquet`: every path and topic of every cell, as other programs read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timebound.engine.write import write_parquet
from timebound.files import Place


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per cell, path, topic and kind (`simulated`, `emulated`, `emulated-with-brokers`); times in microseconds."""
    kinds = (("simulated", "simulated"), ("emulated", "emulated"), ("with_brokers", "emulated-with-brokers"))
    return [
        {
            "protocol": cell["protocol"],
            "load": cell["load"],
            "publishers": cell["publishers"],
            "verdict": cell["verdict"],
            "path": entry["path"],
            "topic": entry["topic"],
            "kind": kind,
            "bound_us": entry["bound_us"],
            "searched_us": entry["searched_us"],
            **{
                name: found[name]
                for name in ("worst_us", "median_us", "p99_us", "quantiles_us", "worst_of_iterations_us")
            },
        }
        for cell in result["cells"]
        for entry in cell["paths"]
        for key, kind in kinds
        if (found := entry[key]) is not None
    ]


def write(folder: Path, result: Mapping[str, Any]) -> Path:
    """Writes the table; without any cell it has no rows and its columns all the same."""
    import polars as pl

    numbers = ["bound_us", "searched_us", "worst_us", "median_us", "p99_us"]
    schema: dict[str, Any] = dict.fromkeys(["protocol", "load", "verdict", "path", "topic", "kind"], pl.String)
    schema |= {"publishers": pl.Int64} | dict.fromkeys(numbers, pl.Float64)
    schema |= {"quantiles_us": pl.List(pl.Float64), "worst_of_iterations_us": pl.List(pl.Float64)}
    with Place(folder) as place, place.writing("paths.parquet") as file:
        write_parquet(pl.DataFrame(rows(result), schema=schema), file)
    return folder / "paths.parquet"
