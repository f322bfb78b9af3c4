"""Why messages are late, live: each cause that a network, TCP or a sender has is made on purpose and must be the one that is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.live.test_emulation import pytestmark, timebound

__all__ = ["pytestmark"]

TEXT = """
name: causes
network:
  nodes: {h1: {kind: host MORE}, h[2-4]: host, s[1-2]: switch}
  links: [[h1, s1], [h2, s1], [h[3-4], s2], {between: [s1, s2] LINK}]
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}}
flows:
FLOWS
stack: {mqtt: {broker: h3}}
run: {duration: 1500 ms, warm-up: 500 ms, precision: {lateness-p99: 9 s, late-frame: 9 s, longest-overrun: 9 s, steal: 100 %}}
"""


def emulate(folder: Path, flows: list[str], link: str = "", more: str = "") -> dict[str, Any]:
    lines = "\n".join(f"  - {{{flow}}}" for flow in flows)
    file = folder / "causes.yaml"
    file.write_text(TEXT.replace("MORE", more).replace("LINK", link).replace("FLOWS", lines))
    command = timebound("emulate", str(file), "--output", str(folder / "run"), "--quiet")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 4), done.stderr
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    assert "failure" not in summary, summary["failure"]
    assert summary["violations"] == []
    return {flow["flow"]: flow for flow in summary["flows"]} | {"summary": summary}


def of_most(flow: dict[str, Any]) -> str:
    """The cause of most late messages: beside a busy machine some may have another one."""
    return max(flow["late_by"], key=flow["late_by"].get)


def test_messages_behind_a_lost_one_are_late_by_retransmission(tmp_path: Path) -> None:
    # TCP sends again after 200 ms at least (RFC 6298, as Linux has it).
    flow = "name: alarm, from: h1, to: h4, size: 64 B, period: 20 ms, deadline: 100 ms, priority: 6"
    found = emulate(tmp_path, [flow], ", outages: [1 s..1.15 s]")
    alarm = found["alarm"]
    assert of_most(alarm) == "retransmission" and alarm["late_by"]["retransmission"] >= 3
    assert "by frames that were lost and sent again" in alarm["late_reason"]
    assert alarm["verdict"] == "missed" and found["summary"]["tcp"]["retransmissions"] > 0


def test_a_message_larger_than_the_window_of_tcp_is_late_by_the_window(tmp_path: Path) -> None:
    # Ten segments leave at once; the rest of 40 kB waits for acknowledgements, one round of 100 ms and another one.
    flow = "name: camera, from: h1, to: h4, size: 40 kB, period: 500 ms, deadline: 120 ms, priority: 6"
    tcp = ", tcp: {initial-window: 10, slow-start-after-idle: true}"
    camera = emulate(tmp_path, [flow], ", delay: 50 ms", tcp)["camera"]
    assert of_most(camera) == "window" and camera["late_by"]["window"] >= 2
    assert "by TCP, which waited for its window" in camera["late_reason"]
    assert "TCP's window holds 10 segments" in camera["bound_us"]["reason"] and camera["verdict"] == "missed"


STOPPED = """
import socket, time
s = socket.create_connection(("h3", 1883)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.sendall(b"\\x10\\x0f\\0\\4MQTT\\4\\2\\0\\x3c\\0\\3own"); s.recv(4)
start = time.monotonic()
for number in range(150):
    time.sleep(max(0, start + number * 0.02 - time.monotonic()))
    # It stands still for 300 ms now and then, and then sends what it owes.
    if number % 50 == 30: time.sleep(0.3)
    s.sendall(b"\\x30\\xeb\\7\\0\\1t" + bytes(1000))
"""


def test_a_sender_that_stood_still_and_caught_up_is_named_for_what_it_made_late(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED)
    flows = [
        "name: t, from: h1, to: h3, size: 1000 B, period: 20 ms, jitter: 5 ms, priority: 6, programs: h1",
        "name: alarm, from: h2, to: h4, size: 64 B, period: 10 ms, deadline: 40 ms, priority: 6",
    ]
    more = f', run: [{{command: ["{sys.executable}", stopped.py], folder: .}}]'
    found = emulate(tmp_path, flows, ", rate: 1 Mbit/s", more)
    alarm = found["alarm"]
    assert of_most(alarm) == "arrivals" and alarm["late_by"]["network"] == 0
    entry = alarm["exceeded_by"][0]
    assert (entry["stream"], entry["source"], entry["released_late"]) == ("t/publish", "h1", False)
    assert "t/publish of h1 came with" in alarm["late_reason"]
    # Beside the bound for what is declared stands the one for what came, and that one holds.
    (segment, _) = alarm["segments"]
    assert segment["bound_us"] < segment["worst_us"] <= segment["bound_observed_us"]
