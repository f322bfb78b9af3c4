"""Run folders of which a file is damaged, or that could not be written whole: what is said of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from timebound.cli.app import execute
from timebound.engine import emulate, runs
from timebound.engine.write import write_parquet
from timebound.files import Place

TEXT = """
name: damaged
network:
  nodes: {a: host, b: host, s: switch}
  links: [[a, s], [b, s]]
flows: [{name: f, from: a, to: b, size: 64 B, period: 10 ms, deadline: 20 ms}]
stack: udp
run: {duration: 1 s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = tmp_path / "damaged.yaml"
    file.write_text(TEXT)
    assert execute(["predict", str(file), "--quiet", "-o", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("frames.parquet", b"PAR1 cut off", ": the emulator's lateness, and when it was late, are left out"),
        ("manifest.json", b'{"timebound": "1', "is not JSON: "),
        ("manifest.json", b"[]", "is not a JSON object: version, host, times and command of the run are left out"),
    ],
)
def test_what_a_damaged_file_leaves_out_is_said_with_its_name(
    name: str, content: bytes, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes(content)
    capsys.readouterr()
    assert execute(["report", str(folder)]) == 0
    told = capsys.readouterr().err
    assert f"warning: {folder / name}" in told and said in told and "summary.json is damaged" not in told
    page = (folder / "report.html").read_text()
    assert "What is left out of this page" in page and str(folder / name) in page
    compared = folder.parent / "compared.html"
    assert execute(["compare", str(folder), str(folder), "-o", str(compared)]) == 0
    assert f"warning: {folder / name}" in capsys.readouterr().err and f"A: {folder / name}" in compared.read_text()


def test_a_table_that_a_full_disk_cuts_off_is_an_error_with_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    def refused(_: Any) -> None:
        raise pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)")

    table: Any = SimpleNamespace(write_parquet=refused)
    place, full = Place(tmp_path), pytest.raises(OSError, match="No space left")
    with place, full as caught, place.writing("messages.parquet") as file:
        write_parquet(table, file)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "messages.parquet"))
    place = Place(tmp_path)
    with place, full as caught, place.writing("frames.bin"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "frames.bin")
    assert list(tmp_path.iterdir()) == []


SMALL = """
import os, sys
from pathlib import Path
import numpy, polars
from timebound.engine.write import _keep
place = Path(sys.argv[1])
table = polars.DataFrame({"a": numpy.random.default_rng(1).integers(0, 1 << 60, 300_000)})
try:
    _keep(table, place, "frames.parquet")
except OSError as error:
    print(error.errno, error.filename == str(place / "frames.parquet"), os.listdir(place))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_in_truth_says_the_same(tmp_path: Path) -> None:
    words = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"', "sh"]
    done = subprocess.run([*words, str(tmp_path), sys.executable, SMALL], capture_output=True, text=True, timeout=120)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no file system can be mounted here")
    assert done.stdout == "28 True []\n", done.stderr


@pytest.mark.parametrize(
    ("events", "status", "said"),
    [
        ([{"event": "failed", "exit_code": 1, "message": "the sandbox was killed by signal: 9"}], 1, "signal 9 (SIGKILL)"),
        ([], -11, "signal 11 (SIGSEGV)"),
        ([], -9, "signal 9 (SIGKILL)"),
    ],
)  # fmt: skip
def test_an_emulation_that_is_killed_is_no_missed_requirement(
    events: list[dict[str, Any]],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Process:
        def __enter__(self) -> Any:
            return SimpleNamespace(wait=lambda: status)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(emulate, "sandbox_process", lambda *_: Process())
    monkeypatch.setattr(emulate, "event_lines", lambda _: iter(events))
    file = tmp_path / "damaged.yaml"
    file.write_text(TEXT)
    assert execute(["emulate", str(file), "--quiet", "-o", str(tmp_path / "run")]) == runs.EXIT_HOST
    told = capsys.readouterr().err
    assert f"error: the emulation ended early: the emulation's process was ended by {said}\n  = hint: somebody" in told
    assert "Nothing of it was measured." in told
