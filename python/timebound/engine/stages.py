"""The broker as a stage in `summary.json`: `end_to_end_us` of every flow, `brokers`, and assumptions that a run found broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timebound.engine.endtoend import EndToEnd, Part, end_to_end, least_worst
from timebound.engine.figures import micros
from timebound.engine.outcome import Outcome
from timebound.engine.predict import Prediction
from timebound.engine.servers import Response
from timebound.scenario.model import Flow
from timebound.scenario.model_broker import BrokerService

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.summary import Results


@dataclass(slots=True)
class Stages:
    """Builds `end_to_end_us` of one flow at one receiver; see docs/results.md."""

    results: Results
    flow: Flow
    receiver: str
    observed: Mapping[tuple[str, str], Outcome]
    responses: Mapping[str, Response]
    """Of the brokers, for the arrivals that were observed."""

    def build(self, messages: pl.DataFrame | None, assumptions: list[dict[str, Any]]) -> dict[str, Any]:
        """The entry; what a run found to take longer than assumed is added to `assumptions`."""
        prediction, simulation = self.results.prediction, self.results.simulation
        whole = end_to_end(prediction, self.flow, self.receiver)
        seen = self._seen()
        parts = [
            {
                "kind": part.stage.kind,
                "name": part.stage.name,
                "bound": micros(part.bound_ns) if part.known else None,
                "known": part.known,
                "reason": part.reason,
            }
            for part in whole.parts
        ]
        measured = self._measured(messages, whole, seen, assumptions)
        known = None if simulation is None else least_worst(prediction, self.flow, self.receiver, simulation.worst_ns)
        return {
            "bound": micros(whole.bound_ns),
            "observed_arrivals": None if seen is None else micros(seen.bound_ns),
            "from_actual": {"bound": micros(whole.actual_ns), "simulated": micros(known)},
            "reason": whole.reason,
            "covers": whole.covers,
            "statement": whole.statement,
            "parts": parts,
            "measured": measured,
        }

    def _seen(self) -> EndToEnd | None:
        if not self.observed:
            return None
        return end_to_end(self.results.prediction, self.flow, self.receiver, self.observed, self.responses)

    def _measured(
        self,
        messages: pl.DataFrame | None,
        whole: EndToEnd,
        seen: EndToEnd | None,
        assumptions: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Every broker on the way: its measured time to the last frame of the message, beside what was assumed."""
        if messages is None or seen is None:
            return []
        times = messages["stages_ns"].drop_nulls().to_list()
        found = []
        for place, (declared, here) in enumerate(zip(whole.between(), seen.between(), strict=True)):
            spans = [spans[place] for spans in times if len(spans) > place]
            if not spans:
                continue
            broker = next(part.stage.name for part in declared if part.stage.kind == "broker")
            limit = _limit(here)
            entry = {
                "broker": broker,
                "count": len(spans),
                "max": micros(max(spans)),
                "bound": micros(_limit(declared)),
                "bound_observed": micros(limit),
            }
            found.append(entry)
            over = [span for span in spans if limit is not None and span > limit]
            if over and limit is not None:
                assumptions.append(self._broken(broker, over, len(spans), limit))
        return found

    def _broken(self, broker: str, over: list[int], count: int, limit: int) -> dict[str, Any]:
        service = self.results.prediction.servers.services[broker]
        measured = self.results.measured
        disturbed = measured is not None and measured.live["precision"]["verdict"] == "disturbed"
        what = (
            "the declared service time does not hold on this machine"
            if service.measured is None
            else "the profile does not hold on this machine"
        )
        text = (
            f"broker {broker} took up to {max(over) / 1000:.3f} us over {self.flow.name} to {self.receiver}, and {limit / 1000:.3f} us were "
            f"assumed ({len(over)} of {count} messages took longer): {what}"
            + (", which was disturbed during the run" if disturbed else "")
        )
        return {"flow": self.flow.name, "receiver": self.receiver, "broker": broker, "text": text}


def _limit(parts: list[Part]) -> int | None:
    """What lies between two segments, where all of it is known."""
    spans = [part.bound_ns if part.known else None for part in parts]
    return None if not spans or None in spans else sum(span for span in spans if span is not None)


def brokers(prediction: Prediction) -> list[dict[str, Any]]:
    """The brokers whose service times are known: what was assumed, load and response time."""
    servers = prediction.servers
    return [
        {
            "broker": name,
            "utilisation": response.utilisation,
            "response_us": micros(response.span_ns),
            "reason": response.reason,
            "packets": len(servers.of_broker[name]),
            "service": _service(servers.services[name]),
        }
        for name, response in servers.responses.items()
    ]


def _service(service: BrokerService) -> dict[str, Any]:
    measured = service.measured
    return {
        "latency_us": micros(service.latency_ns),
        "per_message_us": micros(service.message_ns),
        "per_copy_us": micros(service.copy_ns),
        "per_byte_ns": service.byte_ps / 1000,
        "per_acknowledgement_us": micros(service.acknowledgement_ns),
        "profile": None
        if measured is None
        else {
            "file": measured.file,
            "program": measured.program,
            "measured": measured.measured,
            "messages": measured.messages,
            "disturbed": measured.disturbed,
        },
    }
