"""Text that others chose, as it is written into logs, audit logs, figures and messages about the manager.

A client id or a topic may hold any character but NUL: control characters that a terminal obeys (U+009B begins a sequence there), marks that turn the
direction of a line (U+202E), others that nobody sees. All of them are written as what they are.
"""

from __future__ import annotations

import json
from typing import Any


def shown(text: str) -> str:
    """For people: characters that are not to be seen (of category C or Z, but the space) as escapes of Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def json_line(value: Any, **options: Any) -> str:
    """JSON in one line; the same characters as escapes of JSON (RFC 8259, section 7), so that nothing of them is lost."""
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def shortened(value: Any, most: int) -> Any:
    """The value with no text in it longer than so many characters, and what is cut said in its place."""
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: shortened(each, most) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(each, most) for each in value]
    return value
