"""Two disjoint ways of least total cost in a directed graph, as a flow of two units. Pure.

Suurballe's problem (1974), solved as Bhandari does: a shortest way, the same again in the residual graph, whose reversed arcs have negative
cost, and what cancels out falls away.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arc:
    """A directed link of positive cost."""

    source: str
    target: str
    cost: float
    name: str


@dataclass(slots=True)
class _Step:
    """An arc of the residual graph: it carries at most one unit."""

    source: str
    target: str
    cost: float
    name: str | None
    used: bool = False


def two_disjoint(
    arcs: Sequence[Arc], source: str, target: str, *, nodes: bool
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Names of the arcs of two ways from `source` to `target` without a common arc (with `nodes`: without a common inner node), or `None`.

    Of two opposite arcs between the same nodes at most one is used: both together would cancel out.
    """
    steps = _split(arcs, source, target) if nodes else [_Step(a.source, a.target, a.cost, a.name) for a in arcs]
    leaving: dict[str, list[int]] = {}
    entering: dict[str, list[int]] = {}
    for index, step in enumerate(steps):
        leaving.setdefault(step.source, []).append(index)
        entering.setdefault(step.target, []).append(index)
    for _unit in range(2):
        if not _augment(steps, leaving, entering, source, target):
            return None
    return _walk(steps, leaving, source, target), _walk(steps, leaving, source, target)


def _split(arcs: Sequence[Arc], source: str, target: str) -> list[_Step]:
    """Every inner node becomes two with a step of no cost between them, so that a unit of flow uses it up."""
    ends = {source, target}
    inner = sorted({node for arc in arcs for node in (arc.source, arc.target)} - ends)
    steps = [_Step(node, f"{node}\0out", 0.0, None) for node in inner]
    for arc in arcs:
        leaves = arc.source if arc.source in ends else f"{arc.source}\0out"
        steps.append(_Step(leaves, arc.target, arc.cost, arc.name))
    return steps


def _augment(
    steps: list[_Step], leaving: dict[str, list[int]], entering: dict[str, list[int]], source: str, target: str
) -> bool:
    """One more unit along a shortest way of the residual graph (Bellman-Ford with a queue; there are no negative cycles)."""
    spent = {source: 0.0}
    via: dict[str, int] = {}
    waiting, queued = deque([source]), {source}
    while waiting:
        node = waiting.popleft()
        queued.discard(node)
        forward = [(i, steps[i].target, steps[i].cost) for i in leaving.get(node, ()) if not steps[i].used]
        back = [(i, steps[i].source, -steps[i].cost) for i in entering.get(node, ()) if steps[i].used]
        for index, there, cost in forward + back:
            # A margin, so that rounding cannot go round a cycle of no cost for ever.
            if spent[node] + cost < spent.get(there, math.inf) - 1e-9 * (1 + abs(spent[node])):
                spent[there] = spent[node] + cost
                via[there] = index
                if there not in queued:
                    queued.add(there)
                    waiting.append(there)
    if target not in via:
        return False
    node = target
    while node != source:
        step = steps[via[node]]
        node = step.target if step.used else step.source
        step.used = not step.used
    return True


def _walk(steps: list[_Step], leaving: dict[str, list[int]], source: str, target: str) -> tuple[str, ...]:
    """Follows one unit of flow and takes it away."""
    names: list[str] = []
    node = source
    while node != target:
        step = next(steps[i] for i in leaving[node] if steps[i].used)
        step.used = False
        if step.name is not None:
            names.append(step.name)
        node = step.target
    return tuple(names)
