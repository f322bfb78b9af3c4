"""The frame of a page: one self-contained HTML document with its style, its script and a policy that forbids all else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from .markup import Markup, el, join
from .palette import dark_rules

_HERE = Path(__file__).parent


def document(title: str, parts: Iterable[object]) -> str:
    """The HTML text. The script is allowed by its hash: markup that found its way into a page could not run one."""
    style = (_HERE / "page.css").read_text(encoding="utf-8").replace("/*figures*/", dark_rules())
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(style)),
    )
    body = el("body", join(parts, "\n"), "\n", el("script", Markup(script)))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def section(identity: str, title: str, *children: object) -> Markup:
    return el("section", el("h2", title), join(children, "\n"), id=identity, aria_label=title)


def facts(pairs: Iterable[tuple[str, object]]) -> Markup | None:
    """A list of terms and what they are; empty ones are left out."""
    shown = [(term, value) for term, value in pairs if value not in (None, "")]
    return (
        el("dl", *(join([el("dt", term), el("dd", value)]) for term, value in shown), class_="facts") if shown else None
    )
