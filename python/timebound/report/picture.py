"""A figure on a page."""

from __future__ import annotations

from .figures import NARROW, WIDE, draw
from .markup import Markup, el
from .run import Run


def picture(run: Run, name: str, caption: str, missing: str) -> Markup:
    """A figure in its wide and its narrow form, or a sentence that says why there is none."""
    wide = draw(name, run, WIDE)
    narrow = draw(name, run, NARROW)
    if wide is None or narrow is None:
        return el("p", missing, class_="note")
    return el("figure", el("div", wide, class_="wide"), el("div", narrow, class_="narrow"), el("figcaption", caption))
