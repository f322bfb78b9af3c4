"""Small networks as topologies, for tests of what is pure."""

from __future__ import annotations

from collections.abc import Iterable

from timebound.control.topology import Host, Link, PortId, Switch, Topology


def topology(
    links: Iterable[tuple[int, int]], hosts: Iterable[int], *, delays: dict[tuple[int, int], int] | None = None
) -> Topology:
    """Switches `s1`, `s2`, ..., links in both directions (several between two switches are parallel ones), host `h1` at the first of `hosts`."""
    next_port: dict[int, int] = {}

    def port(switch: int) -> PortId:
        next_port[switch] = next_port.get(switch, 0) + 1
        return PortId(switch, next_port[switch])

    made: dict[str, Link] = {}
    numbers: set[int] = set()
    for number, (a, b) in enumerate(links):
        numbers |= {a, b}
        ends = port(a), port(b)
        for source, target, out, into in ((a, b, ends[0], ends[1]), (b, a, ends[1], ends[0])):
            delay = (delays or {}).get((source, target), 1000)
            name = f"s{source}->s{target}"
            name = name if name not in made else f"{name}#{number}"
            made[name] = link(name, f"s{source}", f"s{target}", out, into, delay)
    known: dict[str, Host] = {}
    for number, switch in enumerate(hosts, 1):
        numbers.add(switch)
        at, name = port(switch), f"h{number}"
        known[name] = Host(name=name, mac=f"0a:00:00:00:00:{number:02x}", address=f"10.0.0.{number}", at=at)
        made[f"{name}->s{switch}"] = link(f"{name}->s{switch}", name, f"s{switch}", None, at, 1000)
        made[f"s{switch}->{name}"] = link(f"s{switch}->{name}", f"s{switch}", name, at, None, 1000)
    switches = {f"s{n}": Switch(datapath=n, name=f"s{n}", connected=True) for n in sorted(numbers)}
    return Topology(switches=switches, ports={}, links=made, hosts=known)


def link(name: str, source: str, target: str, out: PortId | None, into: PortId | None, delay_ns: int) -> Link:
    """One direction, 100 Mbit/s."""
    return Link(
        name=name,
        source=source,
        target=target,
        out=out,
        into=into,
        rate_bps=100_000_000,
        delay_ns=(delay_ns, delay_ns),
    )
