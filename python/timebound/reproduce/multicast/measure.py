"""The figures of one iteration of a cell, for each path and topic: bounds, simulation, emulation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from timebound.engine.figures import QUANTILES, micros
from timebound.reproduce.multicast.cells import PATHS, TOPICS
from timebound.scenario.model import Scenario

KEPT = 101
"""Quantiles of every distribution."""


def keys() -> Iterable[tuple[str, str, str]]:
    """(path, receiver, topic) in the paper's order."""
    return ((path, receiver, topic) for path, receiver in PATHS.items() for topic in TOPICS.values())


def topic_of(flow: str) -> str:
    """`alpha` of `alpha-a[3]`."""
    return flow.partition("-")[0]


def computed(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds and simulation of a cell by `path topic`: of all publishers of the topic the slowest, and all together as a distribution.

    A path of several segments is simulated segment by segment: its distribution is that of segments that are slow together. `simulated` is a plain
    run, with phases as the seed draws them, like an emulation; `searched_us` the worst that a search for bad phases found beyond it.
    """
    found = {}
    for path, receiver, topic in keys():
        here = [flow for flow in summary["flows"] if flow["receiver"] == receiver and topic_of(flow["flow"]) == topic]
        bounds = [flow["bound_us"]["bound"] for flow in here]
        reasons = [flow["bound_us"]["reason"] for flow in here if flow["bound_us"]["reason"]]
        worst = [flow["simulated_max_us"] for flow in here]
        spread = [flow["distribution"]["simulated_us"] for flow in here]
        complete = bool(here) and None not in worst
        found[f"{path} {topic}"] = {
            "bound_us": max(bounds) if here and None not in bounds else None,
            "reason": reasons[0] if reasons else None,
            "searched_us": max(worst) if complete else None,
            "simulated": _pooled(spread) if complete and all(spread) else None,
        }
    return found


def _pooled(spread: list[list[float]]) -> dict[str, Any]:
    """All publishers together, each with the same weight (their periods differ by a third at most)."""
    quantiles = np.quantile(np.concatenate([np.asarray(each, dtype=float) for each in spread]), QUANTILES)
    return {
        "worst_us": round(float(quantiles[-1]), 3),
        "median_us": round(float(quantiles[50]), 3),
        "quantiles_us": [round(float(value), 3) for value in quantiles],
    }


def emulated(folder: Path, summary: Mapping[str, Any], stretch: int = 1) -> dict[str, Any]:
    """What a run measured by `path topic`: the network's own time, which bounds are for, and the time until the broker at the path's end has
    the message, with the brokers or managers between; both divided by `stretch` (see there)."""
    import polars as pl

    messages = pl.read_parquet(folder / "messages.parquet")
    lost = {(flow["flow"], flow["receiver"]): flow["lost"] or 0 for flow in summary["flows"]}
    found = {}
    for path, receiver, topic in keys():
        here = messages.filter((pl.col("receiver") == receiver) & pl.col("flow").str.starts_with(f"{topic}-"))
        network = here["network_ns"].drop_nulls() / stretch
        whole = (here["network_ns"] + here["broker_ns"]).drop_nulls() / stretch
        missing = sum(number for (flow, to), number in lost.items() if to == receiver and topic_of(flow) == topic)
        found[f"{path} {topic}"] = {
            "messages": here.height,
            "lost": missing,
            **({} if network.is_empty() else _spread(network.to_numpy())),
            "with_brokers": None if whole.is_empty() else _spread(whole.to_numpy()),
        }
    return found


def fewest_messages(folder: Path) -> int | None:
    """Of all publishers and receivers of a run: how many messages were sent at least. The paper wants 100 in an iteration."""
    import polars as pl

    messages = pl.read_parquet(folder / "messages.parquet", columns=["flow", "receiver"])
    return None if messages.is_empty() else int(messages.group_by("flow", "receiver").len()["len"].to_numpy().min())


LEAST_SENT, MOST_MISSING = 0.98, 0.01
"""Shares of what is declared: below, or above, a run is none of the load that it is called after."""


def load_not_kept(found: Mapping[str, Any], scenario: Scenario) -> str | None:
    """Why a run was not under its declared load: publishers were held back, or messages were still on their way at its end."""
    declared = sum(scenario.run.duration_ns // flow.period_ns * len(flow.receivers) for flow in scenario.flows)
    sent = sum(entry["messages"] for entry in found.values())
    missing = sum(entry["lost"] for entry in found.values())
    if sent >= LEAST_SENT * declared and missing <= MOST_MISSING * sent:
        return None
    return (
        f"of the declared messages {sent / declared:.0%} were sent, and of these {missing / max(sent, 1):.0%} had not arrived at the end: clients and "
        "brokers did not keep up with the load"
    )


def _spread(values_ns: Any) -> dict[str, Any]:
    quantiles = np.quantile(values_ns, QUANTILES)
    return {
        "worst_us": micros(int(quantiles[-1])),
        "median_us": micros(int(quantiles[50])),
        "p99_us": micros(int(quantiles[99])),
        "quantiles_us": [micros(float(value)) for value in quantiles],
    }


def channels(folder: Path, scenario: Scenario) -> dict[str, int]:
    """What the controller had answered to each publisher when the run ended: how many by outcome; empty without a controller. Subscribers are on the
    brokers' hosts, where there is nothing to reserve."""
    audit = folder / "logs" / "controller-audit.jsonl"
    if not audit.exists():
        return {}
    began = json.loads((folder / "live.json").read_text(encoding="utf-8"))["epoch_unix_ns"]
    end = (began + scenario.run.warm_up_ns + scenario.run.duration_ns) / 1e9
    last: dict[str, str] = {}
    for text in audit.read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        # What comes later is about a network that is taken down.
        publisher = entry["what"] == "verdict" and entry["side"] == "publish"
        if publisher and datetime.fromisoformat(entry["time"]).timestamp() < end:
            last[entry["id"]] = entry["outcome"]
    return dict(sorted(Counter(last.values()).items()))


def background(folder: Path, scenario: Scenario, stretch: int = 1) -> list[dict[str, Any]]:
    """What arrived of each of the article's sources of background while the run measured, on the wire, its receivers together (`declared_bps`,
    `measured_bps`: of the network that is not stretched)."""
    import polars as pl

    frames = pl.read_parquet(folder / "frames.parquet", columns=["stream", "wire_bytes", "ingress_ns", "delivered_ns"])
    came = frames.filter(pl.col("ingress_ns").is_between(0, scenario.run.duration_ns) & (pl.col("delivered_ns") >= 0))
    streams = came["stream"].cast(pl.String)
    by_stream = dict(came.group_by(streams).agg(pl.col("wire_bytes").cast(pl.Int64).sum()).iter_rows())
    found: dict[str, dict[str, Any]] = {}
    for source in scenario.background:
        entry = found.setdefault(
            name := source.name.partition("[")[0],
            {"name": name, "program": source.program, "declared_bps": 0, "measured_bps": 0},
        )
        entry["declared_bps"] += (source.rate_bps or 0) * stretch
        carried = by_stream.get(f"background/{source.name}", 0)
        entry["measured_bps"] += round(carried * 8e9 / scenario.run.duration_ns * stretch)
    return list(found.values())


def certificate(summary: Mapping[str, Any]) -> dict[str, Any]:
    """How far the machine could be trusted."""
    precision = summary["precision"]
    return {
        "verdict": precision["verdict"],
        "reasons": [str(reason) for reason in precision["reasons"]],
        "lateness_us": precision.get("lateness_us"),
    }


def busiest(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The most used ports in the simulation: 1 and more cannot be promised anything."""
    ports = [(port["utilisation_simulated"] or 0.0, port["port"]) for port in summary["ports"]]
    return [{"port": name, "utilisation": round(share, 4)} for share, name in sorted(ports, reverse=True)[:6]]


def combined(iterations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All iterations of a cell as one: the worst of all, the distribution of all messages, and that of the worst of each iteration."""
    found = []
    for path, _, topic in keys():
        key = f"{path} {topic}"
        bounds = [entry["computed"][key]["bound_us"] for entry in iterations]
        reasons = [entry["computed"][key]["reason"] for entry in iterations if entry["computed"][key]["reason"]]
        measured = [entry["emulated"][key] for entry in iterations if entry["emulated"] is not None]
        searched = [entry["computed"][key]["searched_us"] for entry in iterations]
        simulated = [each for entry in iterations if (each := entry["computed"][key]["simulated"]) is not None]
        found.append(
            {
                "path": path,
                "topic": topic,
                "bound_us": None if None in bounds else max(bounds),
                "reason": reasons[0] if reasons else None,
                "searched_us": None if None in searched else max(searched),
                "simulated": _together(simulated),
                "emulated": _together([each for each in measured if "worst_us" in each]),
                "with_brokers": _together([each["with_brokers"] for each in measured if each["with_brokers"]]),
                "messages": sum(each["messages"] for each in measured),
                "lost": sum(each["lost"] for each in measured),
            }
        )
    return found


def _together(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not parts:
        return None
    pooled = np.quantile(np.concatenate([np.asarray(part["quantiles_us"], dtype=float) for part in parts]), QUANTILES)
    worst = [part["worst_us"] for part in parts]
    return {
        "worst_us": max(worst),
        "median_us": round(float(pooled[50]), 3),
        "p99_us": round(float(pooled[99]), 3),
        "quantiles_us": [round(float(value), 3) for value in pooled],
        "worst_of_iterations_us": sorted(worst),
    }
