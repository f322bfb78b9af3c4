"""What the certificate says beside the verdict: its course, its comparison with the flows, its one line."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from timebound.engine.certificate import POINTS, compared, course, one_line


def windows(count: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "start_ns": [index * 100_000_000 - 1_000_000_000 for index in range(count)],
            "frames": [0 if index == 3 else 10 for index in range(count)],
            "lateness_p50_ns": [10_000] * count,
            "lateness_p99_ns": [20_000 + index for index in range(count)],
            "lateness_max_ns": [30_000] * count,
            "overrun_ns": [60_000] * count,
        }
    )


def test_the_course_is_in_run_time_and_has_gaps_where_no_frame_left() -> None:
    found = course(windows(5), 1_000_000_000)
    assert found is not None
    assert found["time_s"] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert found["p99_us"] == [20.0, 20.001, 20.002, None, 20.004]
    assert found["overrun_us"] == [60.0] * 5
    assert course(None, 0) is None and course(windows(0), 0) is None


def test_a_long_course_is_folded_to_the_worst_of_its_windows() -> None:
    found = course(windows(10 * POINTS), 0)
    assert found is not None
    assert len(found["time_s"]) == POINTS
    assert found["p99_us"][-1] == 20.0 + (10 * POINTS - 1) / 1000
    assert found["p99_us"][0] == 20.009


def flow(name: str, deadline: float | None, application: float | None, network: float | None) -> dict[str, Any]:
    return {
        "flow": name,
        "receiver": "h2",
        "deadline_us": deadline,
        "application_us": None if application is None else {"max": application},
        "latency_us": None if network is None else {"p50": network},
    }


def test_the_error_is_compared_with_the_smallest_slack_else_with_the_smallest_latency() -> None:
    flows = [flow("a", 1000.0, 900.0, 10.0), flow("b", 5000.0, 100.0, 5.0), flow("late", 100.0, 300.0, 4.0)]
    found = compared(flows, 20.0)
    assert found is not None
    assert (found["with"], found["flow"], found["value_us"], found["share"]) == ("deadline slack", "a", 100.0, 0.2)
    found = compared([flow("a", None, 10.0, 50.0), flow("b", None, None, None)], 20.0)
    assert found is not None
    assert (found["with"], found["value_us"], found["share"]) == ("median network latency", 50.0, 0.4)
    assert compared([flow("b", None, None, None)], 20.0) is None


def test_the_certificate_in_one_line() -> None:
    precision: dict[str, Any] = {
        "verdict": "good",
        "frames": 100,
        "lateness_us": {"p50": 12.0, "p99": 41.5, "p999": 50.0, "max": 1200.0},
        "overruns": {"longest_us": 640.0},
        "ring_lost": 3,
        "steal": 0.02,
        "compared": {"share": 0.004, "with": "deadline slack", "flow": "a"},
    }
    assert one_line(precision) == (
        "fidelity: good: 100 frames late by p50 12 us, p99 42 us, max 1.2 ms; longest overrun 640 us; 3 lost in the ring; "
        "2.0 % of the CPUs stolen; p99 is 0.4 % of the smallest deadline slack (a)"
    )
    assert one_line({"verdict": "not-run", "reasons": []}) is None


@pytest.mark.parametrize("share", ["120 %", "-1 %", "3"])
def test_a_share_that_is_none_is_refused_with_its_place(share: str, tmp_path: Any) -> None:
    from timebound.scenario import load
    from timebound.scenario.problems import ScenarioError

    file = tmp_path / "s.yaml"
    file.write_text(
        "name: x\nnetwork: {nodes: {h1: host, h2: host}, links: [[h1, h2]]}\nstack: udp\n"
        "run:\n  precision: {late-share: " + share + "}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load(str(file))
    problem = caught.value.problems[0]
    assert (problem.line, problem.path) == (5, "run.precision.late-share")


def test_a_machine_too_busy_to_begin_ends_with_the_code_of_a_disturbed_run() -> None:
    from timebound.engine.emulate import Emulation
    from timebound.engine.runs import exit_code

    summary = {"verdict": "failed"}
    assert exit_code(summary, Emulation(status=4, failure="the machine was too busy for the pre-flight check")) == 4
    assert exit_code(summary, Emulation(status=3, failure="the pre-flight check failed")) == 3
    assert exit_code(summary, Emulation(status=3, failure="a program died", measuring=True)) == 1
    assert exit_code({"verdict": "disturbed"}, Emulation(status=4, measuring=True)) == 4
