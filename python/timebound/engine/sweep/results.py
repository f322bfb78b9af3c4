"""What came out of a sweep as one document: points, metrics, and which varied values matter. `sweep.json`, `sweep.parquet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timebound.engine.folder import write_json
from timebound.engine.sweep.store import RESULTS, Result, Store
from timebound.engine.write import write_parquet
from timebound.files import Place
from timebound.scenario import units

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
SEVERITY = (0, 1, 4, 3, 2, 130)
"""Exit codes from the least to the worst: met, not met, disturbed, the host cannot, wrong input, interrupted."""

METRICS: dict[str, tuple[str, str]] = {
    "observed_max_us": ("worst network latency observed", "us"),
    "observed_p99_us": ("network latency observed, p99", "us"),
    "application_max_us": ("worst application latency", "us"),
    "application_p99_us": ("application latency, p99", "us"),
    "simulated_max_us": ("worst network latency simulated", "us"),
    "bound_us": ("bound", "us"),
    "end_to_end_us": ("bound end to end", "us"),
    "margin_us": ("least margin (deadline minus bound end to end)", "us"),
    "lost_share": ("messages lost", "share"),
    "late_share": ("messages late", "share"),
    "utilisation": ("load of the busiest port", "share"),
    "cpu_share": ("CPU of the busiest node, mean", "share"),
    "memory_bytes": ("memory of the largest node", "bytes"),
    "wire_bytes": ("bytes on the wire at the captures", "bytes"),
    "overhead_share": ("overhead on the wire at the captures", "share"),
    "without_payload_share": ("packets without TCP/UDP payload", "share"),
}
"""What is compared: over all flows and receivers of a point the worst. Name -> (title, unit)."""
KINDS = (units.TIME, units.RATE, units.SIZE, units.SHARE)
MATTERS = 0.25
"""From this share of a metric's variance on, an axis is said to matter."""


def worst_code(codes: Sequence[int]) -> int:
    """The worst of exit codes by the house's order; an unknown one is the host's."""
    return max((code if code in SEVERITY else 3 for code in codes), key=SEVERITY.index, default=0)


def document(definition: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The content of `sweep.json`."""
    store = Store(folder)
    points = []
    for entry in definition["points"]:
        result = store.read(entry["key"])
        points.append({**entry, **_point(result, store, entry["key"])})
    axes = [
        {**axis, "name": " + ".join(axis["paths"]), "numbers": numbers([s[0] for s in axis["steps"]])}
        for axis in definition["axes"]
    ]
    used = [name for name in METRICS if any(point["metrics"].get(name) is not None for point in points)]
    if all(point["metrics"].get("end_to_end_us") == point["metrics"].get("bound_us") for point in points):
        # The same figure a second time says nothing.
        used = [name for name in used if name != "end_to_end_us"]
    return {
        **definition,
        "schema": SCHEMA,
        "axes": axes,
        "points": points,
        "metrics": [{"name": name, "title": METRICS[name][0], "unit": METRICS[name][1]} for name in used],
        "effects": effects(axes, points, used),
        "counts": {state: sum(1 for p in points if p["status"] == state) for state in ("done", "failed", "missing")},
        "exit_code": worst_code([p["exit_code"] for p in points if p["exit_code"] is not None]),
    }


def _point(result: Result | None, store: Store, key: str) -> dict[str, Any]:
    if result is None:
        nothing = {"exit_code": None, "verdict": "missing", "failure": None, "elapsed_s": None, "folder": None}
        return {"status": "missing", **nothing, "metrics": {}, "flows": []}
    flows = [] if result.summary is None else [_flow(flow) for flow in result.summary["flows"]]
    return {
        "status": "done" if result.failure is None else "failed",
        "exit_code": result.exit_code,
        # Whatever the figures that are there say: they are not all.
        "verdict": result.verdict if result.failure is None else "failed",
        "failure": result.failure,
        "elapsed_s": round(result.elapsed_s, 3),
        "folder": str(Path(RESULTS) / key),
        "metrics": {} if result.summary is None else metrics(result.summary, flows),
        "flows": flows,
    }


def _flow(flow: Mapping[str, Any]) -> dict[str, Any]:
    latency, application = flow["latency_us"] or {}, flow["application_us"] or {}
    whole = flow.get("end_to_end_us") or {}
    end_to_end, deadline = whole.get("bound"), flow["deadline_us"]
    return {
        "flow": flow["flow"],
        "receiver": flow["receiver"],
        "verdict": flow["verdict"],
        "observed_p99_us": latency.get("p99"),
        "observed_max_us": latency.get("max"),
        "application_p99_us": application.get("p99"),
        "application_max_us": application.get("max"),
        "simulated_max_us": flow["simulated_max_us"],
        "bound_us": flow["bound_us"]["bound"],
        "end_to_end_us": end_to_end,
        "tightness": flow.get("tightness"),
        "deadline_us": deadline,
        "margin_us": None if end_to_end is None or deadline is None else deadline - end_to_end,
        "sent": flow["sent"],
        "lost": flow["lost"],
        "late": flow["late"],
        "reason": flow["bound_us"]["reason"] or whole.get("reason"),
    }


def metrics(summary: Mapping[str, Any], flows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The metrics of a point."""
    found: dict[str, float | None] = {
        name: _over(max, (flow[name] for flow in flows))
        for name in METRICS
        if name.endswith("_us") and name != "margin_us"
    }
    found["margin_us"] = _over(min, (flow["margin_us"] for flow in flows))
    # A flow without a bound has none at all: the largest of the others would say too little.
    if any(flow["bound_us"] is None for flow in flows):
        found["bound_us"] = None
    if any(flow["end_to_end_us"] is None for flow in flows):
        found["end_to_end_us"] = found["margin_us"] = None
    sent = sum(flow["sent"] or 0 for flow in flows)
    for name in ("lost", "late"):
        found[f"{name}_share"] = sum(flow[name] or 0 for flow in flows) / sent if sent else None
    found["utilisation"] = _over(max, (_utilisation(port) for port in summary.get("ports", [])))
    nodes = summary.get("nodes", [])
    found["cpu_share"] = _over(max, ((node.get("cpu_share") or {}).get("mean") for node in nodes))
    found["memory_bytes"] = _over(max, ((node.get("memory_bytes") or {}).get("max") for node in nodes))
    captures = [entry["totals"] for entry in (summary.get("packets") or {}).get("captures", [])]
    wire = sum(totals["wire_bytes"] for totals in captures)
    frames = sum(totals["frames"] for totals in captures)
    found["wire_bytes"] = wire or None
    found["overhead_share"] = sum(t["overhead"]["wire_bytes"] for t in captures) / wire if wire else None
    silent = sum(totals["without_transport_payload"]["frames"] for totals in captures)
    found["without_payload_share"] = silent / frames if frames else None
    return found


def _utilisation(port: Mapping[str, Any]) -> float | None:
    names = ("observed", "simulated", "declared")
    return next((value for name in names if (value := port.get(f"utilisation_{name}")) is not None), None)


def _over(choose: Callable[[list[float]], float], values: Any) -> float | None:
    found = [float(value) for value in values if value is not None]
    return choose(found) if found else None


def numbers(values: Sequence[str]) -> list[float] | None:
    """The values of an axis as numbers (in ns, bit/s, bytes, ... where they have units); None where one is a word."""
    for parse in (_plain, *(_with_unit(kind) for kind in KINDS)):
        try:
            found = [parse(value) for value in values]
        except (ValueError, units.UnitError, OverflowError):
            continue
        return found if len(set(found)) == len(found) else None
    return None


def _plain(value: str) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def _with_unit(kind: units.Kind) -> Callable[[str], float]:
    return lambda value: float(units.parse(value.strip("'\""), kind))


def effects(
    axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], used: Sequence[str]
) -> list[dict[str, Any]]:
    """Per metric and axis: the share of the variance over all points that lies between the axis's values (eta squared).

    `matters` where that share is `MATTERS` or more and the means differ by more than 2 %.
    """
    found = []
    for metric in used:
        known = [p for p in points if p["metrics"].get(metric) is not None]
        values = [p["metrics"][metric] for p in known]
        mean = math.fsum(values) / len(values)
        total = math.fsum((value - mean) ** 2 for value in values)
        for axis in axes:
            groups: dict[tuple[str, ...], list[float]] = {}
            for point, value in zip(known, values, strict=True):
                groups.setdefault(tuple(point["settings"][path] for path in axis["paths"]), []).append(value)
            means = {step: math.fsum(group) / len(group) for step, group in groups.items()}
            between = math.fsum(len(group) * (means[step] - mean) ** 2 for step, group in groups.items())
            share = between / total if total > 0 else 0.0
            spread = max(means.values()) - min(means.values())
            matters = share >= MATTERS and spread > 0.02 * max(map(abs, means.values()))
            found.append(
                {"metric": metric, "axis": axis["name"], "share": round(min(1.0, share), 4), "matters": matters}
            )
    return found


def table(content: Mapping[str, Any]) -> pl.DataFrame:
    """One row per point, flow and receiver (one with nulls for a point without flows)."""
    import polars as pl

    paths = [path for axis in content["axes"] for path in axis["paths"]]
    number = {
        axis["paths"][0]: dict(zip((step[0] for step in axis["steps"]), axis["numbers"], strict=True))
        for axis in content["axes"]
        if axis["numbers"] is not None and len(axis["paths"]) == 1
    }
    numeric = (
        "observed_p99_us",
        "observed_max_us",
        "application_p99_us",
        "application_max_us",
        "simulated_max_us",
        "bound_us",
        "end_to_end_us",
        "tightness",
        "deadline_us",
        "margin_us",
    )
    schema: dict[str, Any] = {"point": pl.Int64, "key": pl.String}
    schema |= dict.fromkeys(paths, pl.String) | {f"{path} (number)": pl.Float64 for path in number}
    schema |= {
        "status": pl.String,
        "point_verdict": pl.String,
        "exit_code": pl.Int64,
        "failure": pl.String,
        "elapsed_s": pl.Float64,
    }
    schema |= dict.fromkeys(("flow", "receiver", "verdict", "reason"), pl.String) | dict.fromkeys(numeric, pl.Float64)
    schema |= dict.fromkeys(("sent", "lost", "late"), pl.Int64)
    rows = []
    for point in content["points"]:
        common = {"point": point["index"], "key": point["key"], **point["settings"]}
        common |= {f"{path} (number)": found[point["settings"][path]] for path, found in number.items()}
        common |= {name: point[name] for name in ("status", "exit_code", "failure", "elapsed_s")}
        common["point_verdict"] = point["verdict"]
        rows += [{**common, **flow} for flow in point["flows"] or [{}]]
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def write(content: Mapping[str, Any], folder: Path) -> None:
    """Writes `sweep.json` and `sweep.parquet`, each whole or not at all."""
    write_json(folder / "sweep.json", content)
    with Place(folder) as place, place.writing("sweep.parquet") as file:
        write_parquet(table(content), file)
