"""Simulation: the network in virtual time, and the search for its worst cases.

Sources that answer (a broker that forwards) are simulated as sources of their own within their declared arrival curve,
so each segment is simulated for all phasings between it and the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timebound.engine.figures import micros
from timebound.engine.predict import Prediction
from timebound.engine.progress import Progress
from timebound.scenario.model import Event, Simulate
from timebound.scenario.units import format_time

_NO_LIMIT = 2**62
Key = tuple[str, str]
"""(stream, receiver)"""


@dataclass(slots=True)
class Simulation:
    """What the simulator found. `worst_ns` is the worst of the plain run and of the search, from the actual release: a lower bound on
    the true worst case. `evaluations` were made by the search, which also sends undeclared best effort wherever the bounds allow for it.
    `is_interrupted`: an interrupt ended the search; what it had found is here."""

    worst_ns: dict[Key, int]
    quantiles_us: dict[Key, list[float | None]]
    outcome: dict[str, Any]
    evaluations: int
    is_interrupted: bool = False


def simulate(prediction: Prediction, progress: Progress) -> Simulation:
    """A plain run of the scenario, then the search; both under its schedule, the search at one moment of it after another."""
    scenario = prediction.plan.scenario
    run = scenario.run
    progress.step("simulate", "the scenario in virtual time")
    network = prediction.network
    schedule = [change for event in scenario.events for change in _changes(event)]
    outcome = network.simulate(
        {
            "duration_ns": run.simulate.duration_ns,
            "warmup_ns": run.warm_up_ns,
            "seed": run.seed,
            "schedule": schedule,
        },
        progress.at,
    )
    worst: dict[Key, int] = {}
    quantiles: dict[Key, list[float | None]] = {}
    names = list(prediction.streams.values())
    for entry in outcome["streams"]:
        stream = names[entry["stream"]]
        for receiver, leaf in zip(stream.destinations, entry["leaves"], strict=True):
            latency = leaf["latency"]
            if latency is not None:
                worst[stream.name, receiver] = latency["max"]
                quantiles[stream.name, receiver] = [micros(value) for value in latency["quantiles"]]
    evaluations, is_interrupted = 0, False
    effort, limit = _effort(run.simulate), run.simulate.search_ns
    if effort["evaluations"] > 0:
        spent = f"{run.simulate.evaluations} evaluations" if limit is None else format_time(limit)
        asked = {"seed": run.seed, "schedule": schedule, "keep": True, **effort}
        try:
            progress.step("search", f"worst cases, {spent}")
            found = network.search(asked, progress.at)
        except KeyboardInterrupt:
            # It came before the core looked.
            found = {"evaluations": 0, "worst": [], "interrupted": True}
        evaluations, is_interrupted = found["evaluations"], found["interrupted"]
        for entry in found["worst"]:
            stream = names[entry["stream"]]
            if entry["latency"] is not None:
                key = (stream.name, stream.destinations[entry["leaf"]])
                worst[key] = max(worst.get(key, 0), entry["latency"])
    return Simulation(worst, quantiles, outcome, evaluations, is_interrupted)


def _effort(limits: Simulate) -> dict[str, int]:
    """How hard to search, for the core; with a limit of time as many evaluations as it allows."""
    if limits.search_ns is None:
        return {"evaluations": limits.evaluations}
    return {"evaluations": _NO_LIMIT, "limit_ns": limits.search_ns}


def _changes(event: Event) -> list[dict[str, Any]]:
    """An event as changes of both directions of its link, for the simulator."""
    from timebound.engine.emulate import conditions

    return [
        {"at_ns": event.at_ns, "port": 2 * event.link + way, **conditions(event, way)}
        for way in (0, 1)
        if event.ways[way]
    ]
