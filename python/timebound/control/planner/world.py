"""What the planner looks at: a topology, the site and the table, with what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from timebound.control.planner.site import Site, broker_of
from timebound.control.srt.rows import ConnectionRow, Tables
from timebound.control.topology import Link, Topology


@dataclass(frozen=True, slots=True)
class Ends:
    """Between which hosts a connection goes; `broker` is None where the manager has it on its own host."""

    client: str
    manager: str
    broker: str | None
    system: tuple[str, int]
    """The broker, by address and port: who shares its topics."""

    @property
    def server(self) -> str:
        """The host on which the broker works."""
        return self.manager if self.broker is None else self.broker

    @property
    def is_loop(self) -> bool:
        """Is the client on the broker's host? Then both legs go between the same hosts, and the same way."""
        return self.client == self.broker


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a connection is nowhere in the network."""

    reason: str


@dataclass(frozen=True)
class World:
    """Values only; nothing in it changes."""

    topology: Topology
    site: Site
    tables: Tables

    @cached_property
    def links(self) -> dict[tuple[str, str], Link]:
        """Links that frames can take now, by their ends: TCP needs both directions of each. Of parallel links the first by name is taken."""
        up: dict[tuple[str, str], Link] = {}
        for name in sorted(self.topology.links):
            link = self.topology.links[name]
            if self._is_live(link):
                up.setdefault((link.source, link.target), link)
        return {ends: link for ends, link in up.items() if ends[::-1] in up}

    def _is_live(self, link: Link) -> bool:
        ends = [self.topology.switches[end] for end in (link.source, link.target) if end in self.topology.switches]
        return link.up and all(switch.connected for switch in ends)

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """Who is at the other end of live links, in order of their names."""
        found: dict[str, list[str]] = {}
        for source, target in sorted(self.links):
            found.setdefault(source, []).append(target)
        return found

    @cached_property
    def names(self) -> dict[str, str]:
        """Switch or host -> its name in a scenario, which has fewer characters."""
        found: dict[str, str] = {}
        taken: set[str] = set()
        for name in [*sorted(self.topology.switches), *sorted(self.topology.hosts)]:
            safe = fresh(name, taken, 60)
            taken.add(safe)
            found[name] = safe
        return found

    @cached_property
    def hosts(self) -> dict[str, str]:
        """Address -> host."""
        return {host.address: host.name for host in self.topology.hosts.values()}

    @cached_property
    def _ends(self) -> dict[str, Ends | Missing]:
        return {}

    def ends(self, connection: str) -> Ends | Missing:
        """Where a connection begins and ends."""
        if connection not in self._ends:
            self._ends[connection] = self._find_ends(connection)
        return self._ends[connection]

    def _find_ends(self, connection: str) -> Ends | Missing:
        row = self.tables.connections.get(connection)
        if row is None:
            return Missing("its connection is closed")
        manager = self.tables.managers.get(row.manager)
        if manager is None:
            return Missing(f"manager {row.manager!r} is unknown")
        places: list[str] = []
        for what, address in self._addresses(row):
            host = self.hosts.get(address)
            if host is None:
                return Missing(f"the {what}, {address}, has not been seen in the network")
            places.append(host)
        system = broker_of(row, (manager.broker_address, manager.broker_port))
        broker = places[2] if len(places) > 2 and places[2] != places[1] else None
        return Ends(places[0], places[1], broker, system)

    @staticmethod
    def _addresses(row: ConnectionRow) -> list[tuple[str, str]]:
        found = [("client", row.client_address), ("manager", row.manager_address)]
        return found if row.broker_leg is None else [*found, ("broker", row.broker_leg[2])]

    def access_rate(self, connection: str) -> int | None:
        """Rate of the client's link, bit/s."""
        ends = self.ends(connection)
        if isinstance(ends, Missing):
            return None
        return next((link.rate_bps for (source, _), link in self.links.items() if source == ends.client), None)


def fresh(name: str, taken: set[str], longest: int) -> str:
    """A name of letters, digits, `_`, `.` and `-` that resembles `name` and is not taken."""
    safe = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)[:longest].strip(".-") or "_"
    found, number = safe, 2
    while found in taken:
        found = f"{safe[: longest - 7]}_{number}"
        number += 1
    return found
