"""The calibration of a host: what is kept, when it still holds, and where a scenario asks for more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timebound.engine import calibration
from timebound.engine.calibrate import shortest, slope
from timebound.engine.core import Network
from timebound.engine.runs import plan_of
from timebound.scenario import load


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of our own; where the file lies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "timebound" / "calibration.json"


def result() -> dict[str, Any]:
    mode = {
        "fifo": True,
        "frames_per_s": 20_000,
        "reached_limit": True,
        "ended_by": "disturbed",
        "cpu_us_per_frame": 5.0,
        "rates": [],
        "left_out": [],
        "shortest_delay_us": 500.0,
        "delays": [],
    }
    return {
        "schema": calibration.SCHEMA,
        "identity": calibration.identity(),
        "date": calibration.now(),
        "quick": False,
        "load": 0.1,
        "timers": {"clock_read_ns": 20, "normal_ns": {"p50": 50_000, "p99": 90_000}, "fifo_ns": None},
        "nodes": {
            "measured": [{"nodes": 10, "bring_up_s": 0.05, "memory_bytes": 1}],
            "bring_up_s_per_node": 0.002,
            "memory_bytes_per_node": 250_000,
            "bounds": {},
            "carried": 900,
            "extrapolated": True,
            "root": True,
        },
        "modes": {"root": mode, "rootless": {**mode, "frames_per_s": None, "shortest_delay_us": None}},
        "took_s": 50.0,
    }


def test_what_was_stored_is_loaded_on_the_same_host_only(cache: Path) -> None:
    assert calibration.load() is None
    stored = result()
    assert calibration.store(stored) == cache
    assert calibration.load() == stored
    for key, value in (("kernel", "0.1"), ("cpus", 999), ("host", "elsewhere")):
        calibration.store({**stored, "identity": {**stored["identity"], key: value}})
        assert calibration.load() is None, key
    calibration.store({**stored, "schema": 99})
    assert calibration.load() is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_no_calibration_and_no_error(cache: Path, data: st.DataObject) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    stored = result()
    broken = data.draw(st.sampled_from(["bytes", "cut", "key", "value"]))
    text = json.dumps(stored).encode()
    if broken == "bytes":
        text = data.draw(st.binary(max_size=200))
    elif broken == "cut":
        text = text[: data.draw(st.integers(0, len(text) - 1))]
    else:
        key = data.draw(st.sampled_from(["timers", "nodes", "modes", "date", "load", "quick"]))
        if broken == "key":
            del stored[key]
        else:
            stored[key] = data.draw(st.sampled_from([None, [], 3, "x", {"root": 1}, {"a": {}}]))
        text = json.dumps(stored).encode()
    cache.write_bytes(text)
    found = calibration.load()
    if found is not None:
        assert calibration.lines(found)


def test_a_relative_cache_folder_is_ignored_as_the_standard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert calibration.path() == Path.home() / ".cache" / "timebound" / "calibration.json"


def test_more_than_the_host_carries_is_said_with_both_figures() -> None:
    asked = {"frames_per_s": 30_000.0, "nodes": 1000, "latency_us": {"a to h2": 120.0, "b to h2": 900.0}}
    rate, delay, nodes = calibration.compare(asked, result(), "root")
    assert rate == (
        "the scenario declares 30000 frames/s; this host was measured to carry 20000 (root) within the limits of precision"
    )
    assert "1 of 2 paths take less than 500 us" in delay and delay.endswith("a to h2 takes 120 us")
    assert nodes == "the scenario has 1000 nodes; this host is estimated to carry 900"
    # Without figures for these rights only the nodes can be judged.
    assert calibration.compare(asked, result(), "rootless") == [nodes]
    less = {"frames_per_s": 100.0, "nodes": 4, "latency_us": {"a to h2": 900.0}}
    assert calibration.compare(less, result(), "root") == []


def test_a_scenario_is_compared_by_what_it_declares(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: x\nnetwork: {nodes: {h1: host, s1: switch, h2: host}, links: [{between: [h1, s1], rate: 100 Mbit/s, delay: 30 us}, "
        "{between: [s1, h2], rate: 100 Mbit/s, delay: 1 ms}]}\n"
        "flows: {a: {from: h1, to: h2, size: 100 B, period: 10 us, topic: a}}\nstack: udp\n"
    )
    plan = plan_of(load(str(file)))
    network = Network(plan, plan.declaration())
    asked = calibration.demands(plan, network)
    assert asked["nodes"] == 2 and asked["frames_per_s"] == 100_000
    (latency,) = asked["latency_us"].values()
    assert 1030 < latency < 1100
    assert calibration.warnings(plan, network) == []
    stored = result()
    stored["modes"]["rootless"]["frames_per_s"] = 20_000
    calibration.store(stored)
    (said,) = calibration.warnings(plan, network, rootless=True)
    assert said.startswith("the scenario declares 100000 frames/s")


def test_the_shortest_delay_is_kept_by_all_longer_ones_too() -> None:
    def entry(delay: int, late: float | None, frames: int = 10) -> dict[str, Any]:
        return {"delay_us": delay, "lateness_p99_us": late, "frames": frames}

    assert shortest([entry(100, 5.0), entry(200, 30.0), entry(500, 40.0), entry(1000, 50.0)]) == 500.0
    assert shortest([entry(100, 5.0), entry(1000, 5.0)]) == 100.0
    assert shortest([entry(100, 5.0), entry(1000, None, 0)]) is None


def test_a_slope_needs_two_points_and_a_rise() -> None:
    assert slope([(10, 1.0), (60, 1.5), (110, 3.0)]) == pytest.approx(0.02)
    assert slope([(10, 1.0)]) is None and slope([(10, 2.0), (20, 1.0)]) is None


def test_never_measured_says_how() -> None:
    (said,) = calibration.lines(None)
    assert "timebound doctor --calibrate" in said
    assert any("at least" not in line and "20000 frames/s on one core" in line for line in calibration.lines(result()))
