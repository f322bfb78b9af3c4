"""What the site says of its network: names, rates and delays, which no protocol can learn. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timebound.control.openflow.settings import Defaults, PortSettings, Settings
from timebound.scenario import model


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Of one direction of a link."""

    rate_bps: int
    delay_ns: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """Of a switch."""

    name: str
    delay_ns: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Description:
    """Everything described; what is not gets the defaults."""

    switches: Mapping[int, SwitchFacts]
    ports: Mapping[tuple[int, str], PortSettings]
    """By datapath id and name of the port."""
    links: Mapping[tuple[str, str], tuple[LinkFacts, ...]]
    """By names of both ends; several where there are parallel links, in the order of the file."""
    addresses: Mapping[str, str]
    """Names of hosts by IPv4 address."""
    macs: Mapping[str, str]
    """Names of hosts by MAC address."""
    defaults: Defaults

    def switch(self, datapath: int) -> SwitchFacts:
        """By its datapath id; unnamed ones are called by it, in hex."""
        return self.switches.get(datapath) or SwitchFacts(f"{datapath:016x}", self.defaults.switch_delay_ns)

    def host(self, mac: str, address: str) -> str:
        """The name of a host; its address where it has none."""
        return self.addresses.get(address) or self.macs.get(mac) or address

    def link(self, source: str, target: str, number: int, port: PortSettings | None, speed_bps: int) -> LinkFacts:
        """`number`: which of parallel links; `port`: settings of the switch's port on it; `speed_bps`: what that port states, 0 if nothing."""
        described = self.links.get((source, target), ())
        facts = described[min(number, len(described) - 1)] if described else None
        rate = self.defaults.rate_bps or speed_bps or 1_000_000_000
        delay = self.defaults.delay_ns
        if facts is not None:
            rate, delay = facts.rate_bps, facts.delay_ns
        if port is not None:
            rate, delay = port.rate_bps or rate, port.delay_ns or delay
        return LinkFacts(rate, delay)


def describe(settings: Settings) -> Description:
    """The site's description, from its settings and its network."""
    nodes = {node.name: node for node in settings.nodes}
    switches: dict[int, SwitchFacts] = {}
    ports: dict[tuple[int, str], PortSettings] = {}
    for switch in settings.switches:
        node = nodes.get(switch.name)
        delay = switch.delay_ns or (
            (node.switching_min_ns, node.switching_max_ns) if node else settings.defaults.switch_delay_ns
        )
        switches[switch.datapath] = SwitchFacts(switch.name, delay)
        ports.update(((switch.datapath, name), port) for name, port in switch.ports.items())
    hosts = [node for node in settings.nodes if node.kind == "host"]
    return Description(
        switches=switches,
        ports=ports,
        links=_links(settings.links),
        addresses={str(ipaddress.IPv4Address(node.address)): node.name for node in hosts if node.address},
        macs={node.mac.lower(): node.name for node in hosts if node.mac},
        defaults=settings.defaults,
    )


def _links(links: Iterable[model.Link]) -> dict[tuple[str, str], tuple[LinkFacts, ...]]:
    described: dict[tuple[str, str], tuple[LinkFacts, ...]] = {}
    for link in links:
        for ends, direction in (((link.a, link.b), link.forward), ((link.b, link.a), link.backward)):
            described[ends] = (*described.get(ends, ()), _facts(direction))
    return described


def _facts(direction: model.Direction) -> LinkFacts:
    jitter = direction.impairments.jitter
    latest = direction.delay_ns + (jitter.max_ns if jitter else 0)
    return LinkFacts(direction.rate_bps, (direction.delay_ns, latest))
