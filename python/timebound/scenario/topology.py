"""Topologies from other people's files (GML, GraphML, topohub JSON) and to them.

Delays are those that the file states, else follow from stated lengths, else from the coordinates of the ends (great
circle). Labels become names of nodes: letters, digits, `_`, `.`, `-`. Directed files with both directions of a link give
one link with two directions; links from a node to itself are left out. What is not used is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any
from xml.sax.saxutils import escape

from timebound.scenario.context import Context
from timebound.scenario.model import Scenario
from timebound.scenario.names import MOST_NAMES
from timebound.scenario.sources import read_file
from timebound.scenario.topology_attributes import Reader, Stated
from timebound.scenario.topology_formats import FormatError, RawGraph, parse_gml, parse_graphml, parse_json
from timebound.scenario.topology_names import name_of
from timebound.scenario.tree import Path, find
from timebound.scenario.units import SPEED_M_PER_S, propagation_ns

MOST_EDGES = 200_000
"""Both directions of a network's most links."""
EARTH_KM = 6371.0088
"""Mean radius of the earth (IUGG)."""


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A node of an imported topology; degrees north and east where they are known."""

    name: str
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True, slots=True)
class TopologyLink:
    """A link of an imported topology."""

    a: str
    b: str
    kilometres: float | None = None
    rate_bps: int | None = None
    delay_ns: int | None = None
    """Stated; the length gives it otherwise."""
    back: Stated | None = None
    """From b to a, where a directed file states that for itself."""


@dataclass(frozen=True, slots=True)
class Topology:
    """An imported topology."""

    nodes: tuple[TopologyNode, ...]
    links: tuple[TopologyLink, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """What of the file was not used: messages and hints."""


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance of two (latitude, longitude) pairs in degrees (haversine formula)."""
    (north_a, east_a), (north_b, east_b) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    half = math.sin((north_b - north_a) / 2) ** 2
    half += math.cos(north_a) * math.cos(north_b) * math.sin((east_b - east_a) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, half)))


def parse_topology(text: str, suffix: str) -> Topology:
    """A topology from the text of a file whose name ends in `suffix` (`.gml`, `.graphml`, `.json`).

    Raises `FormatError` with message, hint and line where the text is not of that format.
    """
    parsers = {".gml": parse_gml, ".graphml": parse_graphml, ".json": parse_json}
    if suffix not in parsers:
        raise FormatError(f"files {suffix or 'without ending'} are unknown", "name a .gml, .graphml or .json file")
    return _topology(parsers[suffix](text))


def read_topology(
    name: str, folder: FilePath | None, path: Path, context: Context, *, has_delay: bool
) -> Topology | None:
    """The topology in a file beside the scenario, or `None` with the problem reported. `has_delay`: links get a delay by default."""
    place, _ = find(context.tree, path)
    file = FilePath(name) if folder is None else folder / name
    text = read_file(file, str(file), place, context.sources)
    if text is None:
        return None
    try:
        topology = parse_topology(text, file.suffix.lower())
    except FormatError as error:
        where = f" (line {error.line})" if error.line else ""
        context.error(path, f"{name}{where}: {error.message}", error.hint)
        return None
    for message, hint in topology.notes:
        context.warn(path, f"{name}: {message}", hint)
    missing = [link for link in topology.links if link.delay_ns is None and link.kilometres is None]
    if missing and not has_delay:  # a zero that nobody stated should not have to be found out from the figures
        context.warn(
            path,
            f"{name}: {_counted(len(missing))} without delay, length or coordinates of both ends ({missing[0].a}-{missing[0].b}): no delay",
            "state network.defaults.link.delay, which such links get",
        )
    return topology


def _topology(graph: RawGraph) -> Topology:
    for what, found, most in (("nodes", graph.nodes, MOST_NAMES), ("links", graph.edges, MOST_EDGES)):
        if len(found) > most:
            raise FormatError(f"{len(found)} {what}, and a network has at most {most}", "name a smaller graph")
    names = _names(graph)
    nodes = [
        TopologyNode(names[key], _number(values, _LATITUDE, 90), _number(values, _LONGITUDE, 180))
        for key, values in graph.nodes
    ]
    nodes = [
        node if node.latitude is not None and node.longitude is not None else TopologyNode(node.name) for node in nodes
    ]
    links, notes = _links(graph, names, {node.name: node for node in nodes})
    if not nodes:
        raise FormatError("no nodes in this file", "name a file with a graph")
    return Topology(tuple(nodes), tuple(links), tuple(notes))


def _links(
    graph: RawGraph, names: dict[str, str], nodes: dict[str, TopologyNode]
) -> tuple[list[TopologyLink], list[tuple[str, str]]]:
    """The links, and what of their attributes was not used. In a directed graph an edge the other way round is the other direction of the first
    link that has none yet."""
    reader = Reader()
    links: list[TopologyLink] = []
    open_ways: dict[tuple[str, str], list[int]] = {}
    loops = 0
    for source, target, values in graph.edges:
        if source not in names or target not in names:
            unknown = source if source not in names else target
            raise FormatError(f"an edge names the unknown node {unknown!r}", "declare every node of an edge")
        a, b = names[source], names[target]
        if a == b:
            loops += 1
            continue
        stated = reader.read(values)
        waiting = open_ways.get((b, a)) if graph.directed else None
        if waiting:
            first = links[waiting[0]]
            links[waiting.pop(0)] = replace(first, back=_otherwise(first, stated))
            continue
        open_ways.setdefault((a, b), []).append(len(links))
        kilometres = stated.kilometres if stated.kilometres is not None else _by_air(nodes[a], nodes[b])
        links.append(TopologyLink(a, b, kilometres, stated.rate_bps, stated.delay_ns))
    notes = reader.notes()
    if loops:
        notes.append((f"{_counted(loops)} from a node to itself: left out", "remove them from the file"))
    alone = sum(map(len, open_ways.values()))
    if graph.directed and alone and any(link.back is not None for link in links):
        notes.append(
            (
                f"{_counted(alone)} in one direction alone: they become links in both",
                "add the other direction to the file",
            )
        )
    return links, notes


def _counted(count: int) -> str:
    return f"{count} link{'' if count == 1 else 's'}"


def _otherwise(link: TopologyLink, back: Stated) -> Stated:
    """What the way back states; what it leaves out is as on the way there."""
    delay = back.delay_ns
    if delay is None and back.kilometres is not None:
        delay = propagation_ns(round(back.kilometres * 1_000_000))
    return Stated(link.rate_bps if back.rate_bps is None else back.rate_bps, delay)


_LATITUDE = ("lat", "latitude")
_LONGITUDE = ("lon", "lng", "long", "longitude")


def _number(values: dict[str, Any], keys: Iterable[str], most: float) -> float | None:
    lowered = {key.lower(): value for key, value in values.items()}
    for key in keys:
        try:
            number = float(lowered[key])
        except (KeyError, TypeError, ValueError):
            continue
        if abs(number) <= most:
            return number
    return None


def _by_air(a: TopologyNode, b: TopologyNode) -> float | None:
    if a.latitude is None or a.longitude is None or b.latitude is None or b.longitude is None:
        return None
    return great_circle_km((a.latitude, a.longitude), (b.latitude, b.longitude))


def _names(graph: RawGraph) -> dict[str, str]:
    names: dict[str, str] = {}
    taken: set[str] = set()
    next_number: dict[str, int] = {}
    for key, values in graph.nodes:
        if key in names:
            raise FormatError(f"duplicate node {key!r}", "give every node its own id")
        base = name = name_of(key, values.get("name") or values.get("label"))
        while name in taken:
            number = next_number.get(base, 2)
            name, next_number[base] = f"{base}-{number}", number + 1
        taken.add(name)
        names[key] = name
    return names


def to_gml(scenario: Scenario) -> str:
    """The topology as GML with the keys that topohub uses (`dist` in km) and ours (`kind`, `rate_bps`, `delay_ns`)."""
    lines = ["graph [", f'  name "{_ascii(scenario.name)}"', "  directed 0"]
    for index, node in enumerate(scenario.nodes):
        lines += ["  node [", f"    id {index}", f'    label "{node.name}"', f'    kind "{node.kind}"']
        if node.latitude is not None and node.longitude is not None:
            lines += [f"    lon {node.longitude!r}", f"    lat {node.latitude!r}"]
        lines.append("  ]")
    for a, b, attributes in _edges(scenario):
        lines += ["  edge [", f"    source {a}", f"    target {b}"]
        lines += [f"    {key.replace('_', '')} {value}" for key, value in attributes.items()]
        lines.append("  ]")
    return "\n".join([*lines, "]", ""])


def to_graphml(scenario: Scenario) -> str:
    """The topology as GraphML."""
    keys = [
        ("node", "name", "string"),
        ("node", "kind", "string"),
        ("node", "lat", "double"),
        ("node", "lon", "double"),
    ]
    keys += [("edge", "dist", "double"), ("edge", "rate_bps", "long"), ("edge", "delay_ns", "long")]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    lines += [f'  <key id="{name}" for="{use}" attr.name="{name}" attr.type="{kind}"/>' for use, name, kind in keys]
    lines.append('  <graph id="G" edgedefault="undirected">')
    for index, node in enumerate(scenario.nodes):
        data: dict[str, object] = {"name": node.name, "kind": node.kind}
        if node.latitude is not None and node.longitude is not None:
            data |= {"lat": repr(node.latitude), "lon": repr(node.longitude)}
        lines.append(f'    <node id="{index}">{_data_elements(data)}</node>')
    for a, b, attributes in _edges(scenario):
        lines.append(f'    <edge source="{a}" target="{b}">{_data_elements(attributes)}</edge>')
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])


def to_json(scenario: Scenario) -> str:
    """The topology as node-link JSON in the manner of topohub."""
    nodes: list[dict[str, object]] = []
    for index, node in enumerate(scenario.nodes):
        entry: dict[str, object] = {"id": index, "name": node.name, "kind": node.kind}
        if node.latitude is not None and node.longitude is not None:
            entry["pos"] = [node.longitude, node.latitude]
        nodes.append(entry)
    edges = [{"source": a, "target": b, **attributes} for a, b, attributes in _edges(scenario)]
    graph = {"name": scenario.name}
    return json.dumps(
        {"directed": False, "multigraph": False, "graph": graph, "nodes": nodes, "edges": edges}, indent=1
    )


def _edges(scenario: Scenario) -> Iterable[tuple[int, int, dict[str, object]]]:
    index = {node.name: number for number, node in enumerate(scenario.nodes)}
    for link in scenario.links:
        metres = link.length_m
        kilometres = metres / 1000 if metres is not None else link.forward.delay_ns * SPEED_M_PER_S / 1e12
        attributes: dict[str, object] = {
            "dist": round(kilometres, 6),
            "rate_bps": link.forward.rate_bps,
            "delay_ns": link.forward.delay_ns,
        }
        yield index[link.a], index[link.b], attributes


def _data_elements(values: dict[str, object]) -> str:
    return "".join(f'<data key="{key}">{escape(str(value))}</data>' for key, value in values.items())


def _ascii(text: str) -> str:
    return "".join(c if 32 <= ord(c) < 127 and c not in '"&' else "-" for c in text)
