"""Nodes in whole runs: small MTUs, templates, host names and files, limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from timebound.engine.doctor import can_emulate
from timebound.stacks.wire import ETHERNET

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")

SMALL = """name: small-mtu
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 50 us}, host: {mtu: MTU}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, s1: switch}
  links: [["a", s1], [b, s1], [s1, c]]
flows:
  - {name: alpha, from: a, to: c, topic: t/alpha, size: 717 B, period: 40 ms, jitter: 1 ms, deadline: 1 s, priority: 5, qos: QOS}
stack: STACK
run: {duration: 2 s, warm-up: 300 ms, seed: 1, simulate: {duration: 1 s, search: 20}, captures: ["a->s1", "s1->c"]}
"""


def run(file: Path, folder: Path, *more: str, verb: str = "run") -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-c", "from timebound.cli import main; main()", verb, str(file)]
    command += ["--output", str(folder), "--quiet", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (folder / "summary.json").exists(), done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert "failure" not in summary, (summary["failure"], done.stderr)
    return done.returncode, summary


@pytest.mark.parametrize(
    ("stack", "qos", "mtu", "more"),
    [
        ("{udp: {}}", 0, 127, []),
        ("{udp: {multicast: true}}", 0, 127, []),
        ("{mqtt: {broker: b}}", 1, 127, []),
        ("{mqtt: {broker: b}}", 1, 127, ["--rootless"]),
        ("{mqtt: {broker: b}}", 2, 88, []),
        ("{udp: {}}", 0, 68, []),
    ],
)
def test_messages_cross_a_small_mtu_in_the_pieces_that_were_declared(
    tmp_path: Path, stack: str, qos: int, mtu: int, more: list[str]
) -> None:
    file = tmp_path / "small.yaml"
    text = SMALL.replace("STACK", stack).replace("QOS", str(qos)).replace("MTU", str(mtu))
    if "multicast" in stack:
        text = text.replace("to: c,", "to: [b, c],")
    file.write_text(text)
    code, summary = run(file, tmp_path / "run", *more)
    assert code in (0, 4)
    assert summary["violations"] == []
    # A probe of TCP for a lost tail that was none is answered with a longer acknowledgement (D-SACK, RFC 2883).
    odd = ("control packets", "larger than") if summary["tcp"]["retransmissions"] else ("control packets",)
    undeclared = [entry for entry in summary["undeclared"] if not any(word in entry["protocol"] for word in odd)]
    assert undeclared == [], undeclared
    frames = pl.read_parquet(tmp_path / "run" / "frames.parquet")
    largest = mtu if "mqtt" in stack else 20 + (mtu - 20) // 8 * 8
    assert frames["wire_bytes"].max() == ETHERNET.packet(largest)
    for flow in summary["flows"]:
        assert flow["received"] and flow["lost"] == 0
        assert flow["simulated_max_us"] <= flow["bound_us"]["bound"]
        if summary["precision"]["verdict"] == "good" and summary["tcp"]["retransmissions"] == 0:
            assert flow["latency_us"]["max"] <= flow["bound_us"]["observed_arrivals"]
        if "udp" in stack:
            # Every datagram became exactly the declared fragments.
            one = frames.filter((pl.col("stream") == "alpha/direct") & (pl.col("receiver") == flow["receiver"]))
            per_message = one.group_by("sequence", maintain_order=True).agg(pl.col("wire_bytes").sort(descending=True))
            assert per_message.height >= flow["received"]
            expected = sorted(ETHERNET.udp(717, mtu), reverse=True)
            assert all(wires == expected for wires in per_message["wire_bytes"].to_list())
    messages = pl.read_parquet(tmp_path / "run" / "messages.parquet")
    assert messages["network_ns"].null_count() == 0
