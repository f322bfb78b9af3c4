"""Whole sweeps from the command line: results by content, kills at any moment, shards, executors, exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from sweep_helpers import SMALL, alive, command, descendants, end, results, scenario, swept, tb

from timebound.engine.doctor import can_emulate
from timebound.engine.sweep.executors import interrupts_later

PERIODS = ("--vary", "flows.alpha.period=10 ms, 20 ms", "--vary", "run.seed=1..3")


def test_points_are_computed_once_and_compared(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    listed = tb("sweep", file, *PERIODS, "--verb", "simulate", "-o", folder, "--dry-run", "--json")
    plan = json.loads(listed.stdout)
    assert listed.returncode == 0 and plan["to_compute"] == 6 and not folder.exists()
    assert len({point["key"] for point in plan["points"]}) == 6

    done = tb("sweep", file, *PERIODS, "--verb", "simulate", "-o", folder, "-q")
    assert done.returncode == 0, done.stderr
    assert "6 points computed, 0 were there" in done.stderr
    content = swept(folder)
    assert [point["key"] for point in content["points"]] == [point["key"] for point in plan["points"]]
    assert content["counts"] == {"done": 6, "failed": 0, "missing": 0} and content["exit_code"] == 0
    for point in content["points"]:
        summary = json.loads((folder / point["folder"] / "summary.json").read_text())
        worst = max(flow["simulated_max_us"] for flow in summary["flows"])
        assert point["metrics"]["simulated_max_us"] == worst
        assert point["metrics"]["bound_us"] == max(flow["bound_us"]["bound"] for flow in summary["flows"]) >= worst
        assert summary["scenario"]["seed"] == int(point["settings"]["run.seed"])
    table = pl.read_parquet(folder / "sweep.parquet")
    assert table.height == 12 and table["flows.alpha.period (number)"].unique().sort().to_list() == [1e7, 2e7]
    page = (folder / "report.html").read_text()
    assert page.count("<svg") >= 4 and "src=" not in page.replace("data-src=", "")

    # Once more with one more value: only what is new is computed.
    more = ("--vary", "flows.alpha.period=10 ms, 20 ms, 40 ms", "--vary", "run.seed=1..3")
    again = tb("sweep", file, *more, "--verb", "simulate", "-o", folder, "-q", "--json")
    found = json.loads(again.stdout)
    assert (found["computed"], found["reused"], found["counts"]["done"]) == (3, 6, 9)


def test_a_result_that_is_not_what_was_written_is_computed_again(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    arguments = ("sweep", file, "--vary", "run.seed=1..4", "--verb", "predict", "-o", folder, "-q", "--json")
    assert json.loads(tb(*arguments).stdout)["computed"] == 4
    first, second, third, fourth = results(folder)
    before = (first / "summary.json").read_text()
    (first / "summary.json").write_text(before[:-20])
    (second / "point.json").unlink()
    third_point = json.loads((third / "point.json").read_text())
    (third / "point.json").write_text(json.dumps({**third_point, "key": "0" * 40}))
    (fourth / "plan.json").unlink()
    assert json.loads(tb(*arguments).stdout)["computed"] == 4
    assert (first / "summary.json").read_text() == before
    assert json.loads(tb(*arguments).stdout)["reused"] == 4
    assert json.loads(tb(*arguments, "--force").stdout)["computed"] == 4
    assert len(results(folder)) == 4 and not [p for p in (folder / "results").iterdir() if p.name.startswith(".")]


def test_the_same_content_has_the_same_key_whatever_it_was_called(tmp_path: Path) -> None:
    def keys(file: Path, *arguments: str) -> list[str]:
        done = tb("sweep", file, *arguments, "-o", tmp_path / "x", "--dry-run", "--json", "-q")
        return [point["key"] for point in json.loads(done.stdout)["points"]]

    file = scenario(tmp_path)
    moved = tmp_path / "moved"
    moved.mkdir()
    other = scenario(moved, SMALL.replace("period: 10 ms", "period: 0.01 s"))
    plain = keys(file, "--vary", "run.seed=1..2", "--verb", "predict")
    assert keys(other, "--vary", "run.seed=1,2", "--verb", "predict") == plain
    assert not set(keys(file, "--vary", "run.seed=1..2", "--verb", "simulate")) & set(plain)
    assert keys(file, "--vary", "run.seed=1..2", "--verb", "predict", "--set", "flows.alpha.size=300 B")[0] != plain[0]


def test_every_error_of_every_point_is_told_before_anything_starts(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    arguments = ("--vary", "flows.alpha.period=10 ms, 0 s, fast", "--vary", "flows.gamma.size=1 B")
    done = tb("sweep", file, *arguments, "-o", folder, "--json", "-q")
    problems = json.loads(done.stdout)["problems"]
    assert done.returncode == 2 and not folder.exists()
    words = [problem["message"] for problem in problems]
    assert any("'gamma'" in word and "[point 0" in word and "and 2 more" in word for word in words), words
    assert any("[point 1: period=0 s" in word for word in words) and any(
        "[point 2: period=fast" in word for word in words
    )
    assert all(problem["hint"] for problem in problems)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("small.yaml",), "nothing varies"),
        (("small.yaml", "--vary", "run.seed=1..2", "--shard", "3/2"), "is no part"),
        (("small.yaml", "--vary", "run.seed=1..2", "--jobs", "0"), "too few"),
        (("small.yaml", "--vary", "run.seed=1..2", "-o", "new", "--resume"), "no sweep to resume"),
        (("small.yaml", "--vary", "run.seed=1..2", "-o", "other"), "holds other files"),
        (("small.yaml", "--vary", "run.seed=1..2", "--executor-option", "x"), "is no assignment"),
        (("small.yaml", "again.yaml", "--vary", "run.seed=1..2"), "one scenario"),
        (("--gather", "other"), "holds no sweep"),
        (("none.yaml", "--vary", "run.seed=1..2"), "none.yaml"),
    ],
)
def test_mistakes_are_told_in_words(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    scenario(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    done = subprocess.run(
        command("sweep", *arguments, "--verb", "predict"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and words in done.stderr and "hint" in done.stderr, done.stderr
    assert (tmp_path / "other" / "letter.txt").read_text() == "mine" and not (tmp_path / "new").exists()


def test_the_exit_code_is_the_worst_of_the_points(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    done = tb(
        "sweep", file, "--vary", "flows.alpha.deadline=9 ms, 1 us", "--verb", "predict", "-o", tmp_path / "s", "-q"
    )
    content = swept(tmp_path / "s")
    assert done.returncode == 1 == content["exit_code"]
    assert [point["verdict"] for point in content["points"]] == ["met", "missed"]
    assert content["points"][1]["metrics"]["margin_us"] < 0


def test_shards_together_are_the_whole(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    arguments = ("sweep", file, *PERIODS, "--verb", "predict", "-q")
    assert tb(*arguments, "-o", tmp_path / "whole").returncode == 0
    for part in (1, 2):
        done = tb(*arguments, "-o", tmp_path / f"part{part}", "--shard", f"{part}/2")
        assert (
            done.returncode == 0
            and "3 points computed" in done.stderr
            and not (tmp_path / f"part{part}" / "sweep.json").exists()
        )
    early = tb("sweep", "--gather", tmp_path / "part1", "-o", tmp_path / "early", "-q")
    assert early.returncode == 3 and "3 points have no result" in early.stderr
    joined = tb("sweep", "--gather", tmp_path / "part1", tmp_path / "part2", "-o", tmp_path / "joined", "-q")
    assert joined.returncode == 0, joined.stderr

    def figures(folder: Path) -> list[object]:
        return [{k: v for k, v in point.items() if k != "elapsed_s"} for point in swept(folder)["points"]]

    assert figures(tmp_path / "joined") == figures(tmp_path / "whole")
    other = tb(
        "sweep", file, "--vary", "run.seed=1..2", "--verb", "predict", "-q", "-o", tmp_path / "other", "--shard", "1/1"
    )
    assert other.returncode == 0
    refused = tb("sweep", "--gather", tmp_path / "part1", tmp_path / "other", "-q")
    assert refused.returncode == 2 and "another sweep" in refused.stderr


LONG = (
    "--vary",
    "run.seed=1..12",
    "--verb",
    "simulate",
    "--set",
    "run.simulate.duration=2 s",
    "--set",
    "run.simulate.search=3000",
)


def begun(process: subprocess.Popen[str], folder: Path) -> None:
    """Waits until a result is there and others are being computed."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "results").is_dir() and results(folder):
            return
        time.sleep(0.02)
    pytest.fail(f"no point was finished in time: {process.communicate() if process.poll() is not None else ''}")


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    process = subprocess.Popen(
        command("sweep", file, *LONG, "-o", folder, "-q", "--jobs", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        begun(process, folder)
        workers = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        end(process)
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers and not [pid for pid in workers if alive(pid)], "workers outlived the sweep"
    there = len(results(folder))
    assert 0 < there < 12
    for left in (folder / "results").glob(".work-*"):  # what a kill leaves is old by the time of a real resumption
        os.utime(left, (time.time() - 3600, time.time() - 3600))
    done = tb("sweep", file, *LONG, "-o", folder, "-q", "--resume", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["counts"] == {"done": 12, "failed": 0, "missing": 0}
    assert found["reused"] == there and found["computed"] == 12 - there
    assert not list((folder / "results").glob(".work-*"))


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5])
def test_interrupted_while_its_workers_start_none_of_them_complains(tmp_path: Path, after_s: float) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    process = subprocess.Popen(
        command("sweep", file, *LONG, "-o", folder, "-q", "--jobs", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        # The first one is Python's resource tracker.
        while len(descendants(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    finally:
        end(process)
    assert process.returncode == 130 and "Traceback" not in errors, errors


@pytest.mark.parametrize("taker", ["another thread", "this thread"])
def test_an_interrupt_waits_for_the_start_of_workers_whichever_thread_takes_it(taker: str) -> None:
    """A process that is told to end between its start and what it is to do would complain."""
    over, steps = threading.Event(), []
    other = threading.Thread(target=over.wait)
    if taker == "another thread":
        other.start()  # with interrupts let through
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(20):
                time.sleep(0.005)  # a handler would run here
                steps.append("in peace")
        assert steps == ["in peace"] * 20
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        over.set()


def test_interrupted_it_keeps_what_is_done_and_reports_it(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    process = subprocess.Popen(
        command("sweep", file, *LONG, "-o", folder, "-q", "--jobs", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        begun(process, folder)
        workers = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    finally:
        end(process)
    assert process.returncode == 130 and "interrupted" in errors and "Traceback" not in errors, errors
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:  # Python's own resource tracker ends after us
        time.sleep(0.05)
    assert not [pid for pid in workers if alive(pid)]
    content = swept(folder)
    assert content["counts"]["done"] >= 1 and content["counts"]["missing"] >= 1 and content["counts"]["failed"] == 0
    assert "points have no result yet" in (folder / "report.html").read_text()


def test_a_worker_that_is_killed_costs_no_other_point(tmp_path: Path) -> None:
    file, folder = scenario(tmp_path), tmp_path / "sweep"
    process = subprocess.Popen(
        command("sweep", file, *LONG, "-o", folder, "-q", "--jobs", 2, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        begun(process, folder)
        workers = [
            pid
            for pid in descendants(process.pid)
            if "spawn_main" in (Path("/proc") / str(pid) / "cmdline").read_text()
        ]
        assert workers
        os.kill(workers[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=170)
    finally:
        end(process)
    found = json.loads(output)
    assert process.returncode == 0 and found["counts"] == {"done": 12, "failed": 0, "missing": 0}, errors


@pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")
def test_emulations_are_swept_and_a_point_that_fails_is_named(tmp_path: Path) -> None:
    text = SMALL.replace(
        "b: host",
        "b: {kind: host, run: [{command: [sh, judge.sh, '${fate}'], name: judge, essential: true, start: 100 ms}]}",
    )
    text = text.replace("name: small", "name: small\nparameters: {fate: 0}")
    (tmp_path / "judge.sh").write_text('[ "$1" = 0 ] || exit 7\nsleep 60\n')
    text = text.replace("start: 100 ms}", f"start: 100 ms, folder: {tmp_path}}}")
    file, folder = scenario(tmp_path, text), tmp_path / "sweep"
    arguments = ("sweep", file, "--vary", "fate=0,1", "--verb", "emulate", "-o", folder, "-q")
    done = tb(*arguments)
    content = swept(folder)
    good, bad = content["points"]
    assert done.returncode in (1, 4), done.stderr
    assert good["status"] == "done" and good["metrics"]["observed_max_us"] > 0 and good["metrics"]["lost_share"] == 0
    assert (folder / good["folder"] / "report.html").is_file()
    assert bad["status"] == "failed" and "judge" in bad["failure"]
    page = (folder / "report.html").read_text()
    assert 'id="failed"' in page and "judge" in page and "fate=1" in page
    # The file that a command names is part of the key; points that failed are tried again.
    assert json.loads(tb(*arguments, "--dry-run", "--json").stdout)["to_compute"] == 1
    (tmp_path / "judge.sh").write_text("sleep 60\n")
    assert json.loads(tb(*arguments, "--dry-run", "--json").stdout)["to_compute"] == 2


def _needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed (pip install 'timebound[cluster]')")


@_needs("distributed")
def test_dask_computes_the_same(tmp_path: Path) -> None:
    """On a LocalCluster: a scheduler and two worker processes, over TCP as between machines."""
    file = scenario(tmp_path)
    arguments = ("sweep", file, *PERIODS, "--verb", "predict", "-q", "--json")
    here = json.loads(tb(*arguments, "-o", tmp_path / "here").stdout)
    done = tb(*arguments, "-o", tmp_path / "dask", "--executor", "dask", "--jobs", 2)
    there = json.loads(done.stdout)
    assert done.returncode == 0 and there["computed"] == 6, done.stderr
    assert [p["metrics"] for p in there["points"]] == [p["metrics"] for p in here["points"]]


@_needs("submitit")
def test_submitit_computes_the_same_by_its_local_executor(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    arguments = ("sweep", file, "--vary", "run.seed=1..2", "--verb", "predict", "-q", "--json")
    here = json.loads(tb(*arguments, "-o", tmp_path / "here").stdout)
    slurm = ("--executor", "slurm", "--executor-option", "cluster=local")
    done = tb(*arguments, "-o", tmp_path / "slurm", *slurm)
    there = json.loads(done.stdout)
    assert done.returncode == 0 and there["computed"] == 2, done.stderr
    assert [p["metrics"] for p in there["points"]] == [p["metrics"] for p in here["points"]]
    assert list((tmp_path / "slurm" / "slurm").glob("*/*_log.out"))


@_needs("submitit")
@pytest.mark.skipif(shutil.which("srun") is not None, reason="this machine has Slurm")
def test_slurm_is_asked_for_what_was_said_and_missed_where_it_is_not(tmp_path: Path) -> None:
    file = scenario(tmp_path)
    slurm = ["--executor", "slurm"]
    for option in ("partition=short", "time=30", "mem=4GB", "constraint=avx2", "cpus-per-task=2"):
        slurm += ["--executor-option", option]
    arguments = ("sweep", file, "--vary", "run.seed=1..2", "--verb", "predict", "-o", tmp_path / "s", *slurm)
    script = json.loads(tb(*arguments, "--dry-run", "--json").stdout)["sbatch"].splitlines()
    for line in (
        "partition=short",
        "time=30",
        "mem=4GB",
        "constraint=avx2",
        "cpus-per-task=2",
        "job-name=timebound-sweep",
    ):
        assert f"#SBATCH --{line}" in script
    done = tb(*arguments)
    assert done.returncode == 3 and "Slurm cannot be used" in done.stderr and "--shard" in done.stderr
