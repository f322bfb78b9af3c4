"""Positions for drawing: geography where it is known, else stress majorisation of the switches with their hosts around.

Stress majorisation (Gansner, Koren, North 2004) puts nodes at distances like their hops; it starts from a fixed circle,
so that a scenario always looks the same. Hosts with a single link are fanned out on the free side of their switch.
"""

from __future__ import annotations

import math
from collections import deque

from timebound.scenario.model import Scenario

Point = tuple[float, float]
_ROUNDS = 60
_MOST_CORE = 250


def layout(scenario: Scenario) -> dict[str, Point]:
    """For every node (x, y) in 0..1, y downwards."""
    neighbours: dict[str, list[str]] = {node.name: [] for node in scenario.nodes}
    for link in scenario.links:
        neighbours[link.a].append(link.b)
        neighbours[link.b].append(link.a)
    kinds = {node.name: node.kind for node in scenario.nodes}
    leaves = {
        name: near[0]
        for name, near in neighbours.items()
        if kinds[name] == "host" and len(near) == 1 and kinds[near[0]] != "host"
    }
    core = [name for name in kinds if name not in leaves]
    places = _geography(scenario, core) or _stress(core, neighbours)
    reach = _shortest(places) * 0.45
    for switch in core:
        own = [leaf for leaf, parent in leaves.items() if parent == switch]
        if own:
            directions = [places[other] for other in neighbours[switch] if other in places and other in core]
            places.update(_fan(places[switch], directions, own, reach))
    _part(places)
    return _scaled(places)


def _geography(scenario: Scenario, core: list[str]) -> dict[str, Point] | None:
    """Longitude and latitude, the latter stretched as on a map of that latitude; only if the whole core has them."""
    known = {
        node.name: (node.longitude, node.latitude)
        for node in scenario.nodes
        if node.longitude is not None and node.latitude is not None
    }
    if not core or any(name not in known for name in core):
        return None
    middle = sum(known[name][1] for name in core) / len(core)
    squeeze = max(0.2, math.cos(math.radians(middle)))
    return {name: (known[name][0] * squeeze, -known[name][1]) for name in core}


def _stress(core: list[str], neighbours: dict[str, list[str]]) -> dict[str, Point]:
    order = _breadth_first(core, neighbours)
    count = len(order)
    angle = 2 * math.pi / max(1, count)
    radius = max(1.0, count / 6)
    places = {name: (-radius * math.cos(i * angle), -radius * math.sin(i * angle)) for i, name in enumerate(order)}
    if not 2 < count <= _MOST_CORE:
        return places
    distances = {name: _distances(name, neighbours, set(core)) for name in order}
    far = max(max(found.values()) for found in distances.values()) + 1
    for _ in range(_ROUNDS):
        for name in order:
            places[name] = _moved(name, order, places, distances[name], far)
    return _turned(places)


def _moved(name: str, order: list[str], places: dict[str, Point], distance: dict[str, int], far: int) -> Point:
    """The weighted mean of where each other node would like this one to be."""
    x, y = places[name]
    sum_x = sum_y = total = 0.0
    for other in order:
        if other == name:
            continue
        wanted = distance.get(other, far)
        weight = 1 / (wanted * wanted)
        ox, oy = places[other]
        gap = math.hypot(x - ox, y - oy) or 1e-6
        sum_x += weight * (ox + wanted * (x - ox) / gap)
        sum_y += weight * (oy + wanted * (y - oy) / gap)
        total += weight
    return sum_x / total, sum_y / total


def _breadth_first(core: list[str], neighbours: dict[str, list[str]]) -> list[str]:
    inside, seen, order = set(core), set[str](), list[str]()
    for start in core:
        queue = deque([start] if start not in seen else [])
        seen.add(start)
        while queue:
            name = queue.popleft()
            order.append(name)
            for other in neighbours[name]:
                if other in inside and other not in seen:
                    seen.add(other)
                    queue.append(other)
    return order


def _distances(start: str, neighbours: dict[str, list[str]], inside: set[str]) -> dict[str, int]:
    found = {start: 0}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in neighbours[name]:
            if other in inside and other not in found:
                found[other] = found[name] + 1
                queue.append(other)
    return found


def _turned(places: dict[str, Point]) -> dict[str, Point]:
    """Turned so that the longest extent lies horizontally and the first node left of the middle."""
    count = len(places)
    mean_x = sum(x for x, _ in places.values()) / count
    mean_y = sum(y for _, y in places.values()) / count
    centred = {name: (x - mean_x, y - mean_y) for name, (x, y) in places.items()}
    xx = sum(x * x for x, _ in centred.values())
    yy = sum(y * y for _, y in centred.values())
    xy = sum(x * y for x, y in centred.values())
    angle = 0.5 * math.atan2(2 * xy, xx - yy)
    cos, sin = math.cos(angle), math.sin(angle)
    turned = {name: (x * cos + y * sin, y * cos - x * sin) for name, (x, y) in centred.items()}
    first = next(iter(turned.values()))
    return {name: (-x, -y) for name, (x, y) in turned.items()} if first[0] > 0 else turned


def _shortest(places: dict[str, Point]) -> float:
    points = list(places.values())[:_MOST_CORE]
    gaps = sorted(math.dist(a, b) for i, a in enumerate(points) for b in points[:i])
    gaps = [gap for gap in gaps if gap > 1e-9]
    if not gaps:
        return 1.0
    extent = max(gaps[-1], 1e-9)
    return max(gaps[len(gaps) // 20], extent / max(4.0, 2 * math.sqrt(len(points))))


def _fan(centre: Point, directions: list[Point], leaves: list[str], reach: float) -> dict[str, Point]:
    """Leaves in the widest free angle around their switch, in rings of up to twelve."""
    angles = sorted(math.atan2(y - centre[1], x - centre[0]) for x, y in directions)
    if angles:
        gaps = [
            ((angles[(i + 1) % len(angles)] - angle) % (2 * math.pi) or 2 * math.pi, angle)
            for i, angle in enumerate(angles)
        ]
        width, start = max(gaps, key=lambda gap: (round(gap[0], 6), -gap[1]))
    else:
        width, start = 2 * math.pi, -math.pi / 2
    places: dict[str, Point] = {}
    for index, leaf in enumerate(leaves):
        ring, position = divmod(index, 12)
        inside = min(12, len(leaves) - ring * 12)
        angle = start + width * (position + 1) / (inside + 1)
        radius = reach * (1 + 0.45 * ring)
        places[leaf] = (centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle))
    return places


def _part(places: dict[str, Point]) -> None:
    """Pushes nodes that lie upon each other apart, a few rounds; many nodes are left as they are."""
    names = list(places)
    if not 1 < len(names) <= 150:
        return
    xs, ys = [x for x, _ in places.values()], [y for _, y in places.values()]
    extent = max(max(xs) - min(xs), max(ys) - min(ys), 1e-9)
    least = 0.6 * extent / math.sqrt(len(names) * 2)
    for _ in range(12):
        for i, a in enumerate(names):
            for b in names[:i]:
                (ax, ay), (bx, by) = places[a], places[b]
                gap = math.hypot(ax - bx, ay - by)
                if gap >= least:
                    continue
                ux, uy = ((ax - bx) / gap, (ay - by) / gap) if gap > 1e-9 else (math.cos(i), math.sin(i))
                push = (least - gap) / 2
                places[a] = (ax + ux * push, ay + uy * push)
                places[b] = (bx - ux * push, by - uy * push)


def _scaled(places: dict[str, Point]) -> dict[str, Point]:
    if not places:
        return {}
    xs, ys = [x for x, _ in places.values()], [y for _, y in places.values()]
    width, height = max(xs) - min(xs), max(ys) - min(ys)
    width, height = max(width, height / 3, 1e-9), max(height, width / 3, 1e-9)
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return {
        name: (round(0.5 + (x - middle_x) / width, 4), round(0.5 + (y - middle_y) / height, 4))
        for name, (x, y) in places.items()
    }
