"""Nodes with a network stack of their own in the plan: devices behind a real interface, and virtual machines.

Nothing of ours runs in them, so their flows have streams and markers but no built-in endpoints: the device sends or
receives by itself what the scenario declares. Its port numbers are its own choice, so its frames are told by address,
protocol and the port of the other end.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Any

from timebound.scenario.model import Node, Scenario
from timebound.stacks.plan import Marker, Plan, PlanError

SETUP_NS = 30_000_000_000
"""What set-up may take beside the boot of the slowest machine."""


def withdraw(plan: Plan) -> None:
    """Takes everything of ours out of the nodes that are not ours.

    Raises:
        PlanError: background traffic in such a node, or flows of one that cannot be told apart.
    """
    external = external_nodes(plan)
    if not external:
        return
    for index, item in enumerate(plan.scenario.background):
        for end in (item.source, item.destination):
            if end in external:
                raise PlanError(
                    f"background[{index}]",
                    f"background traffic has both ends in programs of ours, and {end!r} is a {_kind(plan, end)}",
                    "name other hosts, or start the traffic in it yourself",
                )
    plan.clients = [client for client in plan.clients if client["node"] not in external]
    plan.udp = [sender for sender in plan.udp if sender["node"] not in external]
    plan.udp_receivers = [receiver for receiver in plan.udp_receivers if receiver["node"] not in external]
    plan.programs = [program for program in plan.programs if program["node"] not in external]
    addresses = {plan.addresses[name]: name for name in external}
    seen: dict[tuple[object, ...], str] = {}
    markers = []
    for marker in plan.markers:
        widened = _widen(marker, addresses)
        key = (
            widened.source,
            widened.destination,
            widened.protocol,
            widened.source_port,
            widened.destination_port,
        )
        name = marker.data or marker.ack or ""
        if key in seen:
            raise PlanError(
                plan.origins.get(name, "flows"),
                f"{name} and {seen[key]} cannot be told apart: both lie between {marker.source} and {marker.destination}, and "
                "a device chooses its ports itself",
                "give each flow of a device its own broker or receiver, or make them one flow",
            )
        seen[key] = name
        markers.append(widened)
    plan.markers = markers
    plan.notes += [_note(plan, name) for name in sorted(external)]


def _widen(marker: Marker, external: dict[str, str]) -> Marker:
    """A device's own port is any port, and its messages bear no header of ours."""
    if marker.source in external:
        own = marker.protocol == "tcp" and marker.source_port is not None and marker.source_port < _server_ports(marker)
        marker = replace(marker, source_port=marker.source_port if own else None, header=None, short=())
    if marker.destination in external and marker.protocol == "tcp":
        own = marker.destination_port is not None and marker.destination_port < _server_ports(marker)
        marker = replace(marker, destination_port=marker.destination_port if own else None)
    return marker


def _server_ports(marker: Marker) -> int:
    """Ports below are those of a server (a broker in a virtual machine), which stay what they are."""
    from timebound.stacks.mqtt import FIRST_CLIENT_PORT

    return FIRST_CLIENT_PORT if marker.protocol == "tcp" else 0


def external_nodes(plan: Plan) -> set[str]:
    """Names of the nodes whose network stack is not ours: devices, virtual machines, nodes of another machine."""
    return {node.name for node in plan.scenario.hosts if node.is_external} | plan.remote


def _kind(plan: Plan, name: str) -> str:
    return "virtual machine" if plan.scenario.node(name).machine is not None else "device"


def _note(plan: Plan, name: str) -> str:
    address = plan.addresses[name]
    sends = [marker for marker in plan.markers if marker.source == address and marker.data in plan.origins]
    said = "; ".join(
        f"{marker.data} to {marker.destination} {marker.protocol} port {marker.destination_port or 'any'}"
        for marker in sends
        if marker.data is not None and "/keep-alive" not in marker.data
    )
    return (
        f"{name} is a {_kind(plan, name)} with a network stack of its own: what it sends and receives is measured on the wire, "
        f"from its interface on; the built-in clients leave it alone. Its frames of declared streams: {said or 'none'}."
    )


def host_plan(node: Node, plan: Plan, allowed: tuple[str, ...]) -> dict[str, Any] | None:
    """The JSON of `HardwarePlan`, None for an ordinary host. `allowed` may be taken even with a default route."""
    scenario = plan.scenario
    if node.name in plan.remote:
        return {"kind": "remote"}
    base = Path(scenario.file).resolve().parent if scenario.file else Path.cwd()
    if node.machine is not None:
        machine = node.machine
        return {
            "kind": "machine",
            **{key: _absolute(base, getattr(machine, key)) for key in ("image", "kernel", "initrd")},
            "append": machine.append,
            "memory_bytes": machine.memory_bytes,
            "cpus": machine.cpus,
            "accel": machine.accel,
            "card": machine.card,
            "ready_port": machine.ready_port,
            "boot_ns": machine.boot_ns,
            "shutdown_ns": machine.shutdown_ns,
        }
    if node.interface is None:
        return None
    interface = node.interface
    taken = {"interface": interface.name, "take_default_route": interface.name in allowed}
    if interface.use == "device":
        return {"kind": "device", **taken, "learn_ns": interface.learn_ns}
    addresses = [ipaddress.IPv4Interface(text) for text in interface.addresses]
    listed = [{"address": str(one.ip), "prefix": one.network.prefixlen} for one in addresses]
    return {"kind": "card", **taken, "addresses": listed}


def setup_timeout_ns(scenario: Scenario) -> int:
    """How long set-up may take: machines boot at the same time, and everything else starts beside them."""
    boots = [node.machine.boot_ns for node in scenario.hosts if node.machine is not None]
    return SETUP_NS + max(boots, default=0)


def missing_files(plan: Plan) -> list[tuple[str, str]]:
    """(path of the scenario, file) of every file of a virtual machine that is not there."""
    base = Path(plan.scenario.file).resolve().parent if plan.scenario.file else Path.cwd()
    found = []
    for index, node in enumerate(plan.scenario.nodes):
        for key in ("image", "kernel", "initrd"):
            stated = None if node.machine is None else getattr(node.machine, key)
            if stated is not None and not (base / stated).is_file():
                found.append((f"nodes[{index}].machine", str(base / stated)))
    return found


def _absolute(base: Path, stated: str | None) -> str | None:
    return None if stated is None else str(base / stated)
