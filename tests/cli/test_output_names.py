"""What `--output` may name: no input of the command, nothing empty, a file where a file is meant and a folder where a folder is."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from test_output_folder import SCENARIO, content, plant, run  # noqa: F401 - fixtures

import timebound
from timebound.cli.app import execute
from timebound.files import FolderError, release

PROFILE = Path(__file__).parent.parent / "scenario" / "fixtures"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A scenario of several files: one includes a network and names a drawing, a text and a node's file."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "net.yaml").write_text(
        "network:\n  nodes:\n    a: {kind: host, files: {/etc/motd: {from: motd.txt}}}\n    b: host\n    s: switch\n  links: [[a, s], [s, b]]\n"
    )
    (folder / "motd.txt").write_text("welcome")
    (folder / "text.json").write_text("content")
    (folder / "up.svg").write_text("0\n12\n24\n")
    (folder / "all.yaml").write_text(
        "name: plant\ninclude: [net.yaml]\n"
        "flows: [{name: f, from: a, to: b, period: 10 ms, size: 7 B, content: text.json, deadline: 5 ms}]\n"
        "stack: {mqtt: {broker: b}}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("verb", "target"),
    [
        (["show"], "text.json"),
        (["predict", "--assign", "priorities"], "net.yaml"),
        (["predict", "--assign", "priorities"], "all.yaml"),
        (["predict", "--assign", "priorities"], "other-name.yaml"),
    ],
)
def test_force_replaced_a_file_that_the_scenario_is_made_of(
    parts: Path, verb: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.link(parts / "net.yaml", parts / "other-name.yaml")
    before = content(parts)
    command = [verb[0], str(parts / "all.yaml"), *verb[1:], "-o", str(parts / target), "--force"]
    assert execute(command) == 2
    assert f"{target} is read by this command" in capsys.readouterr().err and content(parts) == before


def test_all_files_of_a_scenario_are_its_inputs(parts: Path) -> None:
    scenario = timebound.load(parts / "all.yaml").scenario
    assert {Path(name).name for name in scenario.inputs} == {"all.yaml", "net.yaml", "motd.txt", "text.json"}
    assert all(Path(name).is_absolute() for name in scenario.inputs)


def test_a_run_by_force_removed_the_scenario_in_its_own_folder(
    run: Path,  # noqa: F811
    parts: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = content(run)
    resolved = run / "scenario.yaml"
    assert execute(["predict", str(resolved), "-o", str(run), "--force", "-q"]) == 2
    assert f"{resolved} is read by this command" in capsys.readouterr().err and content(run) == before
    includer = parts / "includer.yaml"
    includer.write_text(f"include: [{resolved}]\n")
    assert execute(["simulate", str(includer), "-o", str(run), "--force", "-q"]) == 2
    assert content(run) == before


def test_a_sweep_by_force_replaced_its_own_axes(
    plant: str,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "sweep"
    arguments = ["--verb", "predict", "-q", "--jobs", "1", "-o", str(folder)]
    assert execute(["sweep", plant, "--vary", "run.seed=1..2", *arguments]) == 0
    axes = folder / "sweep.json"
    axes.write_text("vary: {run.seed: [3]}\n")
    capsys.readouterr()
    assert execute(["sweep", plant, "--vary-file", str(axes), "--force", *arguments]) == 2
    assert f"{axes} is read by this command" in capsys.readouterr().err
    assert axes.read_text() == "vary: {run.seed: [3]}\n"


# Of a folder without a manifest only what is read is known.
@pytest.mark.parametrize(
    ("name", "marked"),
    [("summary.json", True), ("manifest.json", True), ("report.html", True), ("summary.json", False)],
)
def test_compare_by_force_replaced_what_it_compares(
    run: Path,  # noqa: F811
    name: str,
    marked: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not marked:
        (run / "manifest.json").unlink()
    before = content(run)
    assert execute(["compare", str(run), str(run), "-o", str(run / name), "--force"]) == 2
    assert "is read by this command" in capsys.readouterr().err and content(run) == before


def test_packets_by_force_replaced_the_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "a.pcapng"
    capture.write_bytes(b"capture")
    assert execute(["packets", str(capture), "-o", str(capture), "--force"]) == 2
    assert "is read by this command" in capsys.readouterr().err and capture.read_bytes() == b"capture"


@pytest.mark.parametrize("verb", [["report"], ["packets"]])
def test_a_report_was_written_while_a_run_wrote(
    run: Path,  # noqa: F811
    verb: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    release(run)
    before = content(run)
    with (run / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert execute([*verb, str(run)]) == 2
    assert "another process is writing" in capsys.readouterr().err and content(run) == before
    assert execute(["report", str(run), "--no-png"]) == 0
    with (run / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the report let go of it


def test_a_suffix_in_capitals_made_a_folder(plant: str, tmp_path: Path) -> None:  # noqa: F811
    assert execute(["predict", plant, "--assign", "priorities", "-q", "-o", str(tmp_path / "ASG.YAML")]) == 0
    assert (tmp_path / "ASG.YAML").read_text().startswith("#")
    assert execute(["show", plant, "-o", str(tmp_path / "NET.SVG")]) == 0
    assert (tmp_path / "NET.SVG").is_file()


@pytest.mark.parametrize(
    "verb",
    [["predict"], ["simulate"], ["emulate"], ["run"], ["up"], ["predict", "--assign", "routes"], ["sweep", "--vary", "run.seed=1..2"]],
    ids=" ".join,
)  # fmt: skip
def test_a_folder_got_the_name_of_a_file(
    plant: str,  # noqa: F811
    verb: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "Result.JSON"
    assert execute([verb[0], plant, *verb[1:], "-o", str(place)]) == 2
    said = capsys.readouterr().err
    assert f"{place} has the name of a .json file, and a folder would be written" in said and not place.exists()


def test_a_folder_that_has_the_name_of_a_file_already_is_as_good(plant: str, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "plant.yaml.d.csv").mkdir()
    assert execute(["predict", plant, "-q", "-o", str(tmp_path / "plant.yaml.d.csv")]) == 0


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_was_the_current_folder(
    plant: str,  # noqa: F811
    name: str,
    run: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for verb in (
        ["predict", plant], ["simulate", plant], ["emulate", plant], ["run", plant], ["up", plant], ["show", plant],
        ["predict", plant, "--assign", "routes"], ["compare", str(run), str(run)], ["packets", str(run)],
        ["profile-broker"], ["reproduce", "velox-model"], ["sweep", plant, "--vary", "run.seed=1..2"],
    ):  # fmt: skip
        assert execute([*verb, "-o", name]) == 2, verb
        assert "the name of --output is empty" in capsys.readouterr().err, verb
    with pytest.raises(FolderError, match="is empty"):
        timebound.load(plant).run(name)
    assert not list(home.iterdir())


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_of_a_run_folder_was_the_current_folder(
    name: str,
    run: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here it is a run's, so that its report was written anew although nobody had named it."""
    monkeypatch.chdir(run)
    page = Path("report.html").read_bytes()
    Path("report.html").write_bytes(page + b"<!-- as it was -->")
    for verb in (
        ["report", name], ["compare", name, str(run)], ["compare", str(run), str(run), name], ["packets", name],
        ["packets", "a.pcap", name], ["sweep", "--gather", name, "-o", "all"], ["sweep", "x.yaml", "--vary-file", name],
        ["manager", name], ["emulate", "hello", "--token", name],
    ):  # fmt: skip
        assert execute(verb) == 2, verb
        told = capsys.readouterr().err
        assert "the name of a folder or file is empty" in told and "the current folder is ." in told, verb
    assert Path("report.html").read_bytes().endswith(b"<!-- as it was -->")


@pytest.mark.parametrize("name", ["nodir/a.svg", "nodir/"])
def test_folders_were_made_for_a_single_file_against_the_hint(
    plant: str,  # noqa: F811
    run: Path,  # noqa: F811
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for verb in (["show", plant], ["compare", str(run), str(run)], ["profile-broker"]):
        assert execute([*verb, "-o", name]) == 2
        said = capsys.readouterr().err
        assert "nodir" in said and "is no folder" in said and "make it first" in said, said
    assert not list(home.iterdir())


def test_a_library_that_lives_on_kept_the_folder_for_itself(plant: str, tmp_path: Path) -> None:  # noqa: F811
    done = timebound.load(plant, {"run.simulate.search": "0"})._run(
        {"predict"}, tmp_path / "out", timebound.api.SILENT, force=False
    )
    with (done.folder / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shutil.rmtree(done.folder)
