"""The list of a run folder's files is whole: after a run, and in the middle of one that is killed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.test_emulation import run, scenario, timebound
from timebound.engine.doctor import can_emulate

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
