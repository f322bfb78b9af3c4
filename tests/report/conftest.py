"""What the tests of the report share: synthetic run folders, an HTML reader, a headless browser."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from timebound.report import write_report
from timebound.report.png import chromium_command, find_chromium

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


@pytest.fixture
def report(tmp_path: Path) -> Any:
    """Writes a run folder from a summary and reports on it; PNG files only where asked for."""
    import runs

    def write(summary: dict[str, Any], *, png: bool = False) -> Path:
        return write_report(runs.write(tmp_path / "run", summary), png=png)

    return write


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Opens a page in a frame of the given width in headless Chromium and returns what a probe in it found."""
    program = find_chromium()
    if program is None:
        if os.environ.get("TIMEBOUND_CI") == "1":
            pytest.fail("Chromium is missing; with TIMEBOUND_CI=1 the report has to be tested in it")
        pytest.skip("no Chromium on this machine: install Debian's `chromium` to test the report in a browser")
    folder = tmp_path_factory.mktemp("browser")

    def look(page: Path, width: int, script: str) -> dict[str, Any]:
        content = page.read_text(encoding="utf-8")
        policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
        assert policy.search(content)
        # The page's own policy forbids the probe; errors are collected from before the page's script runs.
        probe = "<script>window.problems=[];addEventListener('error',e=>problems.push(String(e.message)));</script>"
        framed = html.escape(policy.sub(lambda _: probe, content), quote=True)
        outer = folder / "outer.html"
        outer.write_text(
            f'<!doctype html><meta charset="utf-8"><body><iframe id="f" width="{width}" height="800" srcdoc="{framed}"></iframe>'
            "<pre id='out'></pre><script>"
            "document.getElementById('f').addEventListener('load',()=>{const view=document.getElementById('f').contentWindow;"
            "const found={problems:view.problems,result:view.eval(" + json.dumps(script) + ")};"
            "document.getElementById('out').textContent='FOUND'+JSON.stringify(found)+'END';});"
            "</script>",
            encoding="utf-8",
        )
        command = chromium_command(
            program, str(folder / "profile"), "--virtual-time-budget=4000", "--dump-dom", outer.as_uri()
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        match = re.search(r"FOUND(\{.*?\})END</pre>", done.stdout, re.DOTALL)
        assert match, f"the probe did not report: {done.stderr[-2000:]}"
        found = json.loads(html.unescape(match[1]))
        assert found["problems"] == []
        return dict(found)

    return look
