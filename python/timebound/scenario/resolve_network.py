"""`network` -> nodes and links: ranges expanded, defaults filled in, names checked."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.framing import ETHERNET, Framing
from timebound.scenario.model import (
    Direction,
    Disconnections,
    Impairments,
    Jitter,
    Link,
    Loss,
    Node,
    Queue,
)
from timebound.scenario.resolve_framing import check_links, check_packets, resolve_framing
from timebound.scenario.resolve_media import link_slots, segment_slots
from timebound.scenario.resolve_nodes import Definition, Definitions, make_node, make_side
from timebound.scenario.resolve_traces import Traces
from timebound.scenario.topology import read_topology
from timebound.scenario.traces import Trace
from timebound.scenario.tree import Path
from timebound.scenario.units import LONGEST_NS, propagation_ns

MOST_LINKS = 100_000
LEAST_RATE_BPS = 100
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
    "tdma": "slots",
    "loss": "impairments.loss",
    "jitter": "impairments.jitter",
    "corruption": "impairments.corruption",
    "duplication": "impairments.duplication",
    "outages": "impairments.outages",
    "forward": "forward",
    "backward": "backward",
}
_NODE_FIELDS = {
    "delay": "switching_min_ns",
    "engine": "engine",
    "replication": "replication_min_ns",
    "mtu": "mtu",
    "address": "address",
    "run": "programs",
    "hostname": "hostname",
    "interface": "interface",
    "vm": "machine",
    "mac": "mac",
}


@dataclass
class Net:
    """The resolved network and the nodes by name, and the profiles that links may name."""

    nodes: dict[str, Node]
    links: list[Link]
    profiles: Mapping[str, shape.Profile] = field(default_factory=dict)
    framing: Framing = ETHERNET

    def links_between(self, a: str, b: str) -> list[int]:
        """Indices of the links that join two nodes, whichever way they are written."""
        return [index for index, link in enumerate(self.links) if {link.a, link.b} == {a, b}]


def resolve_network(
    network: shape.Network, context: Context, profiles: Mapping[str, shape.Profile] | None = None
) -> Net:
    """Nodes and links, with every problem reported to `context`."""
    net = Net({}, [], profiles or {}, resolve_framing(network.framing, context))
    traces = Traces(context)
    if network.import_ is not None:
        _import(network, network.import_, net, context, traces)
    shared: list[Definition] = []
    for definition in Definitions(network, context).all():
        _add_node(net, definition, network.defaults, context)
        if definition.shape.tdma is not None:
            shared.append(definition)
    _check_addresses(net, context)
    _check_hostnames(net, context)
    check_packets(net.framing, net.nodes.values(), context)
    for index, link in enumerate(network.links):
        _add_links(net, link, network.defaults.link, ("network", "links", index), context, traces)
        if len(net.links) > MOST_LINKS:
            context.error(("network", "links", index), f"more than {MOST_LINKS} links", "make the ranges smaller")
            break
    for definition in shared:
        _share_segment(net, definition, context)
    check_links(net.framing, net.links, context)
    if not net.nodes and not context.failed:
        context.error(("network",), "the network has no nodes", "write nodes: {h1: host, h2: host, s1: switch}")
    return net


def _share_segment(net: Net, definition: Definition, context: Context) -> None:
    """Slots of a segment, once all its links are known."""
    tdma, node = definition.shape.tdma, net.nodes.get(definition.name)
    if tdma is None or node is None:
        return
    path = definition.at(context, "tdma")
    if node.kind == "segment":
        segment_slots(node, tdma, net.links, net.nodes, net.framing, path, context)
    else:
        message = f"{node.name!r} is a {node.kind}: slots belong to links and segments"
        context.error(path, message, "state tdma of its link, or of the segment that it is on")


def _add_node(net: Net, definition: Definition, defaults: shape.Defaults, context: Context) -> None:
    name, path = definition.name, definition.path
    if name in net.nodes:
        context.key_error(path, f"duplicate node {name!r}", "rename one of them, or make the ranges disjoint")
        return
    context.remember(f"nodes[{len(net.nodes)}]", path, _NODE_FIELDS)
    node = make_node(definition, defaults, net.framing.mtu, context)
    _check_interface(net, node, path, context)
    net.nodes[name] = node
    side = make_side(node, definition)
    if side is None:
        return
    if side.name in net.nodes:
        context.key_error(path, f"duplicate node {side.name!r}", "state another name: gateway: {outside: ...}")
        return
    context.remember(f"nodes[{len(net.nodes)}]", path)
    net.nodes[side.name] = side


def _check_interface(net: Net, node: Node, path: Path, context: Context) -> None:
    if node.interface is None:
        return
    for other in net.nodes.values():
        if other.interface is not None and other.interface.name == node.interface.name:
            message = f"interface {node.interface.name} belongs to {other.name!r} already"
            context.error((*path, "interface"), message, "give every node its own")
            return


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


def _check_hostnames(net: Net, context: Context) -> None:
    """Two nodes of one host name could not be told apart in /etc/hosts."""
    seen = {name: name for name, node in net.nodes.items() if node.hostname is None}
    for index, node in enumerate(net.nodes.values()):
        if node.hostname is None:
            continue
        if seen.setdefault(node.hostname, node.name) != node.name:
            place = context.locations.get(f"nodes[{index}].hostname", context.locations[f"nodes[{index}]"])
            message = f"{node.hostname!r} is the host name of {seen[node.hostname]!r} already"
            hint = "clones have ${node} or ${index} in it: hostname: meter-${index}"
            context.sources.problem(place, f"network.nodes.{node.name}.hostname", message, hint)


def _add_links(
    net: Net, link: shape.Link, defaults: shape.Conditions, path: Path, context: Context, traces: Traces
) -> None:
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
    forward, backward = (
        resolve_direction(link, own, defaults, path, context, net.profiles, traces.of(link, own, way, path, defaults))
        for way, own in enumerate((link.forward, link.backward))
    )
    traced = forward.trace is not None or backward.trace is not None
    for a, b in zip(left, right, strict=True):
        if not _check_ends(net, (a, b), path, context, reported, traced=traced):
            continue
        context.remember(f"links[{len(net.links)}]", path, _LINK_FIELDS)
        added = Link(
            a=a,
            b=b,
            forward=forward,
            backward=backward,
            half_duplex=link.duplex == "half",
            length_m=None if link.length is None else -(-link.length // 1000),
        )
        tdma = getattr(link, "tdma", None)
        if tdma is not None:
            added = link_slots(tdma, (net.nodes[a], net.nodes[b]), added, net.framing, (*path, "tdma"), context)
        net.links.append(added)


def _check_ends(
    net: Net, ends: tuple[str, str], path: Path, context: Context, reported: set[str], *, traced: bool = False
) -> bool:
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
    if good and traced and any(net.nodes[end].kind == "segment" for end in ends):
        hint = "put the trace on a link between a bridge and a node of its own"
        context.error((*path, "trace"), "a trace on a shared segment", hint)
        return False
    if good and all(net.nodes[end].kind == "segment" for end in ends):
        context.error((*path, "between"), "two segments joined directly", "put a switch between two shared segments")
        return False
    return good


def _layers(
    link: shape.Link,
    own: shape.Conditions | None,
    defaults: shape.Conditions,
    profiles: Mapping[str, shape.Profile],
    path: Path,
    context: Context,
) -> list[shape.Conditions | shape.Profile]:
    """What states conditions of a direction, the first that does so counts: each layer, then the profile it names."""
    layers: list[shape.Conditions | shape.Profile] = []
    side = "forward" if own is link.forward else "backward"
    places: list[tuple[shape.Conditions | None, Path]] = [
        (own, (*path, side)),
        (link, path),
        (defaults, ("network", "defaults", "link")),
        (_BUILT_IN, ()),
    ]
    for layer, place in places:
        if layer is None:
            continue
        layers.append(layer)
        if layer.conditions is None:
            continue
        profile = profiles.get(layer.conditions)
        if profile is None:
            hint = close_to(layer.conditions, profiles, "declare it under conditions")
            context.error((*place, "conditions"), f"unknown conditions {layer.conditions!r}", hint)
        else:
            layers.append(profile)
    return layers


def resolve_direction(
    link: shape.Link,
    own: shape.Conditions | None,
    defaults: shape.Conditions,
    path: Path,
    context: Context,
    profiles: Mapping[str, shape.Profile],
    trace: Trace | None = None,
) -> Direction:
    """One direction of a link: its own conditions, else the link's, else the defaults', else the built-in ones."""
    layers = _layers(link, own, defaults, profiles, path, context)

    def pick(name: str) -> object:
        return next((value for layer in layers if (value := getattr(layer, name, None)) is not None), None)

    delay = pick("delay")
    if link.length is not None and link.delay is None and (own is None or own.delay is None):
        delay = propagation_ns(link.length)
    rate, buffer, queue = pick("rate"), pick("buffer"), pick("queue")
    loss, jitter, disconnections = pick("loss"), pick("jitter"), pick("disconnections")
    outages = pick("outages") or []
    assert isinstance(rate, int) and isinstance(delay, int) and isinstance(buffer, int)
    assert isinstance(queue, shape.Queue) and isinstance(outages, list)
    corruption, duplication = pick("corruption") or 0.0, pick("duplication") or 0.0
    assert isinstance(corruption, float) and isinstance(duplication, float)
    for index, (start, stop) in enumerate(outages):
        if start >= stop:
            context.error((*path, "outages", index), "an outage that lasts no time", "write it as from..to")
    return Direction(
        rate_bps=rate if trace is None else max(LEAST_RATE_BPS, trace.capacity_bps),
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
            disconnections=resolve_disconnections(disconnections, (*path, "disconnections"), context)
            if isinstance(disconnections, shape.Disconnections)
            else None,
            held=pick("queued") == "held",
        ),
        trace=trace,
    )


LEAST_TURN_NS = 100_000
"""Shortest mean time of a disconnection, as in the model."""


def resolve_disconnections(stated: shape.Disconnections, path: Path, context: Context) -> Disconnections | None:
    """Times down at random; a mean time down of zero is none."""
    if stated.mean_down == 0:
        return None
    for name, mean in (("mean-up", stated.mean_up), ("mean-down", stated.mean_down)):
        if mean < LEAST_TURN_NS:
            context.error((*path, name), "disconnections shorter than 100 us", "state times from 100 us up")
    return Disconnections(mean_up_ns=stated.mean_up, mean_down_ns=stated.mean_down, distribution=stated.distribution)


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


def _import(network: shape.Network, wanted: shape.Import, net: Net, context: Context, traces: Traces) -> None:
    path: Path = ("network", "import")
    common = network.defaults.link
    has_delay = common.delay is not None or common.conditions is not None
    topology = read_topology(wanted.file, context.folder, (*path, "file"), context, has_delay=has_delay)
    if topology is None:
        return
    defaults = network.defaults
    for place in topology.nodes:
        node = shape.Node(kind="switch", latitude=place.latitude, longitude=place.longitude)
        _add_node(net, Definition(place.name, 1, node, path), defaults, context)
    for edge in topology.links:
        link = shape.Link.model_construct(
            between=[edge.a, edge.b],
            rate=edge.rate_bps or wanted.rate,
            delay=edge.delay_ns,
            length=None if edge.kilometres is None else round(edge.kilometres * 1_000_000),
            duplex="full",
            forward=None,
            backward=None
            if edge.back is None
            else shape.Conditions.model_construct(rate=edge.back.rate_bps, delay=edge.back.delay_ns),
        )
        _add_links(net, link, defaults.link, path, context, traces)
    for place in topology.nodes:
        for number in range(1, wanted.hosts_per_node + 1):
            host = f"{place.name}-h{number}"
            _add_node(net, Definition(host, 1, shape.Node(kind="host"), path), defaults, context)
            link = shape.Link.model_construct(
                between=[host, place.name],
                rate=wanted.host_rate,
                duplex="full",
                forward=None,
                backward=None,
                length=None,
            )
            _add_links(net, link, defaults.link, path, context, traces)
