"""The shape of a manager's configuration file: one set of models for checking, JSON Schema and reference (docs/manager.md)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from timebound.scenario import units
from timebound.scenario.fields import Duration, Quantity, Rate, Shape, Short, Size, Time, fail

Packet = Annotated[int, Quantity(units.SIZE, least=1024)]
"""Room for the shortest packets; less the intermediary does not take (`crates/manager/src/start.rs`)."""


def _endpoint(value: Any) -> Any:
    """`127.0.0.1:1883`, `[::1]:1883`: address and port as one text."""
    if not isinstance(value, str):
        return value
    address, separator, port = value.rpartition(":")
    if not separator or not address or not port.isdigit():
        raise fail(f"{value!r} is no address and port", "write for example 127.0.0.1:1883")
    return {"address": address.strip("[]"), "port": int(port)}


_ENDPOINT = {"type": "string", "pattern": r"^.+:\d+$"}


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _name(value: Any) -> Any:
    if isinstance(value, str) and value and not re.match(_NAME, value):
        raise fail(
            f"{value!r} is no name of a manager",
            "letters, digits, '.', '_' and '-', beginning with a letter or digit, for example cell-a",
        )
    return value


class Listen(Shape):
    """Where clients are accepted. `127.0.0.1:1883` is short for `{address: 127.0.0.1, port: 1883}`."""

    address: str = Field(description="IP address of this host; 0.0.0.0: all", examples=["127.0.0.1"])
    port: int = Field(ge=0, le=65535, description="TCP port; 0: a free one", examples=[1883])
    kind: Literal["tcp", "tls", "ws", "wss"] = Field(
        default="tcp", description="ws: MQTT over WebSocket; wss: over TLS", examples=["tls"]
    )
    certificate: str | None = Field(
        default=None, description="PEM file: the site's certificate and its chain", examples=["/etc/timebound/site.pem"]
    )
    key: str | None = Field(default=None, description="PEM file: its private key", examples=["/etc/timebound/site.key"])
    client_authority: str | None = Field(
        default=None,
        description="PEM file: authorities of clients' certificates",
        examples=["/etc/timebound/clients.pem"],
    )
    certificate_as_user: bool = Field(
        default=False,
        description="clients must show a certificate, and its common name replaces the user name that they send",
        examples=[True],
    )


class BrokerTls(Shape):
    """TLS towards the broker."""

    authority: str = Field(description="PEM file: authorities of its certificate", examples=["/etc/timebound/ca.pem"])
    server_name: str | None = Field(
        default=None, description="name in its certificate; default: its address", examples=["broker.plant.example"]
    )


class Broker(Shape):
    """The broker behind the manager. `127.0.0.1:1884` is short for `{address: 127.0.0.1, port: 1884}`."""

    address: str = Field(min_length=1, description="address or name", examples=["127.0.0.1"])
    port: int = Field(ge=1, le=65535, description="TCP port", examples=[1884])
    tls: BrokerTls | None = Field(default=None, description="TLS to it; default: none")


class Store(Shape):
    """The table that managers and controller share. Its URL alone is short for `{url: ...}`."""

    url: str = Field(
        description="unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT (OVSDB), file:PATH (embedded)",
        examples=["unix:/run/timebound/table.sock"],
    )
    key: str | None = Field(default=None, description="ssl: PEM file", examples=["/etc/timebound/manager.key"])
    certificate: str | None = Field(default=None, description="ssl: PEM file", examples=["/etc/timebound/manager.pem"])
    authority: str | None = Field(
        default=None, description="ssl: PEM file: authority of the server", examples=["/etc/timebound/ca.pem"]
    )


class Limits(Shape):
    """What clients may cost the manager, before any rule is asked."""

    connections: int = Field(default=20_000, ge=1, le=1_000_000, description="at a time", examples=[1000])
    strangers: Annotated[int, Quantity(units.SIZE, least=2**20)] = Field(
        default=64 * 2**20,
        description="held for connections that the broker has not accepted yet, all together; beyond, the one that holds the most is closed",
        examples=["16 MiB"],
    )
    strangers_per_address: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="such connections at a time from one address (of IPv6: one network of 64 bits); more are closed at once",
        examples=[100],
    )
    header: Packet = Field(
        default=256 * 1024,
        description="of a packet without payload; of a CONNECT, of its properties: it may have all fields of the standard (327,697 B) besides",
        examples=["64 KiB"],
    )
    packet: Packet = Field(default=268_435_460, description="of a whole packet", examples=["1 MiB"])
    websocket: Packet = Field(
        default=4 * 2**20, description="of a WebSocket message; it is passed on as it comes", examples=["1 MiB"]
    )
    requests: int = Field(default=256, ge=1, le=65_536, description="of a connection at a time", examples=[32])
    requests_per_second: int = Field(
        default=100, ge=1, le=100_000, description="new or changed requests of a connection", examples=[10]
    )
    aliases: Size = Field(
        default=2**20, description="topic names kept for aliases of a connection", examples=["64 KiB"]
    )
    handshake: Duration = Field(
        default=10_000_000_000, description="from the first byte of a connection to its CONNECT", examples=["5 s"]
    )
    connect: Duration = Field(
        default=3_000_000_000, description="until the broker must have accepted a connection", examples=["1 s"]
    )


class RuleLimits(Shape):
    """How much a rule lets through."""

    priority: int | None = Field(default=None, ge=0, le=7, description="greatest class", examples=[5])
    bandwidth: Rate | None = Field(
        default=None,
        description="of all requests together: payload by period, or the bandwidth that they state",
        examples=["2 Mbit/s"],
    )
    flows: int | None = Field(default=None, ge=0, le=1_000_000, description="requests at a time", examples=[10])
    deadline: Time | None = Field(default=None, description="least deadline", examples=["5 ms"])
    per: Literal["client", "user", "certificate", "address"] = Field(
        default="client", description="bandwidth and flows count for each of these", examples=["user"]
    )


def _list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], Short(_list, {"type": "string"})]


class Rule(Shape):
    """Who may ask for what. A rule applies to a request when everything matches that it states; the first one that applies decides."""

    name: str = Field(min_length=1, max_length=100, description="refusals name it", examples=["presses"])
    user: Texts | None = Field(
        default=None, min_length=1, description="user names, `*` and `?` stand for characters", examples=["press-*"]
    )
    client: Texts | None = Field(default=None, min_length=1, description="client ids, likewise", examples=["plc-??"])
    certificate: Texts | None = Field(
        default=None, min_length=1, description="common names of clients' certificates, likewise", examples=["plc-*"]
    )
    address: Texts | None = Field(
        default=None, min_length=1, description="addresses or networks of clients", examples=["10.1.0.0/16"]
    )
    topic: Texts | None = Field(
        default=None,
        min_length=1,
        description="topic filters. A rule that allows must cover all that is asked for, one that denies only meet it",
        examples=["plant/alarm/#"],
    )
    side: Literal["publish", "subscribe"] | None = Field(default=None, description="who asks", examples=["publish"])
    allow: bool = Field(default=True, description="false: nothing may be asked for", examples=[False])
    limits: RuleLimits = Field(default_factory=RuleLimits, description="how much is allowed")


class Policy(Shape):
    """The site's rules."""

    default: Literal["allow", "deny"] = Field(
        default="allow", description="where no rule applies; allow: 64 requests per client", examples=["deny"]
    )
    rules: list[Rule] = Field(default_factory=list, max_length=10_000, description="in the order of the file")


class Http(Shape):
    """Metrics and health over HTTP. `127.0.0.1:9464` is short for `{address: 127.0.0.1, port: 9464}`."""

    address: str = Field(default="127.0.0.1", description="IP address", examples=["127.0.0.1"])
    port: int = Field(default=9464, ge=0, le=65535, description="TCP port; 0: a free one", examples=[9464])


class Log(Shape):
    """What is logged, to standard error."""

    format: Literal["json", "console"] = Field(
        default="json", description="for machines or people", examples=["console"]
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least", examples=["debug"])


class Announce(Shape):
    """Retained messages about the manager's state, and what it has reserved, published to the broker itself."""

    topic: str = Field(
        default="$timebound/manager", min_length=1, description="beginning of their topics", examples=["site/timebound"]
    )
    channels: bool = Field(default=True, description="one message for each request, too", examples=[False])
    user: str | None = Field(default=None, description="user name at the broker", examples=["timebound"])
    password_file: str | None = Field(
        default=None, description="file whose first line is the password", examples=["/etc/timebound/password"]
    )


class PeerTls(Shape):
    """TLS between managers: each shows a certificate for its peer address, and messages are sealed."""

    certificate: str = Field(
        description="PEM file: this manager's certificate, and its chain; for the address of `peer` (an address in subjectAltName)",
        examples=["/etc/timebound/peer.pem"],
    )
    key: str = Field(description="PEM file: its private key", examples=["/etc/timebound/peer.key"])
    authority: str = Field(
        description="PEM file: the authority of all managers, and of nobody else",
        examples=["/etc/timebound/managers.pem"],
    )


class Peer(Shape):
    """How managers of other edge networks reach this one. `10.0.1.5:1884` is short for `{address: 10.0.1.5, port: 1884}`."""

    address: str = Field(
        description="IPv4 address of this host: connections and messages come and go there", examples=["10.0.1.5"]
    )
    port: int = Field(
        ge=1, le=65535, description="TCP and UDP port, the same for all managers of the site", examples=[1884]
    )
    interface: str | None = Field(
        default=None,
        description="IPv4 address of the interface for multicast; default: the one of `address`",
        examples=["10.0.1.5"],
    )
    ttl: int = Field(default=8, ge=1, le=255, description="hops that multicast messages may make", examples=[4])
    state: str | None = Field(
        default=None,
        description="file that keeps which QoS 2 messages the broker was given; without it a manager that is killed may deliver one twice",
        examples=["/var/lib/timebound/cell-a/peers.state"],
    )
    user: str | None = Field(
        default=None, description="user name of the manager's own clients at the broker", examples=["timebound"]
    )
    password_file: str | None = Field(
        default=None, description="file whose first line is the password", examples=["/etc/timebound/password"]
    )
    tls: PeerTls | None = Field(
        default=None, description="TLS between managers; all of a site have it, or none; default: none"
    )
    relay: bool = Field(
        default=True,
        description="what no group carries goes to other networks all the same, as best effort, where somebody is subscribed to it; "
        "false: not from here, nor to here (brokers that are bridged with each other would get it twice)",
        examples=["false"],
    )
    join: Time = Field(
        default=2_000_000_000,
        description="longest time for which the first messages of a group wait for its members",
        examples=["500 ms"],
    )
    silence: Time = Field(
        default=10_000_000_000,
        description="a member that should acknowledge something and does not is lost after that time",
        examples=["5 s"],
    )


class ManagerShape(Shape):
    """The file."""

    name: Annotated[str, BeforeValidator(_name)] = Field(
        min_length=1,
        max_length=64,
        pattern=_NAME,
        description="of this manager, unique at the site",
        examples=["cell-a"],
    )
    listen: Annotated[
        list[Annotated[Listen, Short(_endpoint, _ENDPOINT)]],
        Short(lambda value: value if isinstance(value, list) else [value], _ENDPOINT, {"type": "object"}),
    ] = Field(min_length=1, max_length=64, description="where clients are accepted", examples=[["127.0.0.1:1883"]])
    broker: Annotated[Broker, Short(_endpoint, _ENDPOINT)] = Field(
        description="the broker behind it", examples=["127.0.0.1:1884"]
    )
    store: Annotated[
        Store, Short(lambda value: {"url": value} if isinstance(value, str) else value, {"type": "string"})
    ] = Field(description="the table that it shares with the controller", examples=["unix:/run/timebound/table.sock"])
    hold: Time = Field(
        default=500_000_000,
        description="longest time for which a packet that asks for something waits for the answer; at most 5 s",
        examples=["300 ms"],
    )
    threads: int = Field(
        default=0, ge=0, le=64, description="that serve connections; 0: one per core, at most 4", examples=[2]
    )
    limits: Limits = Field(default_factory=Limits, description="what one client may cost")
    policy: Policy = Field(default_factory=Policy, description="who may ask for what")
    http: Annotated[Http, Short(_endpoint, _ENDPOINT)] = Field(
        default_factory=Http, description="metrics and health", examples=["127.0.0.1:9464"]
    )
    log: Log = Field(default_factory=Log, description="what is logged")
    audit: str | None = Field(
        default=None,
        description="file to which every request and answer is appended, one JSON object per line",
        examples=["/var/log/timebound/audit.jsonl"],
    )
    announce: Announce | None = Field(default_factory=Announce, description="messages about itself; null: none")
    network: str = Field(
        default="",
        max_length=64,
        description="edge network in which it stands; managers of the same one exchange nothing",
        examples=["hall-1"],
    )
    peer: Annotated[Peer, Short(_endpoint, _ENDPOINT)] | None = Field(
        default=None,
        description="how managers of other edge networks reach it; default: it exchanges nothing",
        examples=["10.0.1.5:1884"],
    )
