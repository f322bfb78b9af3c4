"""What may be configured of switches, as values; files are somebody else's business. All times in ns, rates in bit/s."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from timebound.scenario import model

MS = 1_000_000
S = 1_000_000_000


class QueueMode(StrEnum):
    """Where frames of a class wait."""

    OVSDB = "ovsdb"
    """In queues of the switch's ports, which we configure by OVSDB and choose by `set_queue`."""
    MARK = "mark"
    """Beyond the port, by DSCP: an emulated link, a shaper, a switch whose queues its administrator has configured. We only mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Mutual TLS: our key and certificate, and who must have signed the other side's."""

    key: Path
    certificate: Path
    authority: Path

    def server(self) -> ssl.SSLContext:
        """For connections that switches open. Raises `OSError` (`ssl.SSLError`) where a file is none."""
        return self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client(self) -> ssl.SSLContext:
        """For connections that we open to an OVSDB server: its certificate counts, not its name, which switches seldom have."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        return self._load(context)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """Of the link that a port sends on; `None`: as described elsewhere."""

    rate_bps: int | None = None
    delay_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """One switch of the site."""

    name: str
    datapath: int
    queues: QueueMode = QueueMode.MARK
    ovsdb: str | None = None
    """`tcp:127.0.0.1:6640`, `ssl:...` or `unix:/run/openvswitch/db.sock`; needed with `queues: ovsdb`."""
    delay_ns: tuple[int, int] | None = None
    ports: Mapping[str, PortSettings] = field(default_factory=dict)
    """By name of the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Of what nobody described."""

    rate_bps: int | None = None
    """Of links; `None`: the speed that the port states, or 1 Gbit/s where it states none."""
    delay_ns: tuple[int, int] = (0, 10_000)
    """Of links, one way."""
    switch_delay_ns: tuple[int, int] = (0, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long things may take."""

    lldp_period_ns: int = 1 * S
    """Each port sends a frame that finds its link this often."""
    lldp_lost_after_ns: int = 3 * S + 500 * MS
    """A link that was not heard of for so long is down. Ports that go down are known at once."""
    edge_after_ns: int = 500 * MS
    """A port that heard of no switch for so long since it came up may be a host's: broadcasts are sent there."""
    echo_period_ns: int = 1 * S
    echo_lost_after_ns: int = 4 * S
    """A switch that says nothing for so long is gone."""
    grace_ns: int = 500 * MS
    """A switch that comes back within this time was never gone; its frames are forwarded meanwhile by the rules that it has."""
    forget_ns: int = 10 * S
    """A switch that the site does not name, and through which no channel goes, is forgotten when it is away for so long: whoever connects can invent one."""
    settle_ns: int = 3 * S
    """After the start: rules that this controller does not know of stay for so long, because it does not know its network yet."""
    adopt_ns: int = 20 * S
    """After the start: channels found in switches that nobody asked for again by then are taken out."""
    drain_ns: int = 100 * MS
    """After a channel's first switch sends elsewhere, rules of the old way stay for so long: frames are still under way on it."""
    confirm_ns: int = 2 * S
    """A switch confirms (barrier) or answers by then."""
    probe_ns: int = 250 * MS
    """A probe has passed by then, tried several times meanwhile."""
    poll_ns: int = 1 * S
    """Counters are read this often."""
    window_ns: int = 5 * S
    """Rates are taken over this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything. Secure by default: loopback, and without `tls` nothing but loopback is accepted."""

    host: str = "127.0.0.1"
    port: int = 6653
    """0: any that is free."""
    tls: Tls | None = None
    """Of OpenFlow and of OVSDB connections with `ssl:`."""
    insecure: bool = False
    """Plain TCP on an address that is not loopback: whoever reaches it can pretend to be a switch."""
    switches: tuple[SwitchSettings, ...] = ()
    only_listed: bool = False
    """Switches that are not in `switches` are turned away."""
    nodes: tuple[model.Node, ...] = ()
    links: tuple[model.Link, ...] = ()
    """The `network` of the site's scenario file."""
    defaults: Defaults = Defaults()
    times: Times = Times()
    punt_packets_per_s: int = 500
    """A switch hands at most so many frames of hosts per second to the controller."""
    most_hosts_per_port: int = 1024
    """More senders at one port are not learned."""
