"""The plan of a scenario: addresses, the stack's part, background traffic, programs."""

from __future__ import annotations

import ipaddress
from collections import Counter

from timebound.scenario.model import MqttStack, Scenario
from timebound.stacks import background, hardware, mqtt, udp
from timebound.stacks.plan import Plan, PlanError

SUBNET = ipaddress.IPv4Network("10.0.0.0/16")
"""All hosts of a run share it; it exists only inside the run's own namespaces."""


def build_plan(scenario: Scenario) -> Plan:
    """Lays the scenario's stack, background traffic and programs on its network.

    Raises:
        PlanError: addresses that clash or lie outside the subnet, more hosts than addresses, messages that do not fit.
    """
    plan = Plan(scenario=scenario, addresses=assign_addresses(scenario))
    if isinstance(scenario.stack, MqttStack):
        mqtt.lay(plan, scenario.stack)
    else:
        udp.lay(plan, scenario.stack)
    background.lay(plan)
    taken = Counter(program.name for node in scenario.hosts for program in node.programs)
    taken.update(str(program["name"]) for program in plan.programs)
    for node in scenario.hosts:
        for program in node.programs:
            plan.role(node.name, "program")
            # Names are those of logs; programs of one name on several nodes are told apart by the node.
            name = program.name if taken[program.name] == 1 else f"{node.name}-{program.name}"
            plan.programs.append(
                {
                    "name": name,
                    "node": node.name,
                    "argv": list(program.command),
                    "env": dict(program.environment),
                    "folder": program.folder,
                    "essential": program.essential,
                    "ready": None
                    if program.ready_port is None
                    else {"tcp_port": program.ready_port, "timeout_ms": 10_000},
                    "start_ns": program.start_ns or None,
                }
            )
    hardware.withdraw(plan)
    return plan


def assign_addresses(scenario: Scenario) -> dict[str, str]:
    """Host name -> IPv4 address: the stated one, else the next free one of the subnet."""
    taken: dict[str, str] = {}
    for index, node in enumerate(scenario.nodes):
        if node.address is None:
            continue
        path = f"nodes[{index}].address"
        if ipaddress.IPv4Address(node.address) not in SUBNET:
            raise PlanError(path, f"{node.address} lies outside {SUBNET}", f"choose an address in {SUBNET}")
        if node.address in taken:
            raise PlanError(path, f"{node.address} is the address of {taken[node.address]} too", "choose another one")
        taken[node.address] = node.name
    free = (str(address) for address in SUBNET.hosts() if str(address) not in taken)
    addresses: dict[str, str] = {}
    for node in scenario.hosts:
        address = node.address or next(free, None)
        if address is None:
            raise PlanError("network.nodes", f"more hosts than {SUBNET} has addresses", "use fewer hosts")
        addresses[node.name] = address
    return addresses
