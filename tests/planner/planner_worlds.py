"""Networks and tables for the planner's tests, as a controller would have learnt them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from timebound.control.planner import Site, World
from timebound.control.srt.rows import (
    ConnectionRow,
    ManagerRow,
    RequestRow,
    Requirements,
    Row,
    Side,
    Tables,
)
from timebound.control.topology import Host, Link, Port, PortId, Switch, Topology

MS = 1_000_000
BROKER_PORT = 1883


def topology(
    switches: Iterable[str],
    hosts: Mapping[str, str],
    cables: Iterable[tuple[str, str]],
    *,
    rate_bps: int = 10_000_000,
    delay_ns: tuple[int, int] = (5_000, 5_000),
    switch_delay_ns: tuple[int, int] = (10_000, 20_000),
) -> Topology:
    """Switches, hosts (name -> switch) and cables between switches; a host's address is 10.0.0.n in the order of their names."""
    numbers = {name: index + 1 for index, name in enumerate(switches)}
    ports: dict[PortId, Port] = {}
    links: dict[str, Link] = {}
    used = dict.fromkeys(numbers, 0)

    def port(switch: str) -> PortId:
        used[switch] += 1
        found = PortId(numbers[switch], used[switch])
        ports[found] = Port(id=found, name=f"{switch}-eth{used[switch]}", up=True)
        return found

    def join(a: str, b: str) -> None:
        out = {end: port(end) if end in numbers else None for end in (a, b)}
        for source, target in ((a, b), (b, a)):
            name = f"{source}->{target}"
            links[name] = Link(
                name=name,
                source=source,
                target=target,
                out=out[source],
                into=out[target],
                rate_bps=rate_bps,
                delay_ns=delay_ns,
            )

    for a, b in cables:
        join(a, b)
    known = {}
    for index, (host, switch) in enumerate(sorted(hosts.items()), 1):
        join(host, switch)
        at = links[f"{switch}->{host}"].out
        assert at is not None
        known[host] = Host(name=host, mac=f"02:00:00:00:00:{index:02x}", address=f"10.0.0.{index}", at=at)
    made = {
        name: Switch(datapath=number, name=name, connected=True, delay_ns=switch_delay_ns)
        for name, number in numbers.items()
    }
    return Topology(made, ports, links, known)


def line(length: int = 3, hosts: Mapping[str, str] | None = None, **options: object) -> Topology:
    """Switches s1, s2, ... in a row; by default a host at each end and the manager m in the middle."""
    names = [f"s{number}" for number in range(1, length + 1)]
    default = {"h1": names[0], "h2": names[-1], "m": names[length // 2]}
    return topology(names, hosts or default, itertools.pairwise(names), **options)  # type: ignore[arg-type]


def ring(size: int = 4, hosts: Mapping[str, str] | None = None) -> Topology:
    """Switches in a circle: two disjoint ways between any two."""
    names = [f"s{number}" for number in range(1, size + 1)]
    cables = [*itertools.pairwise(names), (names[-1], names[0])]
    return topology(names, hosts or {"h1": "s1", "h2": "s2", "m": names[size // 2]}, cables)


def cut(network: Topology, a: str, b: str) -> Topology:
    """The network with a cable gone."""
    links = {
        name: replace(link, up=link.up and {link.source, link.target} != {a, b}) for name, link in network.links.items()
    }
    return replace(network, links=links, revision=network.revision + 1)


@dataclass
class Table:
    """The rows of managers, filled step by step."""

    network: Topology
    site: Site = field(default_factory=Site)
    rows: Tables = field(default_factory=Tables)
    clock: int = 0

    def world(self) -> World:
        """What the planner sees."""
        tables = Tables(*(dict(getattr(self.rows, name)) for name in Tables.__dataclass_fields__))
        return World(self.network, self.site, tables)

    def manager(self, name: str = "m", host: str = "m", broker: str | None = None) -> str:
        """A manager on a host, with the broker on it or on another."""
        address = self.network.hosts[host].address
        self.rows.managers[name] = ManagerRow(
            id=name,
            addresses=(address,),
            ports=(1883,),
            broker_address="127.0.0.1" if broker is None else self.network.hosts[broker].address,
            broker_port=BROKER_PORT,
            version="1",
            beat_ns=0,
        )
        return name

    def connect(self, client: str, manager: str = "m", at: str = "m", broker: str | None = None) -> str:
        """A client's connection from its host."""
        number = len(self.rows.connections) + 1
        here = self.network.hosts[at].address
        leg = None if broker is None else (here, 40_000 + number, self.network.hosts[broker].address, BROKER_PORT)
        row = ConnectionRow(
            id=f"c{number}",
            manager=manager,
            client_id=f"client-{number}",
            user=None,
            client_address=self.network.hosts[client].address,
            client_port=30_000 + number,
            manager_address=here,
            manager_port=1883,
            broker_leg=leg,
        )
        self.rows.connections[row.id] = row
        return row.id

    def publish(self, connection: str, topic: str, **asked: object) -> str:
        """A publisher's request; 100 bytes every 20 ms in 20 ms, unless told otherwise."""
        default: dict[str, object] = {"size_bytes": 100, "period_ns": 20 * MS, "deadline_ns": 20 * MS, "qos": 0}
        return self._ask(connection, Side.PUBLISH, topic, {**default, **asked})

    def subscribe(self, connection: str, topic: str, **asked: object) -> str:
        """A subscriber's request."""
        return self._ask(connection, Side.SUBSCRIBE, topic, {"qos": 0, **asked})

    def _ask(self, connection: str, side: Side, topic: str, asked: dict[str, object]) -> str:
        self.clock += 1
        name = f"r{self.clock}"
        self.rows.requests[name] = RequestRow(
            id=name,
            connection=connection,
            side=side,
            topic=topic,
            requirements=Requirements(**asked),  # type: ignore[arg-type]
            revision=1,
            asked_ns=self.clock,
        )
        return name

    def put(self, row: Row) -> None:
        """A row in its table."""
        from timebound.control.srt.rows import table_of

        getattr(self.rows, table_of(row))[row.id] = row
