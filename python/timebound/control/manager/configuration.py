"""A manager's configuration: checked, with every problem at its place, and as the parts of the service need it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

from timebound.control import pem
from timebound.control.configuration import Door, apart, appended, folder_of_table, read, readable, table_s_address
from timebound.control.manager import policy, shape
from timebound.control.manager.topics import is_filter
from timebound.control.srt.rows import Side
from timebound.control.srt.store import Tls
from timebound.scenario.complaints import Subject
from timebound.scenario.context import Context
from timebound.scenario.problems import Problem
from timebound.scenario.tree import Path as TreePath

SUBJECT = Subject("the configuration", "docs/manager.md")
LONGEST_HOLD_NS = 5_000_000_000
"""As in `crates/manager/src/contract.rs`: below the keep-alive of every sensible client."""


@dataclass(frozen=True, slots=True)
class AnnounceConfiguration:
    """Messages of the manager about itself."""

    topic: str
    channels: bool
    user: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"AnnounceConfiguration({self.topic!r})"  # never the password


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a manager's file says."""

    name: str
    core: dict[str, Any] = field(repr=False)
    """For the intermediary: `Config` of `crates/manager/src/contract.rs`; a password may be in it."""
    store_url: str
    store_tls: Tls | None
    policy: policy.Policy
    http: tuple[str, int]
    log_format: str
    log_level: str
    audit: Path | None
    announce: AnnounceConfiguration | None


def load(file: str | os.PathLike[str]) -> tuple[Configuration, tuple[Problem, ...]]:
    """Reads a configuration file; also returns warnings.

    Raises:
        ConfigurationError: with every problem.
    """
    return read(file, shape.ManagerShape, _resolve, SUBJECT)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file (draft 2020-12), for editors."""
    found = shape.ManagerShape.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "Configuration of timebound manager",
    }


def _resolve(said: shape.ManagerShape, context: Context) -> Configuration:
    if said.hold > LONGEST_HOLD_NS:
        context.error(("hold",), "nothing may wait for longer than 5 s", "write for example hold: 500 ms")
    _check_doors(said, context)
    return Configuration(
        name=said.name,
        core=_core(said, context),
        store_url=_store_url(said.store, context),
        store_tls=_store_tls(said.store, context),
        policy=_policy(said.policy, context),
        http=(_address(said.http.address, ("http", "address"), context), said.http.port),
        log_format=said.log.format,
        log_level=said.log.level,
        audit=appended(said.audit, ("audit",), context),
        announce=_announce(said.announce, context),
    )


def _check_doors(said: shape.ManagerShape, context: Context) -> None:
    """Each address is listened at once, and the broker is somebody else."""
    doors = [Door("MQTT", ("listen", number), door.address, door.port) for number, door in enumerate(said.listen)]
    if said.peer is not None:
        doors.append(Door("other managers", ("peer",), said.peer.address, said.peer.port))
    doors.append(Door("metrics and health", ("http",), said.http.address, said.http.port))
    apart(doors, context)
    for door in doors:
        if door.port == said.broker.port and _meet(door.address, said.broker.address):
            context.error(("broker",), f"{door} is the manager itself", "move the broker to another port, such as 1884")


def _meet(listener: str, other: str) -> bool:
    """Does who speaks to `other` reach a listener at `listener` on this host? What is no address is told elsewhere."""
    try:
        at, to = ip_address(listener), ip_address("127.0.0.1" if other == "localhost" else other)
    except ValueError:
        return False
    return at == to or (at.version == to.version and ((at.is_unspecified and to.is_loopback) or to.is_unspecified))


def _address(text: str, path: TreePath, context: Context) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        context.error(path, f"{text!r} is no IP address", "write for example 127.0.0.1, or 0.0.0.0 for all")
        return text


def _core(said: shape.ManagerShape, context: Context) -> dict[str, Any]:
    tls = said.broker.tls
    limits = said.limits
    return {
        "name": said.name,
        "listeners": [_listener(each, ("listen", number), context) for number, each in enumerate(said.listen)],
        "broker": {
            "address": said.broker.address,
            "port": said.broker.port,
            "tls": None
            if tls is None
            else {
                "authority": str(pem.certificates(context, ("broker", "tls", "authority"), tls.authority)),
                "server_name": tls.server_name,
            },
        },
        "hold_ms": -(-said.hold // 1_000_000),
        "threads": said.threads,
        "limits": {
            "connections": limits.connections,
            "strangers_bytes": limits.strangers,
            "strangers_per_address": limits.strangers_per_address,
            "header_bytes": limits.header,
            "packet_bytes": limits.packet,
            "websocket_bytes": limits.websocket,
            "requests": limits.requests,
            "requests_per_second": limits.requests_per_second,
            "alias_bytes": limits.aliases,
            "handshake_ms": -(-limits.handshake // 1_000_000),
            "connect_ms": -(-limits.connect // 1_000_000),
        },
        "network": said.network,
        "peer": _peer(said, context),
    }


def _peer(whole: shape.ManagerShape, context: Context) -> dict[str, Any] | None:
    said = whole.peer
    if said is None:
        return None
    if not whole.network:
        context.error(
            ("peer",), "managers exchange messages between networks, and this one is in none", "add network: NAME"
        )
    address = _unicast(said.address, ("peer", "address"), context)
    if address is not None and not address.is_loopback and said.tls is None:
        context.warn(
            ("peer",),
            f"messages between managers cross the network in clear at {address}",
            "add tls: {certificate: FILE, key: FILE, authority: FILE}, or give them a network of their own",
        )
    if said.interface is not None:
        _unicast(said.interface, ("peer", "interface"), context)
    if not 1_000_000 <= said.join <= 60_000_000_000:
        context.error(("peer", "join"), "it is from 1 ms to 1 min", "write for example join: 2 s")
    if not 100_000_000 <= said.silence <= 600_000_000_000:
        context.error(("peer", "silence"), "it is from 100 ms to 10 min", "write for example silence: 10 s")
    state = appended(said.state, ("peer", "state"), context)
    return {
        "address": said.address,
        "port": said.port,
        "interface_address": said.interface,
        "ttl": said.ttl,
        "state": None if state is None else str(state),
        "user": said.user,
        "password": _password(said.user, said.password_file, ("peer",), context),
        "relay": said.relay,
        "tls": None if said.tls is None else _peer_tls(said.tls, context),
        "join_ms": -(-said.join // 1_000_000),
        "silence_ms": -(-said.silence // 1_000_000),
    }


def _peer_tls(said: shape.PeerTls, context: Context) -> dict[str, Any]:
    path = ("peer", "tls")
    chain, key = pem.chain_and_key(context, path, said.certificate, said.key)
    authority = pem.certificates(context, (*path, "authority"), said.authority)
    return {"certificate": str(chain), "key": str(key), "authority": str(authority)}


def _unicast(text: str, path: TreePath, context: Context) -> IPv4Address | None:
    """An address that one interface can have."""
    try:
        found = IPv4Address(text)
    except ValueError:
        found = IPv4Address(0)
    if found.is_multicast or found.is_unspecified:
        context.error(path, f"{text!r} is no IPv4 address of a host", "write for example 10.0.1.5")
        return None
    return found


def _listener(said: shape.Listen, path: TreePath, context: Context) -> dict[str, Any]:
    address = _address(said.address, (*path, "address"), context)
    files = {"certificate": said.certificate, "key": said.key, "client_authority": said.client_authority}
    secure = said.kind in ("tls", "wss")
    if secure:
        for name in ("certificate", "key"):
            if files[name] is None:
                context.error(path, f"{said.kind} needs a {name}", f"add {name}: /etc/timebound/site.pem")
        if said.certificate_as_user and said.client_authority is None:
            context.error(
                path, "certificates of clients cannot be checked", "add client-authority: the file of their authority"
            )
    elif any(files.values()) or said.certificate_as_user:
        context.error(path, f"{said.kind} has no certificates", f"write kind: {'wss' if said.kind == 'ws' else 'tls'}")
    elif not address.startswith("127.") and address != "::1":
        context.warn(path, f"passwords and messages cross the network in clear at {address}", "use kind: tls or wss")
    found: dict[str, str | None] = dict.fromkeys(files)
    if secure and said.certificate is not None and said.key is not None:
        chain, key = pem.chain_and_key(context, path, said.certificate, said.key)
        found |= {"certificate": str(chain), "key": str(key)}
    if secure and said.client_authority is not None:
        authority = pem.certificates(context, (*path, "client-authority"), said.client_authority)
        found["client_authority"] = str(authority)
    return {
        "address": address,
        "port": said.port,
        "kind": said.kind,
        **found,
        "certificate_as_user": said.certificate_as_user,
    }


def _store_url(said: shape.Store, context: Context) -> str:
    """The table, its file relative to the configuration as all files are, and as the controller takes it: both may have the same text."""
    kind, _, rest = said.url.partition(":")
    if kind != "file" or not rest:
        return said.url
    file = (context.folder or Path()) / rest
    folder_of_table(file, ("store", "url"), context)
    return f"file:{file}"


def _store_tls(said: shape.Store, context: Context) -> Tls | None:
    kind, _, rest = said.url.partition(":")
    if kind not in ("unix", "tcp", "ssl", "file") or not rest:
        context.error(
            ("store",), f"{said.url!r} is no store", "write unix:PATH, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or file:PATH"
        )
    table_s_address(said.url, ("store",), context)
    if kind == "tcp" and not rest.startswith(("127.", "[::1]", "localhost")):
        context.warn(("store",), "anybody on the way can read and change the table", "use ssl:")
    files = {"key": said.key, "certificate": said.certificate, "authority": said.authority}
    if kind != "ssl":
        if any(files.values()):
            context.error(("store",), f"{kind}: has no certificates", "write ssl:ADDRESS:PORT, or leave them out")
        return None
    for name, file in files.items():
        if file is None:
            context.error(
                ("store",), f"ssl: needs {'an' if name == 'authority' else 'a'} {name}", f"add {name}: FILE (PEM)"
            )
    if not (said.key and said.certificate and said.authority):
        return None
    certificate, key = pem.chain_and_key(context, ("store",), said.certificate, said.key)
    ca = pem.certificates(context, ("store", "authority"), said.authority)
    return Tls(key=str(key), certificate=str(certificate), ca=str(ca))


def _policy(said: shape.Policy, context: Context) -> policy.Policy:
    names: set[str] = {"default"}
    rules = []
    for number, rule in enumerate(said.rules):
        path: TreePath = ("policy", "rules", number)
        if rule.name in names:
            context.error((*path, "name"), f"there is a rule {rule.name!r} already", "give each rule a name of its own")
        names.add(rule.name)
        rules.append(_rule(rule, path, context))
    return policy.Policy(tuple(rules), policy.default_rule(allow=said.default == "allow"))


def _rule(said: shape.Rule, path: TreePath, context: Context) -> policy.Rule:
    for number, each in enumerate(said.topic or []):
        if not is_filter(each):
            context.error(
                (*path, "topic", number), f"{each!r} is no topic filter", "write for example plant/+/alarm or plant/#"
            )
    limits = said.limits
    return policy.Rule(
        name=said.name,
        users=_texts(said.user),
        clients=_texts(said.client),
        certificates=_texts(said.certificate),
        addresses=None
        if said.address is None
        else tuple(_network(each, (*path, "address", number), context) for number, each in enumerate(said.address)),
        topics=_texts(said.topic),
        side=None if said.side is None else Side(said.side),
        allow=said.allow,
        limits=policy.Limits(limits.priority, limits.bandwidth, limits.flows, limits.deadline, limits.per),
    )


def _texts(said: list[str] | None) -> tuple[str, ...] | None:
    return None if said is None else tuple(said)


def _network(text: str, path: TreePath, context: Context) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        context.error(path, f"{text!r} is no address or network", "write for example 10.1.0.7 or 10.1.0.0/16")
        return ip_network("0.0.0.0/32")


def _announce(said: shape.Announce | None, context: Context) -> AnnounceConfiguration | None:
    if said is None:
        return None
    if "+" in said.topic or "#" in said.topic or said.topic.endswith("/"):
        context.error(
            ("announce", "topic"), f"{said.topic!r} is no topic to publish to", "write for example $timebound/manager"
        )
    password = _password(said.user, said.password_file, ("announce",), context)
    return AnnounceConfiguration(said.topic, said.channels, said.user, password)


def _password(user: str | None, name: str | None, path: TreePath, context: Context) -> str | None:
    """The first line of a file."""
    if name is None:
        return None
    file = readable(context, (*path, "password-file"), name)
    if user is None:
        context.error(path, "a password without a user name", "add user: timebound")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    return lines[0] if lines else ""
