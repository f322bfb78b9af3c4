"""Messages that the nodes' own programs publish and receive, live: told by topic on the wire, and held against the bound."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.live.test_emulation import pytestmark, timebound
from tests.tools import needs

__all__ = ["pytestmark"]

TEXT = """
name: programs
network:
  nodes:
    h1: {kind: host, run: [PUBLISHER]}
    h2: {kind: host, run: [SUBSCRIBER]}
    h[3-4]: host
    s1: switch
  links: [[h[1-4], s1]]
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
flows:
FLOWS
stack: STACK
run: {duration: 1500 ms, warm-up: 1 s, simulate: {duration: 100 ms, search: 0}, precision: {lateness-p99: 9 s, late-frame: 9 s, longest-overrun: 9 s, steal: 100 %}}
"""
CLIENT = """
import socket, sys, threading, time
def packet(kind, body):
    length, rest = bytearray(), len(body)
    while True:
        length.append(rest % 128 | (128 if rest > 127 else 0)); rest //= 128
        if not rest: return bytes([kind]) + bytes(length) + body
def text(value):
    return len(value).to_bytes(2, "big") + value.encode()
def connect():
    # MQTT 3.1.1, whatever the stack speaks, and from a port of its own.
    s = socket.create_connection(("h3", 1883)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(packet(0x10, text("MQTT") + bytes([4, 2, 0, 60]) + text("own" + sys.argv[1])))
    s.recv(4)
    return s
def publish(s, topic, payload, qos=0):
    s.sendall(packet(0x30 | qos << 1, text(topic) + (b"\\0\\7" if qos else b"") + payload))
def drain(s):
    while s.recv(65536): pass
"""
PUBLISH = (
    CLIENT
    + """
s = connect()
threading.Thread(target=drain, args=(s,), daemon=True).start()
end = time.monotonic() + 4
for number in range(10**6):
    BODY
    time.sleep(0.02)
    if time.monotonic() > end: break
"""
)
SUBSCRIBE = (
    CLIENT
    + """
s = connect()
for topic in sys.argv[2:]:
    s.sendall(packet(0x82, b"\\0\\1" + text(topic) + b"\\0"))
drain(s)
"""
)
BOTH = 'publish(s, "t", b"number %d" % number); publish(s, "u", b"on")'


class Run:
    def __init__(
        self,
        folder: Path,
        flows: list[str],
        body: str,
        stack: str,
        *,
        late_s: float = 0.0,
        reads: str = "drain(s)",
        qos: int = 0,
    ) -> None:
        subscribe = SUBSCRIBE.replace("s = connect()", f"time.sleep({late_s}); s = connect()")
        subscribe = subscribe.replace('b"\\0"))', f'b"\\{qos}"))').replace("drain(s)\n", f"{reads}\n")
        for name, code in (("publish.py", PUBLISH.replace("BODY", body)), ("subscribe.py", subscribe)):
            (folder / name).write_text(code)
        text = TEXT.replace("FLOWS", "\n".join(f"  - {{priority: 6, {flow}}}" for flow in flows)).replace(
            "STACK", stack
        )
        for where, name, more in (("PUBLISHER", "publish", ""), ("SUBSCRIBER", "subscribe", ", t, u, v")):
            command = f'{{name: {name}, command: ["{sys.executable}", {name}.py, {name}{more}], folder: .}}'
            text = text.replace(where, command)
        file = folder / "programs.yaml"
        file.write_text(text)
        command = timebound("emulate", str(file), "--output", str(folder / "run"), "--quiet")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.code, self.said = done.returncode, done.stderr
        self.summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
        assert "failed_programs" not in self.summary, self.summary["failed_programs"]
        self.messages = pl.read_parquet(folder / "run" / "messages.parquet")
        self.flows = {(flow["flow"], flow["receiver"]): flow for flow in self.summary["flows"]}

    @property
    def notes(self) -> str:
        return "\n".join(self.summary["scenario"]["notes"])

    def of(self, flow: str, receiver: str) -> pl.DataFrame:
        rows = self.messages.filter((pl.col("flow") == flow) & (pl.col("receiver") == receiver))
        return rows.sort("sequence")


FLOWS = [
    "name: t, from: h1, to: [h2, h4], size: 16 B, period: 15 ms, jitter: 1 s, deadline: 9 s, programs: [h1, h2]",
    "name: u, from: h1, to: h2, size: 2 B, period: 15 ms, jitter: 1 s, deadline: 9 s, programs: [h1, h2]",
    "name: v, from: h4, to: h2, topic: v, size: 64 B, period: 20 ms, qos: 1, programs: h2",
]


@pytest.mark.parametrize("broker", ["embedded", pytest.param("mosquitto", marks=needs("mosquitto"))])
def test_messages_of_programs_are_measured_and_held_against_their_bound(tmp_path: Path, broker: str) -> None:
    run = Run(tmp_path, FLOWS, BOTH, f"{{mqtt: {{broker: {{node: h3, program: {broker}}}}}}}")
    assert run.summary["violations"] == []
    for flow, receiver in (("t", "h2"), ("t", "h4"), ("u", "h2"), ("v", "h2")):
        rows, found = run.of(flow, receiver), run.flows[flow, receiver]
        first = rows["sequence"][0]
        assert len(rows) >= 20 and rows["sequence"].to_list() == list(range(first, first + len(rows)))
        assert rows["received_ns"].null_count() == 0 and rows["network_ns"].null_count() == 0, flow
        assert rows["host_ns"].ge(-50_000).all() and rows["broker_ns"].ge(0).all() and rows["network_ns"].gt(0).all()
        assert found["lost"] == 0 and found["segments"][-1]["worst_us"] is not None
        assert found["verdict"] == "met" or run.code == 4, (flow, found["verdict"], run.notes)
    # The callback of the built-in subscriber lies behind the last port; of a program nothing behind that is known.
    assert run.of("t", "h4")["host_ns"].gt(0).all()
    assert run.code in (0, 4), run.said


def test_a_subscriber_that_does_not_acknowledge_is_named(tmp_path: Path) -> None:
    flow = (
        "name: t, from: h1, to: h2, size: 16 B, period: 15 ms, jitter: 1 s, deadline: 9 s, qos: 1, programs: [h1, h2]"
    )
    run = Run(tmp_path, [flow], 'publish(s, "t", b"number %d" % number, 1)', "{mqtt: {broker: h3}}", qos=1)
    assert "program 'subscribe' on h2 did not acknowledge" in run.notes


def test_messages_behind_a_subscriber_that_reads_late_are_not_late_by_the_broker(tmp_path: Path) -> None:
    flow = "name: t, from: h1, to: h2, size: 1000 B, period: 15 ms, jitter: 1 s, deadline: 400 ms, programs: [h1, h2]"
    # It reads at once until it has subscribed and got the first messages, and then nothing for a while.
    reads = "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384); s.recv(3000); time.sleep(2); drain(s)"
    run = Run(tmp_path, [flow], 'publish(s, "t", bytes(1000))', "{mqtt: {broker: h3}}", reads=reads)
    assert "program 'subscribe' on h2 did not read for" in run.notes
    (found,) = run.flows.values()
    causes = {cause: count for cause, count in found["late_by"].items() if count}
    assert causes and causes.get("broker", 0) < causes["endpoints"], causes


def test_a_program_that_sends_more_than_its_flow_declares_is_named(tmp_path: Path) -> None:
    flow = "name: t, from: h1, to: h2, size: 16 B, period: 500 ms, deadline: 9 s, programs: [h1, h2]"
    run = Run(tmp_path, [flow], 'publish(s, "t", bytes(600), 1)', "{mqtt: {broker: h3}}")
    (found,) = run.summary["flows"]
    (entry, *_) = [each for each in found["exceeded_by"] if each["stream"] == "t/publish"]
    assert entry["source"] == "h1" and entry["frame_bytes"]["observed"] > 600 > entry["frame_bytes"]["declared"]
    assert entry["observed_jitter_us"] > 500_000 and not entry["released_late"]
    assert found["bound_us"]["observed_arrivals"] > found["bound_us"]["bound"]
    assert re.search(
        r"More was sent than is declared: t/publish of h1 came \d+ times in [\d.]+ s where period and jitter allow \d+ and",
        run.notes,
    )
    # What a broker passes on is not the broker's own doing.
    assert [each["stream"] for each in found["exceeded_by"]] == ["t/publish"]
    assert run.summary["violations"] == []


def test_larger_messages_than_declared_break_no_bound(tmp_path: Path) -> None:
    flows = [
        "name: t, from: h1, to: h2, size: 16 B, period: 200 ms, jitter: 50 ms, deadline: 20 ms, programs: [h1, h2]",
        "name: u, from: h1, to: h2, size: 2 B, period: 1 s, programs: [h1, h2]",
    ]
    body = 'number % 10 == 0 and publish(s, "t", bytes(30000), 1)'
    run = Run(tmp_path, flows, body, "{mqtt: {broker: h3}}")
    found = run.flows["t", "h2"]
    (entry, *_) = [each for each in found["exceeded_by"] if each["stream"] == "t/publish"]
    assert entry["message"]["observed"]["frames"] >= 20 and entry["message"]["observed"]["bytes"] > 30_000
    assert entry["message"]["declared"]["bytes"] < 200 and entry["source"] == "h1"
    # 30 kB over two links of 10 Mbit/s, each way.
    assert found["bound_us"]["observed_arrivals"] is None or found["bound_us"]["observed_arrivals"] > 40_000
    assert run.summary["violations"] == []
    assert found["verdict"] == "missed" or run.code == 4
    assert found["late_by"]["arrivals"] == found["late"] > 0, found["late_by"]


def test_what_a_program_does_not_show_is_unmeasured_and_not_met(tmp_path: Path) -> None:
    flow = "name: t, from: h1, to: h2, size: 16 B, period: 20 ms, deadline: 9 s, programs: [h1, h2]"
    run = Run(tmp_path, [flow], 'publish(s, "another", b"x")', "{mqtt: {broker: h3}}")
    assert run.flows["t", "h2"]["verdict"] == "unmeasured"
    assert run.summary["verdict"] in ("unmeasured", "disturbed") and run.code in (1, 4)
    assert "none came from the program on h1 on the topic 't'" in run.notes


def test_a_connection_that_becomes_unreadable_makes_its_flow_unmeasured(tmp_path: Path) -> None:
    flow = "name: t, from: h1, to: h2, size: 16 B, period: 15 ms, jitter: 200 ms, programs: [h1, h2]"
    body = """if number == 80:
        s.sendall(b"GET / HTTP/1.1"); time.sleep(30)
    publish(s, "t", b"number %d" % number)"""
    run = Run(tmp_path, [flow], body, "{mqtt: {broker: h3}}")
    found = run.flows["t", "h2"]
    assert (found["verdict"], found["lost"]) == ("unmeasured", 0) and found["received"] == found["sent"] > 0
    assert re.search(r"14 bytes from h1 to h3 could not be read as MQTT.*program 'publish' on h1, 10.0.0.1:", run.notes)
    assert re.search(r"'publish' on h1 published \d+ of the 100 messages of 't' .* none after \d", run.notes)
    assert "note: Messages of 't' to 'h2' are not all measured" in run.said


def test_retained_messages_and_another_qos_are_told(tmp_path: Path) -> None:
    flows = [
        "name: t, from: h1, to: h2, size: 64 B, period: 20 ms, deadline: 9 s, programs: [h1, h2]",
        "name: u, from: h1, to: h2, size: 64 B, period: 15 ms, jitter: 1 s, qos: 1, deadline: 9 s, programs: [h1, h2]",
    ]
    body = """if number == 0: s.sendall(packet(0x31, text("t") + bytes(64)))
    publish(s, "u", b"number %d" % number)"""
    run = Run(tmp_path, flows, body, "{mqtt: {broker: h3}}", late_s=0.5)
    assert run.flows["t", "h2"]["verdict"] == "unmeasured" and run.flows["u", "h2"]["received"] >= 20
    assert "only 1 retained came to the program on h2" in run.notes
    assert "program 'publish' on h1 publishes messages of 'u' at QoS 0 where the flow declares QoS 1" in run.notes
    assert "gets messages of 'u'" not in run.notes and run.summary["violations"] == []


def test_datagrams_of_programs_are_measured(tmp_path: Path) -> None:
    flow = "name: t, from: h1, to: [h2, h4], size: 16 B, period: 15 ms, jitter: 1 s, deadline: 9 s, programs: h1"
    body = 'd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.sendto(b"x" * 16, ("h4", 40000)); d.sendto(b"x" * 16, ("h2", 40000))'
    (tmp_path / "publish.py").touch()
    code = f"import socket, time\nend = time.monotonic() + 4\nwhile time.monotonic() < end:\n    {body}\n    time.sleep(0.02)\n"
    text = TEXT.replace("FLOWS", f"  - {{{flow}}}").replace("STACK", "udp").replace(", run: [SUBSCRIBER]", "")
    (tmp_path / "publish.py").write_text(code)
    text = text.replace("PUBLISHER", f'{{command: ["{sys.executable}", publish.py], folder: .}}')
    (tmp_path / "udp.yaml").write_text(text)
    done = subprocess.run(
        timebound("emulate", str(tmp_path / "udp.yaml"), "-o", str(tmp_path / "run"), "--quiet"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 4), done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    for found in summary["flows"]:
        assert found["received"] == found["sent"] >= 20 and found["latency_us"]["max"] is not None
