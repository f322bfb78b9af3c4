"""`summary.json`: prediction, simulation and measurement of every flow side by side, and the verdicts (docs/results.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timebound.engine import disturbed, explain, figures, stages, tables
from timebound.engine.answers import without_channel
from timebound.engine.entry import Entry
from timebound.engine.methods import Figures, summary_of
from timebound.engine.notes import effort_notes, interrupted_notes, joined_notes
from timebound.engine.observed import beyond_declared
from timebound.engine.predict import Prediction
from timebound.scenario.draw import layout
from timebound.scenario.model import Scenario

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.measured import Measured
    from timebound.engine.simulate import Simulation

SCHEMA = 1
NO_PRECISION = {"verdict": "not-run", "reasons": []}


@dataclass(slots=True)
class Results:
    """What the verbs found; a verb that did not run is None."""

    prediction: Prediction
    simulation: Simulation | None = None
    measured: Measured | None = None
    figures: Figures | None = None
    """Of a method that was asked for beside the bound."""
    is_emulated: bool = False
    """Was an emulation asked for? Without `measured` it came to nothing then."""

    def is_excused(self) -> bool:
        """Did something other than our network decide about latencies, so that none above its bound is our defect: a real switch that left
        its declared range (the run is disturbed), or a controller that chose ways and classes?"""
        if self.prediction.plan.scenario.controller is not None:
            return True
        real = [] if self.measured is None else self.measured.live.get("switches", [])
        return any(switch["above"] or switch["below"] for switch in real)

    def is_kept(self) -> bool:
        """Did everybody send as declared, so that what was seen can happen to the network as declared?"""
        if self.measured is None or self.is_excused():
            return False
        streams = self.prediction.streams
        return all(
            not seen.retransmissions
            and not seen.larger
            and seen.beyond is None
            and (seen.jitter_ns is None or seen.jitter_ns <= streams[name].jitter_ns)
            for name, seen in self.measured.arrivals.items()
        )


def summarise(results: Results) -> dict[str, Any]:
    """The content of `summary.json`."""
    prediction, measured = results.prediction, results.measured
    plan = prediction.plan
    scenario = plan.scenario
    seen = (
        {}
        if measured is None
        else {name: found.jitter_ns for name, found in measured.arrivals.items() if found.jitter_ns is not None}
    )
    largest = {} if measured is None else {name: found.largest_wire for name, found in measured.arrivals.items()}
    beyond = {} if measured is None else beyond_declared(prediction.streams, measured.arrivals)
    observed = prediction.observed(seen, largest, beyond) if measured is not None else {}
    responses = prediction.servers.responses_for(observed) if observed else {}
    violations: list[dict[str, Any]] = []
    assumptions: list[dict[str, Any]] = []
    paths = prediction.network.paths()
    shortages = tables.shortages(prediction)
    methods = explain.by_method(prediction)
    messages = {} if measured is None else _by_pair(measured.messages)
    without = {} if measured is None else without_channel(measured.answers)
    is_kept = results.is_kept()
    exceeders = disturbed.exceeders(results, paths)
    flows = []
    for flow in scenario.flows:
        for receiver in flow.receivers:
            entry = Entry(results, flow, receiver, observed, paths, shortages, methods, violations, is_kept, exceeders)
            here = messages.get((flow.name, receiver))
            flows.append(entry.build(here))
            stage = stages.Stages(results, flow, receiver, observed, responses)
            flows[-1]["end_to_end_us"] = stage.build(here, assumptions)
            if flow.name in without:
                # Its messages were best effort: nothing was promised that could have been broken.
                violations[:] = [found for found in violations if found["flow"] != flow.name]
            flows[-1]["verdict"] = entry.verdict(flows[-1])
            if flow.name in without:
                lose_bound(flows[-1], without[flow.name])
    series: dict[str, Any] = {"time_s": [], "flows": {}, "links": {}, "events": _events(scenario, measured)}
    if measured is not None:
        series.update(figures.flow_series(measured, scenario.run.duration_ns))
        series["links"] = tables.link_series(measured, prediction, *figures.series_steps(scenario.run.duration_ns))
    nodes = [] if measured is None else tables.nodes(measured)
    precision = NO_PRECISION if measured is None else tables.precision(measured, flows, scenario.run.warm_up_ns)
    if why := disturbed.reasons(flows, nodes):
        precision = {**precision, "verdict": "disturbed", "reasons": [*precision["reasons"], *why]}
    positions = layout(scenario)
    simulation = results.simulation
    measured_notes = disturbed.notes(flows, by_machine=False)
    if measured is not None:
        measured_notes += [*measured.unseen, *measured.guesses.values()]
    interrupted = simulation.evaluations if simulation is not None and simulation.is_interrupted else None
    return {
        "schema": SCHEMA,
        "scenario": {
            "name": scenario.name,
            "description": scenario.description,
            "reading": scenario.reading,
            "seed": scenario.run.seed,
            "duration_s": scenario.run.duration_ns / 1e9,
            "warmup_s": scenario.run.warm_up_ns / 1e9,
            "stack": scenario.stack.kind,
            "notes": [
                *plan.notes,
                *effort_notes(prediction.looked_at),
                *joined_notes(flows),
                *disturbed.notes(flows, by_machine=True),
                *measured_notes,
                *interrupted_notes(interrupted),
                *dict.fromkeys(flow["risk"] for flow in flows if flow["risk"] is not None),
            ],
        },
        "topology": {
            "nodes": [
                {
                    "name": n.name,
                    "kind": n.kind,
                    "x": positions[n.name][0],
                    "y": positions[n.name][1],
                    "roles": plan.roles.get(n.name, []),
                }
                for n in scenario.nodes
            ],
            "links": [
                {"a": link.a, "b": link.b, "rate_bps": link.forward.rate_bps, "delay_ns": link.forward.delay_ns}
                for link in scenario.links
            ],
        },
        "ports": tables.ports(results),
        "flows": flows,
        "series": series,
        "nodes": nodes,
        "undeclared": [] if measured is None else measured.undeclared,
        "tcp": None if measured is None else tables.tcp(measured),
        "precision": precision,
        "data_plane": None if measured is None else measured.live.get("data_plane"),
        "switches": [] if measured is None else tables.switches(measured),
        "orders": [] if measured is None else measured.live.get("lifecycle", []),
        "verdict": overall(flows, precision, violations),
        "violations": violations,
        "measured_notes": measured_notes,
        "explained": explain.summary_of(prediction, flows),
        "brokers": stages.brokers(prediction),
        "assumptions": assumptions,
        "channels": [] if measured is None else measured.answers,
        **({} if prediction.looked_at is None else {"looked_at": prediction.looked_at}),
        **({} if interrupted is None else {"search_interrupted": interrupted}),
        **({} if results.figures is None else {"method": summary_of(results.figures, prediction)}),
    }


def lose_bound(entry: dict[str, Any], why: str) -> None:
    """The figures of a flow that had no channel: what was worked out for one does not hold, however well things went."""
    if entry["verdict"] == "met":
        entry["verdict"] = "unbounded"
        entry["decides"] = True
        entry["bound_us"]["reason"] = why


def overall(flows: list[dict[str, Any]], precision: dict[str, Any], violations: list[dict[str, Any]]) -> str:
    """The run's verdict: a broken bound first, then a disturbed machine, then missed requirements, then bounds that are missing where something is
    required. What nobody requires cannot be missed: a flow that does not decide has its own verdict, and the run is met beside it."""
    verdicts = Counter(flow["verdict"] for flow in flows if flow["decides"])
    if violations:
        return "violated"
    if precision["verdict"] == "disturbed":
        return "disturbed"
    for verdict in ("missed", "unbounded", "unsupported", "unmeasured"):
        if verdicts[verdict]:
            return "unbounded" if verdict == "unsupported" else verdict
    if flows and all(flow["verdict"] == "unmeasured" for flow in flows):
        return "unmeasured"
    return "met"


def _events(scenario: Scenario, measured: Measured | None) -> list[dict[str, Any]]:
    """Changes of link conditions and orders to nodes, on the time axis of the series (which starts after the warm-up)."""
    marks = {(event.at_ns, event.note): None for event in scenario.events if event.note is not None}
    for order in [] if measured is None else measured.live.get("lifecycle", []):
        told = f"node {order['node']}: {order['order']}, by {order['by']}"
        problem = f"; {order['problem']}" if order["problem"] else ""
        marks[order["asked_ns"], told + problem] = None
    return [{"time_s": (at_ns - scenario.run.warm_up_ns) / 1e9, "text": note} for at_ns, note in sorted(marks)]


def _by_pair(messages: pl.DataFrame) -> dict[tuple[str, str], pl.DataFrame]:
    pairs = messages.partition_by("flow", "receiver", as_dict=True)
    return {(str(key[0]), str(key[1])): frame for key, frame in pairs.items()}
