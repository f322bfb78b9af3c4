"""An emulation that broke off before it wrote anything down: nothing is measured, and every place says so."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from timebound.cli.app import execute
from timebound.engine import emulate, joining, runs
from timebound.engine.measured import arrived_by
from timebound.engine.progress import SILENT
from timebound.files import FolderError
from timebound.scenario import load

TEXT = """
name: beside
network:
  nodes: {h[1-3]: host, s1: switch}
  links: [[h[1-3], s1]]
flows:
  - {name: alarm, from: h1, to: h3, size: 64 B, period: 50 ms, deadline: 20 ms, priority: 6}
  - {name: logs, from: h2, to: h3, size: 200 B, period: 50 ms, priority: 0}
stack: udp
run: {duration: 1 s, simulate: {duration: 100 ms, search: 0}}
"""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that is interrupted twice."""

    @contextmanager
    def process(plan_file: Path, log: int) -> Iterator[Any]:
        yield SimpleNamespace(stdin=SimpleNamespace(write=len, flush=int), kill=int, wait=lambda: -9)

    def events(process: Any) -> Iterator[dict[str, Any]]:
        if left:
            left.pop()
            raise KeyboardInterrupt
        yield {"event": "failed", "message": "told to stop"}

    left = [1, 2]
    monkeypatch.setattr(emulate, "sandbox_process", process)
    monkeypatch.setattr(emulate, "event_lines", events)


@pytest.mark.parametrize("verb", ["emulate", "run"])
@pytest.mark.usefixtures("killed")
def test_a_run_that_was_interrupted_twice_measured_nothing(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "beside.yaml"
    file.write_text(TEXT)
    folder = tmp_path / "run"
    assert execute([verb, str(file), "--quiet", "-o", str(folder)]) == 130
    said = capsys.readouterr().err
    assert f"error: the emulation ended early: {emulate.ENDED_AT_ONCE}\nNothing of it was measured." in said
    assert "kept in" not in said
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["verdict"], summary["failure"]) == ("failed", emulate.ENDED_AT_ONCE)
    assert [flow["verdict"] for flow in summary["flows"]] == ["unmeasured"] * 2
    page = (folder / "report.html").read_text()
    assert "was measured until then" not in page and "nothing of it was measured" in page
    assert f"The emulation did not reach its end: {emulate.ENDED_AT_ONCE}. Nothing of it was measured." in page


def test_a_prediction_measures_nothing_and_keeps_its_verdict(tmp_path: Path) -> None:
    file = tmp_path / "beside.yaml"
    file.write_text(TEXT)
    found = runs.figures_only(load(file), {"predict"}, SILENT)
    assert [flow["verdict"] for flow in found["flows"]] == ["met", "met"]


def test_what_is_under_way_when_a_run_is_stopped_is_not_lost() -> None:
    second = 1_000_000_000
    messages = pl.DataFrame(
        {"released_ns": [0, 3 * second, 4 * second - 1, 4 * second], "outcome": ["on-time", "lost", "lost", "on-time"]}
    )
    live = {"measured_ns": 5 * second, "planned_ns": 20 * second, "failure": "stopped before its time"}
    assert arrived_by(live, second, messages)["outcome"].to_list() == ["on-time", "lost", "on-time"]
    # A whole run has waited for them.
    assert arrived_by({**live, "failure": None}, second, messages).equals(messages)


def test_a_run_that_was_killed_while_it_measured_says_that_records_are_all_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "beside.yaml", tmp_path / "run"
    file.write_text(TEXT)
    assert execute(["predict", str(file), "--quiet", "-o", str(folder)]) == 0
    (folder / "summary.json").unlink()
    (folder / "frames.bin").write_bytes(bytes(48))
    capsys.readouterr()
    assert execute(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{folder} has records of a run that was broken off before they were joined (frames.bin)" in said
    assert "no live.json, which says how the emulation ended: they cannot be joined" in said


def test_a_first_interrupt_lets_results_be_finished_and_a_second_one_says_what_is_left(tmp_path: Path) -> None:
    with joining.kept(tmp_path, SILENT) as interrupts:
        signal.raise_signal(signal.SIGINT)
    assert interrupts.count == 1
    for name in ("live.json", "scenario.yaml", "endpoints.bin"):
        (tmp_path / name).touch()
    with (
        pytest.raises(FolderError, match=r"as it was recorded \(endpoints.bin\)") as caught,
        joining.kept(tmp_path, SILENT),
    ):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert caught.value.code == 130 and caught.value.hint == f"timebound report {tmp_path} joins the records"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_there_are_no_records_says_what_of_the_results_is_there(tmp_path: Path) -> None:
    def said() -> str:
        with pytest.raises(FolderError) as caught, joining.kept(tmp_path, SILENT):
            raise KeyboardInterrupt
        return f"{caught.value} = {caught.value.hint}"

    assert said() == f"interrupted: the results were not written to {tmp_path} = run it again"
    (tmp_path / "summary.json").touch()
    assert "but for their report" in said() and said().endswith(f"timebound report {tmp_path} writes it")


def test_a_full_disk_while_records_are_joined_has_a_file_and_a_way_on(tmp_path: Path) -> None:
    for name in ("live.json", "scenario.yaml", "frames.bin"):
        (tmp_path / name).touch()
    with pytest.raises(FolderError) as caught, joining.kept(tmp_path, SILENT):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "frames.parquet"))
    assert str(caught.value).startswith(f"{tmp_path / 'frames.parquet'} cannot be written: No space left on device; ")
    assert caught.value.code == 3 and f"timebound report {tmp_path}" in caught.value.hint
