"""One case: utilisation of every port first, then every method with its computing time, then the worst that simulation finds."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timebound import _core
from timebound.reproduce.bounds.networks import BROKERS, TOPICS, Case


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the comparison. `safety` is `safe`, `experimental` or `unsafe`; `role` its name in the paper's figures, if any."""

    name: str
    safety: str
    words: str
    role: str | None = None


METHODS = (
    Method("bound", "safe", "holistic and network calculus, the smaller at every port"),
    Method("holistic", "safe", "holistic approach, corrected"),
    Method("calculus", "safe", "network calculus with line shaping and packetisation"),
    Method("trajectory", "experimental", "trajectory approach, standard form, corrected blocking, full range of t"),
    Method("holistic-as-published", "unsafe", "eq. 6-8, 13-15, algorithms 1 and 3 as printed", "HA"),
    Method("trajectory-as-published", "unsafe", "eq. 9-12, 16-22, algorithms 2 and 4 as printed", "TA"),
    Method(
        "trajectory-with-published-defects",
        "unsafe",
        "the same read with transmission times where SD is printed",
        "TA, as it may be meant",
    ),
)
SAFE = tuple(method.name for method in METHODS if method.safety == "safe")
TIMED_RUNS = 3

Tell = Callable[[float], None]


def measure(case: Case, evaluations: int, seed: int, tell: Tell = lambda share: None) -> dict[str, Any]:
    """A cell of `reproduce.json` (docs/reproduce.md). The search runs where every stream has a safe bound.

    Raises:
        RuntimeError: a simulated latency above a safe bound, which is a defect of ours.
    """
    network = _core.Network(json.dumps(case.declaration))
    analyses, methods = {}, []
    for method in METHODS:
        analysis, took = _timed(network, method)
        analyses[method.name] = analysis
        methods.append(
            {
                "name": method.name,
                "safety": method.safety,
                "words": method.words,
                "paper": method.role,
                "compute_ms": round(took * 1000, 3),
            }
        )
    ports = sorted(
        (
            {"port": port["name"], "utilisation": round(port["utilisation"]["value"], 6)}
            for port in analyses["bound"]["ports"]
            if port["utilisation"]["numerator"]
        ),
        key=lambda port: (-port["utilisation"], port["port"]),
    )
    finite = all(
        leaf["outcome"]["kind"] == "bound" for stream in analyses["bound"]["streams"] for leaf in stream["leaves"]
    )
    worst = _search(network, case, evaluations, seed, tell) if finite and evaluations > 0 else {}
    figures = [_figure(case, topic, receiver, analyses, worst) for receiver in BROKERS for topic in TOPICS.values()]
    cell = {
        "load": case.load,
        "reading": case.reading,
        "publishers": len(case.publishers),
        "ports": ports,
        "methods": methods,
        "figures": figures,
        "evaluations": evaluations if worst else 0,
        "not_searched": None if worst else _why(finite),
    }
    for method in METHODS:
        _deviation(cell, method.name)
    return cell


def _why(finite: bool) -> str:
    if finite:
        return "no search was asked for"
    return "a port's utilisation is 1 or more: there is no worst case to search for, latencies grow as long as the network runs"


def _timed(network: _core.Network, method: Method) -> tuple[dict[str, Any], float]:
    """The analysis, and the median time of some runs, JSON included."""
    options = json.dumps({"method": method.name})
    ask = network.bounds if method.safety == "safe" else network.comparison
    times, text = [], ""
    for _ in range(TIMED_RUNS):
        start = time.perf_counter()
        text = ask(options)
        times.append(time.perf_counter() - start)
    analysis = json.loads(text)
    if method.safety != "safe" and analysis["safety"] != method.safety:
        raise RuntimeError(f"{method.name} is labelled {analysis['safety']}, not {method.safety}")
    return analysis, statistics.median(times)


def _search(network: _core.Network, case: Case, evaluations: int, seed: int, tell: Tell) -> dict[tuple[str, str], int]:
    """Stream and receiver -> worst latency found, ns from the actual release."""
    found = json.loads(network.search(json.dumps({"evaluations": evaluations, "seed": seed}), tell))
    receivers = list(BROKERS)
    return {
        (case.publishers[entry["stream"]].stream, receivers[entry["leaf"]]): entry["latency"]
        for entry in found["worst"]
        if entry["latency"] is not None
    }


def _figure(
    case: Case, topic: str, receiver: str, analyses: dict[str, dict[str, Any]], worst: dict[tuple[str, str], int]
) -> dict[str, Any]:
    """One group of bars: the slowest publisher of the topic at the receiver, by every method and in the search."""
    mine = {publisher.stream for publisher in case.publishers if publisher.topic == topic}
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, analysis in analyses.items():
        outcomes = {
            stream["stream"]: leaf["outcome"]
            for stream in analysis["streams"]
            for leaf in stream["leaves"]
            if leaf["receiver"] == receiver
        }
        failed = [outcomes[name] for name in sorted(mine) if outcomes[name]["kind"] != "bound"]
        if failed:
            values[name], reasons[name] = None, failed[0]["reason"]
        else:
            values[name] = max(outcomes[stream]["from_actual_ns"] for stream in mine) / 1000
        if name in SAFE:
            for stream in mine:
                seen, outcome = worst.get((stream, receiver)), outcomes[stream]
                if seen is not None and outcome["kind"] == "bound" and seen > outcome["from_actual_ns"]:
                    raise RuntimeError(f"{stream} at {receiver} took {seen} ns, above its bound by {name}")
    seen_values = [worst[stream, receiver] for stream in mine if (stream, receiver) in worst]
    return {
        "path": BROKERS[receiver],
        "receiver": receiver,
        "topic": topic,
        "simulated_us": max(seen_values) / 1000 if seen_values else None,
        "values_us": values,
        "reasons": reasons,
    }


def _deviation(cell: dict[str, Any], method: str) -> None:
    """Largest and least deviation of a method from the worst found, in per cent of that, over all bars of the case."""
    deviations = [
        (figure["values_us"][method] / figure["simulated_us"] - 1) * 100
        for figure in cell["figures"]
        if figure["simulated_us"] and figure["values_us"][method] is not None
    ]
    entry = next(entry for entry in cell["methods"] if entry["name"] == method)
    entry["largest_deviation_percent"] = round(max(deviations), 2) if deviations else None
    entry["least_deviation_percent"] = round(min(deviations), 2) if deviations else None
