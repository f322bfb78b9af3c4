"""Emulated messages without room for a measurement header: each is found again, with the times of its own frames."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.live.test_emulation import pytestmark, timebound
from tests.tools import needs
from timebound.engine import records

__all__ = ["pytestmark"]

SIZES = (0, 1, 8, 23, 24)
MESSAGES = 80
"""Of each flow, at least; of the one whose number of one byte wraps three times as many."""

NETWORK = """name: sensors
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
  nodes: {a: host, a2: host, a3: host, b: host, b2: host, c: host, s: switch}
  links: [[a, s], [a2, s], [a3, s], [b, s], [b2, s], {between: [c, s]CONDITION}]
flows:
"""
RUN = "run: {duration: 700 ms, warm-up: 0 s, simulate: {duration: 100 ms, search: 0}}"


@dataclass
class Run:
    summary: dict[str, Any]
    messages: pl.DataFrame
    frames: pl.DataFrame

    @property
    def guesses(self) -> list[str]:
        return [note for note in self.summary["scenario"]["notes"] if "is a guess" in note]

    def of(self, flow: str) -> pl.DataFrame:
        return self.messages.filter(pl.col("flow") == flow).sort("sequence")


def emulate(folder: Path, stack: str, flows: list[str], condition: str = "", more: str = "") -> Run:
    file = folder / "small.yaml"
    lines = [f"  - {{deadline: 1 s, {flow}}}" for flow in flows]
    network = NETWORK.replace("CONDITION", condition)
    file.write_text("\n".join([network + "\n".join(lines), f"stack: {stack}", RUN, more, ""]))
    command = timebound("emulate", str(file), "--output", str(folder / "run"), "--quiet")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1, 4), done.stderr
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert "failure" not in summary, summary["failure"]
    messages = pl.read_parquet(folder / "run" / "messages.parquet")
    return Run(summary, messages, pl.read_parquet(folder / "run" / "frames.parquet").sort("ingress_ns"))


def of_every_size(qos: tuple[int, ...] = (), more: str = "") -> list[str]:
    """One flow per size, with more messages where a number of one byte wraps."""
    levels = [f", qos: {level}" for level in qos] or [""] * len(SIZES)
    return [
        f"name: f{size}, from: a, to: c, size: {size} B, period: {2.2 if size == 1 else 8} ms{level}{more}"
        for size, level in zip(SIZES, levels, strict=True)
    ]


def assert_whole(run: Run, flows: list[str]) -> None:
    """Every message is there once, with all its times, none before it was sent, and nothing of it is a guess."""
    assert run.guesses == []
    for flow in flows:
        rows = run.of(flow)
        least = 3 * MESSAGES if flow == "f1" else MESSAGES
        assert rows["sequence"].to_list() == list(range(len(rows))) and len(rows) >= least, flow
        assert rows["network_ns"].null_count() == 0 and "duplicate" not in rows["outcome"], flow
        assert rows["host_ns"].ge(0).all() and rows["network_ns"].gt(0).all() and rows["broker_ns"].ge(0).all(), flow


@pytest.mark.parametrize(
    ("stack", "qos", "more"),
    [
        ("broker: b, clients: per-node", (1, 2, 0, 1, 2), ""),
        pytest.param(
            "broker: {node: b, program: mosquitto}, clients: shared", (2, 1, 1, 0, 1), "", marks=needs("mosquitto")
        ),
        pytest.param(
            "broker: [{node: b, program: mosquitto}, {node: b2, program: mosquitto}]",
            (0, 1, 2, 2, 0),
            ", via: [b, b2]",
            marks=needs("mosquitto"),
        ),
    ],
    ids=["per-node-clients", "mosquitto", "bridges"],
)
def test_small_messages_over_mqtt_are_measured_at_every_level(
    tmp_path: Path, stack: str, qos: tuple[int, ...], more: str
) -> None:
    run = emulate(tmp_path, f"{{mqtt: {{{stack}}}}}", of_every_size(qos, more))
    assert_whole(run, [f"f{size}" for size in SIZES])


def test_small_messages_that_share_a_connection_are_told_apart_by_topic(tmp_path: Path) -> None:
    flows = [
        "name: none, from: a, to: c, topic: t, size: 0 B, period: 8 ms",
        "name: more, from: b2, to: c, topic: t, size: 0 B, period: 8 ms",
        "name: ones, from: a2, to: b2, topic: u, size: 1 B, period: 2.2 ms",
        "name: twos, from: a3, to: b2, topic: u, size: 1 B, period: 2.2 ms",
    ]
    run = emulate(tmp_path, "{mqtt: {broker: b, connections: per-node}}", flows)
    assert run.guesses == []
    for flow in ("none", "more", "ones", "twos"):
        rows = run.of(flow)
        assert rows["sequence"].to_list() == list(range(len(rows))) and len(rows) >= MESSAGES
        assert "duplicate" not in rows["outcome"] and rows["received_ns"].gt(rows["sent_ns"]).all(), flow


def test_small_datagrams_have_the_latencies_of_their_frames(tmp_path: Path) -> None:
    run = emulate(tmp_path, "udp", of_every_size())
    assert_whole(run, [f"f{size}" for size in SIZES])
    for size in SIZES:
        crossed = run.frames.filter(pl.col("stream") == f"f{size}/direct")
        latencies = (crossed["delivered_ns"] - crossed["ingress_ns"]).to_list()
        assert run.of(f"f{size}")["network_ns"].to_list() == latencies


def test_small_datagrams_are_told_apart_over_losses_and_copies(tmp_path: Path) -> None:
    run = emulate(tmp_path, "udp", of_every_size(), ", loss: 20 %, duplication: 30 %, jitter: 12 ms")
    for size in SIZES:
        rows, frames = run.of(f"f{size}"), run.frames.filter(pl.col("stream") == f"f{size}/direct")
        own = frames.filter(pl.col("flags") & records.COPY == 0)
        assert len(own) == len(rows), size
        # What the network lost is what nobody received, what it doubled came twice, and nothing else.
        came = Counter(frames.filter(pl.col("flags") & records.DROPPED == 0)["ingress_ns"])
        copies = [came[stamp] for stamp in own["ingress_ns"]]
        assert rows["received_ns"].is_not_null().to_list() == [count > 0 for count in copies], size
        assert rows["outcome"].eq("duplicate").to_list() == [count > 1 for count in copies], size
        assert rows["host_ns"].drop_nulls().ge(0).all(), size
    assert run.guesses == []


def test_small_messages_that_tcp_sends_again_are_told_apart(tmp_path: Path) -> None:
    run = emulate(tmp_path, "{mqtt: {broker: b}}", of_every_size((0, 1, 2, 0, 1)), ", loss: 5 %")
    assert not run.frames.filter(pl.col("flags") & records.RETRANSMISSION > 0).is_empty()
    for size in SIZES:
        rows = run.of(f"f{size}")
        # A subscriber has them all in order, once: none can have come before one that was sent before it.
        assert rows["sequence"].to_list() == list(range(len(rows)))
        there = rows.filter(pl.col("received_ns").is_not_null())
        assert there["received_ns"].diff().drop_nulls().ge(0).all() and "duplicate" not in there["outcome"], size
        assert there["received_ns"].gt(there["sent_ns"]).all(), size
    if all(run.of(f"f{size}")["received_ns"].null_count() == 0 for size in SIZES):
        assert run.guesses == []


def test_messages_that_cannot_be_told_apart_are_said_to_be_a_guess_and_not_met(tmp_path: Path) -> None:
    # While its node is stopped a broker drops what it has for a subscriber: of empty messages nobody knows which.
    stops = "at: {250 ms: {node c: stop}, 400 ms: {node c: start}}"
    run = emulate(tmp_path, "{mqtt: {broker: b}}", of_every_size((0,) * 5), more=stops)
    assert any("'f0' to 'c' have 0 B" in note for note in run.guesses), run.guesses
    assert not any(f"'f{size}'" in note for note in run.guesses for size in (8, 23, 24))
    verdicts = {flow["flow"]: flow["verdict"] for flow in run.summary["flows"]}
    assert "met" not in verdicts.values() and run.summary["verdict"] != "met"
    # Those with a number have it: what came before and after the pause is as much as of the flow with headers.
    lost = {size: run.of(f"f{size}")["received_ns"].null_count() for size in SIZES}
    assert all(lost.values())
