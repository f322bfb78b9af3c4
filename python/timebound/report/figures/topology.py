"""The network with the load on each link. Each half of a line belongs to the port at its own end (as on a weather map)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..markup import Markup, el, join
from ..palette import paint
from ..run import Port, Run, figure, items, text
from ..svg import Canvas, fit, label, legend, stroke_key, text_width, tip
from ..units import rate_text, share_text

LABELLED_LINKS = 40
LABELLED_NODES = 90
MOST_LINKS = 1500


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: str
    x: float
    y: float
    roles: str


def load_colour(port: Port | None) -> str:
    """The colour name for the load of a port; `alarm` where no finite bound exists or the link is full."""
    if port is None or port.load is None:
        return "idle"
    if port.reason or port.load >= 1:
        return "alarm"
    for limit, colour in ((0.01, "idle"), (0.25, "load1"), (0.5, "load2"), (0.75, "load3")):
        if port.load < limit:
            return colour
    return "load4"


def place(run: Run) -> dict[str, tuple[Node, float, float]]:
    """Nodes with positions scaled to 0..1; where the summary has none (or all the same), on a circle."""
    raw = items(run.topology.get("nodes"))
    found: list[tuple[Mapping[str, object], float | None, float | None]] = [
        (entry, figure(entry.get("x")), figure(entry.get("y"))) for entry in raw
    ]
    known = [(x, y) for _, x, y in found if x is not None and y is not None]
    placed: dict[str, tuple[Node, float, float]] = {}
    whole = len(known) == len(found) and len(set(known)) > max(1, len(known) // 2)
    for index, (entry, x, y) in enumerate(found):
        if not whole or x is None or y is None:
            angle = 2 * math.pi * index / max(1, len(found))
            x, y = 0.5 + 0.5 * math.cos(angle), 0.5 + 0.5 * math.sin(angle)
        roles = entry.get("roles")
        words = ", ".join(str(r) for r in roles) if isinstance(roles, list) else ""
        node = Node(text(entry.get("name")), text(entry.get("kind")), x, y, words)
        placed[node.name] = (node, x, y)
    return _normalised(placed)


def _normalised(placed: dict[str, tuple[Node, float, float]]) -> dict[str, tuple[Node, float, float]]:
    if not placed:
        return placed
    xs, ys = [x for _, x, _ in placed.values()], [y for _, _, y in placed.values()]

    def unit(value: float, values: list[float]) -> float:
        span = max(values) - min(values)
        return (value - min(values)) / span if span > 1e-9 else 0.5

    return {name: (node, unit(x, xs), unit(y, ys)) for name, (node, x, y) in placed.items()}


def topology(run: Run, width: float) -> Markup | None:
    """The topology figure, or nothing when the run declares no node."""
    placed = place(run)
    if not placed:
        return None
    ports = {port.name: port for port in run.ports}
    narrow = width < 600
    key, key_height = legend(_key(run), 8, 8, width - 16, 11.5)
    flat = len({round(y, 2) for _, _, y in placed.values()}) == 1
    tall = (0.3 if flat else 0.95 if narrow else 0.42) * width
    tall = max(tall, 170.0) if flat else max(tall, 300.0)
    margin = 46.0 if narrow else 80.0
    if len(placed) > 30 and not flat:
        tall = width * (1.2 if narrow else 0.72)
    top, bottom = key_height + 40, key_height + tall - 34
    at = {n: (margin + x * (width - 2 * margin), top + y * (bottom - top)) for n, (_, x, y) in placed.items()}
    canvas = Canvas(
        "topology",
        width,
        key_height + tall + 8,
        "Network topology with the load on each link",
        f"{len(placed)} nodes. Each half of a line shows the load of the port at its end.",
    )
    canvas.add(key)
    links = [
        link for link in items(run.topology.get("links")) if text(link.get("a")) in at and text(link.get("b")) in at
    ]
    dense = len(links) > LABELLED_LINKS
    words: list[Markup] = []
    for link in links[:MOST_LINKS]:
        for source, sink in ((text(link.get("a")), text(link.get("b"))), (text(link.get("b")), text(link.get("a")))):
            port = ports.get(f"{source}->{sink}")
            shape, shown = _half(source, sink, at[source], at[sink], port, dense, narrow)
            canvas.add(shape)
            if shown is not None:
                words.append(shown)
    canvas.add(*words)
    for name, (node, _, _) in placed.items():
        canvas.add(
            _node(node, *at[name], len(placed) > LABELLED_NODES, width, above=at[name][1] < (top + bottom) / 2 - 1)
        )
    return canvas.render()


def _key(run: Run) -> list[tuple[str, Callable[[float, float], Markup]]]:
    key = [
        ("under 25 %", stroke_key("load1", width=3)),
        ("25 to 50 %", stroke_key("load2", width=4)),
        ("50 to 75 %", stroke_key("load3", width=5)),
        ("75 % and more", stroke_key("load4", width=6)),
    ]
    if any(port.reason or (port.load or 0) >= 1 for port in run.ports):
        key.append(("full, or no finite bound", stroke_key("alarm", dash="5 3", width=6)))
    if any(port.load is None or port.load < 0.01 for port in run.ports):
        key.append(("under 1 % or not known", stroke_key("idle", width=1.5)))
    return key


def _half(
    source: str,
    sink: str,
    start: tuple[float, float],
    end: tuple[float, float],
    port: Port | None,
    dense: bool,
    narrow: bool,
) -> tuple[Markup, Markup | None]:
    """The half of a link that belongs to `source`, and its label where there is room for one."""
    colour = load_colour(port)
    load = port.load if port is not None and port.load is not None else None
    thick = 1.5 if load is None else (1.5 + 5.5 * min(load, 1.0)) * (0.5 if dense else 1.0)
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    # A gap at the middle keeps the two halves apart where both have the same colour.
    gap = 1.5 / length
    stop = (middle[0] - (end[0] - start[0]) * gap, middle[1] - (end[1] - start[1]) * gap)
    shape = el(
        "line",
        x1=start[0],
        y1=start[1],
        x2=stop[0],
        y2=stop[1],
        stroke_width=float(thick),
        stroke_dasharray="5 3" if colour == "alarm" else None,
        **paint(stroke=colour),
    )
    drawn = tip(_words(source, sink, port), shape)
    if load is None or (dense and colour != "alarm") or length < (64 if narrow else 80):
        return drawn, None
    share = 0.33
    x, y = start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
    size = 10.0 if narrow else 11.0
    shown = share_text(load)
    # Beside the line, on the left of the direction of travel, so that the labels of the two halves never meet.
    nx, ny = -(end[1] - start[1]) / length, (end[0] - start[0]) / length
    if ny < 0 or (ny == 0 and nx < 0):
        nx, ny = -nx, -ny
    away = abs(nx) * text_width(shown, size) / 2 + abs(ny) * size / 2 + thick / 2 + 3
    x -= nx * away
    y -= ny * away
    return drawn, label(
        x, y + 4, shown, size=size, anchor="middle", colour="alarm" if colour == "alarm" else "ink", halo=True
    )


def _words(source: str, sink: str, port: Port | None) -> str:
    if port is None:
        return f"{source} to {sink}: no figures"
    kinds = (("observed", port.observed), ("simulated", port.simulated), ("declared", port.declared))
    loads = ", ".join(f"{kind} {share_text(value)}" for kind, value in kinds if value is not None) or "no load known"
    return f"{port.name} ({rate_text(port.rate)}): {loads}" + (
        f". No finite bound: {port.reason}" if port.reason else ""
    )


def _node(node: Node, x: float, y: float, dense: bool, width: float, *, above: bool) -> Markup:
    """A node with its name, inside where it is short; what does not fit goes to the outer side, away from the links."""
    words = f"{node.name}: {node.kind}" + (f" ({node.roles})" if node.roles else "")
    ground = paint(fill="ground", stroke="ink")
    size = 9.0 if dense else 11.0
    room = width / 6.4
    inside = text_width(node.name, size) < 22
    if node.kind == "switch":
        side, tall = (7.0, 6.0) if dense else (13.0, 10.5)
        # A switch grows with its name as far as it stays a node; where many stand close together, that is all the room there is.
        grown = text_width(node.name, size) / 2 + 3
        inside = grown <= (20 if dense else 36)
        side = max(side, grown) if inside else side
        shape = el("rect", x=x - side, y=y - tall, width=side * 2, height=tall * 2, rx=2, stroke_width=1.5, **ground)
    else:
        shape = el("circle", cx=x, cy=y, r=3.0 if dense else 11.0, stroke_width=1.5, **ground)
    if dense and node.kind != "switch":
        return tip(words, shape)
    lines = (-17, -30) if above else (25, 38)
    name = label(
        x,
        y + (size * 0.35 if inside else lines[0]),
        fit(node.name, room, size),
        size=size,
        anchor="middle",
        halo=not inside,
    )
    role = None
    if node.roles and not dense:
        role = label(
            x,
            y + lines[0 if inside else 1],
            fit(node.roles, room, 10),
            size=10,
            anchor="middle",
            colour="muted",
            halo=True,
        )
    return tip(words, shape, join([name, role]))
