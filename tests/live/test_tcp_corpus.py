"""Messages of all sizes over ways of all lengths, emulated: none waits for a window that the bound does not know of.

What is compared is the quickest message of each flow: where a window is too small every message waits for it, whatever a busy machine adds to others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from timebound.engine.doctor import can_emulate

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")

HOSTS_MS = 10.0
"""What hosts and broker may take of the quickest message, which the bound of the network leaves out. A round takes more on every way below."""
SIZES = {"24 B": 0, "1400 B": 1, "40 kB": 2, "300 kB": 0, "1 MB": 1}
"""Size -> QoS."""
DELAYS = ("10 ms", "50 ms", "150 ms")


def scenario(cases: list[tuple[str, str, int]], *, host: str, period: str, duration: str) -> str:
    """A publisher with a link of its own for each case (size, delay, QoS); all have one subscriber's host, and a broker beside it."""
    nodes = ", ".join(f"p{index}: host" for index in range(len(cases)))
    links = "".join(f"    - {{between: [p{index}, s], delay: {delay}}}\n" for index, (_, delay, _) in enumerate(cases))
    flows = "".join(
        f"  - {{name: f{index}, from: p{index}, to: r, size: {size}, period: {period}, offset: {60 * index} ms, qos: {qos}}}\n"
        for index, (size, _, qos) in enumerate(cases)
    )
    return (
        f"name: corpus\nnetwork:\n  defaults: {{link: {{rate: 1 Gbit/s, delay: 5 us, buffer: 64 MiB}}{host}}}\n"
        f"  nodes: {{b: host, r: host, s: switch, {nodes}}}\n  links:\n    - [b, s]\n    - [r, s]\n{links}"
        f"flows:\n{flows}stack: {{mqtt: {{broker: {{node: b, program: embedded}}}}}}\nrun: {{duration: {duration}, seed: 1}}\n"
    )


def quickest_ms(folder: Path, text: str) -> tuple[dict[str, float], dict[str, Any]]:
    """The quickest message of each flow in a run, and what the run says of each flow."""
    file = folder / "corpus.yaml"
    file.write_text(text)
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(file), "--quiet"]
    done = subprocess.run(
        [*command, "-o", str(folder / "run")], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode in (0, 1, 4), done.stderr
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["violations"] == []
    messages = polars.read_parquet(folder / "run" / "messages.parquet").drop_nulls("received_ns")
    took = messages.with_columns(ms=(polars.col("received_ns") - polars.col("released_ns")) / 1e6)
    least = {flow: float(ms) for flow, ms in took.group_by("flow").agg(polars.col("ms").min()).iter_rows()}
    return least, {flow["flow"]: flow for flow in summary["flows"]}


def test_no_message_of_any_size_waits_for_a_window_that_its_bound_does_not_count(tmp_path: Path) -> None:
    cases = [(size, delay, qos) for delay in DELAYS for size, qos in SIZES.items()]
    least, flows = quickest_ms(tmp_path, scenario(cases, host="", period="1500 ms", duration="6 s"))
    assert len(least) == len(cases)
    for index, case in enumerate(cases):
        bound = flows[f"f{index}"]["end_to_end_us"]["bound"]
        assert bound is not None, (case, flows[f"f{index}"]["reason"])
        assert least[f"f{index}"] <= bound / 1e3 + HOSTS_MS, case


def test_a_stated_window_holds_messages_back_and_the_bound_counts_its_rounds(tmp_path: Path) -> None:
    cases = [("40 kB", "20 ms", 0), ("100 kB", "50 ms", 1)]
    text = scenario(
        cases, host=", host: {tcp: {initial-window: 10, slow-start-after-idle: true}}", period="6 s", duration="13 s"
    )
    least, flows = quickest_ms(tmp_path, text)
    for index, (case, delay_ms) in enumerate(zip(cases, (20, 50), strict=True)):
        flow = flows[f"f{index}"]
        bound = flow["end_to_end_us"]["bound"]
        assert bound is not None, (case, flow["reason"])
        # One round at least is seen: three times the way in place of once.
        assert 3 * delay_ms < least[f"f{index}"] <= bound / 1e3 + HOSTS_MS, case
        window = flow["segments"][0]["window"]
        assert window["segments"] == 10 and window["rounds"] >= 2
