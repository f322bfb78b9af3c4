"""Topic filters as sets of topics: which of them one contains of another (MQTT 5.0, section 4.7). Pure."""

from __future__ import annotations


def is_filter(text: str) -> bool:
    """Is this a topic filter (section 4.7.1)?"""
    levels = text.split("/")
    return (
        0 < len(text.encode("utf-8", "surrogatepass")) <= 65_535
        and "\0" not in text
        and all(level == "+" or "+" not in level for level in levels)
        and all("#" not in level for level in levels[:-1])
        and ("#" not in levels[-1] or levels[-1] == "#")
    )


def covers(filter: str, other: str) -> bool:
    """Does `filter` match every topic that `other` (a filter, or a topic name) matches?"""
    ours, theirs = filter.split("/"), other.split("/")
    if other == "#":
        theirs = ["+", "#"]  # the same topics
    if _hides(ours[0], theirs[0]):
        return False
    for position, level in enumerate(ours):
        if level == "#":
            return True  # the parent level itself included: `a/#` matches `a`
        if position >= len(theirs):
            return False
        if theirs[position] == "#" or (level != "+" and level != theirs[position]):
            return False
    return len(theirs) == len(ours)


def meets(filter: str, other: str) -> bool:
    """Is there a topic that both match?"""
    ours, theirs = filter.split("/"), other.split("/")
    if _hides(ours[0], theirs[0]) or _hides(theirs[0], ours[0]):
        return False
    for position in range(max(len(ours), len(theirs))):
        a = ours[position] if position < len(ours) else None
        b = theirs[position] if position < len(theirs) else None
        if a == "#" or b == "#":
            return True
        if a is None or b is None or (a != b and a != "+" and b != "+"):
            return False
    return True


def _hides(wild: str, first: str) -> bool:
    """A wildcard at the beginning matches no topic that begins with `$` (section 4.7.2)."""
    return wild in ("+", "#") and first.startswith("$")
