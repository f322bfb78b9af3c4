"""What the intermediary tells, made by hand."""

from __future__ import annotations

import json
import queue
from typing import Any


def connection(id: str = "m1-1-7", **other: Any) -> dict[str, Any]:
    return {
        "id": id, "manager": "m1", "client_id": "press", "user": None, "client_address": "10.0.0.1", "client_port": 40_000,
        "manager_address": "10.0.0.5", "manager_port": 1883, "broker_leg": None, "opened_ns": 1, "certificate": None, "mqtt": 5, **other,
    }  # fmt: skip


def requirements(**other: Any) -> dict[str, Any]:
    return {
        "deadline_ns": 20_000_000, "period_ns": 100_000_000, "jitter_ns": None, "size_bytes": 200, "transmission_ns": None,
        "priority": None, "bandwidth_bps": None, "qos": 1, "strict": False, **other,
    }  # fmt: skip


def asked(id: str = "m1-1-7.1", revision: int = 1, topic: str = "plant/alarm", of: str = "m1-1-7", **other: Any) -> str:
    """An event `request`; keys of `Requirements` change what it needs, others the connection."""
    needs = {key: value for key, value in other.items() if key in requirements()}
    rest = {key: value for key, value in other.items() if key not in needs and key != "side"}
    return json.dumps(
        {
            "kind": "request", "id": id, "revision": revision, "connection": connection(of, **rest), "side": other.get("side", "publish"),
            "topic": topic, "requirements": requirements(**needs),
        }
    )  # fmt: skip


def withdrawn(id: str = "m1-1-7.1") -> str:
    return json.dumps({"kind": "withdrawn", "id": id})


def closed(id: str = "m1-1-7") -> str:
    return json.dumps({"kind": "closed", "connection": id})


STATS: dict[str, Any] = {
    "connections": 1, "connections_total": 2, "connections_refused": 3, "bytes": {"up": 4, "down": 5}, "packets": {"up": 6, "down": 7},
    "holds": {"now": 0, "verdict": 2, "timeout": 1, "unavailable": 0, "classes_ms": [1, 2], "counts": [1, 0, 2], "total_ns": 5_000_000},
    "requests": 3, "requests_now": 1, "verdicts": {"granted": 1, "refused": 2, "unavailable": 3},
    "refusals": {"connect": 1, "publish": 2, "dropped": 3, "subscribe": 4}, "offences": {"malformed": 1, "too_large": 2, "quota": 3, "rate": 4},
    "websocket_violations": {"protocol": 1, "text": 2, "too_large": 3},
    "strangers": {"now": 1, "bytes": 4096, "refused": 0, "crowded_out": 0, "last": None},
    "broker_failures": 0, "handshake_failures": 0, "handshake_timeouts": 0, "events_lost": 0, "control": True,
    "peers": {
        "connections": 2, "sent": 10, "relayed": {"m2": 7}, "datagrams_again": 3, "undelivered": 1, "members_lost": 1, "waiting": 4, "received": 5, "injected": 5,
        "refused": 0, "dropped": 0, "repeated": 2, "datagrams_repeated": 1, "datagrams_missed": 0, "foreign": 0,
    },
}  # fmt: skip
"""Figures of the intermediary (`Stats` of the contract)."""


class HandCore:
    """An intermediary that is told by hand what it tells; it keeps what it is told."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.verdicts: list[dict[str, Any]] = []
        self.controls: list[bool] = []
        self.wanted: list[dict[str, Any]] = []
        self.stopped = False
        self.figures: dict[str, Any] = {**STATS, "strangers": {**STATS["strangers"]}}

    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", 1883)]

    def poll(self, timeout_ms: int) -> list[str]:
        try:
            return [self.events.get(timeout=timeout_ms / 1000)]
        except queue.Empty:
            return []

    def verdict(self, verdict: str) -> None:
        self.verdicts.append(json.loads(verdict))

    def control(self, alive: bool) -> None:
        self.controls.append(alive)

    def groups(self, groups: str) -> None:
        self.wanted.append(json.loads(groups))

    def stats(self) -> str:
        return json.dumps(self.figures)

    def stop(self) -> None:
        self.stopped = True
