"""Who can reach whom, and in how many hops. Hosts do not forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from timebound.scenario.model import Link, Node


class Graph:
    """The network as an undirected graph."""

    def __init__(self, nodes: Iterable[Node], links: Iterable[Link]) -> None:
        self.forwards = {node.name: node.kind != "host" for node in nodes}
        self.neighbours: dict[str, list[str]] = {name: [] for name in self.forwards}
        for link in links:
            self.neighbours[link.a].append(link.b)
            self.neighbours[link.b].append(link.a)
        self._component = self._components()

    def _components(self) -> dict[str, int]:
        """Components of the switches and segments alone."""
        component: dict[str, int] = {}
        for start, forwards in self.forwards.items():
            if not forwards or start in component:
                continue
            number = len(component)
            stack = [start]
            component[start] = number
            while stack:
                for neighbour in self.neighbours[stack.pop()]:
                    if self.forwards[neighbour] and neighbour not in component:
                        component[neighbour] = number
                        stack.append(neighbour)
        return component

    def reaches(self, source: str, destination: str) -> bool:
        """Is there a path from one host to another?"""
        if source == destination or destination in self.neighbours[source]:
            return True
        from_here = {self._component[n] for n in self.neighbours[source] if n in self._component}
        return any(self._component.get(n) in from_here for n in self.neighbours[destination])

    def hops(self, start: str) -> dict[str, int]:
        """Links between `start` and every node that it reaches."""
        distance = {start: 0}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if node != start and not self.forwards[node]:
                continue
            for neighbour in self.neighbours[node]:
                if neighbour not in distance:
                    distance[neighbour] = distance[node] + 1
                    queue.append(neighbour)
        return distance
