"""The plan of a scenario: addresses, the stack's part, background traffic, programs."""

from __future__ import annotations

import ipaddress
from collections import Counter

from timebound.scenario.model import Flow, MqttStack, Scenario
from timebound.stacks import background, gateway, hardware, mqtt, reserved, switches, udp, ways
from timebound.stacks.gateway import subnets_of
from timebound.stacks.plan import Plan, PlanError
from timebound.stacks.wire import MEASUREMENT_HEADER_BYTES


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
    ways.lay(plan)
    background.lay(plan)
    gateway.lay(plan)
    limited = [host.name for host in scenario.hosts if host.is_limited]
    if limited and isinstance(scenario.stack, MqttStack) and scenario.stack.clients == "shared":
        plan.notes.append(
            f"Limits of {', '.join(limited[:5])}{' and others' if len(limited) > 5 else ''} bind their programs, not their built-in "
            "clients: clients: shared puts those of all hosts into one process."
        )
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
                    # A client of a broker, perhaps: it finds it.
                    "after_ready": program.ready_port is None,
                }
            )
    controller = switches.program(scenario)
    stack = scenario.stack
    if controller is not None:
        beside = reserved.control(plan, stack, switches.NODE) if isinstance(stack, MqttStack) and stack.reserved else []
        # Whoever reserves waits for the controller, and the controller for its table.
        plan.programs[:0] = [*beside[:1], controller, *beside[1:]]
        plan.notes.append(
            "The real switches' controller decides ways and classes; bounds and simulation assume the scenario's own."
        )
    ordered = list(dict.fromkeys(event.node for event in scenario.node_events))
    if ordered:
        several = len(ordered) > 1
        plan.notes.append(
            f"{', '.join(ordered[:5])}{' and others' if len(ordered) > 5 else ''} {'are' if several else 'is'} stopped or paused by schedule (at:). "
            f"The simulation lets {'them' if several else 'it'} run on; what the orders touch has no bound."
        )
    _note_unknown_senders(plan)
    _note_programs(plan)
    hardware.withdraw(plan)
    _check_measurable(plan)
    return plan


def _note_unknown_senders(plan: Plan) -> None:
    """Clients of our own set TCP_NODELAY; of somebody else's that is an assumption."""
    senders = dict.fromkeys(carrier.sender for carrier in plan.carriers.values() if carrier.carried)
    unknown = [name for name in senders if not plan.scenario.node(name).sender.known]
    if unknown:
        plan.notes.append(
            f"Nothing is known of TCP of {', '.join(unknown[:5])}{' and others' if len(unknown) > 5 else ''}: bounds take every packet to be sent as it is "
            "written (TCP_NODELAY). What Nagle's algorithm would hold back must be part of the flow's jitter."
        )


MOST_NAMED = 5
"""Flows that a note names."""


def _note_programs(plan: Plan) -> None:
    """Which messages are programs' own, and how they are known."""
    own = [flow for flow in plan.scenario.flows if flow.programs]
    if not own:
        return
    named = "; ".join(f"{flow.name} ({_known_by(plan, flow)}): {', '.join(flow.programs)}" for flow in own[:MOST_NAMED])
    more = f" and {len(own) - MOST_NAMED} more" if len(own) > MOST_NAMED else ""
    plan.notes.append(
        f"Programs of the nodes publish or receive in place of built-in clients: {named}{more}. Their messages are measured on the wire, from the first port "
        "to the last: what the programs need before and after is not known. Bounds take every message to be sent as it is written (TCP_NODELAY)."
    )


def _known_by(plan: Plan, flow: Flow) -> str:
    numbers = (number for number, leg in enumerate(plan.legs) if leg.flow == flow.name)
    number = next(numbers)
    topics = (
        m.own.topic for m in plan.markers if m.own is not None and m.own.flow == number and m.own.topic is not None
    )
    if (topic := next(topics, None)) is not None:
        return f"topic {topic}"
    streams = {segment.stream for receiver in flow.receivers for segment in plan.segments[flow.name, receiver]}
    return f"UDP port {next(marker.destination_port for marker in plan.markers if marker.data in streams)}"


def _check_measurable(plan: Plan) -> None:
    """Groups of managers share an address between flows: what goes to one is told apart by its measurement header alone."""
    for index, flow in enumerate(plan.scenario.flows):
        if flow.size_bytes < MEASUREMENT_HEADER_BYTES and plan.groups and plan.unemulated is None:
            plan.unemulated = (
                f"an emulation cannot measure messages of {flow.size_bytes} B that managers multicast: what goes to a group is known by "
                f"the measurement header of {MEASUREMENT_HEADER_BYTES} B alone"
            )
            plan.unemulated_at = f"flows[{index}].size_bytes"


def assign_addresses(scenario: Scenario) -> dict[str, str]:
    """Host name -> IPv4 address: the stated one, else the next free one of the subnet."""
    subnets = subnets_of(scenario)
    taken: dict[str, str] = {}
    for index, node in enumerate(scenario.nodes):
        if node.address is None:
            continue
        path, subnet = f"nodes[{index}].address", subnets[node.name]
        if ipaddress.IPv4Address(node.address) not in subnet:
            raise PlanError(path, f"{node.address} lies outside {subnet}", f"choose an address in {subnet}")
        if node.address in taken:
            raise PlanError(path, f"{node.address} is the address of {taken[node.address]} too", "choose another one")
        taken[node.address] = node.name
    free = {
        subnet: (str(address) for address in subnet.hosts() if str(address) not in taken)
        for subnet in set(subnets.values())
    }
    addresses: dict[str, str] = {}
    for node in scenario.hosts:
        subnet = subnets[node.name]
        address = node.address or next(free[subnet], None)
        if address is None:
            raise PlanError("network.nodes", f"more hosts than {subnet} has addresses", "use fewer hosts")
        addresses[node.name] = address
    return addresses
