"""`network.nodes` and `network.templates` -> the nodes: templates and clones merged, ranges expanded, placeholders filled in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.files import instead_of_file
from timebound.scenario.model import Gateway, Node, NodeFile, Program
from timebound.scenario.names import MOST_NAMES, RangeError, expand
from timebound.scenario.resolve_hardware import with_hardware
from timebound.scenario.resolve_switches import DELAY_NS, check_engine
from timebound.scenario.shape_tcp import resolve_tcp
from timebound.scenario.tree import Mapping, Path, find

MOST_FILE_BYTES = 1 << 20
"""Of one file of a node; a scenario is no place for disk images."""
LEAST_DHCP_MTU = 576
MERGED = ("env", "files")
OWN_LOGS = frozenset({"sandbox", "ovsdb-server", "ovs-vswitchd"})
"""Logs that a run writes of itself."""
LONGEST_LOG = 120
"""Bytes of a program's name: that of its node, and what an ending or a number adds, have room in the name of a file."""
LOG_HINT = (
    "it is the name of its log in the run folder: use letters, digits, '-', '_', '.' and blanks, for example server"
)
"""Keys whose entries are merged with those of the template; all others are replaced."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOSTNAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]{0,61}[A-Za-z0-9_])?")
_KERNEL = ("/proc", "/sys", "/dev")
_HOSTS = ("host", "gateway")
_HOST_KEYS = (
    "mtu",
    "tcp",
    "cpu",
    "cpu_reservation",
    "memory",
    "processes",
    "address",
    "hostname",
    "env",
    "files",
    "mac",
    "interface",
    "vm",
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One node as it is to be made: `shape` has everything that template and clone give."""

    name: str
    index: int
    """Position in its range, from 1."""
    shape: shape.Node
    path: Path
    inherited: tuple[Path, ...] = ()
    """Where the node it is a clone of, and the templates, are written: the nearest first."""

    def at(self, context: Context, *keys: str | int) -> Path:
        """Where a part of it is written: in the node itself, or in what it is made from."""
        for path in (self.path, *self.inherited):
            if _is_written(find(context.tree, path)[1], keys[:2]):
                return (*path, *keys)
        return (*self.path, *keys)

    def fill(self, text: str) -> str:
        """The text with `${node}` and `${index}` filled in."""
        return text.replace("${node}", self.name).replace("${index}", str(self.index))


Found = tuple[shape.Node, tuple[Path, ...]]
"""What a node or template is, and where else its parts are written."""


def _is_written(node: object, keys: tuple[str | int, ...]) -> bool:
    """Does the tree go on to these keys? What is no mapping (a short form) holds all of them."""
    for key in keys:
        if not isinstance(node, Mapping):
            return node is not None
        node = node.entries.get(str(key))
    return node is not None


class Definitions:
    """The nodes of a network, written as they are meant."""

    def __init__(self, network: shape.Network, context: Context) -> None:
        self.network = network
        self.context = context
        self._patterns: dict[str, str] = {}
        for pattern in network.nodes:
            # Here without errors: they are reported where the names are used.
            self._patterns.update(dict.fromkeys(_names(pattern), pattern))

    def all(self) -> Iterator[Definition]:
        """Every node in the order of the file; templates that nobody uses are checked too."""
        for name in self.network.templates:
            self._template(name, ("network", "templates", name), ())
        total = 0
        for pattern in self.network.nodes:
            path: Path = ("network", "nodes", pattern)
            found = self._node(pattern, ())
            names = self.context.expand(pattern, path, key=True)
            total += len(names)
            if total > MOST_NAMES:
                self.context.key_error(path, f"more than {MOST_NAMES} nodes", "make the ranges smaller")
                return
            if found is None:
                continue
            for index, name in enumerate(names, 1):
                yield Definition(name, index, found[0], path, found[1])

    def _node(self, pattern: str, above: tuple[str, ...]) -> Found | None:
        path: Path = ("network", "nodes", pattern)
        own = self.network.nodes[pattern]
        if own.template is not None and own.clone_of is not None:
            self.context.error(
                (*path, "clone-of"), "a node is a clone or has a template, not both", "remove one of them"
            )
            return None
        base: Found | None = None
        if own.clone_of is not None:
            base = self._clone(own.clone_of, path, (*above, pattern))
        elif own.template is not None:
            base = self._template(own.template, (*path, "template"), ())
        if own.template is None and own.clone_of is None:
            base = (own, ())
        if base is None:
            return None
        node = merge(base[0], own)
        if node.kind is None:
            self.context.error(path, f"node {pattern!r} has no kind", "add kind: host (or a template that has one)")
            return None
        return node, base[1]

    def _clone(self, target: str, path: Path, above: tuple[str, ...]) -> Found | None:
        pattern = self._patterns.get(target)
        if pattern is None:
            hint = close_to(target, self._patterns, "name one node of network.nodes")
            self.context.error((*path, "clone-of"), f"unknown node {target!r}", hint)
            return None
        if pattern in above:
            ring = " -> ".join((*above, pattern))
            self.context.error((*path, "clone-of"), f"{ring}: clones of one another", "let one of them say what it is")
            return None
        found = self._node(pattern, above)
        # An address is one node's own.
        return found and (found[0].model_copy(update={"address": None}), (("network", "nodes", pattern), *found[1]))

    def _template(self, name: str, path: Path, above: tuple[str, ...]) -> Found | None:
        templates = self.network.templates
        if name not in templates:
            hint = close_to(name, templates, "declare it under network.templates")
            self.context.error(path, f"unknown template {name!r}", hint)
            return None
        if name in above:
            ring = " -> ".join((*above, name))
            self.context.error(path, f"{ring}: templates that need one another", "let one of them stand alone")
            return None
        own = templates[name]
        if own.clone_of is not None or own.address is not None:
            key = "clone-of" if own.clone_of is not None else "address"
            where: Path = ("network", "templates", name, key)
            self.context.error(where, f"{key} belongs to a node, not to a template", f"remove {key}")
            return None
        here: Path = ("network", "templates", name)
        if own.template is None:
            return own, (here,)
        base = self._template(own.template, (*here, "template"), (*above, name))
        return base and (merge(base[0], own), (here, *base[1]))


def _names(pattern: str) -> list[str]:
    try:
        return expand(pattern)
    except RangeError:
        return []


def merge(base: shape.Node, own: shape.Node) -> shape.Node:
    """What `own` states wins; `env` and `files` are merged entry by entry."""
    update = {name: getattr(own, name) for name in own.model_fields_set}
    for name in MERGED:
        update[name] = {**getattr(base, name), **getattr(own, name)}
    return base.model_copy(update={**update, "template": None, "clone_of": None})


def make_node(definition: Definition, defaults: shape.Defaults, mtu: int, context: Context) -> Node:
    """The resolved node; problems go to `context`. `mtu` is that of hosts that state none."""
    name, node = definition.name, definition.shape
    _check(definition, defaults, context)
    assert node.kind is not None
    # The shape has renamed a bridge already; a gateway is a host that joins two subnets.
    kind = "switch" if node.kind == "bridge" else "host" if node.kind == "gateway" else node.kind
    real = kind == "switch" and (node.engine or defaults.switch.engine) == "ovs"
    unstated = DELAY_NS if real else (0, 0)
    delay = (node.delay or defaults.switch.delay or unstated) if kind == "switch" else (0, 0)
    copying = (node.replication or defaults.switch.replication or (0, 0)) if kind == "switch" else (0, 0)
    if kind != "host":
        return Node(
            name=name,
            kind=kind,
            switching_min_ns=delay[0],
            switching_max_ns=delay[1],
            replication_min_ns=copying[0],
            replication_max_ns=copying[1],
            engine="ovs" if real else "fabric",
            latitude=node.latitude,
            longitude=node.longitude,
        )
    host = defaults.host
    cpu = node.cpu or host.cpu
    reservation = node.cpu_reservation if node.cpu_reservation is not None else host.cpu_reservation
    resolved = Node(
        name=name,
        kind=kind,
        address=None if node.address == "dhcp" else node.address,
        dhcp=node.address == "dhcp",
        gateway=_gateway(definition, context),
        mtu=node.mtu or host.mtu or mtu,
        tcp=resolve_tcp(
            node.tcp, host.tcp, definition.path, context, emulated=node.vm is None and node.interface is None
        ),
        cpu_share=None if cpu is None else cpu.share,
        cpu_hz=None if cpu is None else cpu.frequency,
        cpu_reservation=reservation,
        memory_bytes=node.memory or host.memory,
        processes=node.processes or host.processes,
        hostname=_hostname(definition, context),
        environment=_environment(definition, {**host.env, **node.env}, context),
        files=_files(definition, {**host.files, **node.files}, context),
        programs=_programs(definition, context),
        latitude=node.latitude,
        longitude=node.longitude,
    )
    return with_hardware(resolved, node, definition.path, context)


def _check(definition: Definition, defaults: shape.Defaults, context: Context) -> None:
    name, node = definition.name, definition.shape
    check_engine(definition, defaults, context)
    for key in _HOST_KEYS:
        if getattr(node, key) and node.kind not in _HOSTS:
            shown = key.replace("_", "-")
            context.error(
                definition.at(context, shown),
                f"{shown} belongs to hosts, and {name!r} is a {node.kind}",
                f"remove {shown}",
            )
    if node.run and node.kind not in _HOSTS:
        context.error(
            definition.at(context, "run"), f"programs run on hosts, and {name!r} is a {node.kind}", "move it to a host"
        )
    for key, value in (("delay", node.delay), ("replication", node.replication)):
        if value is not None and node.kind not in ("switch", "bridge"):
            context.error(
                definition.at(context, key), f"{key} belongs to switches, and {name!r} is a {node.kind}", "remove it"
            )
    if node.address == "dhcp" and node.kind == "gateway":
        message = "a gateway leases addresses and has none leased"
        context.error(definition.at(context, "address"), message, "remove address, or state it")
    if node.address == "dhcp" and (node.mtu or 1500) < LEAST_DHCP_MTU:
        message = f"DHCP needs packets of {LEAST_DHCP_MTU} bytes (RFC 2131, section 2), and the mtu is {node.mtu}"
        context.error(definition.at(context, "address"), message, "remove address: dhcp, or raise the mtu")
    if node.gateway is not None and node.kind != "gateway":
        message = f"gateway belongs to gateways, and {name!r} is a {node.kind}"
        context.error(definition.at(context, "gateway"), message, "write kind: gateway")
    if (node.latitude is None) != (node.longitude is None):
        context.error(definition.path, "latitude and longitude go together", "state both or none")


def _gateway(definition: Definition, context: Context) -> Gateway | None:
    if definition.shape.kind != "gateway":
        return None
    told = definition.shape.gateway or shape.Gateway()
    if told.uplink:
        hint = "leave uplink out: the experiment stays apart from the real network"
        context.error(definition.at(context, "gateway", "uplink"), "uplink is not available in this version", hint)
    outside = definition.fill(told.outside) if told.outside else f"{definition.name}-out"
    for key, text in (("outside", outside), ("domain", told.domain)):
        if text is not None and _HOSTNAME.fullmatch(text) is None:
            hint = "use letters, digits, '_', '.' and '-' (at most 63)"
            context.error(definition.at(context, "gateway", key), f"{text!r} is no name", hint)
    return Gateway(outside=outside, nat=told.nat, dhcp=told.dhcp, dns=told.dns, domain=told.domain)


def make_side(gateway: Node, definition: Definition) -> Node | None:
    """The node that stands for a gateway's second interface."""
    if gateway.gateway is None:
        return None
    told = definition.shape.gateway
    return Node(
        name=gateway.gateway.outside,
        kind="host",
        side_of=gateway.name,
        address=told.address if told else None,
        mtu=gateway.mtu,
    )


def _hostname(definition: Definition, context: Context) -> str | None:
    if definition.shape.hostname is None:
        return None
    name = definition.fill(definition.shape.hostname)
    if _HOSTNAME.fullmatch(name) is None:
        hint = "use letters, digits, '_', '.' and '-' (at most 63)"
        context.error(definition.at(context, "hostname"), f"{name!r} is no host name", hint)
    return name


def _environment(
    definition: Definition, env: AbstractMapping[str, str], context: Context, where: Path = ("env",)
) -> dict[str, str]:
    for key in env:
        if _VARIABLE.fullmatch(key) is None:
            hint = "write for example SITE: north"
            context.error(definition.at(context, *where, key), f"{key!r} cannot be an environment variable", hint)
    return {key: definition.fill(value) for key, value in env.items()}


def _files(definition: Definition, files: AbstractMapping[str, shape.File], context: Context) -> tuple[NodeFile, ...]:
    result = []
    for target, file in files.items():
        path = definition.at(context, "files", target)
        parts = target.split("/")
        if not target.startswith("/") or "\0" in target or any(part in ("", ".", "..") for part in parts[1:]):
            hint = "write an absolute path without . and .., for example /etc/app.conf"
            context.error(path, f"{target!r} cannot be a file of a node", hint)
            continue
        if any(target == root or target.startswith(f"{root}/") for root in _KERNEL):
            context.error(path, f"{target!r} belongs to the kernel", "choose a path outside of /proc, /sys and /dev")
            continue
        if (file.content is None) == (file.from_ is None):
            context.error(path, "a file has a content or comes from a file", "write its text, or {from: local.file}")
            continue
        mode = int(file.mode, 8)
        if file.content is not None:
            result.append(NodeFile(path=target, content=definition.fill(file.content), mode=mode))
            continue
        assert file.from_ is not None
        source = _source(definition.fill(file.from_), (*path, "from"), context)
        if source is not None:
            result.append(NodeFile(path=target, source=source, mode=mode))
    return tuple(result)


def _source(name: str, path: Path, context: Context) -> str | None:
    file = (context.folder or FilePath.cwd()) / name
    hint = "the path counts from the scenario's folder"
    if instead_of_file(file) is not None or not os.access(file, os.R_OK):
        context.error(path, f"{name!r} is no file that can be read", hint)
        return None
    if file.stat().st_size > MOST_FILE_BYTES:
        context.error(path, f"{name!r} has more than {MOST_FILE_BYTES} bytes", "let a program of the node fetch it")
        return None
    return str(file.resolve())


def _no_log(name: str) -> str | None:
    """Why a program's name cannot be that of its log (`logs/NAME.log` in the run folder)."""
    if not name or name != name.strip():
        return "it is empty, or begins or ends with a blank"
    if "/" in name or name.startswith("."):
        return "its log would lie elsewhere, or be hidden"
    if not name.isprintable():
        return "it has a character that cannot be printed"
    if len(name.encode("utf-8", "replace")) > LONGEST_LOG:
        return f"it has more than {LONGEST_LOG} bytes"
    return "the run has a log of that name" if name in OWN_LOGS else None


def _log_of(command: str) -> str:
    """A name by the program's own, which may be any."""
    last = command.rstrip("/").rsplit("/", 1)[-1].strip()
    name = "".join(character if character.isprintable() else "_" for character in last).lstrip(".")
    shortened = name.encode("utf-8", "replace")[:LONGEST_LOG].decode("utf-8", "ignore") or "program"
    return f"{shortened}-program" if shortened in OWN_LOGS else shortened


def _programs(definition: Definition, context: Context) -> tuple[Program, ...]:
    fill: Callable[[str], str] = definition.fill
    programs: list[Program] = []
    names: set[str] = set()
    for index, program in enumerate(definition.shape.run):
        here = definition.at(context, "run", index)
        if not program.command[0]:
            context.error((*here, "command"), "an empty program name", 'write run: ["mosquitto", "-v"]')
            continue
        if program.name is not None and (why := _no_log(program.name)) is not None:
            context.error((*here, "name"), f"{program.name!r} cannot name a program: {why}", LOG_HINT)
            continue
        environment = _environment(definition, program.env, context, ("run", index, "env"))
        base = program.name or _log_of(program.command[0])
        name, number = base, 2
        while name in names:
            if program.name is not None:
                context.error((*here, "name"), f"duplicate program {name!r}", "rename one of them")
                break
            name, number = f"{base}-{number}", number + 1
        names.add(name)
        programs.append(
            Program(
                name=name,
                command=tuple(fill(word) for word in program.command),
                environment=environment,
                folder=None if program.folder is None else fill(program.folder),
                essential=program.essential,
                ready_port=program.ready_port,
                start_ns=program.start,
            )
        )
    return tuple(programs)
