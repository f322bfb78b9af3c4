"""The topology as SVG and as text. Deterministic: the same scenario gives the same drawing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from html import escape

from timebound.scenario.layout import layout
from timebound.scenario.model import Direction, Link, MqttStack, Node, Scenario
from timebound.scenario.units import format_rate, format_share, format_time

__all__ = ["layout", "svg", "text"]

_STYLE = """
.link{stroke:#7b8794;stroke-width:1.6;fill:none}.impaired{stroke:#c2410c;stroke-dasharray:6 3}
.half{stroke-dasharray:2 3}.host{fill:#fff;stroke:#334e68;stroke-width:1.4}.switch{fill:#1f6feb;stroke:#0b3d91}
.segment{fill:#d9a514;stroke:#8d6708}text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#102a43}
.on{fill:#fff}.label{fill:#486581}.broker{fill:#e3f8e5;stroke:#1b7a2b;stroke-width:2}
"""


def svg(scenario: Scenario) -> str:
    """The topology as a self-contained SVG image, 960 units wide."""
    positions = layout(scenario)
    count = len(scenario.nodes)
    width, height = 960, min(960, max(300, 260 + 7 * count))
    margin = 60
    size = 12.0 if count <= 30 else (10.0 if count <= 60 else 7.0)
    place = {
        name: (margin + x * (width - 2 * margin), margin + y * (height - 2 * margin - 20))
        for name, (x, y) in positions.items()
    }
    common = _common(scenario.links)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(scenario.name)}: {count} nodes, {len(scenario.links)} links</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    parts += [_line(link, place) for link in scenario.links]
    if sum(_conditions(link) != common for link in scenario.links) <= 40:
        parts += [_label(link, place, size, common or "") for link in scenario.links if _conditions(link) != common]
    brokers = {b.node for b in scenario.stack.brokers} if isinstance(scenario.stack, MqttStack) else set()
    parts += [_symbol(node, place[node.name], size, node.name in brokers) for node in scenario.nodes]
    if common is not None:
        parts.append(
            f'<text class="label" x="{margin}" y="{height - 14}" font-size="12">most links: {escape(common)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _line(link: Link, place: dict[str, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = place[link.a], place[link.b]
    kinds = "link" + (" half" if link.half_duplex else "") + (" impaired" if _impaired(link) else "")
    title = escape(f"{link.a} - {link.b}: {_conditions(link)}")
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kinds}" {ends}><title>{title}</title></line>'


def _symbol(node: Node, at: tuple[float, float], size: float, broker: bool) -> str:
    x, y = at
    label = escape(node.name)
    half = max(size * 1.1, size * 0.33 * len(node.name) + size * 0.4)
    if node.kind == "segment":
        shape = f'<rect class="segment" x="{x - half:.1f}" y="{y - 4:.1f}" width="{2 * half:.1f}" height="8" rx="2"/>'
        return f'{shape}<text x="{x:.1f}" y="{y - 8:.1f}" font-size="{size}" text-anchor="middle">{label}</text>'
    kind = "switch" if node.kind == "switch" else ("broker" if broker else "host")
    radius = 3 if node.kind == "switch" else size * 0.8
    shape = (
        f'<rect class="{kind}" x="{x - half:.1f}" y="{y - size * 0.85:.1f}" width="{2 * half:.1f}" '
        f'height="{size * 1.7:.1f}" rx="{radius:.1f}"/>'
    )
    on = ' class="on"' if node.kind == "switch" else ""
    return (
        f'{shape}<text{on} x="{x:.1f}" y="{y + size * 0.35:.1f}" font-size="{size}" text-anchor="middle">{label}</text>'
    )


def _label(link: Link, place: dict[str, tuple[float, float]], size: float, common: str) -> str:
    """What differs from most links, along the line; nothing where the line is too short for it (its tooltip has it)."""
    (x1, y1), (x2, y2) = place[link.a], place[link.b]
    words = _conditions(link)
    if "/ " not in words:
        words = ", ".join(part for part in words.split(", ") if part not in common.split(", ")) or words
    if math.hypot(x2 - x1, y2 - y1) < 0.45 * size * len(words) + 3 * size:
        return ""
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    angle = angle - 180 if angle > 90 else (angle + 180 if angle <= -90 else angle)
    return (
        f'<text class="label" transform="translate({(x1 + x2) / 2:.1f} {(y1 + y2) / 2:.1f}) rotate({angle:.1f})" y="-5" '
        f'font-size="{size * 0.85:.1f}" text-anchor="middle">{escape(words)}</text>'
    )


def _impaired(link: Link) -> bool:
    return any(
        d.impairments.loss or d.impairments.corruption or d.impairments.duplication or d.impairments.outages
        for d in (link.forward, link.backward)
    )


def _common(links: tuple[Link, ...]) -> str | None:
    counted = Counter(_conditions(link) for link in links).most_common(1)
    return counted[0][0] if counted else None


def _conditions(link: Link) -> str:
    """`10 Mbit/s, 5 us, loss 0.1 %`, both directions where they differ."""
    forward, backward = _direction(link.forward), _direction(link.backward)
    both = forward if forward == backward else f"{forward} / {backward}"
    return both + (", half duplex" if link.half_duplex else "")


def _direction(direction: Direction) -> str:
    parts = [format_rate(direction.rate_bps), format_time(direction.delay_ns)]
    impairments = direction.impairments
    if impairments.loss is not None:
        bursts = impairments.loss.kind != "bernoulli"
        parts.append("loss in bursts" if bursts else f"loss {format_share(impairments.loss.probability)}")
    if impairments.jitter is not None:
        parts.append(f"jitter up to {format_time(impairments.jitter.max_ns)}")
    if impairments.corruption:
        parts.append(f"corruption {format_share(impairments.corruption)}")
    if impairments.duplication:
        parts.append(f"duplication {format_share(impairments.duplication)}")
    if direction.slots is not None:
        count = len(direction.slots.slots_ns)
        parts.append(f"{count} slot{'' if count == 1 else 's'} of {format_time(direction.slots.cycle_ns)}")
    if impairments.outages:
        parts.append(f"{len(impairments.outages)} outage(s)")
    return ", ".join(parts)


def text(scenario: Scenario) -> str:
    """The topology as a table of neighbours: switches and segments first, each with its links."""
    neighbours: dict[str, list[tuple[str, str]]] = {node.name: [] for node in scenario.nodes}
    for link in scenario.links:
        neighbours[link.a].append((link.b, _conditions(link)))
        neighbours[link.b].append((link.a, _conditions(link)))
    kinds = {node.name: node.kind for node in scenario.nodes}
    counts = Counter(kinds.values())
    head = ", ".join(
        f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's' if kind != 'switch' else 'es'}"
        for kind in ("host", "switch", "segment")
        if counts[kind]
    )
    lines = [f"{scenario.name}: {head}, {len(scenario.links)} links, {len(scenario.flows)} flows (delays are one-way)"]
    shown: set[frozenset[str]] = set()
    for node in sorted(scenario.nodes, key=lambda node: node.kind == "host"):
        rows = [(other, how) for other, how in neighbours[node.name] if frozenset((node.name, other)) not in shown]
        shown.update(frozenset((node.name, other)) for other, _ in rows)
        if not rows and neighbours[node.name]:
            continue
        delay = "" if node.kind != "switch" else f" ({_switching(node)})"
        lines.append(f"{node.name} [{node.kind}]{delay}" + ("" if rows else ": no link"))
        lines += [_branch(rows, index, kinds) for index in range(len(rows))]
    return "\n".join(lines)


def _switching(node: Node) -> str:
    return f"switching {format_time(node.switching_min_ns)}..{format_time(node.switching_max_ns)}"


def _branch(rows: list[tuple[str, str]], index: int, kinds: Mapping[str, str]) -> str:
    other, how = rows[index]
    stroke = "└─" if index == len(rows) - 1 else "├─"
    width = max(len(name) for name, _ in rows)
    return f"  {stroke} {other:<{width}}  {kinds[other]:<7}  {how}"
