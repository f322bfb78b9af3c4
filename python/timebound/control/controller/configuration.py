"""The file of `timebound controller`: its shape, checks and JSON Schema. docs/controller.md shows one."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from timebound.control import configuration, pem
from timebound.control.openflow.settings import (
    Defaults,
    PortSettings,
    QueueMode,
    Settings,
    SwitchSettings,
)
from timebound.control.openflow.settings import Tls as SwitchTls
from timebound.control.planner import Server, Site
from timebound.control.srt.store import Tls as StoreTls
from timebound.scenario import load, units
from timebound.scenario.broker_profile import ProfileError, read_profile, service_of
from timebound.scenario.complaints import Subject
from timebound.scenario.context import Context
from timebound.scenario.fields import Quantity, Rate, Shape, Share, Short, Size, Time, TimeRange, Word, fail
from timebound.scenario.framing import Framing
from timebound.scenario.model import Scenario
from timebound.scenario.model_broker import BrokerService
from timebound.scenario.problems import Problem, ScenarioError
from timebound.scenario.resolve_framing import resolve_framing
from timebound.scenario.shape_broker import BrokerTimes
from timebound.scenario.shape_network import FramingField
from timebound.scenario.tree import Path as TreePath
from timebound.scenario.units import format_share

SUBJECT = Subject("the configuration", "docs/controller.md")
LONGEST_FRAME_BYTES = 1522
"""With its tag; a queue without room for one serves nobody."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Tls(Shape):
    """PEM files."""

    key: str = Field(description="private key", examples=["controller-key.pem"])
    certificate: str = Field(description="certificate", examples=["controller.pem"])
    ca: str | None = Field(default=None, description="authority that signed the other side's", examples=["site-ca.pem"])


class Store(Shape):
    """Where the table is. Its URL alone is short for `{url: ...}`."""

    url: str = Field(
        description="unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT (OVSDB), or file:PATH", examples=["file:srt.db"]
    )
    tls: Tls | None = Field(default=None, description="for ssl:")


class SwitchPort(Shape):
    """Of the link that a port sends on."""

    rate: Rate | None = Field(default=None, description="rate", examples=["10 Mbit/s"])
    delay: TimeRange | None = Field(default=None, description="least and greatest delay, one way", examples=["5 us"])


class Switch(Shape):
    """A switch of the site."""

    name: str = Field(min_length=1, description="its name in the network's description", examples=["s1"])
    datapath: Word = Field(description="datapath id, hexadecimal", examples=["0000000000000001"])
    queues: Literal["mark", "ovsdb"] = Field(
        default="mark",
        description="mark: frames are marked by DSCP, and whoever administers the switch has configured its queues; ovsdb: we configure them",
        examples=["ovsdb"],
    )
    ovsdb: str | None = Field(
        default=None, description="its database: tcp:, ssl: or unix:", examples=["unix:/run/openvswitch/db.sock"]
    )
    delay: TimeRange | None = Field(
        default=None, description="from a frame's last bit to its output queue", examples=["10..20 us"]
    )
    ports: dict[str, SwitchPort] = Field(default_factory=dict, description="by name of the port")


class OpenFlow(Shape):
    """Where switches connect."""

    listen: str = Field(default="127.0.0.1", description="address", examples=["10.0.0.1"])
    port: int = Field(default=6653, ge=0, le=65535, description="TCP port; 0: any", examples=[6653])
    tls: Tls | None = Field(default=None, description="of switches, both ways; needed beyond loopback")
    insecure: bool = Field(
        default=False, description="plain TCP beyond loopback: whoever reaches it can pretend to be a switch"
    )
    switches: list[Switch] = Field(default_factory=list, description="switches of the site")
    only_listed: bool = Field(default=False, description="turn other switches away")


class NetworkDefaults(Shape):
    """Of links and switches that nobody described."""

    rate: Rate | None = Field(
        default=None, description="default: what the port states, or 1 Gbit/s", examples=["100 Mbit/s"]
    )
    delay: TimeRange = Field(default=(0, 10_000), description="of links", examples=["0..10 us"])
    switch_delay: TimeRange = Field(default=(0, 100_000), description="of switches", examples=["10..20 us"])


class BrokerOf(Shape):
    """What the broker behind a manager takes, together with the manager where both share a host."""

    program: Literal["embedded", "mosquitto"] = Field(
        default="mosquitto", description="whose profile it is", examples=["mosquitto"]
    )
    profile: str | None = Field(
        default=None, description="measured by `timebound profile-broker`", examples=["mosquitto.json"]
    )
    service: BrokerTimes | None = Field(
        default=None, description="declared by hand", examples=[{"latency": "1 ms", "per-message": "60 us"}]
    )


def _percent(value: Any) -> Any:
    """A number without a unit is meant as a part of one, and 0.75 % would be a hundredth of that."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        raise fail(f"{value} has no unit", f"write for example {format_share(value)}")
    return value


class Planning(Shape):
    """What the bounds assume, and how far admission goes."""

    jitter: Time = Field(default=1_000_000, description="of publishers that state none", examples=["1 ms"])
    properties: Size = Field(default=256, description="room for the properties of each PUBLISH", examples=["256 B"])
    host_queue: Literal["fifo", "strict-priority"] = Field(
        default="fifo", description="how network cards of hosts serve", examples=["fifo"]
    )
    buffer: Annotated[int, Quantity(units.SIZE, least=LONGEST_FRAME_BYTES)] = Field(
        default=256 * 1024, description="room of each class's queue", examples=["256 KiB"]
    )
    mtu: int = Field(default=1500, ge=576, le=1500, description="of hosts", examples=[1500])
    framing: FramingField | None = Field(
        default=None,
        description="what frames bear on the wire beside Ethernet's own header and check sequence, as `network.framing` of a scenario; "
        "default: nothing (ethernet)",
        examples=["vlan"],
    )
    reservable: Annotated[Share, BeforeValidator(_percent)] = Field(
        default=1.0, description="most of a link that is given away", examples=["75 %"]
    )
    class_deadlines: list[Time] = Field(
        default_factory=lambda: list(Site().class_limits_ns),
        min_length=1,
        max_length=5,
        description="longest deadlines of class 6, 5, ...; what is longer has class 1",
        examples=[["2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]],
    )
    meter_slack: Size = Field(
        default=0,
        description="what meters let pass beyond declared bursts: for software switches, which see frames at once that came apart; a client that breaks "
        "its word can use it, too",
        examples=["16 kB"],
    )
    priorities: bool = Field(
        default=True,
        description="false: everything that is reserved has one class, first in, first out (DM-MQTT, to compare with); deadlines are kept all the same",
        examples=[True],
    )
    ways: int = Field(default=4, ge=1, le=64, description="ways that are tried for a connection", examples=[4])
    trials: int = Field(default=24, ge=0, le=200, description="decisions that an offer may take", examples=[24])
    backups: bool = Field(default=True, description="disjoint ways for fast failover", examples=[True])


class Http(Shape):
    """REST interface, page, metrics and health."""

    listen: str = Field(default="127.0.0.1", description="address", examples=["127.0.0.1"])
    port: int = Field(default=8321, ge=0, le=65535, description="TCP port; 0: any", examples=[8321])
    tls: Tls | None = Field(default=None, description="HTTPS; needed beyond loopback")
    insecure: bool = Field(default=False, description="plain HTTP beyond loopback: tokens can be read on the way")
    tokens: str | None = Field(
        default=None,
        description="file of bearer tokens, readable by its owner alone: lines `SCOPE SHA256 NAME`, see `timebound controller --new-token`",
        examples=["tokens"],
    )


class ControllerShape(Shape):
    """A controller."""

    name: str = Field(default="controller", min_length=1, max_length=100, description="the site's name of it")
    store: Annotated[
        Store, Short(lambda value: {"url": value} if isinstance(value, str) else value, {"type": "string"})
    ] = Field(description="the table")
    openflow: OpenFlow = Field(default_factory=OpenFlow, description="switches")
    network: str | None = Field(
        default=None, description="a scenario file whose network describes the site", examples=["plant.yaml"]
    )
    defaults: NetworkDefaults = Field(default_factory=NetworkDefaults, description="what nobody described")
    brokers: dict[str, BrokerOf] = Field(
        default_factory=dict, description="by the manager's name; `default` for all others"
    )
    planning: Planning = Field(default_factory=Planning, description="admission")
    http: Http = Field(default_factory=Http, description="REST and page")
    audit: str | None = Field(
        default=None, description="file to which decisions are appended", examples=["audit.jsonl"]
    )
    grace: Time = Field(
        default=3_000_000_000, description="after the start, time for the network to report", examples=["3 s"]
    )
    log: Literal["text", "json"] = Field(default="text", description="how it logs to standard error")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """REST and page; `tokens` is None where anybody on loopback may read, and nobody may change anything."""

    listen: str
    port: int
    key: Path | None = None
    certificate: Path | None = None
    tokens: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A checked file."""

    name: str
    store_url: str
    store_tls: StoreTls | None
    switches: Settings
    site: Site
    http: HttpSettings
    backups: bool
    grace_ns: int
    audit: Path | None = None
    log: Literal["text", "json"] = "text"
    warnings: tuple[Problem, ...] = field(default=(), repr=False)


def read(file: str | os.PathLike[str]) -> Configuration:
    """Reads and checks a file.

    Raises:
        ConfigurationError: with every problem and its place.
    """
    from dataclasses import replace

    found, warnings = configuration.read(file, ControllerShape, _resolve, SUBJECT)
    return replace(found, warnings=warnings)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file (draft 2020-12)."""
    schema = ControllerShape.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Timebound controller"}


def _resolve(shape: ControllerShape, context: Context) -> Configuration:
    network = None if shape.network is None else _network(shape.network, context)
    tls = None if shape.store.tls is None else _tls(shape.store.tls, ("store", "tls"), context, authority=True)
    kind = shape.store.url.partition(":")[0]
    if kind not in ("unix", "tcp", "ssl", "file"):
        context.error(
            ("store", "url"),
            f"{shape.store.url!r} is no store",
            "unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or file:PATH",
        )
    elif kind == "ssl" and tls is None:
        context.error(
            ("store", "url"),
            "TLS needs a key, a certificate and an authority",
            "tls: {key: ..., certificate: ..., ca: ...}",
        )
    url = shape.store.url
    configuration.table_s_address(url, ("store", "url"), context)
    if kind == "file" and context.folder is not None:
        table = context.folder / url.partition(":")[2]
        configuration.folder_of_table(table, ("store", "url"), context)
        url = f"file:{table}"
    doors = (
        configuration.Door("switches", ("openflow",), shape.openflow.listen, shape.openflow.port),
        configuration.Door("REST and the page", ("http",), shape.http.listen, shape.http.port),
    )
    configuration.apart(doors, context)
    return Configuration(
        name=shape.name,
        store_url=url,
        store_tls=None if tls is None else StoreTls(str(tls[0]), str(tls[1]), str(tls[2])),
        switches=_switches(shape, network, context),
        site=_site(shape, context),
        http=_http(shape.http, context),
        backups=shape.planning.backups,
        grace_ns=shape.grace,
        audit=configuration.appended(shape.audit, ("audit",), context),
        log=shape.log,
    )


def _network(name: str, context: Context) -> Scenario | None:
    told = len(context.sources.problems)
    file = configuration.readable(context, ("network",), name)
    if len(context.sources.problems) > told:
        return None
    try:
        return load(file)
    except ScenarioError as error:
        first = error.problems[0]
        context.error(("network",), f"{first.place}: {first.message}", first.hint)
        return None


def _tls(tls: Tls, path: TreePath, context: Context, *, authority: bool) -> tuple[Path, Path, Path | None]:
    certificate, key = pem.chain_and_key(context, path, tls.certificate, tls.key)
    if tls.ca is None and authority:
        context.error(path, "no authority that the other side is believed by", "add ca: site-ca.pem")
    ca = None if tls.ca is None else pem.certificates(context, (*path, "ca"), tls.ca)
    return key, certificate, ca


def _switches(shape: ControllerShape, network: Scenario | None, context: Context) -> Settings:
    stated = shape.openflow
    tls = None
    if stated.tls is not None:
        key, certificate, ca = _tls(stated.tls, ("openflow", "tls"), context, authority=True)
        tls = None if ca is None else SwitchTls(key=key, certificate=certificate, authority=ca)
    elif stated.listen not in LOOPBACK and not stated.insecure:
        context.error(
            ("openflow", "listen"),
            f"plain OpenFlow on {stated.listen}",
            "tls: {key: ..., certificate: ..., ca: ...}, or insecure: true",
        )
    switches: list[SwitchSettings] = []
    for index, switch in enumerate(stated.switches):
        path: TreePath = ("openflow", "switches", index)
        datapath = _datapath_of(switch, path, context)
        if any(other.name == switch.name or other.datapath == datapath for other in switches):
            context.error(path, f"switch {switch.name!r} or its datapath is there already", "name every switch once")
        if switch.queues == "ovsdb" and switch.ovsdb is None:
            context.error(
                (*path, "queues"), "queues by OVSDB without a database", "ovsdb: unix:/run/openvswitch/db.sock"
            )
        switches.append(
            SwitchSettings(
                name=switch.name,
                datapath=datapath,
                queues=QueueMode(switch.queues),
                ovsdb=switch.ovsdb,
                delay_ns=switch.delay,
                ports={
                    name: PortSettings(rate_bps=port.rate, delay_ns=port.delay) for name, port in switch.ports.items()
                },
            )
        )
    defaults = shape.defaults
    return Settings(
        host=stated.listen,
        port=stated.port,
        tls=tls,
        insecure=stated.insecure,
        switches=tuple(switches),
        only_listed=stated.only_listed,
        nodes=() if network is None else network.nodes,
        links=() if network is None else network.links,
        defaults=Defaults(rate_bps=defaults.rate, delay_ns=defaults.delay, switch_delay_ns=defaults.switch_delay),
    )


def _datapath_of(switch: Switch, path: TreePath, context: Context) -> int:
    text = switch.datapath.replace(":", "")
    try:
        found = int(text, 16)
    except ValueError:
        found = 0
    if not 0 < found < 2**64:
        context.error(
            (*path, "datapath"), f"{switch.datapath!r} is no datapath id", "write up to 16 hexadecimal digits in quotes"
        )
    return found


def _site(shape: ControllerShape, context: Context) -> Site:
    planning = shape.planning
    if planning.class_deadlines != sorted(set(planning.class_deadlines)):
        context.error(
            ("planning", "class-deadlines"),
            "the deadlines do not rise",
            "state them from class 6 downwards: 2 ms, 5 ms, ...",
        )
    if not planning.reservable:
        context.error(("planning", "reservable"), "nothing could be reserved", "write for example reservable: 75 %")
    servers = {}
    for name, broker in shape.brokers.items():
        server = _server(broker, ("brokers", name), context)
        if server is not None:
            servers[name] = server
    default = servers.pop("default", Site().default_server)
    return Site(
        servers=servers,
        default_server=default,
        jitter_ns=planning.jitter,
        properties_bytes=planning.properties,
        host_queue=planning.host_queue,
        buffer_bytes=planning.buffer,
        mtu=planning.mtu,
        framing=_framing_of(planning, context),
        reservable=planning.reservable,
        meter_slack_bytes=planning.meter_slack,
        class_limits_ns=tuple(planning.class_deadlines),
        priorities=planning.priorities,
        candidates=planning.ways,
        trials=planning.trials,
    )


def _framing_of(planning: Planning, context: Context) -> Framing:
    path: TreePath = ("planning", "framing")
    framing = resolve_framing(planning.framing, context, path)
    if planning.mtu > framing.mtu:
        message = f"frames of this framing ({framing}) carry IP packets of {framing.mtu} bytes, and hosts have an mtu of {planning.mtu}"
        context.error(path, message, f"planning: {{mtu: {framing.mtu}}}")
    return framing


def _server(broker: BrokerOf, path: TreePath, context: Context) -> Server | None:
    if (broker.profile is None) is (broker.service is None):
        context.error(
            path,
            "neither a profile nor declared times, or both",
            "profile: mosquitto.json, or service: {latency: 1 ms, ...}",
        )
        return None
    if broker.profile is not None:
        file = (context.folder or Path()) / broker.profile
        try:
            profile = read_profile(file.absolute())
        except ProfileError as error:
            context.error((*path, "profile"), str(error), error.hint)
            return None
        if profile.broker.program != broker.program:
            context.error(
                (*path, "profile"),
                f"it is the profile of {profile.broker.program}",
                f"program: {profile.broker.program}",
            )
            return None
        return Server(service=service_of(profile, str(file.absolute())), program=broker.program)
    times = broker.service
    assert times is not None
    service = BrokerService(
        latency_ns=times.latency,
        message_ns=times.per_message,
        copy_ns=times.per_copy,
        byte_ps=times.per_byte,
        acknowledgement_ns=times.per_acknowledgement,
    )
    return Server(service=service, program=broker.program)


def _http(http: Http, context: Context) -> HttpSettings:
    key = certificate = None
    if http.tls is not None:
        key, certificate, _ = _tls(http.tls, ("http", "tls"), context, authority=False)
    if http.listen not in LOOPBACK:
        if http.tls is None and not http.insecure:
            context.error(
                ("http", "listen"),
                f"plain HTTP on {http.listen}",
                "tls: {key: ..., certificate: ...}, or insecure: true",
            )
        if http.tokens is None:
            context.error(
                ("http", "listen"), f"anybody who reaches {http.listen} could read", "tokens: a file of bearer tokens"
            )
    tokens = None
    if http.tokens is not None:
        tokens = configuration.readable(context, ("http", "tokens"), http.tokens)
        if tokens.exists() and stat.S_IMODE(tokens.stat().st_mode) & 0o077:
            context.error(("http", "tokens"), "others than its owner may read it", f"chmod 600 {tokens}")
    return HttpSettings(listen=http.listen, port=http.port, key=key, certificate=certificate, tokens=tokens)
