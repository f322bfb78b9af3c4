"""What the tests of the report share: synthetic run folders, an HTML reader, a headless browser."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tools import absent

sys.path.insert(0, str(Path(__file__).parent))

from timebound.report import write_report
from timebound.report.png import chromium_command, find_chromium


@pytest.fixture
def report(tmp_path: Path) -> Any:
    """Writes a run folder from a summary and reports on it; PNG files only where asked for."""
    import report_runs as runs

    def write(summary: dict[str, Any], *, png: bool = False) -> Path:
        return write_report(runs.write(tmp_path / "run", summary), png=png)

    return write


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Opens a page in a frame of the given width in headless Chromium and returns what a probe in it found."""
    program = find_chromium()
    if program is None:
        pytest.skip(absent(["chromium"]))
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
