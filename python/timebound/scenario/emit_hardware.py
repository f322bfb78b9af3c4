"""Hardware in the loop as YAML."""

from __future__ import annotations

import json
from typing import Any

from timebound.scenario.model import Node, Scenario
from timebound.scenario.model_hardware import Interface, Machine
from timebound.scenario.units import format_size, format_time


def hardware(node: Node) -> dict[str, Any]:
    """The keys `mac`, `interface` and `vm` of a node, as far as it has them."""
    entry: dict[str, Any] = {}
    if node.mac is not None:
        entry["mac"] = node.mac
    if node.interface is not None:
        entry["interface"] = _interface(node.interface)
    if node.machine is not None:
        entry["vm"] = _machine(node.machine)
    return entry


def _interface(interface: Interface) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": interface.name, "use": interface.use, "learn": format_time(interface.learn_ns)}
    if interface.addresses:
        entry["addresses"] = list(interface.addresses)
    return entry


def _machine(machine: Machine) -> dict[str, Any]:
    files = {"image": machine.image, "kernel": machine.kernel, "initrd": machine.initrd, "append": machine.append}
    entry: dict[str, Any] = {key: value for key, value in files.items() if value}
    entry |= {
        "memory": format_size(machine.memory_bytes),
        "cpus": machine.cpus,
        "accel": machine.accel,
        "card": machine.card,
        "boot": format_time(machine.boot_ns),
        "shutdown": format_time(machine.shutdown_ns),
    }
    if machine.ready_port is not None:
        entry["ready-port"] = machine.ready_port
    return entry


def machines(scenario: Scenario) -> list[str]:
    """Lines of `network.machines`."""
    lines = ["  machines:"] if scenario.machines else []
    for machine in scenario.machines:
        names = ", ".join(json.dumps(name) for name in machine.nodes)
        lines.append(f"    {json.dumps(machine.name)}: {{nodes: [{names}], address: {machine.address}}}")
    return lines
