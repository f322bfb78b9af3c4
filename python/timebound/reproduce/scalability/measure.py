"""The figures of one cell, from the run folder that its emulation left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timebound.reproduce.scalability.cells import FIRST_JOIN_NS, SETTLED_NS, Cell

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
EDGE_NS = 500_000_000
"""Left out at both ends of the time in which all clients had joined: samples there are half another time's."""


def figures(cell: Cell, folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """The cell as it stands in `reproduce.json` (docs/reproduce.md): CPU in shares of one CPU, traffic in bytes per second.

    Raises:
        ValueError: the run left no samples of its nodes.
    """
    import polars as pl

    path = folder / "nodes.parquet"
    if not path.exists():
        raise ValueError("the run left no samples of its nodes")
    samples = rates(pl.read_parquet(path))
    held = samples.filter(
        (pl.col("t_ns") - pl.col("length_ns") >= cell.all_joined_ns + EDGE_NS)
        & (pl.col("t_ns") <= cell.duration_ns - EDGE_NS)
    )
    live = json.loads((folder / "live.json").read_text(encoding="utf-8"))
    flows = summary["flows"]
    packets, missing = _packets(summary)
    memory = held.filter(pl.col("node").str.starts_with("meter") & (pl.col("rss_bytes") > 0))["rss_bytes"]
    return {
        "schema": SCHEMA,
        "scenario": cell.scenario,
        "qos": cell.qos,
        "clients": cell.clients,
        "nodes": len(live_hosts(folder)),
        "join_ns": cell.join_ns,
        "hold_ns": cell.hold_ns,
        "certificate": {
            "verdict": summary["precision"]["verdict"],
            "reasons": [str(reason) for reason in summary["precision"]["reasons"]],
            "lateness_us": summary["precision"].get("lateness_us"),
        },
        "messages": {
            "sent": sum(flow["sent"] or 0 for flow in flows),
            "received": sum(flow["received"] or 0 for flow in flows),
            "lost": sum(flow["lost"] or 0 for flow in flows),
        },
        "times": live["times"],
        "client_memory_bytes": int(memory.median()) if memory.len() else None,  # type: ignore[arg-type]
        "held": means(held),
        "spread": spread(cell, samples),
        "curve": curve(cell, samples),
        "packets": packets,
        "packets_missing": missing,
    }


def live_hosts(folder: Path) -> list[str]:
    """The nodes with a network stack of their own."""
    plan = json.loads((folder / "emulation.json").read_text(encoding="utf-8"))
    return [host["node"] for host in plan["hosts"]]


def rates(nodes: pl.DataFrame) -> pl.DataFrame:
    """Samples of `nodes.parquet` as what happened since the one before: CPU share, bytes per second each way."""
    import polars as pl

    length = pl.col("t_ns").diff().over("node")
    per_second = 1e9 / pl.col("length_ns")
    return (
        nodes.sort("node", "t_ns")
        .with_columns(
            length_ns=length,
            cpu=pl.col("cpu_ns").diff().over("node"),
            tx=pl.col("tx_bytes").diff().over("node"),
            rx=pl.col("rx_bytes").diff().over("node"),
        )
        .filter(pl.col("length_ns") > 0)
        .select(
            "t_ns",
            "node",
            "length_ns",
            "rss_bytes",
            cpu=pl.col("cpu") / pl.col("length_ns"),
            tx=pl.col("tx") * per_second,
            rx=pl.col("rx") * per_second,
        )
    )


def means(samples: pl.DataFrame) -> dict[str, float]:
    """Means over some samples: broker, subscriber (scenario 1), one publisher, all nodes together."""
    import polars as pl

    def mean(rows: pl.DataFrame, column: str) -> float:
        value = rows[column].mean()
        return 0.0 if value is None else float(value)  # type: ignore[arg-type]

    broker = samples.filter(pl.col("node") == "broker")
    subscriber = samples.filter(pl.col("node") == "utility")
    meters = samples.filter(pl.col("node").str.starts_with("meter"))
    together = samples.group_by("t_ns").agg(pl.col("cpu").sum())
    return {
        "broker_cpu": mean(broker, "cpu"),
        "broker_rx_bytes": mean(broker, "rx"),
        "broker_tx_bytes": mean(broker, "tx"),
        "broker_bytes": mean(broker, "rx") + mean(broker, "tx"),
        "subscriber_cpu": mean(subscriber, "cpu"),
        "subscriber_bytes": mean(subscriber, "rx") + mean(subscriber, "tx"),
        "publisher_cpu": mean(meters, "cpu"),
        "publisher_bytes": mean(meters, "rx") + mean(meters, "tx"),
        "all_nodes_cpu": mean(together, "cpu"),
    }


def spread(cell: Cell, samples: pl.DataFrame) -> dict[str, float]:
    """How much each CPU figure varies within the cell: from its lowest to its highest tenth, over its median.

    The load is the same all the time, so this is what the machine does: other work beside us makes the same instructions take
    up to twice as long. No difference between cells that is smaller means anything.
    """
    import polars as pl

    busy = samples.filter(
        (pl.col("t_ns") - pl.col("length_ns") >= FIRST_JOIN_NS + SETTLED_NS + cell.clients // 10 * cell.join_ns)
        & (pl.col("t_ns") <= cell.duration_ns - EDGE_NS)
    )
    series = [means(rows) for _, rows in busy.partition_by("t_ns", as_dict=True).items()]
    found = {}
    for name in ("broker_cpu", "subscriber_cpu", "publisher_cpu", "all_nodes_cpu"):
        values = sorted(point[name] for point in series)
        if not values or values[len(values) // 2] <= 0:
            continue
        low, high = values[len(values) // 10], values[-1 - len(values) // 10]
        found[name] = (high - low) / values[len(values) // 2]
    return found


def curve(cell: Cell, samples: pl.DataFrame) -> list[dict[str, float]]:
    """The same means in the course of the joining, by the number of clients that have joined in the middle of a sample."""
    import polars as pl

    points = []
    for key, rows in samples.sort("t_ns").partition_by("t_ns", as_dict=True, maintain_order=True).items():
        (time,) = key
        middle = int(time) - int(rows["length_ns"].max()) // 2  # type: ignore[arg-type]
        joined = (middle - FIRST_JOIN_NS - SETTLED_NS) // cell.join_ns + 1
        if 1 <= joined < cell.clients:
            points.append({"clients": int(joined), **means(rows)})
    held = samples.filter(
        (pl.col("t_ns") - pl.col("length_ns") >= cell.all_joined_ns) & (pl.col("t_ns") <= cell.duration_ns - EDGE_NS)
    )
    if held.height:
        points.append({"clients": cell.clients, **means(held)})
    return points


def _packets(summary: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Size classes and shares at the broker's link, both ways together."""
    packets = summary.get("packets")
    if not packets or not packets.get("captures"):
        reason = packets.get("reason") if packets else None
        return None, reason or "the run captured nothing"
    entry = packets["captures"][0]
    if entry["sizes"] is None:
        return None, entry["problem"] or "the capture holds no packets"
    totals = entry["totals"]
    return {
        "capture": entry["capture"],
        "packets": totals["frames"],
        "frame_classes": entry["sizes"]["frame"],
        "kinds": entry["sizes"]["categories_of_frame_classes"],
        "categories": {name: part["share"] or 0.0 for name, part in totals["categories"].items()},
        "without_transport_payload": totals["without_transport_payload"]["share"],
        "without_application_payload": totals["without_application_payload"]["share"],
        "overhead_share": totals["overhead"]["wire_share"],
        "retransmissions": totals["tcp"]["retransmissions"],
    }, None
