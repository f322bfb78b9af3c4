"""Whole runs with real clients and brokers: what is measured lies under the bound, and what was created is gone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.tools import need
from timebound.engine.doctor import can_emulate

TEXT = """name: small
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, s1: switch, s2: switch}
  links: [[a, s1], [b, s1], {between: [s1, s2], rate: 10 Mbit/s, delay: 1 ms}, [s2, c]]
flows:
  - {name: alpha, from: a, to: c, topic: t/alpha, size: 200 B, period: 10 ms, jitter: 1 ms, deadline: 1 s, priority: 5, qos: QOS}
  - {name: large, from: c, to: a, topic: t/large, size: 4000 B, period: 50 ms, jitter: 1 ms, deadline: 1 s, priority: 4, qos: QOS}
stack: STACK
background: [{kind: tcp, from: a, to: c, rate: 1 Mbit/s}, {kind: udp, from: c, to: a, rate: 1 Mbit/s, size: 500 B}]
run: {duration: 2 s, warm-up: 300 ms, seed: 1, simulate: {duration: 1 s, search: 20}, captures: ["a->s1", "s2->c"]}
"""


pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")


def scenario(folder: Path, stack: str = "{mqtt: {broker: b}}", qos: int = 1) -> Path:
    file = folder / "small.yaml"
    file.write_text(TEXT.replace("STACK", stack).replace("QOS", str(qos)))
    return file


def timebound(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from timebound.cli import main; main()", *arguments]


def run(file: Path, folder: Path, *more: str, verb: str = "run") -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        timebound(verb, str(file), "--output", str(folder), "--quiet", *more),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (folder / "summary.json").exists(), done.stderr
    return done.returncode, json.loads((folder / "summary.json").read_text())


def undocumented(value: Any, known: frozenset[str], at: str = "") -> list[str]:
    """Keys that docs/results.md does not name; those under `series` that are names of flows and ports, `data_plane` and `packets` (a format of its own) are left out."""
    if isinstance(value, list):
        return [key for entry in value[:3] for key in undocumented(entry, known, at)]
    if not isinstance(value, dict) or at in ("data_plane", "packets"):
        return []
    if at == "series" or at.endswith(".series"):
        value = {key: None if key in ("flows", "links") else entry for key, entry in value.items()}
    here = [f"{at}.{key}" for key in value if key not in known]
    return here + [
        key for name, entry in value.items() for key in undocumented(entry, known, f"{at}.{name}".lstrip("."))
    ]


def check(summary: dict[str, Any], qos: int) -> None:
    """What must hold on any machine, busy or not."""
    page = Path(__file__).parents[2] / "docs" / "results.md"
    assert undocumented(summary, frozenset(re.findall(r"\w+", page.read_text(encoding="utf-8")))) == []
    assert summary["violations"] == []
    assert summary["precision"]["early"] == 0 and summary["precision"]["preflight"]
    assert all(line["ok"] for line in summary["precision"]["preflight"])
    for flow in summary["flows"]:
        assert flow["sent"] and flow["latency_us"] and flow["simulated_max_us"] and flow["bound_us"]["bound"]
        assert flow["simulated_max_us"] <= flow["bound_us"]["bound"]
        if summary["precision"]["verdict"] == "good" and summary["tcp"]["retransmissions"] == 0:
            assert flow["latency_us"]["max"] <= flow["bound_us"]["observed_arrivals"]
        if qos == 2:
            assert flow["duplicates"] == 0
        assert flow["lost"] == 0 and flow["reordered"] == 0


@pytest.mark.parametrize(
    ("stack", "qos"),
    [
        ("{mqtt: {broker: b}}", 0),
        ("{mqtt: {broker: b, version: 3.1.1}}", 1),
        ("{mqtt: {broker: b}}", 2),
        ("{mqtt: {broker: {node: b, program: mosquitto}}}", 1),
        ("{udp: {}}", 0),
    ],
)
def test_a_run_measures_what_was_predicted(tmp_path: Path, stack: str, qos: int) -> None:
    if "mosquitto" in stack:
        need("mosquitto")
    file = scenario(tmp_path, stack, qos)
    if "udp" in stack:
        file.write_text(file.read_text().replace("4000 B", "1400 B"))
    # A machine that stalls makes TCP repeat and join segments. Such a run is tried again; the last one counts in any case.
    for attempt in range(3):
        folder = tmp_path / f"run{attempt}"
        code, summary = run(file, folder)
        assert code in (0, 4)
        check(summary, qos)
        undeclared = [entry for entry in summary["undeclared"] if "control packets" not in entry["protocol"]]
        joined = [entry for entry in undeclared if entry["protocol"].startswith("larger than")]
        if code == 0 and not summary["tcp"]["retransmissions"] and not joined:
            break
    messages = pl.read_parquet(folder / "messages.parquet")
    assert messages.filter(pl.col("network_ns").is_null()).height == 0
    shares = messages["network_ns"] + messages["broker_ns"] + messages["host_ns"]
    assert (shares == messages["received_ns"] - messages["sent_ns"]).all()
    # Two answers in one segment are a held-up client's: said in any case, and allowed where the run says that it was disturbed.
    assert [entry for entry in undeclared if code == 0 or entry not in joined] == [], undeclared


def test_without_root_the_same_run_works_and_says_what_is_less_precise(tmp_path: Path) -> None:
    code, summary = run(scenario(tmp_path), tmp_path / "run", "--rootless")
    assert code in (0, 4)
    check(summary, 1)
    assert summary["precision"]["rootless"] is True


def test_captures_are_read_by_tshark(tmp_path: Path) -> None:
    need("tshark")
    run(scenario(tmp_path), tmp_path / "run", verb="emulate")
    command = [
        "tshark",
        "-r",
        str(tmp_path / "run" / "captures" / "a-s1.pcapng"),
        "-Y",
        "mqtt.msgtype == 3",
        "-T",
        "fields",
        "-e",
        "mqtt.topic",
    ]
    topics = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert len(topics) > 100 and set(",".join(topics).split(",")) == {"t/alpha"}


def test_a_broker_that_dies_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    text = file.read_text().replace(
        "b: host",
        "b: {kind: host, run: [{command: [sh, -c, 'sleep 1; exit 7'], name: fuse, essential: true, start: 500 ms}]}",
    )
    file.write_text(text.replace("duration: 2 s", "duration: 100 s"))
    started = time.monotonic()
    code, summary = run(file, tmp_path / "run", verb="emulate")
    # Long before its end, however busy the machine is.
    assert code == 1 and time.monotonic() - started < 90
    assert "fuse" in summary["failure"]
    assert all(flow["sent"] for flow in summary["flows"])
    assert sandboxes(tmp_path) == []


def test_a_program_that_does_not_exist_is_named_before_anything_starts(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    file.write_text(file.read_text().replace("b: host", "b: {kind: host, run: [no-such-program-at-all]}"))
    done = subprocess.run(
        timebound("emulate", str(file), "--output", str(tmp_path / "run")), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "no-such-program-at-all" in done.stderr and not (tmp_path / "run").exists()


def test_interrupted_it_keeps_what_was_measured(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert all(flow["sent"] for flow in summary["flows"]) and (tmp_path / "run" / "report.html").exists()
    assert sandboxes(tmp_path) == []


def test_killed_it_leaves_no_process_and_the_next_run_works(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert sandboxes(tmp_path)
    process.kill()
    process.communicate(timeout=10)
    deadline = time.monotonic() + 5
    while sandboxes(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sandboxes(tmp_path) == []
    # What was killed was another verb's.
    code, _ = run(scenario(tmp_path), tmp_path / "run", "--force")
    assert code in (0, 4)


def start(folder: Path) -> subprocess.Popen[str]:
    """A long run, once it measures."""
    file = scenario(folder)
    file.write_text(file.read_text().replace("duration: 2 s", "duration: 60 s"))
    command = timebound("emulate", str(file), "--output", str(folder / "run"), "--quiet")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    records = folder / "run" / "endpoints.bin"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if records.exists() and records.stat().st_size > 100_000:
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"nothing was measured within 30 s: {process.communicate()}")


def sandboxes(folder: Path) -> list[str]:
    """Processes whose command line names this test's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line and "timebound.sandbox" in line:
                found.append(line)
    return found
