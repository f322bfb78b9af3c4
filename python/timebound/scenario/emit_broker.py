"""Brokers and the ways over them as YAML."""

from __future__ import annotations

from typing import Any

from timebound.scenario.model import Broker, MqttStack, Service, Stack
from timebound.scenario.units import format_time


def broker(item: Broker) -> dict[str, Any]:
    """One entry of `broker`; a profile by the absolute path of its file."""
    entry: dict[str, Any] = {"node": item.node, "program": item.program, "port": item.port}
    if item.hosts:
        entry["hosts"] = list(item.hosts)
    service = item.service
    if service is None:
        return entry
    if service.measured is not None:
        return {**entry, "profile": service.measured.file}
    times = {
        "latency": format_time(service.latency_ns),
        "per-message": format_time(service.message_ns),
        "per-copy": format_time(service.copy_ns),
        "per-byte": f"{service.byte_ps} ps",
        "per-acknowledgement": format_time(service.acknowledgement_ns),
    }
    return {**entry, "service": times}


def way(service: Service, stack: Stack) -> dict[str, Any]:
    """`broker` or `via` of a flow. Between networks the way follows from the stack."""
    stated = service.via and isinstance(stack, MqttStack) and stack.between == "copies"
    return {"via": [*service.via, service.broker]} if stated else {"broker": service.broker}
