"""Virtual machines as nodes: a guest with its own kernel beside light-weight nodes in one emulated network."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.live import guest
from tests.live.wires import PING, ping
from timebound.engine.doctor import can_emulate

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")

TEXT = """name: machines
network:
  defaults: {link: {rate: 100 Mbit/s}, switch: {delay: 1..2 us}}
  nodes:
    h1: {kind: host, run: [{name: talk, command: [sh, -c, "PING; exec busybox wget -q -O - http://10.0.0.9/"], start: 200 ms}]}
    h2: host
    vm1: {kind: host, address: 10.0.0.9, vm: {kernel: vmlinuz, initrd: initrd.img, accel: tcg, ready-port: 80, boot: BOOT}}
    s1: switch
  links: [[h1, s1], [h2, s1], {between: [s1, vm1], rate: 10 Mbit/s, delay: 10 ms}]
flows:
  - {name: alpha, from: h2, to: h1, topic: a, size: 100 B, period: 10 ms, jitter: 2 ms, deadline: 10 ms}
  - {name: beta, from: h2, to: vm1, topic: b, size: 100 B, period: 20 ms, jitter: 2 ms, deadline: 20 ms}
  - {name: gamma, from: vm1, to: h2, topic: c, size: 40 B, period: 50 ms, jitter: 20 ms, deadline: 40 ms}
stack: {udp: {}}
run: {duration: 3 s, warm-up: 300 ms, precision: {lateness-p99: 20 ms}}
"""
SAYS = "syslogd -O /dev/null -R 10.0.0.2:40002 -L; (while :; do logger 0123456789; usleep 100000; done) &"


def emulate(folder: Path, *more: str, text: str = TEXT, boot: str = "120 s") -> subprocess.CompletedProcess[str]:
    file = folder / "machines.yaml"
    # Nodes see the scenario's folder, wherever the tests lie.
    program = shutil.copy(PING, folder)
    file.write_text(text.replace("BOOT", boot).replace("PING", shlex.join(ping("10.0.0.9", 10, program=program))))
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(file)]
    return subprocess.run(
        [*command, "--output", str(folder / "run"), "--quiet", *more], capture_output=True, text=True, timeout=240
    )


def live(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "live.json").read_text())
    return found


def machines_of(folder: Path) -> list[int]:
    """Processes of QEMU that boot this folder's kernel."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "qemu" in line and str(folder) in line:
                found.append(int(entry.name))
    return found


def test_a_machine_with_its_own_kernel_talks_over_the_emulated_link(tmp_path: Path) -> None:
    guest.build(tmp_path, SAYS)
    # A host that stalls lets an endpoint be late. Such a run is tried again; the last one counts in any case.
    for _attempt in range(3):
        done = emulate(tmp_path)
        if done.returncode != 1:
            break
    assert done.returncode in (0, 4), done.stderr
    said = (tmp_path / "run" / "logs" / "talk.log").read_text()
    assert "hello from vm1" in said, said
    times = [float(found) for found in re.findall(r"time=([0-9.]+) ms", said)]
    # Two ways of 10 ms each; what the machine adds (under TCG some ms) has no upper limit on a busy host.
    assert len(times) >= 8 and min(times) >= 20.0
    console = (tmp_path / "run" / "logs" / "vm1.log").read_text(errors="replace")
    assert "guest vm1 is up at 10.0.0.9" in console and "Linux version" in console
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    flows = {flow["flow"]: flow for flow in summary["flows"]}
    assert summary["violations"] == [] and summary["precision"]["early"] == 0
    beta, gamma = flows["beta"], flows["gamma"]
    assert beta["verdict"] == "met" and gamma["verdict"] == "met" and gamma["sent"] is None
    for flow in (beta, gamma):
        (segment,) = flow["segments"]
        assert segment["latency_us"]["min"] > 10_000 and segment["worst_us"] <= segment["bound_observed_us"]
    nodes = pl.read_parquet(tmp_path / "run" / "nodes.parquet").filter(pl.col("node") == "vm1")
    assert nodes["rss_bytes"].max() > 50_000_000 and nodes["cpu_ns"].max() > 100_000_000
    assert nodes["rx_frames"].max() > 50 and nodes["tx_frames"].max() > 10
    (program,) = [program for program in live(tmp_path)["programs"] if program["name"] == "vm1"]
    assert program["exit_code"] == 0 and program["stopped"], "it shut down when its power button was pressed"
    assert machines_of(tmp_path) == []


def test_a_machine_that_does_not_boot_in_its_time_is_named_and_ended(tmp_path: Path) -> None:
    guest.build(tmp_path)
    done = emulate(tmp_path, boot="200 ms")
    assert done.returncode == 3
    assert 'virtual machine "vm1" does not answer ARP for its address' in done.stderr and "vm1.log" in done.stderr
    assert machines_of(tmp_path) == []


def test_a_machine_dies_with_a_killed_run(tmp_path: Path) -> None:
    guest.build(tmp_path)
    file = tmp_path / "machines.yaml"
    file.write_text(TEXT.replace("BOOT", "120 s"))
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(file)]
    process = subprocess.Popen(
        [*command, "--output", str(tmp_path / "run"), "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not machines_of(tmp_path) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert machines_of(tmp_path)
    process.kill()
    process.communicate(timeout=10)
    deadline = time.monotonic() + 5
    while machines_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert machines_of(tmp_path) == []
