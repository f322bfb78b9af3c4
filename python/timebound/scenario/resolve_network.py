"""`network` -> nodes and links: ranges expanded, defaults filled in, names checked."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.model import (
    Direction,
    Impairments,
    Jitter,
    Link,
    Loss,
    Node,
    Program,
    Queue,
)
from timebound.scenario.names import MOST_NAMES
from timebound.scenario.topology import read_topology
from timebound.scenario.tree import Path
from timebound.scenario.units import LONGEST_NS, propagation_ns

MOST_LINKS = 100_000
_BUILT_IN = shape.Conditions.model_construct(
    rate=100_000_000, delay=0, queue=shape.Queue(), buffer=262_144, corruption_drops=False
)
BUILT_IN_TEXT = "100 Mbit/s, no delay, strict priority, a buffer of 256 KiB"
"""What a link has where neither it nor the defaults say (`_BUILT_IN` in words)."""

_LINK_FIELDS = {
    "rate": "rate_bps",
    "delay": "delay_ns",
    "length": "delay_ns",
    "queue": "queue",
    "buffer": "buffer_bytes",
    "loss": "impairments.loss",
    "jitter": "impairments.jitter",
    "corruption": "impairments.corruption",
    "duplication": "impairments.duplication",
    "outages": "impairments.outages",
    "forward": "forward",
    "backward": "backward",
}
_NODE_FIELDS = {"delay": "switching_min_ns", "mtu": "mtu", "address": "address", "run": "programs"}


@dataclass
class Net:
    """The resolved network and the nodes by name."""

    nodes: dict[str, Node]
    links: list[Link]

    def links_between(self, a: str, b: str) -> list[int]:
        """Indices of the links that join two nodes, whichever way they are written."""
        return [index for index, link in enumerate(self.links) if {link.a, link.b} == {a, b}]


def resolve_network(network: shape.Network, context: Context) -> Net:
    """Nodes and links, with every problem reported to `context`."""
    net = Net({}, [])
    if network.import_ is not None:
        _import(network, network.import_, net, context)
    for position, (pattern, node) in enumerate(network.nodes.items()):
        path: Path = ("network", "nodes", pattern)
        for name in context.expand(pattern, path, key=True):
            _add_node(net, name, node, network.defaults, path, context)
        if len(net.nodes) > MOST_NAMES:
            context.key_error(path, f"more than {MOST_NAMES} nodes", "make the ranges smaller")
            break
        del position
    _check_addresses(net, context)
    for index, link in enumerate(network.links):
        _add_links(net, link, network.defaults.link, ("network", "links", index), context)
        if len(net.links) > MOST_LINKS:
            context.error(("network", "links", index), f"more than {MOST_LINKS} links", "make the ranges smaller")
            break
    if not net.nodes and not context.failed:
        context.error(("network",), "the network has no nodes", "write nodes: {h1: host, h2: host, s1: switch}")
    return net


def _add_node(net: Net, name: str, node: shape.Node, defaults: shape.Defaults, path: Path, context: Context) -> None:
    if name in net.nodes:
        context.key_error(path, f"duplicate node {name!r}", "rename one of them, or make the ranges disjoint")
        return
    _check_node(name, node, path, context)
    delay = (node.delay or defaults.switch.delay or (0, 0)) if node.kind == "switch" else (0, 0)
    is_host = node.kind == "host"
    cpu = node.cpu if node.cpu is not None else defaults.host.cpu
    context.remember(f"nodes[{len(net.nodes)}]", path, _NODE_FIELDS)
    net.nodes[name] = Node(
        name=name,
        kind=node.kind,
        switching_min_ns=delay[0],
        switching_max_ns=delay[1],
        address=node.address,
        mtu=(node.mtu or defaults.host.mtu or 1500) if is_host else 1500,
        cpu_share=cpu if is_host else None,
        memory_bytes=(node.memory or defaults.host.memory) if is_host else None,
        programs=_programs(node, path, context),
        latitude=node.latitude,
        longitude=node.longitude,
    )


def _check_node(name: str, node: shape.Node, path: Path, context: Context) -> None:
    if node.engine == "ovs":
        context.error(
            (*path, "engine"),
            "engine ovs is not available in this version",
            "leave engine out: the fabric forwards, with the switching delay under delay",
        )
    only_host = {"mtu": node.mtu, "cpu": node.cpu, "memory": node.memory, "address": node.address}
    for key, value in only_host.items():
        if value is not None and node.kind != "host":
            context.error((*path, key), f"{key} belongs to hosts, and {name!r} is a {node.kind}", f"remove {key}")
    if node.run and node.kind != "host":
        context.error((*path, "run"), f"programs run on hosts, and {name!r} is a {node.kind}", "move it to a host")
    if node.delay is not None and node.kind != "switch":
        context.error((*path, "delay"), f"delay belongs to switches, and {name!r} is a {node.kind}", "remove it")
    if (node.latitude is None) != (node.longitude is None):
        context.error(path, "latitude and longitude go together", "state both or none")


def _programs(node: shape.Node, path: Path, context: Context) -> tuple[Program, ...]:
    programs: list[Program] = []
    names: set[str] = set()
    for index, program in enumerate(node.run):
        here = (*path, "run", index)
        if not program.command[0] or any("\0" in word for word in program.command):
            context.error((*here, "command"), "an empty program name", 'write run: ["mosquitto", "-v"]')
            continue
        base = program.name or program.command[0].rstrip("/").rsplit("/", 1)[-1] or "program"
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
                command=tuple(program.command),
                environment=dict(program.env),
                folder=program.folder,
                essential=program.essential,
                ready_port=program.ready_port,
                start_ns=program.start,
            )
        )
    return tuple(programs)


def _check_addresses(net: Net, context: Context) -> None:
    seen: dict[str, str] = {}
    for index, node in enumerate(net.nodes.values()):
        if node.address is None:
            continue
        place = context.locations.get(f"nodes[{index}].address", context.locations[f"nodes[{index}]"])
        path = f"network.nodes.{node.name}.address"
        try:
            address = ipaddress.IPv4Address(node.address)
        except ValueError:
            context.sources.problem(place, path, f"{node.address!r} is no IPv4 address", "write for example 10.0.0.7")
            continue
        if address.is_multicast or address.is_loopback or address.is_unspecified or address.is_reserved:
            context.sources.problem(place, path, f"{node.address} cannot be a host's", "use one from 10.0.0.0/8")
        if node.address in seen:
            message = f"{node.address} belongs to {seen[node.address]!r} already"
            context.sources.problem(place, path, message, "give every host its own address")
        seen.setdefault(node.address, node.name)


def _add_links(net: Net, link: shape.Link, defaults: shape.Conditions, path: Path, context: Context) -> None:
    left, right = (context.expand(end, (*path, "between", side)) for side, end in enumerate(link.between))
    if not left or not right:
        return
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        context.error(
            (*path, "between"),
            f"{len(left)} names do not pair with {len(right)}",
            "ranges pair one to one, or one name pairs with all of the other side",
        )
        return
    count = max(len(left), len(right))
    left, right = left * (count // len(left)), right * (count // len(right))
    reported: set[str] = set()
    forward = resolve_direction(link, link.forward, defaults, path, context)
    backward = resolve_direction(link, link.backward, defaults, path, context)
    for a, b in zip(left, right, strict=True):
        if not _check_ends(net, (a, b), path, context, reported):
            continue
        context.remember(f"links[{len(net.links)}]", path, _LINK_FIELDS)
        net.links.append(
            Link(
                a=a,
                b=b,
                forward=forward,
                backward=backward,
                half_duplex=link.duplex == "half",
                length_m=None if link.length is None else -(-link.length // 1000),
            )
        )


def _check_ends(net: Net, ends: tuple[str, str], path: Path, context: Context, reported: set[str]) -> bool:
    good = True
    for side, end in enumerate(ends):
        if end not in net.nodes:
            good = False
            if end not in reported:
                hint = close_to(end, net.nodes, "declare it under network.nodes")
                context.error((*path, "between", side), f"unknown node {end!r}", hint)
                reported.add(end)
    if good and ends[0] == ends[1]:
        context.error((*path, "between"), f"a link from {ends[0]!r} to itself", "name two different nodes")
        return False
    if good and all(net.nodes[end].kind == "segment" for end in ends):
        context.error((*path, "between"), "two segments joined directly", "put a switch between two shared segments")
        return False
    return good


def resolve_direction(
    link: shape.Link, own: shape.Conditions | None, defaults: shape.Conditions, path: Path, context: Context
) -> Direction:
    """One direction of a link: its own conditions, else the link's, else the defaults', else the built-in ones."""
    layers = [layer for layer in (own, link, defaults, _BUILT_IN) if layer is not None]

    def pick(name: str) -> object:
        return next((value for layer in layers if (value := getattr(layer, name, None)) is not None), None)

    delay = pick("delay")
    if link.length is not None and link.delay is None and (own is None or own.delay is None):
        delay = propagation_ns(link.length)
    rate, buffer, queue = pick("rate"), pick("buffer"), pick("queue")
    loss, jitter = pick("loss"), pick("jitter")
    outages = pick("outages") or []
    assert isinstance(rate, int) and isinstance(delay, int) and isinstance(buffer, int)
    assert isinstance(queue, shape.Queue) and isinstance(outages, list)
    corruption, duplication = pick("corruption") or 0.0, pick("duplication") or 0.0
    assert isinstance(corruption, float) and isinstance(duplication, float)
    for index, (start, stop) in enumerate(outages):
        if start >= stop:
            context.error((*path, "outages", index), "an outage that lasts no time", "write it as from..to")
    return Direction(
        rate_bps=rate,
        delay_ns=delay,
        queue=resolve_queue(queue, (*path, "queue"), context),
        buffer_bytes=buffer,
        impairments=Impairments(
            jitter=resolve_jitter(jitter, (*path, "jitter"), context) if isinstance(jitter, shape.Jitter) else None,
            loss=resolve_loss(loss) if isinstance(loss, shape.Loss) else None,
            corruption=corruption,
            corruption_drops=bool(pick("corruption_drops")),
            duplication=duplication,
            outages=tuple(sorted(outages)),
        ),
    )


def resolve_queue(queue: shape.Queue, path: Path, context: Context) -> Queue:
    """The discipline; weighted queues get a quantum for each of the eight classes."""
    if queue.kind != "drr":
        if queue.drr is not None:
            context.error((*path, "drr"), f"quanta belong to drr, not to {queue.kind}", "remove kind or drr")
        return Queue(kind=queue.kind)
    drr = queue.drr or shape.Drr()
    quanta = [drr.default] * 8
    for key, quantum in drr.classes.items():
        if key not in "01234567" or len(key) != 1:
            context.error((*path, "drr", "classes", key), f"class {key} does not exist", "classes are 0 to 7")
        else:
            quanta[int(key)] = quantum
    if any(not 1 <= quantum <= 2**32 - 1 for quantum in quanta):
        context.error((*path, "drr"), "a quantum of 0 bytes or above 4 GB", "give every class a share")
    return Queue(kind="drr", quanta_bytes=tuple(quanta))


def resolve_loss(loss: shape.Loss) -> Loss | None:
    """The loss model; no loss at all is none."""
    burst = loss.gilbert_elliott
    if burst is not None:
        return Loss(
            kind="gilbert-elliott",
            good_to_bad=burst.good_to_bad,
            bad_to_good=burst.bad_to_good,
            loss_in_good=burst.loss_in_good,
            loss_in_bad=burst.loss_in_bad,
        )
    return Loss(probability=loss.independent) if loss.independent else None


def resolve_jitter(jitter: shape.Jitter, path: Path, context: Context) -> Jitter | None:
    """The jitter distribution; every one has a greatest value."""
    if jitter.normal is not None:
        normal = jitter.normal
        greatest = normal.mean + 4 * normal.deviation if normal.max is None else normal.max
        result = Jitter(
            kind="normal",
            mean_ns=normal.mean,
            deviation_ns=normal.deviation,
            max_ns=greatest,
            reorder=jitter.reorder,
        )
    elif jitter.pareto is not None:
        pareto = jitter.pareto
        greatest = 20 * pareto.scale if pareto.max is None else pareto.max
        result = Jitter(
            kind="pareto", scale_ns=pareto.scale, alpha=pareto.alpha, max_ns=greatest, reorder=jitter.reorder
        )
    elif jitter.exponential is not None:
        exponential = jitter.exponential
        greatest = 10 * exponential.mean if exponential.max is None else exponential.max
        result = Jitter(kind="exponential", mean_ns=exponential.mean, max_ns=greatest, reorder=jitter.reorder)
    else:
        if not jitter.uniform:
            return None
        result = Jitter(kind="uniform", max_ns=jitter.uniform, reorder=jitter.reorder)
    if result.max_ns > LONGEST_NS:
        context.error(path, "the greatest jitter is longer than 277 h", "state a smaller max")
    return result


def _import(network: shape.Network, wanted: shape.Import, net: Net, context: Context) -> None:
    path: Path = ("network", "import")
    topology = read_topology(wanted.file, context.folder, (*path, "file"), context)
    if topology is None:
        return
    defaults = network.defaults
    for place in topology.nodes:
        node = shape.Node(kind="switch", latitude=place.latitude, longitude=place.longitude)
        _add_node(net, place.name, node, defaults, path, context)
    for edge in topology.links:
        link = shape.Link.model_construct(
            between=[edge.a, edge.b],
            rate=edge.rate_bps or wanted.rate,
            length=None if edge.kilometres is None else round(edge.kilometres * 1_000_000),
            duplex="full",
            forward=None,
            backward=None,
        )
        _add_links(net, link, defaults.link, path, context)
    for place in topology.nodes:
        for number in range(1, wanted.hosts_per_node + 1):
            host = f"{place.name}-h{number}"
            _add_node(net, host, shape.Node(kind="host"), defaults, path, context)
            link = shape.Link.model_construct(
                between=[host, place.name],
                rate=wanted.host_rate,
                duplex="full",
                forward=None,
                backward=None,
                length=None,
            )
            _add_links(net, link, defaults.link, path, context)
