"""Bounds of slots and token buckets, from a scenario on."""

from __future__ import annotations

from pathlib import Path

from timebound.engine.predict import predict
from timebound.scenario import load
from timebound.stacks import build_plan

_SCENARIO = """
name: radio
network:
  defaults: {link: {rate: 1 Mbit/s, delay: 3 us}}
  nodes:
    r[1-2]: {kind: host, mtu: 576}
    radio:
      kind: segment
      tdma:
        cycle: 24 ms
        slots: {r1: [{at: 0 ms, length: 6 ms}, {at: 12 ms, length: 6 ms}], r2: {at: 6 ms, length: 6 ms}}
  links: [[r[1-2], radio]]
flows:
  - {name: position, from: r1, to: r2, size: 200 B, period: 200 ms, priority: 5}
  - {name: report, from: r2, to: r1, size: 500 B, token-bucket: {rate: 50 kbit/s, burst: 2 kB}, priority: 3}
stack: udp
"""


def test_slots_and_a_burst_are_bounded_from_the_actual_release(tmp_path: Path) -> None:
    file = tmp_path / "radio.yaml"
    file.write_text(_SCENARIO, encoding="utf-8")
    found = predict(build_plan(load(file)))
    # Undeclared frames for a whole slot, then 266 B (2.128 ms) a nanosecond too late for the slot: 6 ms to the next, two links.
    position = found.outcomes["position/direct", "r2"]
    assert position.actual_ns == 6_000_000 + 2_127_999 + 6_000_000 + 2_128_000 + 2 * 3_000
    report = found.outcomes["report/direct", "r1"]
    # 566 B take 4.528 ms, so that each of the three waits for a slot of its own.
    assert (
        report.actual_ns == report.nominal_ns == 6_000_000 + 4_527_999 + 18_000_000 + 2 * 24_000_000 + 4_528_000 + 6_000
    )
