"""Emulated frames go the way that the scenario states."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from timebound.engine.doctor import can_emulate

# The way over s3 takes 20 ms longer than that over s2, in each direction.
TEXT = """name: ways
network:
  nodes: {h[1-3]: host, s[1-4]: switch}
  links: [[h[1-2], s1], [h3, s4], [s1, s2], [s2, s4], {between: [s1, s3], delay: 20 ms}, [s3, s4]]
flows:
  - {name: far, from: h1, to: h3, size: 200 B, period: 50 ms, jitter: 1 ms, route: [h1, s1, s3, s4, h3]}
  - {name: near, from: h2, to: h3, size: 200 B, period: 50 ms, jitter: 1 ms}
stack: {mqtt: {broker: h3}}
run: {duration: 1 s, warm-up: 300 ms}
"""

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")


def test_frames_take_the_stated_way(tmp_path: Path) -> None:
    file, folder = tmp_path / "ways.yaml", tmp_path / "run"
    file.write_text(TEXT)
    command = [
        sys.executable,
        "-c",
        "from timebound.cli import main; main()",
        "emulate",
        str(file),
        "-o",
        str(folder),
        "-q",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (folder / "summary.json").exists(), done.stderr
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    far, near = (flow["latency_us"] for flow in summary["flows"])
    # However late a busy host is, no frame is faster than the delay of its way; some frame of the short way is.
    assert far["min"] >= 20_000 > near["min"] > 0
    assert summary["violations"] == []
