"""HTML and SVG text. Knows nothing about runs: whatever is not `Markup` is escaped, so a name from a run cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# Control characters are not allowed in HTML or XML; directional overrides would let a name reorder the text around it;
# lone surrogates cannot be written as UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

_VOID = frozenset({"meta", "input", "br", "hr", "col"})
_SVG_SHAPES = frozenset({"rect", "line", "circle", "path", "polyline", "polygon"})


class Markup(str):
    """Text that is HTML or SVG already and must not be escaped again."""

    __slots__ = ()


def clean(text: object) -> str:
    """The text with characters that must not reach a document replaced by U+FFFD."""
    return _UNSAFE.sub("\ufffd", str(text))


def safe(text: object) -> str:
    """The text escaped for an element's content or a quoted attribute; `Markup` is passed through."""
    return text if isinstance(text, Markup) else escape(clean(text), quote=True)


def join(children: Iterable[object], between: str = "") -> Markup:
    """Children one after another, each escaped unless it is `Markup`; `None` is left out."""
    return Markup(between.join(safe(child) for child in children if child is not None))


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. `None` and `False` attributes are left out, `True` becomes an empty one.

    Underscores in attribute names stand for hyphens; a trailing one avoids Python keywords (`class_`).
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        shown = (
            "" if value is True else (number(value) if isinstance(value, float) else escape(clean(value), quote=True))
        )
        words.append(f'{key}="{shown}"')
    opening = " ".join(words)
    if name in _VOID or (name in _SVG_SHAPES and not children):
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def number(value: float) -> str:
    """A coordinate with at most two decimals, in the fewest characters."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
