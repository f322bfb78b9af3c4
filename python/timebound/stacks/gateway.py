"""Gateways: subnets, default routes, NAT (nftables), leases and names (dnsmasq), and the DHCP clients of hosts.

A gateway is two hosts of the network, one for each interface, in one network namespace: nothing but its routing joins them, so what
crosses it is undeclared traffic to the bounds. Each part of the network that links join is a subnet.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from timebound.scenario.model import Node, Scenario
from timebound.stacks.plan import Plan, PlanError

SUBNET = ipaddress.IPv4Network("10.0.0.0/16")
"""All hosts of a run without gateways share it; it exists only inside the run's own namespaces."""
MOST_SUBNETS = 256
LEASE_TIMEOUT_MS = 20_000

_NAT = """table ip timebound {
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "eth1" masquerade
  }
}
"""
_CLIENT = """#!/bin/sh
# Called by udhcpc: takes the leased address, and says so to whoever waits for it.
case "$1" in
deconfig) busybox ip address flush dev "$interface" ;;
bound | renew)
    busybox ip address flush dev "$interface"
    busybox ip address add "$ip/$subnet" broadcast + dev "$interface" || exit 1
    busybox ip route add 224.0.0.0/4 dev "$interface"
    [ -z "$router" ] || busybox ip route add default via "$router" dev "$interface"
    printf 'address=%s\\nrouter=%s\\nserver=%s\\nlease=%s\\n' "$ip" "$router" "$serverid" "$lease" >"$LEASE_FILE"
    ;;
esac
exit 0
"""


def subnets_of(scenario: Scenario) -> dict[str, ipaddress.IPv4Network]:
    """Host name -> subnet: one for all, or with gateways one for each part of the network that links join.

    Raises:
        PlanError: a gateway whose two sides are joined beside it, or more parts than subnets.
    """
    if all(node.gateway is None for node in scenario.nodes):
        return {node.name: SUBNET for node in scenario.hosts}
    parts = _parts(scenario)
    for index, node in enumerate(scenario.nodes):
        if node.gateway is not None and parts[node.name] == parts[node.gateway.outside]:
            message = f"links join {node.name!r} and {node.gateway.outside!r}: there is nothing to route between"
            raise PlanError(f"nodes[{index}]", message, "join each side of a gateway to a network of its own")
    numbers: dict[str, int] = {}
    for host in scenario.hosts:
        numbers.setdefault(parts[host.name], len(numbers))
    if len(numbers) > MOST_SUBNETS:
        raise PlanError("network", f"more than {MOST_SUBNETS} separate networks", "join some of them")
    base = int(SUBNET.network_address)
    return {host.name: ipaddress.IPv4Network((base + (numbers[parts[host.name]] << 16), 16)) for host in scenario.hosts}


def _parts(scenario: Scenario) -> dict[str, str]:
    """Node name -> a name that all nodes of its part of the network share."""
    above = {node.name: node.name for node in scenario.nodes}

    def root(name: str) -> str:
        while above[name] != name:
            above[name] = name = above[above[name]]
        return name

    for link in scenario.links:
        above[root(link.a)] = root(link.b)
    return {name: root(name) for name in above}


def mac_of(address: str) -> str:
    """The MAC address that a node gets (`HostPlan.mac` in crates/live/src/plan.rs)."""
    return ":".join(["02", "54", *(f"{int(part):02x}" for part in address.split("."))])


def lay(plan: Plan) -> None:
    """Adds routes, programs and files of the scenario's gateways, and the clients of hosts with leased addresses."""
    scenario = plan.scenario
    parts = _parts(scenario)
    served: set[str] = set()
    for index, node in enumerate(scenario.nodes):
        if node.gateway is None:
            continue
        inside = [host for host in scenario.hosts if host.name != node.name and parts[host.name] == parts[node.name]]
        if any(host.gateway is not None for host in inside):
            message = f"{node.name!r} is not the only gateway on its inside"
            raise PlanError(f"nodes[{index}]", message, "join the outside of one to it, so that one way leads out")
        _lay_gateway(plan, node, inside)
        if node.gateway.dhcp:
            served.add(parts[node.name])
        if not node.gateway.nat:
            _lay_way_back(plan, node, parts)
    for index, node in enumerate(scenario.nodes):
        if node.dhcp and parts[node.name] not in served:
            message = f"no gateway leases addresses where {node.name!r} is"
            raise PlanError(f"nodes[{index}].address", message, "join it to the inside of a gateway with dhcp: true")
        if node.dhcp:
            _lay_client(plan, node)


def _host(plan: Plan, name: str) -> dict[str, Any]:
    return plan.hosts.setdefault(name, {})


def _lay_gateway(plan: Plan, node: Node, inside: list[Node]) -> None:
    gateway, address = node.gateway, plan.addresses[node.name]
    assert gateway is not None
    plan.role(node.name, "gateway")
    _host(plan, node.name)["sysctls"] = {"net.ipv4.ip_forward": "1"}
    _host(plan, gateway.outside).update({"side_of": node.name, "hostname": node.hostname or node.name})
    for host in inside:
        _host(plan, host.name)["gateway"] = address
        if gateway.dns:
            lines = [f"nameserver {address}", *([f"search {gateway.domain}"] if gateway.domain else []), ""]
            _host(plan, host.name)["files"] = [
                {"path": "/etc/resolv.conf", "content": "\n".join(lines), "source": None, "mode": 0o644}
            ]
    if gateway.nat:
        plan.files[f"nat-{node.name}.nft"] = _NAT
        plan.programs.append(
            {
                "name": f"nat-{node.name}",
                "node": node.name,
                "argv": ["nft", "-f", f"nat-{node.name}.nft"],
                "essential": True,
            }
        )
    if gateway.dhcp or gateway.dns:
        _lay_dnsmasq(plan, node, inside)


def _lay_dnsmasq(plan: Plan, node: Node, inside: list[Node]) -> None:
    gateway, address = node.gateway, plan.addresses[node.name]
    assert gateway is not None
    name = f"dnsmasq-{node.name}"
    lines = ["user=root", "interface=eth0", "bind-interfaces", "no-resolv", "no-hosts"]
    if gateway.dns:
        # Written by the sandbox: every node by its name.
        lines += ["addn-hosts=hosts", "log-queries"]
        if gateway.domain:
            lines += [f"domain={gateway.domain}", "expand-hosts", f"local=/{gateway.domain}/"]
    else:
        lines.append("port=0")
    if gateway.dhcp:
        subnet = ipaddress.IPv4Network((address, 16), strict=False)
        lines += [
            f"dhcp-range={subnet.network_address},static,{subnet.netmask},12h",
            f"dhcp-leasefile={name}.leases",
            f"dhcp-option=option:router,{address}",
            # The address is nobody else's: asking the network takes a second.
            "no-ping",
            "dhcp-authoritative",
            "log-dhcp",
            *([f"dhcp-option=option:dns-server,{address}"] if gateway.dns else []),
        ]
        # The plan knows each 5-tuple, so a host is leased the address that the plan gave it.
        leased = [(host, plan.addresses[host.name]) for host in inside if host.dhcp]
        lines += [f"dhcp-host={host.mac or mac_of(own)},{own},{host.name},infinite" for host, own in leased]
    plan.files[f"{name}.conf"] = "\n".join([*lines, ""])
    plan.programs.append(
        {
            "name": name,
            "node": node.name,
            "argv": ["dnsmasq", "--no-daemon", f"--conf-file={name}.conf"],
            "essential": True,
            "ready": {"tcp_port": 53, "timeout_ms": 10_000} if gateway.dns else None,
        }
    )


def _lay_way_back(plan: Plan, node: Node, parts: dict[str, str]) -> None:
    """Without NAT the outside needs a route to the inside: by the gateway, where no host there has another."""
    assert node.gateway is not None
    outside = node.gateway.outside
    for host in plan.scenario.hosts:
        if host.side_of is None and parts[host.name] == parts[outside]:
            _host(plan, host.name).setdefault("gateway", plan.addresses[outside])


def _lay_client(plan: Plan, node: Node) -> None:
    name = f"dhcp-{node.name}"
    host = _host(plan, node.name)
    script = {"path": "/etc/udhcpc/default.script", "content": _CLIENT, "source": None, "mode": 0o755}
    host["files"] = [*host.get("files", []), script]
    plan.programs.append(
        {
            "name": name,
            "node": node.name,
            # In the foreground, every second until there is a lease.
            "argv": ["udhcpc", "-f", "-i", "eth0", "-t", "15", "-T", "1", "-s", "/etc/udhcpc/default.script"],
            "env": {"LEASE_FILE": f"{name}.lease"},
            "essential": True,
            "ready": {"file": f"{name}.lease", "timeout_ms": LEASE_TIMEOUT_MS},
        }
    )
