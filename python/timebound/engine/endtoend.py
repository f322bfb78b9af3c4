"""One figure per flow and receiver: from the nominal release to the last frame at the receiver, over every part of the way.

The first segment's bound counts from the nominal release; the broker's response from the arrival of the message's last frame to the last
frame of its last copy; every further segment from the frame's actual release there, which the response covers. So the sum is an
upper limit, and it is what a deadline is compared with. What it rests on is said beside it: a declared service time is an assumption like a
declared period, a measured one (a profile) is the largest of so many, which nothing guarantees, and without either it leaves the broker's
own time out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from timebound.engine.servers import Response
from timebound.scenario.model import Flow
from timebound.scenario.model_broker import BrokerService
from timebound.stacks.stages import Crossing, Slowest, Stage, Step, Waiting, Working

if TYPE_CHECKING:
    from timebound.engine.outcome import Outcome
from timebound.engine.predict import Prediction

Covers = Literal["everything", "declared", "measured", "network"]
"""What the figure holds with: no broker on the way; declared service times; a measured one among them; none for some broker."""


@dataclass(frozen=True, slots=True)
class StepBound:
    """One step of a stage; `bound_ns` is None where it has no bound, or where nothing is known of a broker."""

    kind: Literal["network", "window", "broker", "host"]
    name: str
    """The stream and where it goes, TCP's window and its rounds, the broker's node, or empty."""
    bound_ns: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """One stage with its share of the bound; None with a reason where it has none, 0 for a broker of which nothing is known."""

    stage: Stage
    bound_ns: int | None
    reason: str | None
    known: bool = True
    steps: tuple[StepBound, ...] = ()


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The whole way."""

    parts: tuple[Part, ...]
    covers: Covers
    statement: str
    jitter_ns: int = 0
    """How much of the bound is release jitter: the time between the nominal and the actual release."""

    @property
    def bound_ns(self) -> int | None:
        """From the nominal release; None where a part has no bound."""
        total = 0
        for part in self.parts:
            if part.bound_ns is None:
                return None
            total += part.bound_ns
        return total

    @property
    def actual_ns(self) -> int | None:
        """From the actual release, as what is simulated and measured counts; None where a part has no bound."""
        return None if self.bound_ns is None else self.bound_ns - self.jitter_ns

    @property
    def reason(self) -> str | None:
        """Why there is no bound: the first part's reason."""
        return next((part.reason for part in self.parts if part.reason is not None), None)

    def between(self) -> list[list[Part]]:
        """What lies between one network segment and the next: the times that a run measures at each broker."""
        groups: list[list[Part]] = []
        for part in self.parts:
            if part.stage.kind == "network":
                groups.append([])
            elif groups:
                groups[-1].append(part)
        return groups[:-1] if groups else []


def end_to_end(
    prediction: Prediction,
    flow: Flow,
    receiver: str,
    outcomes: Mapping[tuple[str, str], Outcome] | None = None,
    responses: Mapping[str, Response] | None = None,
) -> EndToEnd:
    """The bound of a flow's whole way, for the declared arrivals or for others (`outcomes` with their `responses`)."""
    outcomes = prediction.outcomes if outcomes is None else outcomes
    responses = prediction.servers.responses if responses is None else responses
    parts: list[Part] = []
    begun, jitter = False, 0
    for stage in prediction.plan.ways[flow.name, receiver]:
        total, reason, known = 0, None, True
        steps: list[StepBound] = []
        for step in stage.steps:
            span: int | None
            match step:
                case Slowest(branches):
                    spans = [waited(branch, outcomes, responses) for branch in branches]
                    span = None if None in spans else max((span for span in spans if span is not None), default=0)
                    steps.append(StepBound("network", "the slowest of several", span))
                case Crossing(stream, destination):
                    outcome = outcomes[stream, destination]
                    span = outcome.actual_ns if begun else outcome.nominal_ns
                    if not begun and outcome.nominal_ns is not None and outcome.actual_ns is not None:
                        jitter = outcome.nominal_ns - outcome.actual_ns
                    rounds = prediction.windows.rounds.get(stream)
                    if span is not None and rounds is not None and rounds.wait_ns:
                        steps.append(StepBound("network", f"{stream} to {destination}", span - rounds.wait_ns))
                        steps.append(StepBound("window", f"{rounds.text}; {rounds.reason}", rounds.wait_ns))
                    else:
                        steps.append(StepBound("network", f"{stream} to {destination}", span))
                    reason = reason or outcome.reason
                case Waiting(span_ns):
                    span = span_ns
                    steps.append(StepBound("host", "", span))
                case Working(broker, None):
                    span, known = 0, False
                    steps.append(StepBound("broker", broker, None))
                case Working(broker, _):
                    span = responses[broker].span_ns
                    reason = reason or responses[broker].reason
                    steps.append(StepBound("broker", broker, span))
            begun = True
            total += span or 0
            if span is None:
                reason = reason or "it has no finite bound"
        parts.append(Part(stage, total if reason is None else None, reason, known, tuple(steps)))
    ordered = cut_by_orders(prediction, flow, receiver)
    if parts and ordered is not None:
        parts[0] = replace(parts[0], bound_ns=None, reason=ordered)
    covers, statement = _basis(prediction, flow, receiver)
    return EndToEnd(tuple(parts), covers, statement, jitter)


def cut_by_orders(prediction: Prediction, flow: Flow, receiver: str) -> str | None:
    """Why orders to the hosts of a flow's own way leave it no bound; `None` if they do not."""
    if not prediction.orders:
        return None
    steps = (step for stage in prediction.plan.ways[flow.name, receiver] for step in stage.steps)
    brokers = dict.fromkeys(step.broker for step in steps if isinstance(step, Working))
    return prediction.orders.cut(flow.source, [receiver, *brokers])


def waited(
    steps: tuple[Step, ...], outcomes: Mapping[tuple[str, str], Outcome], responses: Mapping[str, Response]
) -> int | None:
    """Steps one after the other, somewhere behind the first segment; `None`: one has no bound. Of brokers of which nothing is known nothing is counted."""
    total = 0
    for step in steps:
        span: int | None = 0
        match step:
            case Crossing(stream, destination):
                span = outcomes[stream, destination].actual_ns
            case Waiting(span_ns):
                span = span_ns
            case Working(broker, packet) if packet is not None:
                span = responses[broker].span_ns
            case Slowest(branches):
                spans = [waited(branch, outcomes, responses) for branch in branches]
                span = None if None in spans else max((span for span in spans if span is not None), default=0)
        if span is None:
            return None
        total += span
    return total


def least_worst(
    prediction: Prediction, flow: Flow, receiver: str, worst_ns: Mapping[tuple[str, str], int]
) -> int | None:
    """What is known to be reachable: the worst simulated of each segment, and brokers that do nothing else. None where a segment was not
    simulated. From the actual release: `EndToEnd.actual_ns` is the bound for it."""
    total = 0
    for stage in prediction.plan.ways[flow.name, receiver]:
        for step in stage.steps:
            if isinstance(step, Crossing):
                found = worst_ns.get((step.stream, step.destination))
                if found is None:
                    return None
                total += found
            elif isinstance(step, Working) and step.packet is not None:
                packet = prediction.plan.packets[step.packet]
                total += prediction.servers.services[packet.broker].latency_ns + packet.work_ns
    return total


def _basis(prediction: Prediction, flow: Flow, receiver: str) -> tuple[Covers, str]:
    way = prediction.plan.ways[flow.name, receiver]
    steps = [step for stage in way for step in stage.steps if isinstance(step, Working)]
    brokers = {step.broker: step.packet is not None for step in steps}
    if not brokers:
        return "everything", "from the nominal release to the last frame at the receiver"
    said: list[str] = []
    services = prediction.servers.services
    unknown = [name for name, known in brokers.items() if not known]
    measured = [name for name, known in brokers.items() if known and services[name].measured is not None]
    declared = [name for name, known in brokers.items() if known and services[name].measured is None]
    if unknown:
        said.append(f"without the own time of broker {', '.join(unknown)}: neither profile nor declared service time")
    said += [f"with the measured service time of {_profile(name, services[name])}" for name in measured]
    if measured:
        said.append("measured, not guaranteed")
    if declared:
        said.append(f"with the declared service time of broker {', '.join(declared)}")
    said += [text for name in measured if (text := _beyond(services[name], flow, _copies(flow, name))) is not None]
    if any(stage.kind == "handshake" for stage in way):
        said.append("clients answer within 1 ms, as declared")
    if any(stage.kind == "hold" for stage in way):
        said.append("TCP holds a message of a bridge back for up to 50 ms (Nagle's algorithm), as declared")
    return ("network" if unknown else "measured" if measured else "declared"), "; ".join(said)


def _profile(name: str, service: BrokerService) -> str:
    source = service.measured
    assert source is not None
    disturbed = ", on a machine that was disturbed" if source.disturbed else ""
    return (
        f"broker {name} (profile {Path(source.file).name}, {source.program}, {source.measured[:10]}, "
        f"max of {source.messages} messages{disturbed})"
    )


def _copies(flow: Flow, broker: str) -> int:
    return next((len(service.receivers) for service in flow.services if service.broker == broker), 1)


def _beyond(service: BrokerService, flow: Flow, copies: int) -> str | None:
    """Where a flow asks for more than was measured."""
    source = service.measured
    assert source is not None
    found = []
    if flow.size_bytes > source.largest_bytes:
        found.append(f"{flow.size_bytes} bytes (measured up to {source.largest_bytes})")
    if copies > source.largest_fan_out:
        found.append(f"{copies} receivers (measured up to {source.largest_fan_out})")
    if flow.qos not in source.qos:
        found.append(f"QoS {flow.qos} (not measured)")
    return f"extrapolated to {', '.join(found)}" if found else None
