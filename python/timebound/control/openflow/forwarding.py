"""What every switch does with frames that nothing is reserved for: best effort along shortest ways, its mark cleared. Pure.

A frame to a known host goes the cheapest way to its switch and out of its port; all switches follow one tree per target, so there are no loops.
Frames to nobody known and to everybody go to the controller, which sends them out of ports that lead to hosts: never through the network.
"""

from __future__ import annotations

import heapq
import ipaddress
from collections.abc import Iterable, Mapping

from timebound.control.openflow.frames import BROADCAST, ETH_ARP, ETH_IPV4, ETH_IPV6, ETH_LLDP, IGMP, probe_mac
from timebound.control.openflow.lldp import NEAREST_BRIDGE
from timebound.control.openflow.rules import (
    CONTROLLER,
    Kind,
    Meter,
    Output,
    Priority,
    Rule,
    SetField,
    Tables,
    cookie,
    match,
)
from timebound.control.topology import Link, PortId, Topology
from timebound.control.trees import GROUPS
from timebound.scenario.framing import ETHERNET

PUNT_METER = 1
"""The meter that keeps hosts from flooding the controller."""
BEST_EFFORT = 0
_FRAME_BITS = ETHERNET.full * 8

LLDP_COOKIE, PROBE_COOKIE, RESERVED_COOKIE, ARP_COOKIE, MISS_COOKIE, PORT_COOKIE, IGMP_COOKIE, STRAY_COOKIE = (
    cookie(Kind.FIXED, n) for n in range(1, 9)
)


def fixed(datapath: int, punt_packets_per_s: int | None) -> Tables:
    """What every switch always has. `punt_packets_per_s`: `None` where a switch has no meters that count packets."""
    tables = Tables()
    meter = None if punt_packets_per_s is None else PUNT_METER
    if punt_packets_per_s is not None:
        tables.add(meters=[Meter(PUNT_METER, punt_packets_per_s, punt_packets_per_s, packets=True)])
    to_controller = (Output(CONTROLLER),)
    reserved = match(eth_dst=("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0"))
    groups = str(GROUPS.network_address), str(GROUPS.netmask)
    arp = match(eth_type=ETH_ARP, eth_dst=BROADCAST)
    tables.add(
        [
            Rule(Priority.LLDP, match(eth_type=ETH_LLDP, eth_dst=NEAREST_BRIDGE), to_controller, LLDP_COOKIE),
            Rule(Priority.RESERVED, reserved, (), RESERVED_COOKIE),
            Rule(Priority.PROBE, match(eth_src=probe_mac(datapath)), to_controller, PROBE_COOKIE),
            Rule(Priority.IGMP, match(eth_type=ETH_IPV4, ip_proto=IGMP), (), IGMP_COOKIE),
            Rule(Priority.STRAY_GROUP, match(eth_type=ETH_IPV4, ipv4_dst=groups), (), STRAY_COOKIE),
            Rule(Priority.BROADCAST_ARP, arp, to_controller, ARP_COOKIE, meter),
            Rule(Priority.MISS, match(), to_controller, MISS_COOKIE, meter),
        ]
    )
    return tables


def unknown_port_rules(ports: Iterable[int], *, metered: bool) -> list[Rule]:
    """A host that only ever answers, to hosts that are known, would not be heard of without these."""
    meter = PUNT_METER if metered else None
    return [
        Rule(Priority.UNKNOWN_PORT, match(in_port=port), (Output(CONTROLLER),), PORT_COOKIE, meter) for port in ports
    ]


def host_rules(mac: str, address: str | None, out_port: int) -> list[Rule]:
    """Best effort to a host: whatever its sender marked, its mark is best effort's from here on."""
    number = int(ipaddress.IPv4Address(address)) if address else 0
    owner = cookie(Kind.HOST, number)
    send = Output(out_port)
    unmarked = (SetField("ip_dscp", BEST_EFFORT), send)
    return [
        Rule(Priority.HOST, match(eth_type=ETH_IPV4, eth_dst=mac), unmarked, owner),
        Rule(Priority.HOST, match(eth_type=ETH_IPV6, eth_dst=mac), unmarked, owner),
        Rule(Priority.HOST - 1, match(eth_dst=mac), (send,), owner),
    ]


class Forwarding:
    """Next hops to every switch, kept until the topology is another one."""

    def __init__(self, topology: Topology) -> None:
        self._into: dict[int, list[tuple[int, Link]]] = {}
        for link in topology.links.values():
            if link.up and link.out is not None and link.into is not None:
                self._into.setdefault(link.into.switch, []).append((link.out.switch, link))
        self._trees: dict[int, dict[int, int]] = {}

    def out_ports(self, target: int) -> Mapping[int, int]:
        """For every switch that has a way to the switch `target`: the port on which that way begins."""
        if target not in self._trees:
            self._trees[target] = self._tree(target)
        return self._trees[target]

    def _tree(self, target: int) -> dict[int, int]:
        """Dijkstra against the direction of links; cost is delay and the time of a full frame."""
        ports: dict[int, int] = {}
        done: set[int] = set()
        heap: list[tuple[float, int, int, int | None]] = [(0.0, 0, target, None)]
        while heap:
            spent, hops, switch, port = heapq.heappop(heap)
            if switch in done:
                continue
            done.add(switch)
            if port is not None:
                ports[switch] = port
            for neighbour, link in self._into.get(switch, ()):
                if neighbour not in done and link.out is not None:
                    cost = link.delay_ns[1] + _FRAME_BITS * 1e9 / link.rate_bps
                    heapq.heappush(heap, (spent + cost, hops + 1, neighbour, link.out.number))
        return ports

    def rules(self, datapath: int, places: Mapping[str, PortId], addresses: Mapping[str, str | None]) -> list[Rule]:
        """Best effort of one switch to all hosts that it has a way to. `places` and `addresses` by MAC address."""
        rules: list[Rule] = []
        for mac, at in sorted(places.items()):
            port = at.number if at.switch == datapath else self.out_ports(at.switch).get(datapath)
            if port is not None:
                rules += host_rules(mac, addresses.get(mac), port)
        return rules
