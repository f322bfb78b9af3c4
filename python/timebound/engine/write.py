"""The run folder's tables: Parquet files that other programs read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from timebound.files import Place

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.summary import Results


def write_tables(results: Results, folder: Path) -> None:
    """Writes what the parts that ran have to say."""
    if results.simulation is not None:
        _simulated(results, folder)
        _simulated_links(results, folder)
    if results.measured is not None:
        _measured(results, folder)


def _keep(table: pl.DataFrame, folder: Path, name: str) -> None:
    with Place(folder) as place, place.writing(name) as file:
        write_parquet(table, file)


def write_parquet(table: pl.DataFrame, file: IO[bytes]) -> None:
    """Writes a table.

    Raises:
        OSError: it cannot be written; polars has errors of its own for that.
    """
    import polars as pl

    try:
        table.write_parquet(file)
    except pl.exceptions.ComputeError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _simulated(results: Results, folder: Path) -> None:
    import polars as pl

    assert results.simulation is not None
    rows = []
    names = list(results.prediction.streams.values())
    for entry in results.simulation.outcome["streams"]:
        stream = names[entry["stream"]]
        for receiver, leaf in zip(stream.destinations, entry["leaves"], strict=True):
            latency = leaf["latency"] or {}
            rows.append(
                {
                    "stream": stream.name,
                    "receiver": receiver,
                    "released": entry["released"],
                    "received": leaf["received"],
                    "lost": leaf["lost"],
                    **{f"{name}_ns": latency.get(name) for name in ("min", "mean", "p50", "p99", "max")},
                    "max_from_nominal_ns": latency.get("max_from_nominal"),
                    "worst_found_ns": results.simulation.worst_ns.get((stream.name, receiver)),
                    "bound_ns": results.prediction.outcomes[stream.name, receiver].actual_ns,
                    "quantiles_ns": latency.get("quantiles"),
                }
            )
    _keep(pl.DataFrame(rows, infer_schema_length=None), folder, "simulated.parquet")


def _simulated_links(results: Results, folder: Path) -> None:
    import polars as pl

    assert results.simulation is not None
    outcome = results.simulation.outcome
    rows: list[dict[str, Any]] = []
    for port, entry in zip(results.prediction.ports, outcome["ports"], strict=True):
        for index, interval in enumerate(entry["series"]):
            rows.append({"port": port["name"], "start_ns": index * outcome["interval"], **interval})
    _keep(pl.DataFrame(rows, infer_schema_length=None), folder, "simulated_links.parquet")


def _measured(results: Results, folder: Path) -> None:
    import polars as pl

    measured = results.measured
    assert measured is not None
    _keep(measured.messages.drop("copies", "overtaken", "stages_ns", "held"), folder, "messages.parquet")
    frames = measured.frames.select(
        pl.col("name").alias("stream"),
        "receiver",
        "sequence",
        "flags",
        pl.col("wire").alias("wire_bytes"),
        "ingress_ns",
        "delivered_ns",
        "lateness_ns",
    )
    _keep(frames, folder, "frames.parquet")
    if measured.nodes is not None:
        _keep(measured.nodes, folder, "nodes.parquet")
    if measured.links is not None:
        names = {index: port["name"] for index, port in enumerate(results.prediction.ports)}
        port = pl.col("index").replace_strict(names, return_dtype=pl.String).alias("port")
        _keep(measured.links.select(port, pl.exclude("index")), folder, "links.parquet")
    if measured.precision is not None:
        _keep(measured.precision, folder, "precision.parquet")
