"""Which filters a topic matches (MQTT 5.0, section 4.7; shared subscriptions: section 4.8.2)."""

from __future__ import annotations


def matches(topic_filter: str, topic: str) -> bool:
    """Does a subscription with this filter get messages of this topic?"""
    levels = bare(topic_filter).split("/")
    names = topic.split("/")
    # Wildcards at the first level match no topics that begin with $ (section 4.7.2).
    if topic.startswith("$") and levels[0] in ("#", "+"):
        return False
    for index, level in enumerate(levels):
        if level == "#":
            return True
        if index >= len(names) or level not in ("+", names[index]):
            return False
    return len(names) == len(levels)


def bare(topic_filter: str) -> str:
    """The filter without the name of its share."""
    parts = topic_filter.split("/", 2)
    return parts[2] if len(parts) == 3 and parts[0] == "$share" else topic_filter
