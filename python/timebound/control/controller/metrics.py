"""Figures of the controller for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from timebound.control.srt.rows import ChannelState, Outcome

if TYPE_CHECKING:
    from timebound.control.controller.desk import Desk

_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """A registry of its own, so that several controllers fit into one process (tests)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "timebound_controller_"
        self.decisions = Counter(f"{name}decisions", "Requests that were decided", registry=self.registry)
        self.verdicts = Counter(f"{name}verdicts", "Verdicts written", ["outcome"], registry=self.registry)
        self.planning = Histogram(
            f"{name}planning_seconds", "Time of one step of decisions", buckets=_FAST, registry=self.registry
        )
        self.proven = Histogram(
            f"{name}request_to_verdict_seconds",
            "From a request's being asked, or changed, to its first verdict, where that is a grant",
            buckets=_FAST,
            registry=self.registry,
        )
        self.requests = Gauge(f"{name}requests", "Requests by what they were told", ["outcome"], registry=self.registry)
        self.channels = Gauge(f"{name}channels", "Reservations by state", ["state"], registry=self.registry)
        self.groups = Gauge(f"{name}groups", "Multicast groups by state", ["state"], registry=self.registry)
        self.members = Gauge(f"{name}group_members", "Members of all groups together", registry=self.registry)
        self.links = Gauge(f"{name}links", "Links, one for each direction", ["up"], registry=self.registry)
        self.store = Gauge(f"{name}store_connected", "Is the table within reach?", registry=self.registry)
        self.reserved = Gauge(
            f"{name}most_reserved_ratio", "Share of the busiest link that is reserved", registry=self.registry
        )
        self.unreadable = Counter(
            f"{name}openflow_unreadable", "Malformed messages of switches", registry=self.registry
        )
        self.failures = Counter(f"{name}failures", "Steps that failed by a defect", registry=self.registry)

    def show(self, desk: Desk, connected: bool) -> None:
        """The gauges as things are now."""
        outcomes = Counts(
            verdict.outcome for name, verdict in desk.tables.verdicts.items() if name in desk.tables.requests
        )
        for outcome in Outcome:
            self.requests.labels(outcome.value).set(outcomes[outcome])
        self.requests.labels("open").set(len(desk.tables.requests.keys() - desk.tables.verdicts.keys()))
        states = Counts(held.state for held in desk.held.values())
        for state in ChannelState:
            self.channels.labels(state.value).set(states[state])
        groups = Counts(held.state for held in desk.groups.values())
        for state in ChannelState:
            self.groups.labels(state.value).set(groups[state])
        self.members.set(sum(len(held.row.members) for held in desk.groups.values()))
        up = Counts(link.up for link in desk.topology.links.values())
        for value in (True, False):
            self.links.labels(str(value).lower()).set(up[value])
        self.store.set(connected)
        judged = desk.state.judged
        ports = [] if judged is None or judged.prediction is None else judged.prediction.ports
        self.reserved.set(max((float(port["utilisation"]["value"]) for port in ports), default=0.0))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
