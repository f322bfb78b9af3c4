"""One network on two machines: two namespaces stand for the computers, a veth pair for the cable between them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.wires import Computer, yaml_ping

TEXT = """name: halves
network:
  machines:
    a: {nodes: ["h[1-2]", s1], address: 192.0.2.1}
    b: {nodes: [h3, h4, s2], address: 192.0.2.2}
  defaults: {link: {rate: 100 Mbit/s}, switch: {delay: 1..2 us}}
  nodes:
    h1: {kind: host, run: [{name: talk, command: PING, start: 200 ms}]}
    h[2-4]: host
    s[1-2]: switch
  links: [["h[1-2]", s1], [h3, s2], [h4, s2], {between: [s1, s2], rate: 10 Mbit/s, delay: DELAY, jitter: 1 ms}]
flows:
  - {name: there, from: h1, to: h3, topic: a, size: 100 B, period: 10 ms, jitter: 5 ms, deadline: 100 ms}
  - {name: back, from: h4, to: h2, topic: b, size: 1400 B, period: 20 ms, jitter: 5 ms, deadline: 100 ms}
  - {name: here, from: h1, to: h2, topic: c, size: 100 B, period: 10 ms, jitter: 5 ms, deadline: 100 ms}
stack: STACK
run: {duration: 4 s, warm-up: 500 ms, precision: {lateness-p99: 30 ms}}
"""
EMULATE = (sys.executable, "-c", "from timebound.cli import main; main()", "emulate")


@pytest.fixture
def computers() -> Iterator[tuple[Computer, Computer]]:
    with Computer() as first, Computer() as second:
        first.cable("wire", second, "wire")
        first.run("ip", "address", "add", "192.0.2.1/24", "dev", "wire")
        second.run("ip", "address", "add", "192.0.2.2/24", "dev", "wire")
        yield first, second


def scenario(folder: Path, delay: str = "40 ms", stack: str = "{udp: {}}", deadline: str = "100 ms") -> Path:
    file = folder / "halves.yaml"
    file.write_text(
        TEXT.replace("PING", yaml_ping("h3", 20))
        .replace("DELAY", delay)
        .replace("STACK", stack)
        .replace("deadline: 100 ms", f"deadline: {deadline}")
    )
    token = folder / "token"
    token.write_text("a secret of sufficient length\n")
    token.chmod(0o600)
    return file


def both(computers: tuple[Computer, Computer], file: Path, token_b: Path | None = None) -> list[tuple[int, str]]:
    """Both machines at once; their exit codes and words."""
    started = [
        computer.start(
            *EMULATE, str(file), "--machine", name, "--token", str(token), "--wait", "20", "--quiet",
            "--output", str(file.parent / name), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name, computer, token in zip(
            "ab", computers, (file.parent / "token", token_b or file.parent / "token"), strict=True
        )
    ]  # fmt: skip
    ended = []
    try:
        for process in started:
            _, errors = process.communicate(timeout=120)
            ended.append((process.returncode, errors))
    finally:
        for process in started:
            process.kill()
    return ended


def read(file: Path, machine: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((file.parent / machine / name).read_text())
    return found


def check(file: Path, ended: list[tuple[int, str]]) -> None:
    assert all(code in (0, 4) for code, _ in ended), "\n".join(f"{code}: {words}" for code, words in ended)
    talk = (file.parent / "a" / "logs" / "talk.log").read_text()
    times = [float(found) for found in re.findall(r"time=([0-9.]+) ms", talk)]
    assert len(times) >= 15 and min(times) >= 80.0, talk
    for machine, flow in (("b", "there"), ("a", "back"), ("a", "here")):
        summary = read(file, machine, "summary.json")
        assert summary["violations"] == [] and summary["precision"]["early"] == 0
        (entry,) = [entry for entry in summary["flows"] if entry["flow"] == flow]
        for segment in entry["segments"]:
            if segment["worst_us"] is not None:
                assert segment["worst_us"] <= segment["bound_observed_us"], (flow, segment)
    pair, other = read(file, "a", "pair.json"), read(file, "b", "pair.json")
    assert pair["clock_offset_ns"] == -other["clock_offset_ns"]
    # Both clocks are one clock here, so what was found is the error of the comparison.
    assert abs(pair["clock_offset_ns"]) <= pair["clock_uncertainty_ns"]
    assert pair["one_way_ns"] > 0 and pair["exchanges"] == 64 and not pair["lost"]
    for found, sender in ((pair, other), (other, pair)):
        tunnel = found["tunnel"]
        assert tunnel["received"] > 100 and tunnel["foreign"] == 0
        assert tunnel["received"] <= sender["tunnel"]["sent"]
        assert 0 < tunnel["underlay_p50_ns"] < 40_000_000


def test_two_machines_emulate_one_network(tmp_path: Path, computers: tuple[Computer, Computer]) -> None:
    file = scenario(tmp_path)
    check(file, both(computers, file))
    summary = read(file, "b", "summary.json")
    (entry,) = [entry for entry in summary["flows"] if entry["flow"] == "there"]
    # The virtual times crossed with the frames: the latency is that of the model, whatever the way between took.
    late = read(file, "b", "pair.json")["tunnel"]["late"]
    assert entry["latency_us"]["min"] >= 40_000
    if late == 0:
        assert entry["latency_us"]["max"] <= entry["bound_us"]["observed_arrivals"]
    assert entry["verdict"] == "met"


def test_mqtt_across_the_cut(tmp_path: Path, computers: tuple[Computer, Computer]) -> None:
    # From h1 to h2 by way of the broker the cut is crossed twice: 100 ms would leave clients and broker 18 ms for all that a busy machine does to them.
    file = scenario(tmp_path, stack="{mqtt: {broker: h3}}", deadline="200 ms")
    check(file, both(computers, file))


def test_a_wrong_token_is_refused_on_both_sides(tmp_path: Path, computers: tuple[Computer, Computer]) -> None:
    file = scenario(tmp_path)
    wrong = tmp_path / "wrong"
    wrong.write_text("another secret of that length\n")
    wrong.chmod(0o600)
    ended = both(computers, file, wrong)
    assert [code for code, _ in ended] == [3, 3] and all("has another token" in words for _, words in ended), ended


def test_a_cut_link_shorter_than_the_way_between_is_refused(
    tmp_path: Path, computers: tuple[Computer, Computer]
) -> None:
    file = scenario(tmp_path, delay="1 us")
    ended = both(computers, file)
    assert [code for code, _ in ended] == [3, 3]
    assert all("the way between the machines takes at least" in words for _, words in ended), ended


def test_alone_it_says_that_the_other_did_not_come(tmp_path: Path, computers: tuple[Computer, Computer]) -> None:
    file = scenario(tmp_path)
    command = [*EMULATE, str(file), "--token", str(tmp_path / "token"), "--wait", "1", "--quiet"]
    for name in ("a", "b"):
        done = subprocess.run(
            computers[0 if name == "a" else 1].command(*command, "--machine", name, "--output", str(tmp_path / name)),
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 3 and "did not come within 1 s" in done.stderr, done.stderr
    (tmp_path / "token").chmod(0o644)
    done = subprocess.run(
        computers[0].command(*command, "--machine", "a", "--output", str(tmp_path / "a")),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3 and "others may read the token" in done.stderr
