"""The Python API as the README and the tutorial show it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import timebound
from timebound.engine.doctor import can_emulate

SHORT = {"run.duration": "1 s", "run.warm-up": "200 ms", "run.simulate.search": "20"}


def test_predict_gives_one_row_per_flow_and_receiver() -> None:
    frame = timebound.load("hello").predict()
    assert frame.height == 6
    assert frame["bound_us"].is_not_null().all() and (frame["bound_us"] < frame["deadline_us"]).all()
    assert frame["observed_max_us"].is_null().all()


def test_simulate_stays_below_the_bound() -> None:
    frame = timebound.load("hello", SHORT).simulate()
    assert (frame["simulated_max_us"] <= frame["bound_us"]).all()


def test_errors_carry_their_places() -> None:
    with pytest.raises(timebound.ScenarioError) as caught:
        timebound.load("hello", {"flows.alarm.period": "10"})
    assert "unit" in caught.value.render()


@pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")
def test_a_run_gives_its_messages_and_its_report(tmp_path: Path) -> None:
    run = timebound.load("hello", SHORT).run(tmp_path / "run")
    assert run.exit_code in (0, 1, 4) and run.report.exists()
    assert run.summary["violations"] == []
    assert set(run.messages["flow"].unique()) == set(run.flows["flow"])
    assert run.messages.filter(pl.col("outcome") == "lost").is_empty()
