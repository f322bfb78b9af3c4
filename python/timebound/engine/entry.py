"""The entry of one flow at one receiver in `summary.json`: what was predicted, simulated and measured of it, segment by segment, and its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timebound.engine import disturbed, explain, figures, tables
from timebound.engine.endtoend import cut_by_orders
from timebound.engine.figures import micros
from timebound.engine.late import late_by, late_words
from timebound.engine.outcome import Outcome
from timebound.engine.predict import Prediction
from timebound.scenario.model import Flow
from timebound.stacks.hardware import external_nodes

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.summary import Results


@dataclass(slots=True)
class Entry:
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
            "programs": list(flow.programs),
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
        measured = self.results.measured
        if measured is None and self.results.is_emulated:
            return "unmeasured"
        if measured is not None and entry["received"] is None and not self._is_seen(entry):
            return "unmeasured"
        if is_owed and measured is not None and (self.flow.name, self.receiver) in measured.guesses:
            # Any of its messages may have been another one, late or lost.
            entry["decides"] = True
            return "unmeasured"
        if measured is not None and (self.flow.name, self.receiver) in measured.unread:
            entry["decides"] = entry["decides"] or is_owed
            return "unmeasured"
        return "met"


def _higher(segment: dict[str, Any]) -> float:
    """What a frame took at most, or could have taken by the arrivals that were seen."""
    return max(segment["worst_us"] or 0.0, segment["bound_observed_us"] or 0.0)


def _total(parts: Iterable[float | None]) -> float | None:
    """The sum, None where a part is missing (or there is none)."""
    known = list(parts)
    return None if not known or None in known else round(sum(part for part in known if part is not None), 3)


def _window(prediction: Prediction, stream: str) -> dict[str, Any] | None:
    """The rounds for which TCP's window holds a message's last segments back; they are part of the bound."""
    found = explain.window_of(prediction, stream)
    if found is None:
        return None
    spans = {f"{key}_us": micros(found[f"{key}_ns"]) for key in ("round", "wait")}
    return {"segments": found["segments"], "rounds": found["rounds"], **spans, "reason": found["reason"]}
