"""The live page: one HTML document without anything from elsewhere. It shows what the stream of events tells.

Texts of the network (topics, client ids, reasons) are put in as text alone (`textContent`), never as markup, and the policy of the page lets no
script but its own run.
"""

from __future__ import annotations

from importlib import resources


def page(nonce: str) -> str:
    """The document; `nonce` is what its Content-Security-Policy names for style and script."""
    folder = resources.files("timebound.control.controller") / "static"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    body = (folder / "page.html").read_text(encoding="utf-8")
    return body.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script).replace("NONCE", nonce)
