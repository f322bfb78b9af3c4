"""Names of the nodes' own programs, in the words of the scenario."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from timebound.scenario.model import Flow
from timebound.stacks import Plan


@dataclass(slots=True)
class Programs:
    """The programs of a plan, and what they are called."""

    plan: Plan
    flows: dict[str, Flow] = field(init=False)
    nodes: dict[str, str] = field(init=False)
    """Address -> node."""

    def __post_init__(self) -> None:
        self.flows = {flow.name: flow for flow in self.plan.scenario.flows}
        self.nodes = {str(address): node for node, address in self.plan.addresses.items()}

    def flow(self, number: int) -> Flow:
        return self.flows[self.plan.legs[number].flow]

    def name(self, node: str) -> str:
        """`program app of h1`, or less where several could be meant."""
        stated = next((host.programs for host in self.plan.scenario.hosts if host.name == node), ())
        return f"program {stated[0].name!r} on {node}" if len(stated) == 1 else f"program on {node}"

    def owner(self, ends: Iterable[str], numbers: Iterable[int]) -> str | None:
        """Which of two nodes has the program."""
        own = {node for number in numbers for node in self.flow(number).programs}
        return next((node for node in ends if node in own), None)
