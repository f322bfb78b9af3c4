"""What was seen of a network, and the topology that follows from it. Pure: time is an argument, in ns of any steady clock.

Links are one-way here: each direction is found by its own LLDP frame, and is lost on its own. A host is where its frames came in last, and at
no second place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from timebound.control.openflow.description import Description
from timebound.control.openflow.frames import is_host_mac
from timebound.control.topology import Host, Link, Port, PortId, Switch, Topology


@dataclass(frozen=True, slots=True)
class SeenPort:
    """A port as its switch described it last."""

    id: PortId
    name: str
    mac: str
    up: bool
    speed_bps: int = 0
    """As stated by the switch; 0: nothing stated."""


@dataclass(slots=True)
class _Port:
    seen: SeenPort
    up_since_ns: int


@dataclass(slots=True)
class _Link:
    out: PortId
    into: PortId
    heard_ns: int
    lost: bool = False


@dataclass(slots=True)
class _Switch:
    connected: bool
    gone_ns: int | None = None
    """Since when its connection is away."""


@dataclass(slots=True)
class _Host:
    mac: str
    at: PortId
    addresses: dict[str, None] = field(default_factory=dict)
    certain: bool = True
    """Seen by this controller, not only found in a switch's rules."""


@dataclass(slots=True)
class _Found:
    """What the rules that another controller left in switches say of a host."""

    address: str | None = None
    outs: dict[int, PortId] = field(default_factory=dict)
    """By switch: the port that frames to it leave by, towards other switches in all but one."""


class Learned:
    """All that was seen. Every method that changes something returns whether the topology is another one now."""

    def __init__(
        self, description: Description, *, lost_after_ns: int, edge_after_ns: int, grace_ns: int, most_hosts: int
    ) -> None:
        """`lost_after_ns`, `edge_after_ns`, `grace_ns`, `most_hosts` (per port): see `settings.Times` and `settings.Settings`."""
        self._description = description
        self._lost_after_ns = lost_after_ns
        self._edge_after_ns = edge_after_ns
        self._grace_ns = grace_ns
        self._most_hosts = most_hosts
        self._switches: dict[int, _Switch] = {}
        self._ports: dict[PortId, _Port] = {}
        self._links: dict[PortId, _Link] = {}
        self._hosts: dict[str, _Host] = {}
        self._found: dict[str, _Found] = {}
        """By MAC address; until `forget_found`."""
        self._topology: Topology | None = None
        self._revision = 0

    # Switches and ports ------------------------------------------------------------------------------------------------------

    def switch_connected(self, datapath: int, ports: Iterable[SeenPort], now_ns: int) -> bool:
        """A switch is there, for the first time or again."""
        self._switches[datapath] = _Switch(True)
        seen = {port.id: port for port in ports}
        for gone in [port for port in self._ports if port.switch == datapath and port not in seen]:
            self.port_gone(gone)
        for port in seen.values():
            self.port_seen(port, now_ns)
        return self._changed()

    def switch_disconnected(self, datapath: int, now_ns: int) -> bool:
        """Its connection is away; it counts as there until `expire` finds that it did not come back in time."""
        switch = self._switches.get(datapath)
        if switch is not None and switch.gone_ns is None:
            switch.gone_ns = now_ns
        return False

    def port_seen(self, port: SeenPort, now_ns: int) -> bool:
        """A port is new or has changed."""
        known = self._ports.get(port.id)
        if known is not None and known.seen == port:
            return False
        since = known.up_since_ns if known is not None and known.seen.up and port.up else now_ns
        self._ports[port.id] = _Port(port, since)
        if not port.up:
            self._port_lost(port.id)
        return self._changed()

    def port_gone(self, port: PortId) -> bool:
        """A port was taken out of its switch."""
        if self._ports.pop(port, None) is None:
            return False
        self._port_lost(port)
        for out in [link.out for link in self._links.values() if port in (link.out, link.into)]:
            del self._links[out]
        return self._changed()

    def _port_lost(self, port: PortId) -> None:
        for link in self._links.values():
            if port in (link.out, link.into):
                link.lost = True
        for mac in [host.mac for host in self._hosts.values() if host.at == port]:
            del self._hosts[mac]

    # Links -------------------------------------------------------------------------------------------------------------------

    def link_heard(self, out: PortId, into: PortId, now_ns: int) -> bool:
        """A frame that left `out` has come in at `into`."""
        if out not in self._ports or into not in self._ports or out == into:
            return False
        known = self._links.get(out)
        if known is not None and known.into == into:
            news, known.lost, known.heard_ns = known.lost, False, now_ns
            return self._changed() if news else False
        for other in [link.out for link in self._links.values() if link.into == into]:
            # The cable was moved: a port has one neighbour.
            del self._links[other]
        self._links[out] = _Link(out, into, now_ns)
        for mac in [host.mac for host in self._hosts.values() if host.at in (out, into)]:
            del self._hosts[mac]
        return self._changed()

    def frames_came(self, into: PortId, now_ns: int) -> None:
        """Frames came in at a port, by its counters: the link that is known to end there carries something.

        LLDP has no DSCP, so where queues go by that its frames are best effort, and lost where best effort overloads a link that works.
        """
        for link in self._links.values():
            if link.into == into and not link.lost:
                link.heard_ns = max(link.heard_ns, now_ns)

    def expire(self, now_ns: int) -> bool:
        """What was not heard of for too long is gone."""
        news = False
        for switch in self._switches.values():
            if switch.connected and switch.gone_ns is not None and now_ns - switch.gone_ns >= self._grace_ns:
                switch.connected = False
                news = True
        for link in self._links.values():
            if not link.lost and now_ns - link.heard_ns >= self._lost_after_ns:
                link.lost = news = True
        return self._changed() if news else False

    def knows(self, datapath: int) -> bool:
        """Was this switch connected, and not forgotten since?"""
        return datapath in self._switches

    def away(self) -> list[tuple[int, int]]:
        """Switches that are gone: since when (ns), and which, the first to go first."""
        gone = [
            (s.gone_ns, datapath) for datapath, s in self._switches.items() if not s.connected and s.gone_ns is not None
        ]
        return sorted(gone)

    def forget(self, datapath: int) -> bool:
        """A switch was never there: its ports, links and hosts go with it."""
        if self._switches.pop(datapath, None) is None:
            return False
        for port in [port for port in self._ports if port.switch == datapath]:
            self.port_gone(port)
        return self._changed()

    def is_link_port(self, port: PortId) -> bool:
        """Is (or was, until something else was heard) another switch behind it?"""
        return port in self._links or any(link.into == port for link in self._links.values())

    def edge_ports(self, now_ns: int) -> list[PortId]:
        """Ports that lead to hosts and to nothing else, as far as anybody can know."""
        inner = {port for link in self._links.values() for port in (link.out, link.into)}
        hosts = {host.at for host in self._hosts.values()}
        return [
            id
            for id, port in sorted(self._ports.items())
            if port.seen.up
            and id not in inner
            and self._present(id.switch)
            and (id in hosts or now_ns - port.up_since_ns >= self._edge_after_ns)
        ]

    def unknown_ports(self) -> list[PortId]:
        """Ports that are up, and where neither a switch nor a host is known."""
        inner = {port for link in self._links.values() for port in (link.out, link.into)}
        known = inner | {host.at for host in self._hosts.values()}
        return [port.id for port in self.live_ports() if port.id not in known]

    def unheard_ports(self) -> list[PortId]:
        """Ports that are up, and from which no other switch has a frame (or has none any more)."""
        heard = {link.out for link in self._links.values() if not link.lost}
        return [port.id for port in self.live_ports() if port.id not in heard]

    def live_ports(self) -> list[SeenPort]:
        """Ports of switches that are there and that are up."""
        return [p.seen for id, p in sorted(self._ports.items()) if p.seen.up and self._present(id.switch)]

    def _present(self, datapath: int) -> bool:
        switch = self._switches.get(datapath)
        return switch is not None and switch.connected

    # Hosts -------------------------------------------------------------------------------------------------------------------

    def host_seen(self, mac: str, address: str | None, at: PortId, now_ns: int) -> bool:
        """A host's frame came in at `at`; `address`: the IPv4 address that it claims."""
        port = self._ports.get(at)
        if port is None or not port.seen.up or not is_host_mac(mac) or self.is_link_port(at):
            return False
        host = self._hosts.get(mac)
        if host is None:
            if sum(other.at == at for other in self._hosts.values()) >= self._most_hosts:
                return False
            host = self._hosts[mac] = _Host(mac, at)
            if address is None:
                # IPv6 or the like: its first frame need not say what its IPv4 address is.
                self._remind(host)
            news = True
        elif host.at != at:
            if host.certain and now_ns - port.up_since_ns < self._edge_after_ns:
                # A port that is new may yet turn out to be a link's, and this frame one that another switch passed on.
                return False
            host.at = at
            news = True
        else:
            news = False
        host.certain = True
        if address is not None and address not in host.addresses:
            self._give(address, host)
            news = True
        return self._changed() if news else False

    def _give(self, address: str, host: _Host) -> None:
        for other in self._hosts.values():
            other.addresses.pop(address, None)
        host.addresses[address] = None

    # Hosts of a controller before this one ----------------------------------------------------------------------------------

    def host_found(self, mac: str, address: str | None, out: PortId) -> bool:
        """A switch has a rule that sends frames for this host out of a port, and perhaps says its IPv4 address; what is seen by ourselves counts more.

        To be said before rules are written by what is known here: those of a host without an address would take the place of the one that has it.
        """
        if not is_host_mac(mac):
            return False
        found = self._found.setdefault(mac, _Found())
        found.outs[out.switch] = out
        found.address = address or found.address
        host = self._hosts.get(mac)
        return self._changed() if host is not None and self._remind(host) else False

    def recover(self, now_ns: int, *, at_last: bool = False) -> bool:
        """Hosts that were found and not seen are where the one port leads that no switch is behind.

        While a switch is not connected yet, the port towards it looks like a host's as well, and which one is cannot be known; `at_last`: it is to be
        decided now.
        """
        edge = set(self.edge_ports(now_ns))
        news = False
        for mac, found in self._found.items():
            ends = [out for _switch, out in sorted(found.outs.items()) if not self.is_link_port(out)]
            if mac in self._hosts or not edge.intersection(ends) or (len(ends) > 1 and not at_last):
                continue
            at = next(end for end in ends if end in edge)
            host = self._hosts[mac] = _Host(mac, at, certain=False)
            self._remind(host)
            news = True
        return self._changed() if news else False

    def _remind(self, host: _Host) -> bool:
        """Gives a host without an address the one that it had, unless somebody else claims that now."""
        found = self._found.get(host.mac)
        if found is None or found.address is None or host.addresses or self.mac_of(found.address) is not None:
            return False
        host.addresses[found.address] = None
        return True

    def is_awaited(self, mac: str) -> bool:
        """Was this host found in switches, and is it not known yet where it is?"""
        return mac in self._found and mac not in self._hosts

    def forget_found(self) -> None:
        """Whoever is there was heard of or found: what the rules of another controller say counts no more."""
        self._found.clear()

    # Who is where ------------------------------------------------------------------------------------------------------------

    def places(self) -> dict[str, PortId]:
        """Where hosts are, by MAC address."""
        return {host.mac: host.at for host in self._hosts.values() if self._present(host.at.switch)}

    def first_address(self, mac: str) -> str | None:
        """An IPv4 address of a host."""
        host = self._hosts.get(mac)
        return next(iter(host.addresses), None) if host else None

    def mac_of(self, address: str) -> str | None:
        """Who has this IPv4 address?"""
        return next((host.mac for host in self._hosts.values() if address in host.addresses), None)

    # Topology ----------------------------------------------------------------------------------------------------------------

    def _changed(self) -> bool:
        self._topology = None
        return True

    def topology(self) -> Topology:
        """The network as it is known now."""
        if self._topology is None:
            self._revision += 1
            self._topology = self._compose()
        return self._topology

    def _compose(self) -> Topology:
        switches: dict[str, Switch] = {}
        names: dict[int, str] = {}
        for datapath, switch in sorted(self._switches.items()):
            facts = self._description.switch(datapath)
            name = facts.name if facts.name not in switches else f"{datapath:016x}"
            names[datapath] = name
            switches[name] = Switch(datapath=datapath, name=name, connected=switch.connected, delay_ns=facts.delay_ns)
        links = {link.name: link for link in self._switch_links(names)}
        hosts: dict[str, Host] = {}
        for host in sorted(self._hosts.values(), key=lambda host: host.mac):
            for address in host.addresses:
                name = self._description.host(host.mac, address)
                name = address if name in switches or name in hosts else name
                hosts[name] = Host(name=name, mac=host.mac, address=address, at=host.at)
        for known in hosts.values():
            links.update((link.name, link) for link in self._host_links(known, names[known.at.switch]))
        ports = {id: Port(id=id, name=p.seen.name, up=p.seen.up) for id, p in sorted(self._ports.items())}
        return Topology(switches=switches, ports=ports, links=links, hosts=hosts, revision=self._revision)

    def _switch_links(self, names: dict[int, str]) -> Iterator[Link]:
        parallel: dict[tuple[str, str], list[_Link]] = {}
        for out in sorted(self._links):
            link = self._links[out]
            parallel.setdefault((names[out.switch], names[link.into.switch]), []).append(link)
        for (source, target), links in parallel.items():
            for number, link in enumerate(links):
                name = f"{source}->{target}"
                if len(links) > 1:
                    name = f"{source}.{self._ports[link.out].seen.name}->{target}.{self._ports[link.into].seen.name}"
                yield self._link(name, source, target, link.out, link.into, number, up=self._is_up(link))

    def _is_up(self, link: _Link) -> bool:
        ends = (link.out, link.into)
        return not link.lost and all(self._ports[end].seen.up and self._present(end.switch) for end in ends)

    def _host_links(self, host: Host, switch: str) -> Iterator[Link]:
        up = self._present(host.at.switch)
        yield self._link(f"{host.name}->{switch}", host.name, switch, None, host.at, 0, up=up)
        yield self._link(f"{switch}->{host.name}", switch, host.name, host.at, None, 0, up=up)

    def _link(
        self, name: str, source: str, target: str, out: PortId | None, into: PortId | None, number: int, *, up: bool
    ) -> Link:
        at = out or into
        assert at is not None
        port = self._ports[at].seen
        settings = self._description.ports.get((at.switch, port.name))
        facts = self._description.link(source, target, number, settings, port.speed_bps)
        return Link(
            name=name,
            source=source,
            target=target,
            out=out,
            into=into,
            rate_bps=facts.rate_bps,
            delay_ns=facts.delay_ns,
            up=up,
        )
