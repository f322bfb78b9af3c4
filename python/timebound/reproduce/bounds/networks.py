"""The paper's networks as declarations: three loads, two readings, multicast from each publisher to the brokers of all edge networks.

Topology, periods, jitters and priorities are those of the built-in scenario `edge-networks` (its README says what the paper states
and what we assume). There plain MQTT sends a copy to each broker; here one stream branches on the way, as in MRT-MQTT, and only the way up to the
brokers is looked at, as in the paper. What is not time-sensitive is one full frame of best effort at every port, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timebound.scenario import load as load_scenario
from timebound.scenario.builtin import find
from timebound.scenario.framing import ETHERNET
from timebound.scenario.model import Scenario

LOADS = {"low": 20, "medium": 40, "high": 60}
"""Name -> publishers per publishing host."""

READINGS = {
    "topics-of-a": "the two topics of network A alone, as evaluated in the paper's figures",
    "all": "two topics of each network, all six wanted in all three, as the paper's text says",
}

FRAME_BYTES = ETHERNET.full
"""On the wire: 1500 bytes of payload, 123.04 us at 100 Mbit/s."""

BROKERS = {"h5": "L_AA", "h10": "L_AB", "h15": "L_AC"}
"""Receivers in the order of the paper's paths from network A."""

TOPICS = {"h1": "alpha", "h2": "beta"}
"""The publishing hosts of network A that the paper evaluates."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """A message stream and what it is in the paper; `topic` is None for those of other networks, which only interfere."""

    stream: str
    source: str
    topic: str | None
    period_ns: int
    jitter_ns: int
    priority: int


@dataclass(frozen=True, slots=True)
class Case:
    """One load under one reading."""

    load: str
    reading: str
    scenario: Scenario
    publishers: tuple[Publisher, ...]
    declaration: dict[str, Any]


def case(load: str, reading: str, seed: int = 1) -> Case:
    """The network of a load and a reading. The seed draws the periods.

    Raises:
        ScenarioError: the built-in scenario does not resolve.
    """
    scenario = load_scenario(find("edge-networks"), {"load": load, "reading": reading, "run.seed": str(seed)})
    publishers = tuple(
        Publisher(
            stream=flow.name,
            source=flow.source,
            topic=TOPICS.get(flow.source),
            period_ns=flow.period_ns,
            jitter_ns=flow.jitter_ns,
            priority=flow.priority,
        )
        for flow in scenario.flows
    )
    declaration = {
        **scenario.declaration(),
        "streams": [_stream(publisher) for publisher in publishers],
        "best_effort_frame_bytes": ETHERNET.full,
    }
    return Case(load, reading, scenario, publishers, declaration)


def _stream(publisher: Publisher) -> dict[str, Any]:
    return {
        "name": publisher.stream,
        "source": publisher.source,
        "destinations": list(BROKERS),
        "class": publisher.priority,
        "role": "data",
        "arrival": {
            "kind": "periodic",
            "period_ns": publisher.period_ns,
            "jitter_ns": publisher.jitter_ns,
            "frames_bytes": [FRAME_BYTES],
        },
        "release": {"kind": "periodic"},
    }
