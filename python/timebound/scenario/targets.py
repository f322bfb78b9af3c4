"""What a key of `at` means: `link s1-s4`, `link s1->s4`, `links h[1-60]-s1`, `segment n1`."""

from __future__ import annotations

from timebound.scenario.context import Context, close_to
from timebound.scenario.names import RangeError, expand
from timebound.scenario.resolve_network import Net
from timebound.scenario.tree import Path

Way = tuple[int, int]
"""A direction of a link: (position of the link, 0 forward or 1 backward)."""

_EXAMPLES = "write link s1-s4, link s1->s4 for one way, links h[1-60]-s1, segment n1, or node h1"


def link_ways(target: str, net: Net, path: Path, context: Context) -> list[Way]:
    """The directions of links that a target means; none, with an error, where it means none.

    A segment stands for the way of every attached node into it: a frame takes one of these, whoever receives it.
    `#1` behind the ends is the second of parallel links.
    """
    kind, _, rest = target.partition(" ")
    rest = rest.strip()
    if kind == "segment" and rest:
        return _segment(rest, net, path, context)
    if kind in ("link", "links") and rest:
        ends, _, number = rest.partition("#")
        return _link(ends.strip(), number.strip() if "#" in rest else None, net, path, context)
    context.key_error(path, f"{target!r} is no target of a change", _EXAMPLES)
    return []


def _segment(pattern: str, net: Net, path: Path, context: Context) -> list[Way]:
    ways: list[Way] = []
    for name in context.expand(pattern, path, key=True):
        node = net.nodes.get(name)
        if node is None:
            segments = [known.name for known in net.nodes.values() if known.kind == "segment"]
            context.key_error(path, f"unknown segment {name!r}", close_to(name, segments, "declare it under nodes"))
            return []
        if node.kind != "segment":
            context.key_error(path, f"{name!r} is a {node.kind}", "write link a-b for the links of other nodes")
            return []
        for index, link in enumerate(net.links):
            if name in (link.a, link.b):
                ways.append((index, 0 if link.b == name else 1))
    return ways


def _link(ends: str, number: str | None, net: Net, path: Path, context: Context) -> list[Way]:
    directed = "->" in ends
    separator = "->" if directed else "-"
    cuts = [position for position in range(len(ends)) if ends.startswith(separator, position)]
    pairs = [(ends[:cut].strip(), ends[cut + len(separator) :].strip()) for cut in cuts]
    named = [(_names(a), _names(b)) for a, b in pairs]
    for left, right in named:
        if left and right and all(name in net.nodes for name in (*left, *right)):
            return _between(left, right, directed, number, net, path, context)
    unknown = next((name for sides in named for side in sides for name in side if name not in net.nodes), ends)
    context.key_error(path, f"unknown node {unknown!r}", close_to(unknown, net.nodes, "write link s1-s4"))
    return []


def _names(text: str) -> list[str]:
    try:
        return expand(text)
    except RangeError:
        return [text] if text and "[" not in text and "]" not in text else []


def _between(
    left: list[str], right: list[str], directed: bool, number: str | None, net: Net, path: Path, context: Context
) -> list[Way]:
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        hint = "ranges pair one to one, or one name pairs with all of the other side"
        context.key_error(path, f"{len(left)} names do not pair with {len(right)}", hint)
        return []
    count = max(len(left), len(right))
    ways: list[Way] = []
    for a, b in zip(left * (count // len(left)), right * (count // len(right)), strict=True):
        found = net.links_between(a, b)
        if number is not None:
            place = int(number) if number.isdecimal() and len(number) < 6 else len(found)
            found = found[place : place + 1]
        if not found:
            context.key_error(path, f"no link between {a!r} and {b!r}", "name two neighbours")
            return []
        for index in found:
            forward = net.links[index].a == a
            ways += [(index, 0 if forward else 1)] if directed else [(index, 0), (index, 1)]
    return ways
