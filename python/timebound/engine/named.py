"""Reasons in the words of a scenario: streams, which are ours to name, as what they carry and between whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from timebound.stacks import Plan, Stream

if TYPE_CHECKING:
    from timebound.engine.outcome import Outcome

_STREAM = re.compile(r'stream "([^"]+)"')
"""As the core and the prediction name one."""


@dataclass(slots=True)
class Named:
    """The streams of a plan, for readers."""

    plan: Plan
    streams: Mapping[str, Stream]

    def text(self, reason: str | None) -> str | None:
        """The reason with every stream as what it is."""
        return None if reason is None else _STREAM.sub(lambda found: self.stream(found.group(1)), reason)

    def outcomes(self, outcomes: Mapping[tuple[str, str], Outcome]) -> dict[tuple[str, str], Outcome]:
        return {
            key: outcome if outcome.reason is None else replace(outcome, reason=self.text(outcome.reason))
            for key, outcome in outcomes.items()
        }

    def ports(self, ports: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ports of an analysis, with the reasons of their classes."""
        return [self._port(port) for port in ports]

    def _port(self, port: dict[str, Any]) -> dict[str, Any]:
        found = dict(port)
        if port.get("reason") is not None:
            found["reason"] = self.text(port["reason"])
        if "classes" in port:
            found["classes"] = [{**each, "reason": self.text(each.get("reason"))} for each in port["classes"]]
        return found

    def stream(self, name: str) -> str:
        """What a stream carries, for whom, from where to where."""
        stream = self.streams.get(name)
        if stream is None:
            return f'stream "{name}"'
        ends = f"from {stream.source} to {_listed(stream.destinations)}"
        found = re.match(r"(flows|background)\[(\d+)\]", self.plan.origins.get(name, ""))
        if found is None:
            return f"the traffic {ends}"
        if found.group(1) == "background":
            return f"background {self.plan.scenario.background[int(found.group(2))].name} ({ends})"
        if getattr(self.plan.scenario.stack, "connections", "per-flow") == "per-node":
            return f"the shared connection {ends}"
        return f"flow {self.plan.scenario.flows[int(found.group(2))].name} ({_carried(stream)} {ends})"


def _carried(stream: Stream) -> str:
    if stream.role == "data":
        return "messages"
    if stream.role == "ack":
        return "TCP's acknowledgements"
    last = stream.name.rsplit("/", 1)[-1]
    if last.startswith("pub"):
        return last.upper()
    return "keep-alives" if last.startswith("keep-alive") else "joining" if last.startswith("join") else "answers"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
