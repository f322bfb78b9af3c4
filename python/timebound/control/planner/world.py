"""What the planner looks at: a topology, the site and the table, with what follows from them."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    """The broker, by host (or address, where that was not seen) and port: who shares its topics."""

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
    """Values, of which none changes, and what is called while they are thought about."""

    topology: Topology
    site: Site
    tables: Tables
    breath: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Called before every prediction: hundreds of them may be needed to answer many who ask at once, and others wait for a sign of life."""

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
        system = self._system(*broker_of(row, (manager.broker_address, manager.broker_port)), places[1])
        broker = places[2] if len(places) > 2 and places[2] != places[1] else None
        return Ends(places[0], places[1], broker, system)

    @staticmethod
    def _addresses(row: ConnectionRow) -> list[tuple[str, str]]:
        found = [("client", row.client_address), ("manager", row.manager_address)]
        return found if row.broker_leg is None else [*found, ("broker", row.broker_leg[2])]

    @cached_property
    def peers(self) -> dict[str, str]:
        """Managers that multicast to those of other networks and are in this one -> their hosts."""
        found = {}
        for name, row in sorted(self.tables.managers.items()):
            host = self.hosts.get(row.peer_address or "")
            takes_part = row.network and row.peer_port is not None and row.peer_port == self.peer_port
            if takes_part and row.peer_sealed == self.peer_sealed and host is not None:
                found[name] = host
        return found

    @cached_property
    def peer_sealed(self) -> bool:
        """Have managers TLS between them? Who has it does not speak with who has none."""
        return any(row.peer_sealed for row in self.tables.managers.values() if row.network)

    @cached_property
    def peer_port(self) -> int | None:
        """The one that most managers have: a datagram goes to all of them."""
        ports = Counter(
            row.peer_port for row in self.tables.managers.values() if row.network and row.peer_port is not None
        )
        return min(ports, key=lambda port: (-ports[port], port), default=None)

    @cached_property
    def systems(self) -> dict[str, tuple[str, int]]:
        """Managers in the network that take part in multicast -> their brokers, as `Ends.system`."""
        found = {}
        for name, host in self.peers.items():
            row = self.tables.managers[name]
            found[name] = self._system(row.broker_address, row.broker_port, host)
        return found

    def _system(self, address: str, port: int, host: str) -> tuple[str, int]:
        """A broker, by host and port. Every host has one of its own behind a loopback address."""
        try:
            is_local = ipaddress.ip_address(address).is_loopback
        except ValueError:
            is_local = address == "localhost"
        return (host if is_local else self.hosts.get(address, address)), port

    def apart(self, manager: str, other: str) -> bool:
        """Are these managers of two edge networks, both of which take part?"""
        rows = self.tables.managers
        return manager in self.peers and other in self.peers and rows[manager].network != rows[other].network

    def trouble(self, manager: str) -> str:
        """Why messages between a manager of an edge network and others are not guaranteed; nothing if they are."""
        row = self.tables.managers.get(manager)
        if row is None or not row.network or manager in self.peers:
            return ""
        if row.peer_address is None or row.peer_port is None:
            return f"manager {manager!r} takes no part in multicast: it has no peer address and port"
        if row.peer_port != self.peer_port:
            return f"manager {manager!r} has peer port {row.peer_port}, and the others {self.peer_port}: all of a site need the same"
        if row.peer_sealed != self.peer_sealed:
            return (
                f"manager {manager!r} has no TLS for others (peer.tls), and others have: all of a site need it, or none"
            )
        return f"the peer address of manager {manager!r}, {row.peer_address}, has not been seen in the network"

    @cached_property
    def two_way(self) -> Topology:
        """The network without links that TCP could not use now."""
        return replace(self.topology, links={link.name: link for _, link in sorted(self.links.items())})

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
