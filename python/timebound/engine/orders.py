"""Hosts that are stopped or paused by schedule (`at: {5 s: {node h1: stop}}`), and what can no longer be promised of their frames.

Bounds are about messages that are sent as declared, between hosts that answer. A host that is stopped receives nothing and forwards nothing, and
over TCP its peers connect anew, in vain; one that comes back sends what has waited for it, all at once, and so do its peers. So:

- what goes to a host with any order, or by way of it, has no bound;
- what comes from or goes to a host that is paused or comes back (start, restart, resume), or over TCP is stopped, declares no arrivals: it has no
  bound, and neither has what meets it and is not more urgent;
- a host that sends datagrams and is only stopped sends no more than declared: its frames keep their bounds, and so do those that meet them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from timebound.scenario.model import MqttStack, Scenario
from timebound.scenario.units import format_time
from timebound.stacks import Stream


@dataclass(frozen=True, slots=True)
class Orders:
    """What the schedule of a scenario orders its hosts."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Host -> why nothing that goes to it, or by way of it, has a bound."""
    unsteady: frozenset[str] = frozenset()
    """Those of them whose frames do not come as declared."""

    @classmethod
    def of(cls, scenario: Scenario) -> Orders:
        """The orders of a scenario; its first one names a host's reason."""
        reasons: dict[str, str] = {}
        for event in scenario.node_events:
            told = f"host {event.node} is told to {event.order} at {format_time(event.at_ns)} (at:)"
            reasons.setdefault(event.node, told)
        by_tcp = isinstance(scenario.stack, MqttStack)
        unsteady = frozenset(event.node for event in scenario.node_events if by_tcp or event.order != "stop")
        return cls(reasons, unsteady)

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def upset(self, stream: Stream) -> str | None:
        """Why the frames of this stream do not come as declared; `None` if they do."""
        ends = (stream.source, *stream.destinations)
        return next((self.reasons[end] for end in ends if end in self.unsteady), None)

    def cut(self, source: str, others: Collection[str]) -> str | None:
        """Why there is no bound for what `source` sends to, or by way of, the others; `None` if orders leave it."""
        if source in self.unsteady:
            return self.reasons[source]
        return next((self.reasons[other] for other in others if other in self.reasons), None)
