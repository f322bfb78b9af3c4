"""What Prometheus is told of a manager: the intermediary's counters, and the service's own."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from timebound.control.text import shown

PREFIX = "timebound_manager"

_COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("connections_total", "connections", "Connections of clients since the start"),
    ("connections_refused", "connections_refused", "Connections closed at once: more than limits.connections"),
    ("requests", "requests", "New or changed requests"),
    ("broker_failures", "broker_failures", "The broker did not accept a connection, or broke one off"),
    ("handshake_failures", "handshake_failures", "Handshakes of TLS or WebSocket that failed"),
    ("handshake_timeouts", "handshake_timeouts", "Connections without CONNECT in time"),
    ("events_lost", "events_lost", "Events that were not told because nobody polled"),
)
"""Key in the intermediary's figures (`Stats` of the contract), name, help."""
_LABELLED: tuple[tuple[str, str, str, str], ...] = (
    ("bytes", "bytes", "direction", "Bytes forwarded: up is towards the broker"),
    ("packets", "packets", "direction", "MQTT packets forwarded: up is towards the broker"),
    ("verdicts", "verdicts", "outcome", "Verdicts for requests that were there"),
    (
        "refusals",
        "refusals",
        "packet",
        "Packets answered with Quota exceeded, or dropped, because a strict request was refused",
    ),
    ("offences", "offences", "reason", "Clients that were disconnected"),
    (
        "websocket_violations",
        "websocket_violations",
        "reason",
        "WebSockets that were closed for what the client did: protocol is status code 1002, text 1003, too_large 1009",
    ),
)
_PEERS: tuple[tuple[str, str], ...] = (
    ("sent", "Messages sent to groups of other networks"),
    ("datagrams_again", "Datagrams sent again to one member"),
    ("undelivered", "Messages with QoS 1 or 2 that a member did not take, once for each member"),
    ("members_lost", "Times that a member of a group was lost"),
    ("received", "Messages that came from groups"),
    ("injected", "Messages from groups that the broker has"),
    ("refused", "Messages from groups that the broker did not want"),
    ("dropped", "Messages from groups with QoS 0 that the broker could not take"),
    ("repeated", "QoS 2 messages from groups that came again after they had been delivered"),
    ("datagrams_repeated", "Datagrams from groups that had come before"),
    ("datagrams_missed", "Datagrams of QoS 0 from groups that never came, or too late"),
    ("foreign", "Datagrams and connections of strangers"),
)
"""Counters in `Stats.peers` of the contract, with their help."""
_STRANGERS: tuple[tuple[str, str], ...] = (
    ("refused", "Connections closed at once: more than limits.strangers-per-address"),
    (
        "crowded_out",
        "Connections closed because all that are not accepted held more than limits.strangers, and they the most",
    ),
)
"""Counters in `Stats.strangers`, with their help."""
_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("connections", "connections_now", "Connections of clients"),
    ("requests_now", "requests_now", "Requests that are there"),
)


class Figures(Collector):
    """The figures of one manager; everything may be called on any thread."""

    def __init__(self, stats: Callable[[], str], requests: Callable[[], dict[str, int]]) -> None:
        """`stats`: the intermediary's, as JSON; `requests`: how many are in which state."""
        self._stats = stats
        self._requests = requests
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._store = self._control = False

    def count(self, what: str, by: int = 1) -> None:
        """Counts something of the service itself."""
        with self._lock:
            self._counted[what] += by

    def state(self, *, store: bool, control: bool) -> None:
        """Whether the store is connected, and whether somebody decides."""
        self._store, self._control = store, control

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        stats: dict[str, Any] = json.loads(self._stats())
        for key, name, text in _COUNTERS:
            yield CounterMetricFamily(f"{PREFIX}_{name}", text, value=stats[key])
        for key, name, text in _GAUGES:
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=stats[key])
        for key, name, label, text in _LABELLED:
            family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
            for value, number in stats[key].items():
                family.add_metric([value], number)
            yield family
        yield from _holds(stats["holds"])
        strangers = stats["strangers"]
        for key, text in _STRANGERS:
            yield CounterMetricFamily(f"{PREFIX}_strangers_{key}", text, value=strangers[key])
        yield GaugeMetricFamily(
            f"{PREFIX}_strangers_now", "Connections that the broker has not accepted yet", value=strangers["now"]
        )
        yield GaugeMetricFamily(f"{PREFIX}_strangers_bytes", "Bytes that they hold", value=strangers["bytes"])
        peers = stats["peers"]
        for key, text in _PEERS:
            yield CounterMetricFamily(f"{PREFIX}_peers_{key}", text, value=peers[key])
        relayed = CounterMetricFamily(
            f"{PREFIX}_peers_relayed", "Messages sent to another manager as best effort", labels=["peer"]
        )
        for peer, number in peers["relayed"].items():
            relayed.add_metric([shown(peer)], number)
        yield relayed
        yield GaugeMetricFamily(
            f"{PREFIX}_peers_connections_now", "Connections to members of groups", value=peers["connections"]
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_peers_waiting_now", "Messages that wait for room in their group", value=peers["waiting"]
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_control", "Does anybody decide on requests? 0: all are best effort", value=self._control
        )
        yield GaugeMetricFamily(f"{PREFIX}_store_connected", "Is the table within reach?", value=self._store)
        states = GaugeMetricFamily(f"{PREFIX}_requests_by_state", "Requests that are there", labels=["state"])
        for state, number in self._requests().items():
            states.add_metric([state], number)
        yield states
        with self._lock:
            counted = dict(self._counted)
        for what in _OWN:
            yield CounterMetricFamily(f"{PREFIX}_{what}", _OWN[what], value=counted.get(what, 0))


_OWN = {
    "forbidden": "Requests that a rule of the site refused",
    "audit_entries": "Entries of the audit log",
    "store_transactions": "Transactions handed to the store",
    "control_lost": "Times that nobody was left who decides",
    "namesakes": "Beats of another manager that has this one's name",
}


def _holds(holds: dict[str, Any]) -> Iterator[Metric]:
    """How long packets waited for verdicts, and what ended that."""
    ended = CounterMetricFamily(f"{PREFIX}_holds_ended", "Packets that were held, by what ended it", labels=["by"])
    for by in ("verdict", "timeout", "unavailable"):
        ended.add_metric([by], holds[by])
    yield ended
    yield GaugeMetricFamily(f"{PREFIX}_holds_now", "Packets that are held", value=holds["now"])
    buckets, total = [], 0
    for most_ms, number in zip((*holds["classes_ms"], None), holds["counts"], strict=True):
        total += number
        buckets.append(("+Inf" if most_ms is None else str(most_ms / 1000), float(total)))
    yield HistogramMetricFamily(
        f"{PREFIX}_hold_seconds", "How long packets were held", buckets=buckets, sum_value=holds["total_ns"] / 1e9
    )


def registry(figures: Figures) -> CollectorRegistry:
    """A registry with these figures and nothing else."""
    found = CollectorRegistry(auto_describe=False)
    found.register(figures)
    return found
