"""`summary.json`: prediction, simulation and measurement of every flow side by side, and the verdicts (docs/results.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timebound.engine import disturbed, explain, figures, stages, tables
from timebound.engine.answers import without_channel
from timebound.engine.endtoend import cut_by_orders
from timebound.engine.figures import micros
from timebound.engine.late import late_by, late_words
from timebound.engine.methods import Figures, summary_of
from timebound.engine.predict import Outcome, Prediction
from timebound.scenario.draw import layout
from timebound.scenario.model import Flow, Scenario
from timebound.stacks.hardware import external_nodes

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
    observed = prediction.observed(seen, largest) if measured is not None else {}
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
            entry = _Entry(results, flow, receiver, observed, paths, shortages, methods, violations, is_kept, exceeders)
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
                *disturbed.notes(flows),
                *([] if measured is None else [*measured.unseen, *measured.guesses.values()]),
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
        "explained": explain.summary_of(prediction, flows),
        "brokers": stages.brokers(prediction),
        "assumptions": assumptions,
        "channels": [] if measured is None else measured.answers,
        **({} if prediction.looked_at is None else {"looked_at": prediction.looked_at}),
        **({} if interrupted is None else {"search_interrupted": interrupted}),
        **({} if results.figures is None else {"method": summary_of(results.figures, prediction)}),
    }


def effort_notes(looked_at: dict[str, int] | None) -> list[str]:
    """What there is to say where the effort was not enough for all streams."""
    if looked_at is None:
        return []
    return [
        f"The effort was enough to look at several ports at once for {looked_at['streams']:,} of {looked_at['of']:,} streams, those with the least slack. "
        "The bounds of the others are safe, and may be lower with more: timebound predict --effort"
    ]


NAMED = 3
"""Streams that a note names."""


def joined_notes(flows: list[dict[str, Any]]) -> list[str]:
    """Which messages may leave in common segments, as the bounds of a summary assume."""
    found = {
        segment["stream"]: segment["joined"]
        for flow in flows
        for segment in flow["segments"]
        if segment["joined"] is not None
    }
    if not found:
        return []
    named = [
        f"{name} (may be joined: {joined['messages']} messages, {joined['frame_bytes']} bytes on the wire)"
        for name, joined in list(found.items())[:NAMED]
    ]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return [
        f"Messages whose jitter reaches their period may wait together and leave in one TCP segment, and bounds count on it: {', '.join(named)}{more}."
    ]


def interrupted_notes(evaluations: int | None) -> list[str]:
    """What there is to say where an interrupt ended the search for worst cases after so many evaluations."""
    if evaluations is None:
        return []
    return [
        f"The search for worst cases was interrupted after {evaluations:,} evaluations: what it had found is shown."
    ]


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


def _total(parts: Iterable[float | None]) -> float | None:
    """The sum, None where a part is missing (or there is none)."""
    known = list(parts)
    return None if not known or None in known else round(sum(part for part in known if part is not None), 3)


@dataclass(slots=True)
class _Entry:
    """Builds the entry of one flow at one receiver."""

    results: Results
    flow: Flow
    receiver: str
    observed: dict[tuple[str, str], Outcome]
    paths: dict[str, dict[str, list[str]]]
    shortages: dict[tuple[str, int], str]
    methods: explain.Methods
    violations: list[dict[str, Any]]
    is_kept: bool
    """See `Results.is_kept`."""
    exceeders: dict[str, list[dict[str, Any]]]
    """See `disturbed.exceeders`."""

    def build(self, messages: pl.DataFrame | None) -> dict[str, Any]:
        flow = self.flow
        segments = [self._segment(s, messages) for s in self.results.prediction.plan.segments[flow.name, self.receiver]]
        bound = self._bound(segments)
        simulated, worst = ([s[name] for s in segments] for name in ("simulated_max_us", "worst_found_us"))
        measured = self._measured(messages)
        if measured["latency_us"] is None and len(segments) == 1:
            measured["latency_us"] = segments[0]["latency_us"]
        entry = {
            "flow": flow.name,
            "receiver": self.receiver,
            "topic": flow.topic,
            "priority": flow.priority,
            "qos": flow.qos,
            "size_bytes": flow.size_bytes,
            "period_us": micros(flow.period_ns),
            "jitter_us": micros(flow.jitter_ns),
            **measured,
            "simulated_max_us": None if None in simulated else round(sum(simulated), 3),
            "worst_found_us": None if None in worst else round(sum(worst), 3),
            "bound_us": bound,
            "tightness": tables.tightness([s["bound_us"] for s in segments], worst),
            "best_us": _total(segment["best_us"] for segment in segments),
            "segments": segments,
            "deadline_us": micros(flow.deadline_ns),
            "decides": flow.deadline_ns is not None,
        }
        self._name_exceeders(entry)
        entry["risk"] = self._risk(segments) or self._unsent()
        entry["distribution"] = self._distribution(messages)
        return entry

    def _name_exceeders(self, entry: dict[str, Any]) -> None:
        """Who exceeded his declaration, where the network took longer than the bound for what is declared, or might have."""
        over = [s for s in entry["segments"] if s["bound_us"] and _higher(s) > s["bound_us"]]
        late = entry["late_by"] or {}
        entry["exceeded_by"] = []
        if over or late.get("arrivals"):
            ports = {port for segment in over or entry["segments"] for port in segment["path"]}
            entry["exceeded_by"] = disturbed.named(self.exceeders, ports)
        if late.get("arrivals") and entry["exceeded_by"]:
            entry["late_reason"] += f"; {disturbed.exceeded_words(entry['exceeded_by'])}"

    def _segment(self, segment: Any, messages: pl.DataFrame | None) -> dict[str, Any]:
        prediction, measured, simulation = self.results.prediction, self.results.measured, self.results.simulation
        declared = prediction.segment(segment)
        stream = prediction.streams[segment.stream]
        key = (segment.stream, segment.destination)
        seen = self.observed.get(key)
        arrivals = None if measured is None else measured.arrivals.get(segment.stream)
        worst = None if measured is None else measured.worst_ns.get(key)
        simulated = None if simulation is None else simulation.worst_ns.get(key)
        jitter = None if arrivals is None else arrivals.jitter_ns
        # Where sources did not keep what they declare, more can be seen than ever happens to those who do.
        found = simulated if simulated is None or worst is None or not self.is_kept else max(simulated, worst)
        judged = not self.results.is_excused()
        if judged and worst is not None and seen is not None and seen.actual_ns is not None and worst > seen.actual_ns:
            self._violation(segment, "measured", worst, seen.actual_ns)
        if simulated is not None and declared.actual_ns is not None and simulated > declared.actual_ns:
            self._violation(segment, "simulated", simulated, declared.actual_ns)
        return {
            "name": segment.name,
            "stream": segment.stream,
            "source": segment.source,
            "destination": segment.destination,
            "latency_us": tables.segment_latency(measured, key),
            "worst_us": micros(worst),
            "simulated_max_us": micros(simulated),
            "worst_found_us": micros(found),
            "bound_us": micros(declared.actual_ns),
            "tightness": tables.tightness([micros(declared.actual_ns)], [micros(found)]),
            **{f"{method}_us": micros(bounds[key]) for method, bounds in self.methods.items()},
            "best_us": micros(declared.whole_ns),
            "bound_observed_us": None if seen is None else micros(seen.actual_ns),
            "declared_jitter_us": micros(stream.jitter_ns) if stream.period_ns is not None else None,
            "observed_jitter_us": micros(jitter),
            "kept": None if jitter is None or stream.period_ns is None else jitter <= stream.jitter_ns,
            "window": _window(self.results.prediction, segment.stream),
            "joined": explain.joined_of(self.results.prediction, segment.stream),
            "reason": declared.reason,
            "path": self.paths.get(segment.stream, {}).get(segment.destination, []),
        }

    def _violation(self, segment: Any, what: str, value: int, bound: int) -> None:
        text = (
            f"{what} network latency {value / 1000:.3f} us of {segment.stream} at {segment.destination} exceeds its bound "
            f"{bound / 1000:.3f} us"
        )
        self.violations.append({"flow": self.flow.name, "receiver": self.receiver, "text": text})

    def _is_seen(self, entry: dict[str, Any]) -> bool:
        """Of a device or a virtual machine we know what crossed the network, and no more."""
        external = external_nodes(self.results.prediction.plan)
        ends = {self.flow.source, self.receiver, *(service.broker for service in self.flow.services)}
        remote = self.results.prediction.plan.remote
        here = [segment for segment in entry["segments"] if segment["destination"] not in remote]
        return bool(ends & external) and all(segment["worst_us"] is not None for segment in here)

    def _unsent(self) -> str | None:
        """What the publisher should have sent and could not: nothing of it is late or lost, and no requirement is met."""
        measured = self.results.measured
        count = 0 if measured is None else measured.unsent(self.results.prediction.plan)[self.flow.name]
        if not count or (self.flow.deadline_ns is None and self.flow.qos == 0):
            return None
        return f"{count} messages were not sent, as their publisher had no connection to send them on"

    def _risk(self, segments: list[dict[str, Any]]) -> str | None:
        """Why messages can be lost although the network loses none: a queue without enough room on the way."""
        for segment in segments:
            for port in segment["path"]:
                reason = self.shortages.get((port, self.flow.priority))
                if reason is not None:
                    return reason
        return None

    def _bound(self, segments: list[dict[str, Any]]) -> dict[str, Any]:
        reasons = [s["reason"] for s in segments if s["reason"] is not None]
        # Orders to its own hosts are nearer than those to others whose frames it meets.
        if (own := cut_by_orders(self.results.prediction, self.flow, self.receiver)) is not None:
            reasons.insert(0, own)
        total = None if reasons else round(sum(s["bound_us"] for s in segments), 3)
        seen = [s["bound_observed_us"] for s in segments]
        return {
            **{method: _total(segment[f"{method}_us"] for segment in segments) for method in self.methods},
            "bound": total,
            "observed_arrivals": None if reasons or None in seen else round(sum(seen), 3),
            "reason": reasons[0] if reasons else None,
        }

    def _measured(self, messages: pl.DataFrame | None) -> dict[str, Any]:
        names = ("sent", "received", "lost", "late", "duplicates", "reordered", "latency_us", "application_us")
        if messages is None or messages.is_empty():
            return {**dict.fromkeys(names), "late_by": None, "late_reason": None, "shares_us": None}
        outcomes = Counter(messages["outcome"].to_list())
        received = messages["received_ns"].drop_nulls().len()
        late = late_by(messages) if outcomes["late"] else {}
        return {
            "sent": messages.height,
            "received": received,
            "lost": messages.height - received,
            "late": outcomes["late"],
            "late_by": late or None,
            "late_reason": late_words(late) or None,
            "duplicates": int((messages["copies"].clip(1) - 1).sum()),
            "reordered": int(messages["overtaken"].sum()),
            "latency_us": figures.spread(messages["network_ns"]),
            "application_us": figures.spread(messages["received_ns"] - messages["sent_ns"]),
            "shares_us": {
                share: figures.middle_and_top(messages[f"{share}_ns"]) for share in ("network", "broker", "host")
            },
        }

    def _distribution(self, messages: pl.DataFrame | None) -> dict[str, Any]:
        simulation = self.results.simulation
        simulated = None
        parts = self.results.prediction.plan.segments[self.flow.name, self.receiver]
        if simulation is not None and len(parts) == 1:
            simulated = simulation.quantiles_us.get((parts[0].stream, parts[0].destination))
        elif simulation is not None and parts:
            # The segments are simulated as streams of their own, so only the quantiles of each are known, not of the sum:
            # adding equal quantiles gives the distribution for segments that are slow together.
            each = [simulation.quantiles_us.get((p.stream, p.destination)) for p in parts]
            if all(one is not None for one in each):
                simulated = [round(sum(values), 3) for values in zip(*(one for one in each if one), strict=True)]
        return {
            "network_us": None if messages is None else figures.quantiles(messages["network_ns"]),
            "application_us": None
            if messages is None
            else figures.quantiles(messages["received_ns"] - messages["sent_ns"]),
            "simulated_us": simulated,
        }

    def verdict(self, entry: dict[str, Any]) -> str:
        kinds = {
            self.results.prediction.segment(s).kind
            for s in self.results.prediction.plan.segments[self.flow.name, self.receiver]
        }
        if any(v["flow"] == self.flow.name and v["receiver"] == self.receiver for v in self.violations):
            return "violated"
        deadline = entry["deadline_us"]
        # A requirement that does not exist cannot be missed: best effort may be late, be lost, and find queues full.
        is_owed = deadline is not None or self.flow.qos > 0
        lost = is_owed and ((entry["lost"] or 0) > 0 or entry["risk"] is not None)
        whole = entry["end_to_end_us"]["bound"]
        too_long = deadline is not None and whole is not None and whole > deadline
        late = entry["late"] or 0
        if late > disturbed.by_machine(entry) or lost or too_long:
            entry["decides"] = True
            return "missed"
        if late:
            return "disturbed"
        if "no-finite-bound" in kinds:
            return "unbounded"
        if "unsupported" in kinds:
            return "unsupported"
        if entry["end_to_end_us"]["bound"] is None:
            return "unbounded"
        if self.results.measured is not None and entry["received"] is None and not self._is_seen(entry):
            return "unmeasured"
        measured = self.results.measured
        if is_owed and measured is not None and (self.flow.name, self.receiver) in measured.guesses:
            # Any of its messages may have been another one, late or lost.
            entry["decides"] = True
            return "unmeasured"
        return "met"


def _higher(segment: dict[str, Any]) -> float:
    """What a frame took at most, or could have taken by the arrivals that were seen."""
    return max(segment["worst_us"] or 0.0, segment["bound_observed_us"] or 0.0)


def _window(prediction: Prediction, stream: str) -> dict[str, Any] | None:
    """The rounds for which TCP's window holds a message's last segments back; they are part of the bound."""
    found = explain.window_of(prediction, stream)
    if found is None:
        return None
    spans = {f"{key}_us": micros(found[f"{key}_ns"]) for key in ("round", "wait")}
    return {"segments": found["segments"], "rounds": found["rounds"], **spans, "reason": found["reason"]}
