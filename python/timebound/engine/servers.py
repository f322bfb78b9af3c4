"""Brokers as stages of the prediction: each is a first-in-first-out server over all packets that reach it.

A packet of several frames is there with its last one, which is what the outcome of a stream is about. The response time counts from
then to the last frame of the last copy: `latency` and the worst that the server can be busy (`timebound_bounds::server`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from timebound import _core
from timebound.scenario.model import MqttStack
from timebound.scenario.model_broker import BrokerService
from timebound.stacks import Plan
from timebound.stacks.stages import Packet

if TYPE_CHECKING:
    from timebound.engine.named import Named
    from timebound.engine.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Response:
    """How long a packet stays in a broker at most; `span_ns` is None with a reason where there is no bound."""

    span_ns: int | None = None
    utilisation: float | None = None
    reason: str | None = None


class Servers:
    """The brokers of a plan whose service times are known."""

    def __init__(self, plan: Plan) -> None:
        self.packets = plan.packets
        self.services: dict[str, BrokerService] = {}
        if isinstance(plan.scenario.stack, MqttStack):
            used = {packet.broker for packet in plan.packets.values()}
            self.services = {
                broker.node: broker.service
                for broker in plan.scenario.stack.brokers
                if broker.service is not None and broker.node in used
            }
        self.of_broker: dict[str, list[Packet]] = {name: [] for name in self.services}
        for packet in plan.packets.values():
            self.of_broker[packet.broker].append(packet)
        self.responses = {name: Response(0) for name in self.services}
        self._asked: dict[str, tuple[tuple[int, int, int], ...]] = {}

    def update(self, outcomes: Mapping[tuple[str, str], Outcome]) -> list[str]:
        """The response times for these arrivals and the last responses; the brokers whose response became longer.

        Starting from the shortest arrivals and calling this until nothing changes gives the least fixed point: more jitter never
        shortens a response, and a longer response never lessens a jitter.
        """
        longer = []
        self.responses = dict(self.responses)
        for broker, packets in self.of_broker.items():
            before = self.responses[broker]
            if before.span_ns is None:
                continue
            found = self._respond(broker, packets, outcomes)
            if found.span_ns is None or found.span_ns > before.span_ns:
                longer.append(broker)
            # What was reached stays: jitters are never taken back.
            if found.span_ns is None or found.span_ns >= before.span_ns:
                self.responses[broker] = found
        return longer

    def copy(self) -> Servers:
        """The same brokers with the same response times, to go on from by themselves."""
        found = copy(self)
        found.responses, found._asked = dict(self.responses), dict(self._asked)
        return found

    def responses_for(self, outcomes: Mapping[tuple[str, str], Outcome]) -> dict[str, Response]:
        """The response times for other arrivals, such as those that were observed; what was settled stays."""
        settled, asked = dict(self.responses), dict(self._asked)
        self.update(outcomes)
        found, self.responses, self._asked = self.responses, settled, asked
        return found

    def fail(self, broker: str, reason: str) -> None:
        """No response time of this broker can be given."""
        self.responses[broker] = Response(reason=reason)

    def name(self, named: Named) -> None:
        """Gives reasons in the words of the scenario: what is known is no longer worked with."""
        self.responses = {
            broker: replace(response, reason=named.text(response.reason)) for broker, response in self.responses.items()
        }

    def jitter(self, packet: Packet, outcomes: Mapping[tuple[str, str], Outcome]) -> int | None:
        """How much later than its nominal time a packet can arrive at its broker; None without a bound."""
        if packet.period_ns is None:
            return None
        if packet.stream is None:
            if packet.after is None:
                return packet.extra_ns
            before = self.packets[packet.after]
            jitter, response = self.jitter(before, outcomes), self.responses[before.broker].span_ns
            return None if jitter is None or response is None else jitter + response + packet.extra_ns
        outcome = outcomes[packet.stream, packet.broker]
        if outcome.nominal_ns is None or outcome.best_ns is None:
            return None
        return outcome.nominal_ns - outcome.best_ns

    def _respond(self, broker: str, packets: list[Packet], outcomes: Mapping[tuple[str, str], Outcome]) -> Response:
        jobs = []
        for packet in packets:
            jitter = self.jitter(packet, outcomes)
            if jitter is None or packet.period_ns is None:
                return Response(reason=_unbounded(packet, outcomes))
            jobs.append((packet.period_ns, jitter, packet.work_ns))
        asked = tuple(sorted(jobs))
        if asked == self._asked.get(broker):
            return self.responses[broker]
        self._asked[broker] = asked
        names = ("period_ns", "jitter_ns", "work_ns")
        answer = json.loads(_core.server(json.dumps([dict(zip(names, job, strict=True)) for job in jobs])))
        if answer["kind"] == "response":
            span = answer["response_ns"] + self.services[broker].latency_ns
            return Response(span, answer["utilisation"]["value"])
        if answer["kind"] == "overloaded":
            load = answer["utilisation"]["value"]
            reason = f"broker {broker} needs {load:.4g} s of work in every second: no finite response time"
            return Response(utilisation=load, reason=reason)
        return Response(reason=f"response times of broker {broker} exceed what the analysis covers (31 years)")


def _unbounded(packet: Packet, outcomes: Mapping[tuple[str, str], Outcome]) -> str:
    """Why nothing is known of when a packet arrives, and so nothing of when the broker is done with any."""
    outcome = None if packet.stream is None else outcomes[packet.stream, packet.broker]
    why = "" if outcome is None or outcome.reason is None else f": {outcome.reason}"
    what = f"a client of {packet.flow} on its host" if packet.stream is None else f'stream "{packet.stream}"'
    return f"broker {packet.broker} is reached by {what}, which has no bound there{why}"
