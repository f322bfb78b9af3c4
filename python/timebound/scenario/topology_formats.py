"""Readers of GML, GraphML and node-link JSON: text -> ids, attributes, edges. No files, no scenario."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

MOST_ELEMENTS = 200_000


class FormatError(ValueError):
    """A text that is not of the format that its name promises."""

    def __init__(self, message: str, hint: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line


@dataclass
class RawGraph:
    """Nodes and edges with whatever attributes the file has."""

    directed: bool = False
    nodes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    edges: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)


_GML = re.compile(r'"[^"]*"|\[|\]|#[^\n]*|[^\s\[\]"#][^\s\[\]"]*|"')
"""A `#` begins a comment, and may stand inside a word."""
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]*);")
"""Other letters than those of ASCII, as GML writes them (`&#252;`)."""


def parse_gml(text: str) -> RawGraph:
    """GML (Himsolt 1996): nested `key value` lists; attributes that are lists are left out."""
    root: list[tuple[str, Any]] = []
    stack = [root]
    key: str | None = None
    count = 0
    for match in _GML.finditer(text):
        token = match[0]
        count += 1
        if token.startswith("#"):
            continue
        if count > MOST_ELEMENTS:
            raise FormatError("the file is too large", "name a smaller graph")
        if token == '"':
            raise FormatError("a text that does not end", "close the quotes", _line(text, match.start()))
        if token == "]":
            if len(stack) == 1 or key is not None:
                raise FormatError("a ']' too many", "every ']' closes a 'key ['", _line(text, match.start()))
            stack.pop()
        elif key is None:
            if token == "[":
                raise FormatError(
                    "a '[' without a key", "write node [ ... ] or edge [ ... ]", _line(text, match.start())
                )
            key = token
        elif token == "[":
            inner: list[tuple[str, Any]] = []
            stack[-1].append((key, inner))
            stack.append(inner)
            key = None
        else:
            stack[-1].append((key, _text(token[1:-1]) if token.startswith('"') else token))
            key = None
    if len(stack) != 1 or key is not None:
        raise FormatError("the file ends too early", "close every '['", text.count("\n") + 1)
    return _gml_graph(root)


def _text(text: str) -> str:
    return _REFERENCE.sub(lambda match: html.unescape(match[0]), text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _gml_graph(root: list[tuple[str, Any]]) -> RawGraph:
    bodies = [value for key, value in root if key == "graph" and isinstance(value, list)]
    if not bodies:
        raise FormatError("no graph in this file", "a GML file starts with graph [")
    graph = RawGraph()
    for key, value in bodies[0]:
        if key == "directed":
            graph.directed = value == "1"
        if key not in ("node", "edge") or not isinstance(value, list):
            continue
        attributes = {name: inner for name, inner in value if not isinstance(inner, list)}
        if key == "node":
            if "id" not in attributes:
                raise FormatError("a node without id", "give every node an id")
            graph.nodes.append((attributes.pop("id"), attributes))
        else:
            if "source" not in attributes or "target" not in attributes:
                raise FormatError("an edge without source or target", "give every edge both ends")
            graph.edges.append((attributes.pop("source"), attributes.pop("target"), attributes))
    return graph


def parse_graphml(text: str) -> RawGraph:
    """GraphML; document types are refused, because entities in them can blow up a small file."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FormatError("a document type in GraphML", "remove <!DOCTYPE ...>")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        line = error.position[0] if isinstance(error, ElementTree.ParseError) else 0
        raise FormatError("no valid XML", "name a GraphML file", line) from None
    names = {element.get("id", ""): element.get("attr.name", "") for element in root.iter() if _tag(element) == "key"}
    bodies = [element for element in root.iter() if _tag(element) == "graph"]
    if not bodies:
        raise FormatError("no graph in this file", "a GraphML file has <graph> inside <graphml>")
    graph = RawGraph(directed=bodies[0].get("edgedefault") == "directed")
    groups: dict[str, tuple[str, dict[str, Any]]] = {}
    _collect(bodies[0], names, graph, groups)
    ends = {end for edge in graph.edges for end in edge[:2]}
    # A group of yEd is a frame around nodes; it is a node itself only where an edge ends at it.
    graph.nodes += [group for key, group in groups.items() if key in ends]
    return graph


def _collect(
    body: ElementTree.Element, names: dict[str, str], graph: RawGraph, groups: dict[str, tuple[str, dict[str, Any]]]
) -> None:
    """The nodes and edges of a graph and of the graphs in its nodes."""
    pending = [body]
    while pending:
        for element in pending.pop():
            if _tag(element) not in ("node", "edge"):
                continue
            data = _data(element, names)
            inner = [child for child in element if _tag(child) == "graph"]
            pending += inner
            key = element.get("id", "")
            if _tag(element) == "edge":
                graph.edges.append((element.get("source", ""), element.get("target", ""), data))
            elif inner:
                groups[key] = (key, data)
            else:
                graph.nodes.append((key, data))


def _data(element: ElementTree.Element, names: dict[str, str]) -> dict[str, Any]:
    """Attributes of a node or an edge; what yEd draws beside it (`y:NodeLabel`) is its label."""
    data: dict[str, Any] = {}
    for item in element:
        if _tag(item) != "data":
            continue
        key = names.get(item.get("key", ""), "") or item.get("key", "")
        if len(item) == 0:
            data[key] = item.text or ""
            continue
        labels = [(part.text or "").strip() for part in item.iter() if _tag(part) in ("NodeLabel", "EdgeLabel")]
        if any(labels):
            data.setdefault("label", next(label for label in labels if label))
    return data


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rsplit("}", 1)[-1]


def parse_json(text: str) -> RawGraph:
    """Node-link JSON as topohub and networkx write it; `pos` is [longitude, latitude]."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        raise FormatError("no valid JSON", "name a node-link JSON file", line) from None
    nodes = root.get("nodes") if isinstance(root, dict) else None
    edges = (root.get("edges") or root.get("links") or []) if isinstance(root, dict) else None
    if not isinstance(nodes, list) or not isinstance(edges, list):
        raise FormatError("no node-link JSON", 'write {"nodes": [...], "edges": [...]}')
    if len(nodes) + len(edges) > MOST_ELEMENTS:
        raise FormatError("the file is too large", "name a smaller graph")
    graph = RawGraph(directed=root.get("directed") is True)
    for node in nodes:
        if not isinstance(node, dict) or not isinstance(node.get("id"), (str, int)):
            raise FormatError("a node without id", "give every node an id")
        attributes = {key: value for key, value in node.items() if isinstance(value, (str, int, float))}
        position = node.get("pos")
        if isinstance(position, list) and len(position) == 2:
            attributes["lon"], attributes["lat"] = position
        graph.nodes.append((str(node["id"]), attributes))
    for edge in edges:
        ends = (edge.get("source"), edge.get("target")) if isinstance(edge, dict) else (None, None)
        if not all(isinstance(end, (str, int)) for end in ends):
            raise FormatError("an edge without source or target", "give every edge both ends")
        attributes = {key: value for key, value in edge.items() if isinstance(value, (str, int, float))}
        graph.edges.append((str(ends[0]), str(ends[1]), attributes))
    return graph
