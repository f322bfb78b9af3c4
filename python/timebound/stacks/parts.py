"""A plan's part on one of two machines: the network stays whole, and what runs in the other's nodes is left to it."""

from __future__ import annotations

from timebound.scenario.model import Scenario
from timebound.scenario.model_hardware import Computer
from timebound.stacks.plan import Plan, PlanError


def computer(scenario: Scenario, name: str) -> tuple[Computer, Computer]:
    """This machine and the other.

    Raises:
        PlanError: the scenario has no such machine.
    """
    if not scenario.machines:
        raise PlanError(
            "network.machines", "the scenario names no machines", "add network.machines, or leave --machine out"
        )
    known = [machine.name for machine in scenario.machines]
    if name not in known:
        raise PlanError(
            "network.machines", f"the scenario has no machine {name!r}", f"its machines are {', '.join(known)}"
        )
    first, second = scenario.machines
    return (first, second) if first.name == name else (second, first)


def take_part(plan: Plan, name: str) -> None:
    """Leaves in the plan what runs on machine `name`.

    Raises:
        PlanError: an unknown machine, background traffic between the two.
    """
    _, other = computer(plan.scenario, name)
    remote = frozenset(other.nodes)
    for index, item in enumerate(plan.scenario.background):
        if (item.source in remote) != (item.destination in remote):
            raise PlanError(
                f"background[{index}]",
                f"background traffic from {item.source!r} to {item.destination!r}, which lie on two machines",
                "keep it within one machine, or start it as a program (run:) on both ends",
            )
    plan.clients = [client for client in plan.clients if client["node"] not in remote]
    plan.udp = [sender for sender in plan.udp if sender["node"] not in remote]
    plan.udp_receivers = [receiver for receiver in plan.udp_receivers if receiver["node"] not in remote]
    plan.background = [item for item in plan.background if item["source"] not in remote]
    plan.programs = [program for program in plan.programs if program["node"] not in remote]
    plan.remote = remote
    plan.notes.append(
        f"This is the part of machine {name}. Frames that cross to {other.name} carry their virtual times, so their network "
        "latency is measured where they are delivered; messages between the two are not joined to application latencies."
    )
