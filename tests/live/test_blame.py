"""Who is blamed, live: the machine for those who had no CPU, and a program of a node for its own end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from timebound.engine.doctor import can_emulate

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")

TEXT = """
name: blame
network:
  nodes:
    h1: {kind: host, run: RUN}
    h[2-3]: host
    s1: switch
  links: [[h[1-3], s1]]
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}}
flows:
  - {name: alarm, from: h1, to: h3, size: 64 B, period: 20 ms, deadline: DEADLINE, priority: 6, qos: 1}
stack: {mqtt: {broker: [{node: h2, program: embedded}]}}
run: {duration: 2 s, warm-up: 200 ms, precision: {lateness-p99: 9 s, late-frame: 9 s, longest-overrun: 9 s, steal: 100 %}}
"""
CONNECT = "import socket; socket.create_connection(('h2', 1883)).close(); print('found it')"


def emulate(folder: Path, programs: str, deadline: str) -> tuple[int, dict[str, Any], str]:
    file = folder / "blame.yaml"
    file.write_text(TEXT.replace("RUN", programs).replace("DEADLINE", deadline))
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(file), "--quiet"]
    done = subprocess.run(
        [*command, "-o", str(folder / "run")], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, json.loads((folder / "run" / "summary.json").read_text()), done.stderr


def test_beside_busy_loops_the_machine_is_blamed_and_not_the_broker(tmp_path: Path) -> None:
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        code, summary, _ = emulate(tmp_path, "[]", "3 ms")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    (flow,) = summary["flows"]
    assert summary["violations"] == []
    # How much is late depends on the machine; that it is never said to be the broker alone does not.
    if flow["late"]:
        assert sum(flow["late_by"].values()) == flow["late"]
        assert summary["verdict"] == "disturbed" and code == 4, flow["late_reason"]
    waits = {node["node"]: node["wait_s"] for node in summary["nodes"]}
    assert waits["h2"]["programs"] > 0 and waits["h1"]["clients"] is not None


def test_a_program_that_cannot_start_is_no_success_and_one_that_needs_the_broker_finds_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    client = f'{{name: client, command: ["{sys.executable}", -c, "{CONNECT}"]}}'
    code, summary, said = emulate(tmp_path, f'[{{name: app, command: ["{sys.executable}", app.py]}}, {client}]', "9 s")
    assert summary["verdict"] in ("failed", "disturbed") and code in (1, 4)
    (entry,) = summary["failed_programs"]
    assert (entry["program"], entry["node"], entry["how"]) == ("app", "h1", "status 2")
    assert "app.py" in entry["tail"][-1]
    assert "program failed: program app of node h1 ended with status 2" in said
    assert "state folder: ." in said
    assert "found it" in (tmp_path / "run" / "logs" / "client.log").read_text()
