"""One emulated link, measured from inside the nodes with the tools that users trust, and simulated."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import polars as pl

from tests.live.test_emulation import pytestmark, timebound
from tests.live.wires import yaml_ping
from tests.tools import need

__all__ = ["pytestmark"]

LINK = """name: link
network:
  nodes: {a: {kind: host, address: 10.0.0.1, run: A}, b: {kind: host, address: 10.0.0.2, run: B}}
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 10 ms, buffer: 32 KiBLOSS}]
flows: [{name: beat, from: a, to: b, size: 24 B, period: 1 s}]
stack: {udp: {}}
run: {duration: DURATION, warm-up: 0 s, seed: 3, simulate: {duration: 20 s, search: 0}}
"""


def emulate(folder: Path, a: str, b: str, duration: str, loss: str = "") -> tuple[dict[str, Any], str]:
    """The summary, and what the program of node a printed."""
    file = folder / "link.yaml"
    text = LINK.replace("LOSS", f", loss: {loss}" if loss else "").replace("DURATION", duration)
    file.write_text(text.replace("run: A", f"run: {a}").replace("run: B", f"run: {b}"))
    done = subprocess.run(
        timebound("emulate", str(file), "--output", str(folder / "run"), "--quiet"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 4), done.stderr
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert "failure" not in summary, summary["failure"]
    return summary, (folder / "run" / "logs" / "tool.log").read_text()


MODEL_MS = 2 * (10 + 122 * 8 / 10_000)
"""Round trip of ping. 98-byte echo packets are 122 bytes on the wire: 97.6 us at 10 Mbit/s, each way."""


def test_iperf3_gets_the_goodput_of_the_link_less_its_losses(tmp_path: Path) -> None:
    need("iperf3")
    goodputs = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        command = "[iperf3, -c, 10.0.0.2, -u, -b, 12M, -l, '1472', -t, '4', -J, --get-server-output]"
        summary, printed = emulate(
            folder,
            f"[{{command: {command}, name: tool, start: 200 ms}}]",
            "[{command: [iperf3, -s, -J], name: server, ready-port: 5201}]",
            "6 s",
            "1 %",
        )
        result = json.loads(printed[printed.index("{") :])  # warnings come first
        seconds = result["server_output_json"]["intervals"]
        # The first and the last interval hold the start and the end, not the link.
        whole = [interval["sum"]["bits_per_second"] for interval in seconds[1:-1]]
        goodputs.append(sum(whole) / len(whole))
        if summary["precision"]["verdict"] == "good":
            break
    expected = 10e6 * 1472 / 1538 * 0.99
    # 99.99 % interval of the losses among about 2400 frames is +-0.8 %; what is left is the emulator's share of the 1 %.
    assert min(abs(goodput / expected - 1) for goodput in goodputs) < 0.01, goodputs


def test_ping_takes_twice_the_delay_and_is_never_early(tmp_path: Path) -> None:
    """How little it takes beyond the model is a figure of the machine: `benches/link.py`."""
    command = yaml_ping("10.0.0.2", 150, 0.01)
    _, printed = emulate(tmp_path, f"[{{command: {command}, name: tool, start: 100 ms}}]", "[]", "4 s")
    assert "150 received" in printed
    least = min(float(found) for found in re.findall(r"time=([0-9.]+) ms", printed))
    # Printed with three digits, rounded down.
    assert least >= MODEL_MS - 0.001


def test_the_simulated_link_loses_and_delays_alike(tmp_path: Path) -> None:
    file = tmp_path / "link.yaml"
    text = (
        LINK.replace("LOSS", ", loss: 1 %")
        .replace("DURATION", "20 s")
        .replace("run: A", "run: []")
        .replace("run: B", "run: []")
    )
    background = "background: [{kind: udp, from: a, to: b, rate: 12 Mbit/s, size: 1472 B}]\n"
    file.write_text(text.replace("stack:", background + "stack:"))
    folder = tmp_path / "run"
    done = subprocess.run(
        timebound("simulate", str(file), "--output", str(folder), "--quiet"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr  # losses: no bound, but nothing asks for one
    streams = pl.read_parquet(folder / "simulated.parquet")
    load = streams.filter(
        pl.col("stream") == "background/udp-1"
        if "background/udp-1" in streams["stream"]
        else pl.col("stream").str.starts_with("background")
    )
    goodput = load["received"][0] * 1472 * 8 / 20
    assert abs(goodput / (10e6 * 1472 / 1538 * 0.99) - 1) < 0.01
    beat = streams.filter(pl.col("stream") == "beat/direct")
    assert beat["min_ns"][0] >= 10_000_000
