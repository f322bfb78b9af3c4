"""What is granted so far, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from timebound.control.planner.demand import Demand
from timebound.control.planner.routes import Way
from timebound.control.srt.rows import Side
from timebound.control.trees import Tree

if TYPE_CHECKING:
    from timebound.control.planner.judge import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The ways of a connection: client to manager, and manager to broker where that is another host. Answers go back the same way."""

    client: Way
    leg: Way | None = None
    client_backup: Way | None = None
    leg_backup: Way | None = None

    def ways(self) -> tuple[Way, ...]:
        """Both ways, as far as there are two."""
        return (self.client,) if self.leg is None else (self.client, self.leg)

    def without_backup(self) -> Route:
        """The ways alone."""
        return replace(self, client_backup=None, leg_backup=None)


@dataclass(frozen=True, slots=True)
class Group:
    """Where the messages of a topic go from one manager to those of other networks (MRT-MQTT, section V-B)."""

    id: str
    origin: str
    """Manager."""
    topic: str
    priority: int
    address: str
    tree: Tree
    members: tuple[tuple[str, str], ...]
    """Manager and its host, in order of the managers; those that the tree reaches."""

    @property
    def managers(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(name for name, _ in self.members)


@dataclass(frozen=True, slots=True)
class State:
    """Granted requests and the ways of their connections. Two states that grant the same are equal, however they came about."""

    granted: Mapping[str, Demand] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    """By id."""
    peers: Mapping[tuple[str, str], Way] = field(default_factory=dict)
    """Ways between managers that exchange messages, by their names in order, from the first to the second: of everything but datagrams to a group."""
    judged: Judged | None = field(default=None, compare=False, repr=False)
    """The prediction of exactly this state; `None`: not worked out."""

    def with_demands(self, demands: Iterable[Demand], routes: Mapping[str, Route]) -> State:
        """With these as well, or in the place of those of the same requests."""
        granted = {**self.granted, **{demand.request: demand for demand in demands}}
        return replace(self, granted=granted, routes={**self.routes, **routes}, judged=None)

    def without(self, requests: Iterable[str]) -> State:
        """Without these; connections that nobody needs any more lose their ways."""
        gone = set(requests)
        if not gone & self.granted.keys():
            return self
        granted = {name: demand for name, demand in self.granted.items() if name not in gone}
        used = {demand.connection for demand in granted.values()}
        routes = {name: route for name, route in self.routes.items() if name in used}
        return replace(self, granted=granted, routes=routes, judged=None)

    def with_judged(self, judged: Judged | None) -> State:
        """With its prediction."""
        return replace(self, judged=judged)

    def of_side(self, side: Side) -> list[Demand]:
        """The granted requests of publishers or of subscribers, by id."""
        return [self.granted[name] for name in sorted(self.granted) if self.granted[name].side is side]

    def on(self, connection: str) -> list[Demand]:
        """The granted requests on a connection, by id."""
        return [demand for name, demand in sorted(self.granted.items()) if demand.connection == connection]
