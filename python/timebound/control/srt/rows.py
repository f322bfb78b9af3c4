"""The rows of the table of real-time requirements (SRT; RT-MQTT, eq. 3 and 5), each written by one side alone.

| table | written by | what it says |
|---|---|---|
| `managers` | its manager | who intercepts where, and that it is alive |
| `connections` | its manager | TCP connections of clients that asked for something, with both ends |
| `requests` | its manager | what a client asks for one topic (publisher) or filter (subscriber) on one connection |
| `verdicts` | the controller | the answer to one revision of a request |
| `channels` | the controller | what is reserved: a way through the network for one direction of one connection |
| `groups` | the controller | what is reserved for multicast: from one manager to those of other edge networks, for one publisher's request |
| `controllers` | its controller | who decides, and that it is alive |

So no row is ever written by two, and nobody needs a lock. A request and its verdict have the same id; a verdict whose `revision` is not that of
the request is not its answer (yet). Ids are chosen by whoever writes the row, and never used again (but
those of groups, and of channels between managers, which are the same whenever these are needed).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Side(StrEnum):
    """Who asks."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class Outcome(StrEnum):
    """What became of a request."""

    GRANTED = "granted"
    """Reserved and proven: the bound holds."""
    REFUSED = "refused"
    """It would miss its deadline, or break that of another; or the site's rules forbid it."""
    UNAVAILABLE = "unavailable"
    """Nobody could decide or reserve (no controller, a switch that did not answer, no route): best effort."""


class ChannelState(StrEnum):
    """Of a reservation in the network; transitions: docs/controller.md."""

    PLANNED = "planned"
    INSTALLED = "installed"
    """All switches confirmed by barrier; not yet proven."""
    PROVEN = "proven"
    """A probe passed the whole way in the queue that was promised."""
    BROKEN = "broken"
    """A link or switch on its way is gone and no other way is admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What is asked for; `None`: nothing said (`timebound_wire::attributes::Requirements`, docs/attributes.md)."""

    deadline_ns: int | None = None
    period_ns: int | None = None
    jitter_ns: int | None = None
    size_bytes: int | None = None
    """Payload of one message; the manager fills in the size of the message that carried the request."""
    transmission_ns: int | None = None
    priority: int | None = None
    bandwidth_bps: tuple[int, int] | None = None
    qos: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerRow:
    """One `timebound manager`."""

    id: str
    """The site's name of it, unique."""
    addresses: tuple[str, ...]
    """IPv4 addresses at which clients reach it."""
    ports: tuple[int, ...]
    broker_address: str
    broker_port: int
    version: str
    beat_ns: int
    """Wall clock, ns since 1970, renewed every second; an old one means that its rows may be about nobody."""
    network: str = ""
    """Its edge network. Managers of the same one, or of none, exchange nothing."""
    peer_address: str | None = None
    """IPv4 address at which managers of other networks reach it: by TCP for acknowledgements, by UDP for messages; `None`: it is in no group."""
    peer_port: int | None = None
    """Of both; the same at all managers of a site, since one datagram goes to all of a group."""
    interests: tuple[str, ...] = ()
    """Filters that match all that its clients are subscribed to, as few as may be; `#` where they would be too many. What no group carries to it
    managers of other networks send it as best effort if one of these matches. Empty: nobody wants anything, or it wants nothing to be sent."""
    peer_sealed: bool = False
    """TLS between it and other managers: what they tell each other is longer. All managers of a site have it, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRow:
    """One TCP connection of a client: the unit of a reservation."""

    id: str
    manager: str
    client_id: str
    user: str | None
    client_address: str
    client_port: int
    manager_address: str
    manager_port: int
    broker_leg: tuple[str, int, str, int] | None = None
    """Local address and port, broker's address and port, where that leg crosses the network; `None`: the same host."""
    opened_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """What a client asks for one topic on one connection; gone when it disconnects, withdraws or unsubscribes."""

    id: str
    connection: str
    side: Side
    topic: str
    """A topic name (publisher) or filter (subscriber)."""
    requirements: Requirements
    revision: int
    """Counts up with every change of `requirements`."""
    asked_ns: int
    """Wall clock, ns since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What would be admitted in place of what was refused; `None`: nothing of this kind alone."""

    deadline_ns: int | None = None
    """The smallest deadline, everything else as asked."""
    period_ns: int | None = None
    """The smallest period, everything else as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """The answer to one revision of a request."""

    id: str
    """That of the request."""
    revision: int
    outcome: Outcome
    reason: str
    """For people; empty where granted as asked."""
    priority: int
    """Class of the connection from now on, 0 to 7; 0 is best effort."""
    bound_ns: int | None
    """Publisher to broker, or to the slowest reserved subscriber where there is one (subscriber: from its slowest publisher)."""
    shared_with: tuple[str, ...] = ()
    """Other topics of the connection, which have its class too."""
    offer: Offer = field(default_factory=Offer)
    decided_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A way through the network that one direction of one connection has to itself in its class (`L_i`, `n_i` of the SRT)."""

    id: str
    connection: str
    requests: tuple[str, ...]
    protocol: str
    """`tcp` or `udp`."""
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    priority: int
    rate_bps: int
    """Of the meter at the first switch, on the wire."""
    burst_bytes: int
    links: tuple[str, ...]
    """Names of the links (`topology.Link.name`), from the source's to the destination's."""
    bound_ns: int
    """Of a frame on this way, from its release at the one end to its arrival at the other; a request's bound is of the whole way of its messages."""
    state: ChannelState
    changed_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A multicast tree through the network for the messages of one publisher's request (MRT-MQTT, section V-B): from its manager to those of
    other networks whose clients subscribe. The row stays while members come and go. Managers use it while it is `installed` or `proven`."""

    id: str
    origin: str
    """Manager of the publisher, which sends."""
    request: str
    """The publisher's."""
    topic: str
    """That of the request."""
    priority: int
    """Class of its datagrams, 0 to 7."""
    address: str
    """IPv4 group (RFC 2365); the port is the members' `peer_port`."""
    members: tuple[str, ...]
    """Managers that receive, sorted. Whoever is named here is reached: its branch is in the switches before."""
    rate_bps: int
    """Of the meter at the first switch, on the wire."""
    burst_bytes: int = 0
    """What may come to that meter at once, on the wire: its own burst without the site's slack, which is for switches that see frames late. 0: the row
    was written before this was told."""
    bound_ns: int | None
    """From the publisher's release to the slowest member's broker."""
    links: tuple[str, ...]
    """Names of the tree's links, each behind the one that leads to it."""
    state: ChannelState
    changed_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRow:
    """One `timebound controller`. Managers whose requests find none alive answer `unavailable` at once (fail-open)."""

    id: str
    """The site's name of it, unique."""
    version: str
    beat_ns: int
    """Wall clock, ns since 1970, renewed every second."""
    url: str | None = None
    """Of its REST interface and page, where people may look."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The whole table at one moment, by id."""

    managers: dict[str, ManagerRow] = field(default_factory=dict)
    connections: dict[str, ConnectionRow] = field(default_factory=dict)
    requests: dict[str, RequestRow] = field(default_factory=dict)
    verdicts: dict[str, VerdictRow] = field(default_factory=dict)
    channels: dict[str, ChannelRow] = field(default_factory=dict)
    groups: dict[str, GroupRow] = field(default_factory=dict)
    controllers: dict[str, ControllerRow] = field(default_factory=dict)


Row = ManagerRow | ConnectionRow | RequestRow | VerdictRow | ChannelRow | GroupRow | ControllerRow

TableName = Literal["managers", "connections", "requests", "verdicts", "channels", "groups", "controllers"]
"""A field of `Tables`."""

ROWS: dict[TableName, type[Row]] = {
    "managers": ManagerRow,
    "connections": ConnectionRow,
    "requests": RequestRow,
    "verdicts": VerdictRow,
    "channels": ChannelRow,
    "groups": GroupRow,
    "controllers": ControllerRow,
}
"""What a table holds; in the order in which rows refer to each other."""

_TABLE_OF: dict[type[Row], TableName] = {row: table for table, row in ROWS.items()}


def table_of(row: Row) -> TableName:
    """The table in which a row lies."""
    return _TABLE_OF[type(row)]
