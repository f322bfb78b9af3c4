"""What the intermediary tells, made by hand."""

from __future__ import annotations

import json
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
