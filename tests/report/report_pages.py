"""Reads a page as a browser would, and objects to what is not well formed."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "input", "br", "hr", "col"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Reader(HTMLParser):
    """Reads a page and objects to whatever is not closed in order."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)
    rows: dict[str, list[list[Element]]] = field(default_factory=dict)
    table: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag == "table":
            self.table = element.attributes.get("id", "")
        if tag == "tr":
            self.rows.setdefault(self.table, []).append([])
        if tag in ("td", "th"):
            self.rows[self.table][-1].append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1].name == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def read_page(path: Path) -> Reader:
    """The page parsed; fails where it is not well formed."""
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert not reader.open, f"never closed: {[e.name for e in reader.open]}"
    return reader
