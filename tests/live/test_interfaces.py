"""Real interfaces in the loop: a device behind a cable is a node, a card moves into a node, and all comes back."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.wires import Computer, yaml_ping
from tests.tools import need

TEXT = """name: device
network:
  defaults: {link: {rate: 100 Mbit/s}, switch: {delay: 1..2 us}}
  nodes:
    h1: {kind: host, run: [{name: talk, command: PING, start: 200 ms}]}
    h2: host
    plc: {kind: host, address: 10.0.0.9, interface: INTERFACE}
    s1: switch
  links: [[h1, s1], [h2, s1], {between: [s1, plc], rate: 10 Mbit/s, delay: 10 ms}]
flows: [FLOWS]
stack: STACK
run: {duration: 3 s, warm-up: 300 ms, precision: {lateness-p99: 20 ms}}
"""
DATAGRAMS = """
  {name: beta, from: h2, to: plc, topic: b, size: 100 B, period: 20 ms, jitter: 2 ms, deadline: 20 ms},
  {name: gamma, from: plc, to: h2, topic: c, size: 40 B, period: 20 ms, jitter: 20 ms, deadline: 60 ms}"""
MESSAGES = """
  {name: state, from: plc, to: h1, topic: plc/state, size: 40 B, period: 50 ms, jitter: 50 ms, deadline: 200 ms}"""
SENDER = """import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
end = time.monotonic() + 30
while time.monotonic() < end:
    try: s.sendto(bytes(40), ("ADDRESS", 40001))
    except OSError: pass
    time.sleep(PAUSE)
"""
EMULATE = (sys.executable, "-c", "from timebound.cli import main; main()", "emulate")


@pytest.fixture
def host() -> Iterator[Computer]:
    with Computer() as computer:
        yield computer


@pytest.fixture
def device(host: Computer) -> Iterator[Computer]:
    with Computer() as computer:
        host.cable("card0", computer, "eth0")
        computer.run("ip", "address", "add", "10.0.0.9/16", "dev", "eth0")
        host.run("ip", "address", "add", "192.0.2.1/24", "dev", "card0")
        host.run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.2", "dev", "card0")
        yield computer


def scenario(folder: Path, interface: str = "card0", flows: str = DATAGRAMS, stack: str = "{udp: {}}") -> Path:
    file = folder / "device.yaml"
    file.write_text(
        TEXT.replace("PING", yaml_ping("10.0.0.9", 15))
        .replace("INTERFACE", interface)
        .replace("FLOWS", flows)
        .replace("STACK", stack)
    )
    return file


def emulate(host: Computer, file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = host.command(*EMULATE, str(file), "--output", str(file.parent / "run"), "--quiet", *more)
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def summary_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((file.parent / "run" / "summary.json").read_text())
    return found


def await_interface(host: Computer, expected: str) -> str:
    """The keeper works beside the command when that was killed."""
    deadline = time.monotonic() + 10
    while host.interface("card0") != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return host.interface("card0")


def test_the_device_behind_the_cable_is_a_node(tmp_path: Path, host: Computer, device: Computer) -> None:
    before = host.interface("card0")
    assert "192.0.2.1" in before and "198.51.100.0" in before
    file = scenario(tmp_path)
    sender = device.start(sys.executable, "-c", SENDER.replace("PAUSE", "0.02").replace("ADDRESS", "10.0.0.2"))
    try:
        done = emulate(host, file)
    finally:
        sender.kill()
        sender.wait()
    assert done.returncode in (0, 4), done.stderr
    talk = (tmp_path / "run" / "logs" / "talk.log").read_text()
    times = [float(found) for found in re.findall(r"time=([0-9.]+) ms", talk)]
    assert len(times) >= 12 and min(times) >= 20.0, talk
    summary = summary_of(file)
    assert summary["violations"] == [] and summary["precision"]["early"] == 0
    for flow in summary["flows"]:
        (segment,) = flow["segments"]
        assert segment["latency_us"] and segment["latency_us"]["min"] > 10_000, flow
        assert segment["worst_us"] <= segment["bound_observed_us"]
    assert host.interface("card0") == before


def test_a_device_that_never_pauses_does_not_spoil_the_preflight_check(
    tmp_path: Path, host: Computer, device: Computer
) -> None:
    """Something of the device's is under way at every moment: 2 ms between frames, 10 ms to go, and to all, so that no address is asked for first."""
    file = scenario(tmp_path)
    sender = device.start(sys.executable, "-c", SENDER.replace("PAUSE", "0.002").replace("ADDRESS", "10.0.255.255"))
    try:
        done = emulate(host, file, "--set", "run.duration=500 ms")
    finally:
        sender.kill()
        sender.wait()
    assert "pre-flight" not in done.stderr, done.stderr
    checks = {entry["check"]: entry["ok"] for entry in summary_of(file)["precision"]["preflight"]}
    assert checks["replay"] is True


def test_mqtt_from_a_device_reaches_a_subscriber(tmp_path: Path, host: Computer, device: Computer) -> None:
    need("mosquitto_pub")
    file = scenario(tmp_path, flows=MESSAGES, stack="{mqtt: {broker: h2}}")
    # Tries again until the broker is there; then one connection carries all lines. The first ones wait for it and go out together, in segments
    # as large as they come: no such frame is declared, and a bound for what was observed has to know them.
    line = "0123456789012345678901234567890123456789"
    script = (
        f"for i in $(seq 300); do (seq -f {line} 60; while :; do echo {line}; sleep 0.05; done)"
        f" | timeout 20 mosquitto_pub -h 10.0.0.2 -t plc/state -l 2>/dev/null; sleep 0.1; done"
    )
    sender = device.start("timeout", "40", "sh", "-c", script)
    try:
        done = emulate(host, file)
    finally:
        sender.terminate()
        sender.wait()
    assert done.returncode in (0, 4), done.stderr
    summary = summary_of(file)
    (flow,) = summary["flows"]
    first, second = flow["segments"]
    assert (first["name"], second["name"]) == ("publish", "deliver")
    assert first["worst_us"] > 10_000 and second["worst_us"] is not None
    assert summary["violations"] == []
    # How much of what waited goes into one segment is TCP's matter.
    undeclared = [entry["protocol"] for entry in summary["undeclared"]]
    if any(text.startswith("larger than") and text.endswith("declared for state/publish") for text in undeclared):
        assert first["bound_observed_us"] > first["bound_us"]


def test_after_sigkill_the_interface_is_back_with_its_addresses_and_routes(
    tmp_path: Path, host: Computer, device: Computer
) -> None:
    before = host.interface("card0")
    file = scenario(tmp_path)
    file.write_text(file.read_text().replace("duration: 3 s", "duration: 60 s"))
    process = host.start(*EMULATE, str(file), "--output", str(tmp_path / "run"), "--quiet")
    deadline = time.monotonic() + 30
    records = tmp_path / "run" / "frames.bin"
    while time.monotonic() < deadline and not (records.exists() and records.stat().st_size > 0):
        assert process.poll() is None
        time.sleep(0.05)
    assert host.interface("card0") == "", "it is in the sandbox"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    assert await_interface(host, before) == before


def test_a_device_that_does_not_answer_is_named_and_the_interface_comes_back(
    tmp_path: Path, host: Computer, device: Computer
) -> None:
    before = host.interface("card0")
    device.run("ip", "address", "flush", "dev", "eth0")
    done = emulate(host, scenario(tmp_path, "{name: card0, learn: 300 ms}"))
    assert done.returncode == 3 and "nobody answers ARP for 10.0.0.9 on card0" in done.stderr
    assert host.interface("card0") == before


def test_the_interface_of_the_default_route_is_only_taken_when_told(
    tmp_path: Path, host: Computer, device: Computer
) -> None:
    host.run("ip", "route", "add", "default", "via", "192.0.2.2", "dev", "card0")
    before = host.interface("card0")
    file = scenario(tmp_path)
    done = emulate(host, file)
    assert done.returncode == 3 and "--take-interface card0" in done.stderr
    assert host.interface("card0") == before
    done = emulate(host, file, "--take-interface", "card0")
    assert summary_of(file)["precision"]["preflight"], done.stderr
    assert host.interface("card0") == before


def test_without_root_nothing_is_taken(tmp_path: Path, host: Computer, device: Computer) -> None:
    before = host.interface("card0")
    done = emulate(host, scenario(tmp_path), "--rootless")
    assert done.returncode == 3 and "needs root" in done.stderr
    done = emulate(host, scenario(tmp_path, "no-such-card"))
    assert done.returncode == 3 and "no-such-card" in done.stderr
    assert host.interface("card0") == before


def test_a_card_moves_into_a_node_and_its_programs_use_it(tmp_path: Path, host: Computer, device: Computer) -> None:
    before = host.interface("card0")
    device.run("ip", "address", "add", "203.0.113.9/24", "dev", "eth0")
    text = """name: card
network:
  nodes:
    h1: {kind: host, interface: {name: card0, use: card, addresses: [203.0.113.1/24]},
         run: [{name: real, command: REAL, start: 200 ms},
               {name: emulated, command: EMULATED, start: 200 ms}]}
    h2: host
  links: [{between: [h1, h2], delay: 5 ms}]
flows: [{name: alpha, from: h1, to: h2, topic: a, size: 100 B, period: 20 ms, jitter: 2 ms}]
stack: {udp: {}}
run: {duration: 2 s, warm-up: 300 ms, precision: {lateness-p99: 20 ms}}
"""
    file = tmp_path / "card.yaml"
    file.write_text(text.replace("REAL", yaml_ping("203.0.113.9", 5)).replace("EMULATED", yaml_ping("h2", 5)))
    done = emulate(host, file)
    assert done.returncode in (0, 4), done.stderr
    logs = tmp_path / "run" / "logs"
    assert "5 sent, 5 received" in (logs / "real.log").read_text()
    emulated = (logs / "emulated.log").read_text()
    times = [float(found) for found in re.findall(r"time=([0-9.]+) ms", emulated)]
    assert times and min(times) >= 10.0
    assert host.interface("card0") == before
