"""Running experiments from the command line: found, commanded, and gone without a trace when killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from timebound import _core
from timebound.engine.doctor import can_emulate
from timebound.scenario.lifecycle import TRANSITIONS

TEXT = """name: commanded
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 1 ms}}
  nodes: {"h[1-3]": host, s1: switch}
  links: [["h[1-3]", s1]]
flows: [{name: a, from: h1, to: h2, topic: t, size: 200 B, period: 20 ms}]
stack: {mqtt: {broker: h3}}
"""


def test_python_and_rust_have_one_table_of_states_and_orders() -> None:
    table = {(state, order): after for state, order, after in json.loads(_core.node_transitions())}
    assert table == TRANSITIONS


def timebound(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from timebound.cli import main; main()", *arguments]


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(timebound(*arguments), capture_output=True, text=True, timeout=60)


def running() -> list[dict[str, Any]]:
    """Ours: others may run experiments beside this test."""
    return [run for run in json.loads(ask("ps", "--json").stdout) if run["scenario"] == "commanded"]


@pytest.fixture
def registry(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if not can_emulate():
        pytest.skip("this host allows no user namespaces and we are not root")
    folder = Path(f"/tmp/tbr-{os.getpid()}")
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder / "timebound"
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_a_held_network_is_commanded_and_what_is_killed_is_swept(tmp_path: Path, registry: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(TEXT)
    process = subprocess.Popen(timebound("up", str(file), "--for", "100 s"), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("up:"):
                break
        else:
            pytest.fail("the network did not come up")
        (run,) = running()
        assert (run["phase"], run["hosts"]) == ("measure", 3)
        found = ask("exec", "commanded", "h[1-2]", "--json", "--", "sh", "-c", "echo $TIMEBOUND_NODE; exit 5")
        assert found.returncode == 5
        assert json.loads(found.stdout)["h2"] == {"exit_code": 5, "stdout": "h2\n", "stderr": ""}
        assert ask("exec", str(file), "h1", "--", "no-such-program-of-ours").returncode == 127
        assert ask("exec", "commanded", "h[1-2]", "--timeout", "0.3", "--", "sleep", "30").returncode == 124
        assert ask("exec", "commanded", "h9", "--", "true").returncode == 2
        if os.geteuid() == 0:
            assert ask("exec", "commanded", "h1", "--", "ls", "/sys/class/net").stdout.split() == ["eth0", "lo"]
        stubborn = subprocess.Popen(
            timebound(
                "exec", "commanded", "h1", "--", "sh", "-c", "trap '' INT TERM; echo on; while :; do sleep 0.1; done"
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert stubborn.stdout is not None and stubborn.stdout.readline() == "on\n"
        stubborn.send_signal(signal.SIGINT)
        _, said = stubborn.communicate(timeout=30)
        assert stubborn.returncode == 130 and "Traceback" not in said
        assert ask("node", run["run_id"], "stop", "h2").returncode == 0
        refused = ask("node", "commanded", "stop", "h2")
        assert refused.returncode == 2 and "which is stopped" in refused.stderr
        states = {
            entry["node"]: entry["state"]
            for entry in json.loads(ask("top", "commanded", "--once", "--json").stdout)["hosts"]
        }
        assert states == {"h1": "running", "h2": "stopped", "h3": "running"}
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
        while (left := running()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []
        assert list(registry.iterdir()) == []
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
