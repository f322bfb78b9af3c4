"""What a reader of a summary must know beside its figures: where effort, an interrupt or segments that messages share decided about them."""

from __future__ import annotations

from typing import Any

NAMED = 3
"""Streams that a note names."""


def effort_notes(looked_at: dict[str, int] | None) -> list[str]:
    """What there is to say where the effort was not enough for all streams."""
    if looked_at is None:
        return []
    return [
        f"The effort was enough to look at several ports at once for {looked_at['streams']:,} of {looked_at['of']:,} streams, those with the least slack. "
        "The bounds of the others are safe, and may be lower with more: timebound predict --effort"
    ]


def joined_notes(flows: list[dict[str, Any]]) -> list[str]:
    """Which messages may leave in common segments, as the bounds of a summary assume."""
    found = {
        segment["stream"]: segment["joined"]
        for flow in flows
        for segment in flow["segments"]
        if segment["joined"] is not None
    }
    if not found:
        return []
    named = [
        f"{name} (may be joined: {joined['messages']} messages, {joined['frame_bytes']} bytes on the wire)"
        for name, joined in list(found.items())[:NAMED]
    ]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return [
        f"Messages whose jitter reaches their period may wait together and leave in one TCP segment, and bounds count on it: {', '.join(named)}{more}."
    ]


def interrupted_notes(evaluations: int | None) -> list[str]:
    """What there is to say where an interrupt ended the search for worst cases after so many evaluations."""
    if evaluations is None:
        return []
    return [
        f"The search for worst cases was interrupted after {evaluations:,} evaluations: what it had found is shown."
    ]
