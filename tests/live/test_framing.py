"""An emulated link transmits a frame with its framing, which the nodes' own frames do not bear."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl

from tests.live.test_emulation import pytestmark, timebound

__all__ = ["pytestmark"]

SCENARIO = """name: tagged
network:
  framing: vlan
  defaults: {link: {rate: 4 Mbit/s}}
  nodes: {a: host, b: host, s: switch}
  links: [[a, s], [s, b]]
flows:
  - {name: small, from: a, to: b, size: 8 B, period: 20 ms, deadline: 1 s, priority: 6}
  - {name: long, from: b, to: a, size: 1472 B, period: 60 ms, deadline: 1 s, priority: 6}
stack: udp
run: {duration: 600 ms, warm-up: 0 s, data-plane: {back-end: ring, back-pressure: true}, simulate: {duration: 100 ms, search: 0}}
"""
BYTE_NS = 2_000


def test_a_tagged_frame_takes_as_long_as_a_tagged_frame(tmp_path: Path) -> None:
    """88 bytes on the wire (least with its tag) and 1542, over two links of 4 Mbit/s: 352 us and 6.168 ms; without the tag 336 us and 6.152 ms.

    What the pre-flight check sends is reckoned in the same way: it compares its own times with the model's, or there is no run. The hosts'
    own shaping counts the tag as well, or it would bring more than the link takes.
    """
    file = tmp_path / "tagged.yaml"
    file.write_text(SCENARIO)
    command = timebound("emulate", str(file), "--output", str(tmp_path / "run"), "--quiet")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1, 4), done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "failure" not in summary, summary["failure"]
    frames = pl.read_parquet(tmp_path / "run" / "frames.parquet").with_columns(
        took=pl.col("delivered_ns") - pl.col("ingress_ns")
    )
    for flow, size in (("small", 88), ("long", 1_542)):
        mine = frames.filter(pl.col("stream") == f"{flow}/direct")
        assert len(mine) >= 10 and mine["wire_bytes"].unique().to_list() == [size]
        assert mine["took"].min() == 2 * size * BYTE_NS
        [found] = [each for each in summary["flows"] if each["flow"] == flow]
        assert found["lost"] == 0
        assert mine["took"].max() <= 1_000 * found["bound_us"]["observed_arrivals"]
