"""Three edge networks, each with a switch, a manager with its broker, and two hosts; the switches form a triangle."""

from __future__ import annotations

from dataclasses import replace

from planner_worlds import Table, topology

from timebound.control.planner import Site

PEER_PORT = 1884


def networks(count: int = 3, site: Site | None = None, rate_bps: int = 10_000_000) -> Table:
    """Managers m1, m2, ... in networks `1`, `2`, ...; hosts h1, g1 at switch s1, and so on."""
    names = [f"s{number}" for number in range(1, count + 1)]
    hosts = {f"{kind}{number}": f"s{number}" for number in range(1, count + 1) for kind in ("h", "g", "m")}
    cables = [(a, b) for index, a in enumerate(names) for b in names[index + 1 :]]
    table = Table(topology(names, hosts, cables, rate_bps=rate_bps), site or Site())
    for number in range(1, count + 1):
        name = table.manager(f"m{number}", f"m{number}")
        table.rows.managers[name] = replace(
            table.rows.managers[name],
            network=str(number),
            peer_address=table.network.hosts[name].address,
            peer_port=PEER_PORT,
        )
    return table


def subscribe_at(table: Table, network: int, topic: str, **asked: object) -> str:
    """A subscriber of its own in a network."""
    manager = f"m{network}"
    return table.subscribe(table.connect(f"h{network}", manager, manager), topic, **asked)
