"""The list of a run folder's files is whole: after a run, and in the middle of one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_emulation import run, scenario, timebound
from timebound.cli.app import execute
from timebound.engine import joining, runs
from timebound.engine.doctor import can_emulate
from timebound.engine.measured import Measured, measure

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")


def unlisted(folder: Path) -> set[str]:
    """Files in a run folder that its manifest does not name."""
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    whole = {name.removesuffix("/*") for name in listed if name.endswith("/*")}
    return {
        name
        for name in found - {*listed, "manifest.json", ".lock"}
        if name.rpartition("/")[0] not in whole and not name.endswith(".part")
    }


@pytest.mark.parametrize("stack", ["{mqtt: {broker: b}}", "{mqtt: {broker: b, clients: per-node}}"])
def test_every_file_that_a_run_leaves_is_listed_killed_or_not(tmp_path: Path, stack: str) -> None:
    file, folder = scenario(tmp_path, stack), tmp_path / "run"
    line = timebound("emulate", str(file), "-o", str(folder), "--set", "run.duration=60 s", "-q")
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(1200):
            if (folder / "captures" / "a-s1.pcapng").exists() and (folder / "frames.bin").exists():
                break
            time.sleep(0.05)
        process.kill()
    assert (folder / "frames.bin").exists() and (folder / "logs" / "sandbox.log").exists()
    assert unlisted(folder) == set()
    (folder / "logs" / "mine.log").write_text("mine")
    (folder / "captures" / "mine.pcapng").write_text("mine")
    run(file, folder, verb="emulate")
    assert unlisted(folder) == {"logs/mine.log", "captures/mine.pcapng"}
    assert not (folder / "frames.bin").exists() and (folder / "messages.parquet").exists()
    run(file, folder, verb="emulate")
    assert (folder / "logs" / "mine.log").read_text() == "mine"


def test_a_link_in_the_place_of_captures_was_written_through(tmp_path: Path) -> None:
    file, folder, docs = scenario(tmp_path), tmp_path / "run", tmp_path / "docs"
    docs.mkdir()
    folder.mkdir()
    (docs / "a-s1.pcapng").write_text("precious")
    done = subprocess.run(timebound("predict", str(file), "-o", str(folder), "-q"), capture_output=True, timeout=120)
    assert (folder / "manifest.json").exists(), done.stderr
    for name in ("captures", "endpoints", "logs", "frames.bin", "live.json", ".room"):
        (folder / name).symlink_to(docs if "." not in name[1:] else docs / "a-s1.pcapng")
        line = timebound("emulate", str(file), "-o", str(folder), "-q", "--force")
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and f"{folder / name} is a link" in done.stderr
        assert [path.name for path in docs.iterdir()] == ["a-s1.pcapng"]
        assert (docs / "a-s1.pcapng").read_text() == "precious"
        (folder / name).unlink()


@pytest.mark.parametrize("interrupts", [1, 2])
def test_what_was_measured_is_joined_after_an_interrupt_or_later(
    interrupts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: Any) -> Measured:
        for _ in range(interrupts):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return measure(*arguments)

    file, folder = scenario(tmp_path), tmp_path / "run"
    line = ["emulate", str(file), "-o", str(folder), "--set", "run.duration=2 s"]
    with monkeypatch.context() as patched:
        patched.setattr(runs, "measure", interrupted)
        code = execute(line)
    said = capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert joining.ONCE in " ".join(said.split())
    if interrupts == 2:
        assert code == 130 and f"hint: timebound report {folder} joins the records" in said
        assert "as it was recorded (frames.bin, endpoints.bin, nodes.csv, ports.csv, lateness.csv)" in said
        assert execute(["compare", str(folder), str(folder), "-o", str(tmp_path / "page.html")]) == 2
        said = capsys.readouterr().err
        assert "has records of a run that was broken off" in said and f"timebound report {folder} joins them" in said
        assert execute(["report", str(folder)]) == 0
    else:
        assert code == 130
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["verdict"] in ("met", "disturbed") and summary["flows"][0]["received"] > 0
    assert (folder / "messages.parquet").exists() and not (folder / "frames.bin").exists()
    assert json.loads((folder / "manifest.json").read_text()).get("joined_later", False) is (interrupts == 2)
    assert unlisted(folder) == set()
