"""What `--output` may touch: the files that a run of ours wrote, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from timebound import files
from timebound.cli.app import execute
from timebound.engine import written
from timebound.files import former
from timebound.report import FIGURES

SCENARIO = """\
name: plant
network:
  nodes: {a: host, b: host, s: switch}
  links: [[a, s], [s, b]]
flows:
  - {name: speed, from: a, to: b, priority: 5, period: 10 ms, size: 100 B, deadline: 5 ms}
stack: {mqtt: {broker: b}}
run: {duration: 1 s, warm-up: 0 s, simulate: {search: 10}}
"""
WEB = ("package.json", "deploy.yaml", "customers.csv", "index.html", "logs/access.log", "figures/logo.svg", "app.conf")
FORMER: dict[str, Any] = {
    "timebound": "0.1.0",
    "python": "3.11.2",
    "kernel": "Linux 6.1",
    "host": {"machine": "x86_64", "cores": 2},
    "command": ["timebound", "predict", "plant.yaml", "-o", "run"],
    "scenario": "plant.yaml",
    "seed": 1,
    "parts": ["predict"],
    "started": "2026-11-20T09:30:00+00:00",
    "ended": "2026-11-20T09:30:44+00:00",
}


@pytest.fixture
def plant(tmp_path: Path) -> str:
    file = tmp_path / "plant.yaml"
    file.write_text(SCENARIO)
    return str(file)


@pytest.fixture
def run(plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "run"
    assert execute(["predict", plant, "-o", str(folder), "-q"]) == 0
    capsys.readouterr()
    return folder


def content(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: bytes of files, targets of links, "folder"."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


def web(folder: Path, manifest: str) -> dict[str, bytes | str]:
    for name in WEB:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"precious {name}")
    (folder / "manifest.json").write_text(manifest)
    return content(folder)


@pytest.mark.parametrize(
    "manifest",
    [
        '{"name": "shop", "icons": [], "start_url": "/"}',
        "{}",
        "[]",
        "",
        '{"timebound": "0.1.0"}',
        '{"timebound": "0.1.0", "parts": ["predict"], "seed": 1}',
        json.dumps({**FORMER, "parts": ["deploy"]}),
        json.dumps(
            {"timebound": "0.1.0", "format": files.mark.FORMAT, "parts": ["predict"], "files": ["customers.csv"]}
        ),
        json.dumps(
            {
                "timebound": "0.1.0",
                "format": files.mark.FORMAT,
                "run": {"name": "plant", "source": None},
                "parts": ["predict"],
                "files": ["../plant.yaml"],
            }
        ),
        json.dumps({**FORMER, "format": "timebound-run/2"}),
        "[" * 100_000,
        "\0\x01 binary \x7f" * 1000,
    ],
    ids=lambda text: text[:24].strip("\0"),
)
@pytest.mark.parametrize("verb", ["predict", "simulate", "run", "emulate", "up"])
def test_a_folder_of_a_web_app_lost_its_files(
    plant: str, tmp_path: Path, manifest: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "web"
    before = web(folder, manifest)
    assert execute([verb, plant, "-o", str(folder), "--force"]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert content(folder) == before and not (folder / ".lock").exists()


def test_a_manifest_in_the_current_folder_is_not_ours_either(
    plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = web(tmp_path / "web", '{"name": "shop"}')
    monkeypatch.chdir(tmp_path / "web")
    assert execute(["predict", plant, "-o", ".", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["error"] == "folder" and "--output" in told["problems"][0]["hint"]
    assert content(tmp_path / "web") == before


def test_a_huge_manifest_is_read_no_further_than_ours_can_be(
    plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.mark, "MOST", 10_000)
    folder = tmp_path / "huge"
    before = web(folder, json.dumps({**FORMER, "note": "x" * 20_000}))
    assert execute(["predict", plant, "-o", str(folder)]) == 2
    assert content(folder) == before


def test_files_of_the_user_in_a_run_folder_stay(plant: str, run: Path) -> None:
    mine = {name: f"mine {name}" for name in ("notes.csv", "data.json", "x.conf", "logs/notes.log", "figures/mine.svg")}
    for name, text in mine.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(text)
    assert execute(["predict", plant, "-o", str(run), "-q"]) == 0
    assert {name: (run / name).read_text() for name in mine} == mine
    assert set(mine) & set(json.loads((run / "manifest.json").read_text())["files"]) == set()


def test_the_manifest_lists_what_is_there(run: Path) -> None:
    listed = json.loads((run / "manifest.json").read_text())["files"]
    assert sorted(listed) == sorted(
        name for name, found in content(run).items() if found != "folder" and name != "manifest.json"
    )


@pytest.mark.parametrize(
    "link", ["logs", "figures", "captures", ".lock", "manifest.json", "report.html", "plan.json", "figures/flows.svg"]
)
@pytest.mark.parametrize("dangling", [False, True])
def test_links_in_a_run_folder_were_followed(
    plant: str, run: Path, tmp_path: Path, link: str, dangling: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "thesis.log").write_text("precious")
    (docs / "report.log").write_text("precious")
    place = run / link
    if place.is_dir():
        for entry in place.iterdir():
            entry.unlink()
        place.rmdir()
    was = place.read_bytes() if place.exists() and link == "manifest.json" else b"precious"
    place.unlink(missing_ok=True)
    target = docs if "." not in link else docs / "target"
    if target != docs and not dangling:
        target.write_bytes(was)
    place.symlink_to(tmp_path / "nothing" if dangling else target)
    before, ours = content(docs), content(run)
    for verb in (["predict", plant, "-o", str(run)], ["predict", plant, "-o", str(run), "--force"]):
        assert execute(verb) == 2
        told = capsys.readouterr().err
        assert "is a link" in told if link != "manifest.json" else "holds other files" in told
    assert (content(docs), content(run)) == (before, ours) and not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("link", ["figures", "report.html", "figures/flows.svg"])
def test_report_wrote_through_a_link(run: Path, tmp_path: Path, link: str, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "flows.svg").write_text("precious")
    place = run / link
    if place.is_dir():
        for entry in place.iterdir():
            entry.unlink()
        place.rmdir()
    place.unlink(missing_ok=True)
    place.symlink_to(home if link == "figures" else home / "flows.svg")
    before = content(home)
    assert execute(["report", str(run), "--force"]) == 2
    assert "is a link" in capsys.readouterr().err and content(home) == before


def test_the_lock_is_never_truncated(plant: str, run: Path) -> None:
    (run / ".lock").write_text("notes of somebody")
    assert execute(["predict", plant, "-o", str(run), "-q"]) == 0
    assert (run / ".lock").read_text() == "notes of somebody"


def test_another_name_of_a_file_keeps_its_content(plant: str, run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    os.link(run / "summary.json", kept)
    os.link(run / "report.html", tmp_path / "kept.html")
    before = kept.read_bytes(), (tmp_path / "kept.html").read_bytes()
    assert execute(["predict", plant, "-o", str(run), "-q", "--set", "flows.speed.period=20 ms"]) == 0
    assert execute(["report", str(run), "--no-png"]) == 0
    assert (kept.read_bytes(), (tmp_path / "kept.html").read_bytes()) == before
    assert kept.read_bytes() != (run / "summary.json").read_bytes()


def test_a_run_folder_may_be_named_by_a_link(plant: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    assert execute(["predict", plant, "-o", str(tmp_path / "latest"), "-q"]) == 0
    assert (tmp_path / "latest").is_symlink() and (run / "summary.json").exists()


def test_a_link_that_leads_nowhere_is_no_folder(plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latest").symlink_to(tmp_path / "nothing")
    assert execute(["predict", plant, "-o", str(tmp_path / "latest")]) == 2
    assert "leads nowhere" in capsys.readouterr().err and not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["plan.json", "figures/flows.svg", "report.html"])
def test_a_folder_in_the_place_of_a_file_is_refused(
    plant: str, run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name / "mine").mkdir(parents=True)
    before = content(run)
    assert execute(["predict", plant, "-o", str(run), "--force"]) == 2
    assert "is a folder, and a file would be written there" in capsys.readouterr().err and content(run) == before


def test_a_file_of_the_user_where_a_run_writes_is_refused(
    plant: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "simulated.parquet").write_text("mine")
    assert execute(["simulate", plant, "-o", str(run), "--force"]) == 2
    assert f"{run / 'simulated.parquet'} is there" in capsys.readouterr().err
    assert (run / "simulated.parquet").read_text() == "mine" and (run / "summary.json").exists()


def test_results_of_another_scenario_or_verb_are_replaced_only_by_force(
    plant: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SCENARIO)
    before = content(run)
    for arguments in (["predict", str(other)], ["simulate", plant], ["predict", plant, "--set", "name=factory"]):
        assert execute([*arguments, "-o", str(run)]) == 2
        told = capsys.readouterr().err
        assert f"holds the results of plant (predict, {plant})" in told and "--force" in told
        assert content(run) == before
    assert execute(["simulate", plant, "-o", str(run), "-q", "--force"]) == 0
    assert (run / "simulated.parquet").exists()
    assert execute(["predict", str(other), "-o", str(run), "-q", "--force"]) == 0
    assert not (run / "simulated.parquet").exists()


@pytest.mark.parametrize("at", ["begun", "half"])
def test_a_run_that_was_killed_is_run_again(plant: str, tmp_path: Path, at: str) -> None:
    from timebound.scenario import load

    folder = tmp_path / "killed"
    stop = "timebound.engine.runs._compute" if at == "begun" else "timebound.engine.runs.summarise"
    module, name = stop.rsplit(".", 1)
    code = (
        f"import os, sys, {module} as m; from timebound.cli.app import execute\n"
        f"m.{name} = lambda *a, **k: os.kill(os.getpid(), 9)\nexecute(sys.argv[1:])"
    )
    line = [sys.executable, "-c", code, "predict", plant, "-o", str(folder)]
    assert subprocess.run(line, capture_output=True, timeout=120, check=False).returncode == -9
    assert load(plant).name == json.loads((folder / "manifest.json").read_text())["run"]["name"]
    (folder / ".summary.json-0123abcd.part").write_text("half")
    (folder / "notes.json").write_text("mine")
    assert execute(["predict", plant, "-o", str(folder), "-q"]) == 0
    assert not list(folder.glob("*.part")) and not list(folder.glob(".*.part"))
    assert (folder / "notes.json").read_text() == "mine"


def test_a_folder_of_an_earlier_version_is_known_by_its_keys(
    plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "former"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(FORMER))
    (folder / "summary.json").write_text(json.dumps({"scenario": {"name": "plant"}, "flows": []}))
    for name in ("plan.json", "frames.parquet", "report.html"):
        (folder / name).write_text("ours")
    for name in ("thesis.json", "data.csv", "page.html"):
        (folder / name).write_text("mine")
    assert execute(["simulate", plant, "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert execute(["predict", plant, "-o", str(folder), "-q"]) == 0
    assert not (folder / "frames.parquet").exists()
    assert {(folder / name).read_text() for name in ("thesis.json", "data.csv", "page.html")} == {"mine"}


def test_logs_and_captures_of_an_earlier_version_are_those_of_its_plan() -> None:
    emulation = {"programs": [{"name": "broker"}, {"name": "../x"}], "captures": [{"file": "a-s.pcapng"}], "folder": 3}
    names = set(former.files_of(emulation)) - set(former.FILES)
    assert names == {"logs/broker.log", "captures/a-s.pcapng"}


@pytest.fixture
def somebody() -> Iterator[None]:
    """Root may read everything, so that a test of rights runs as somebody else."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_a_manifest_that_may_not_be_read_is_not_guessed(
    plant: str, run: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    (run / "manifest.json").chmod(0)
    # One folder more lies above where several processes run the tests.
    for folder in (*run.parents[:4], run):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    request.getfixturevalue("somebody")
    assert execute(["predict", plant, "-o", str(run)]) == 2
    assert "cannot be written: Permission denied" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_folder_in_use_is_refused_before_anything_else(
    plant: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from timebound.engine import folder as folders

    folders.release(run)
    with (run / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert execute(["simulate", plant, "-o", str(run), "--force"]) == 2
    assert "another process is writing" in capsys.readouterr().err


def test_a_file_of_the_user_in_a_folder_that_is_emptied_whole_is_refused(plant: str, tmp_path: Path) -> None:
    from timebound.engine import folder as folders
    from timebound.engine.runs import plan_of
    from timebound.scenario import load

    plan = plan_of(load(plant, {"stack.mqtt.clients": "per-node"}))
    claim = written.claim(plan, {"predict", "emulate"})
    folder = folders.prepare(tmp_path / "run", claim)
    (folder / "endpoints").mkdir()
    (folder / "endpoints" / "0.bin").write_text("ours")
    with files.Place(folder) as place:
        files.close_list(place)
    (folder / "endpoints" / "notes.txt").write_text("mine")
    with pytest.raises(files.FolderError, match=r"notes\.txt is there"):
        folders.prepare(folder, claim)
    assert (folder / "endpoints" / "notes.txt").read_text() == "mine"
    (folder / "endpoints" / "notes.txt").unlink()
    folders.prepare(folder, claim)
    assert not (folder / "endpoints").exists()


def test_the_names_of_figures_are_those_of_the_report() -> None:
    assert set(former.FIGURES) == set(FIGURES)
    assert set(written.REPORT) == set(former.REPORT)
