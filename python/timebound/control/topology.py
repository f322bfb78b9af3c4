"""What is known of a network, as values: switches, ports, links, hosts.

Learned by the controller (LLDP, first packets of hosts); rates, delays and times of switches cannot be learned, so they come from the site's
description (the `network` of a scenario file), or from defaults where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PortId:
    """A port of a switch."""

    switch: int
    """Datapath id."""
    number: int
    """OpenFlow port number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port as its switch describes it."""

    id: PortId
    name: str
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """An OpenFlow switch that is or was connected."""

    datapath: int
    name: str
    """Of the site's description where that names it, else `dpid` in hex."""
    connected: bool
    delay_ns: tuple[int, int] = (0, 0)
    """Least and greatest time from arrival of a frame's last bit to its output queue (SD)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host that was seen."""

    name: str
    """Of the site's description where that names it, else its address."""
    mac: str
    address: str
    """IPv4."""
    at: PortId


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a link between two switches, or between a host and a switch."""

    name: str
    """`a->b` by the names of its ends, unique."""
    source: str
    """Name of a switch or host."""
    target: str
    out: PortId | None
    """Where its frames are queued: the switch's port; `None` at a host."""
    into: PortId | None
    """Where they arrive; `None` at a host."""
    rate_bps: int
    delay_ns: tuple[int, int]
    up: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """A network at one moment. Names of switches and hosts are unique together."""

    switches: dict[str, Switch]
    ports: dict[PortId, Port]
    links: dict[str, Link]
    hosts: dict[str, Host]
    revision: int = 0
    """Counts up with every change."""

    def host_of(self, address: str) -> Host | None:
        """The host with this IPv4 address."""
        return next((host for host in self.hosts.values() if host.address == address), None)
