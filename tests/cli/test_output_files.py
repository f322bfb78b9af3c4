"""Single files and the folders of other verbs: nothing that is not ours is replaced unasked, and no link is followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_output_folder import content, plant, run  # noqa: F401 - fixtures

from timebound.cli.app import execute


def test_compare_wrote_into_the_current_folder_unasked(
    run: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "home"
    place.mkdir()
    (place / "comparison.html").write_text("precious")
    monkeypatch.chdir(place)
    for _ in range(2):
        assert execute(["compare", str(run), str(run)]) == 0
    assert (place / "comparison.html").read_text() == "precious"
    assert sorted(path.name for path in place.iterdir()) == ["comparison.html", "runs"]
    assert len(list((place / "runs").glob("comparison-*.html"))) == 2


def test_a_comparison_of_other_runs_is_replaced_only_by_force(
    run: Path,  # noqa: F811
    plant: str,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["predict", plant, "-o", str(tmp_path / "b"), "-q"]) == 0
    page = tmp_path / "both.html"
    for _ in range(2):
        assert execute(["compare", str(run), str(tmp_path / "b"), "-o", str(page)]) == 0
    capsys.readouterr()
    before = page.read_bytes()
    assert execute(["compare", str(run), str(run), "-o", str(page)]) == 2
    assert "--force" in capsys.readouterr().err and page.read_bytes() == before
    assert execute(["compare", str(run), str(run), "-o", str(page), "--force"]) == 0
    page.write_text("<p>About Timebound comparison. A page of mine.</p>")
    assert execute(["compare", str(run), str(run), "-o", str(page)]) == 2


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_what_is_no_regular_file_is_not_written_to_even_by_force(
    run: Path,  # noqa: F811
    plant: str,  # noqa: F811
    tmp_path: Path,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import os

    precious = tmp_path / "precious"
    precious.write_text("precious")
    for suffix, arguments in (
        (".svg", ["show", plant]),
        (".yaml", ["predict", plant, "--assign", "priorities", "-q"]),
        (".html", ["compare", str(run), str(run)]),
        (".json", ["profile-broker", "-q"]),
    ):
        file = tmp_path / f"out{suffix}"
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            (file / "comparison.html" if suffix == ".html" else file).mkdir(parents=True)
        else:
            file.symlink_to(precious if kind == "link" else tmp_path / "nothing")
        capsys.readouterr()
        assert execute([*arguments, "--output", str(file), "--force"]) == 2, suffix
        assert "error: " in capsys.readouterr().err
    assert precious.read_text() == "precious" and not (tmp_path / "nothing").exists()


def test_report_replaces_no_page_that_it_did_not_write(
    run: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    (run / "manifest.json").unlink()
    assert execute(["report", str(run), "--no-png"]) == 0
    (run / "report.html").write_text("<p>mine</p>")
    before = content(run)
    assert execute(["report", str(run), "--no-png"]) == 2
    assert "is not ours" in capsys.readouterr().err and content(run) == before
    assert execute(["report", str(run), "--no-png", "--force"]) == 0
    assert "Timebound report." in (run / "report.html").read_text()


@pytest.mark.parametrize("mark", ["{}", "[]", '{"points": []}', "x"])
def test_a_foreign_plan_is_no_sweep(
    plant: str,  # noqa: F811
    tmp_path: Path,
    mark: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "garden"
    folder.mkdir()
    for name in ("report.html", "sweep.json"):
        (folder / name).write_text("precious")
    (folder / "sweep-plan.json").write_text(mark)
    before = content(folder)
    arguments = ["sweep", plant, "--vary", "run.seed=1..2", "--verb", "predict", "-o", str(folder), "-q", "--force"]
    assert execute(arguments) == 2
    assert "holds other files" in capsys.readouterr().err and content(folder) == before


def test_a_sweep_of_another_scenario_or_through_a_link_is_refused(
    plant: str,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, arguments = tmp_path / "sweep", ["--vary", "run.seed=1..2", "--verb", "predict", "-q", "--jobs", "1"]
    other = tmp_path / "other.yaml"
    other.write_text(Path(plant).read_text())
    assert execute(["sweep", plant, *arguments, "-o", str(folder)]) == 0
    capsys.readouterr()
    before = content(folder)
    assert execute(["sweep", str(other), *arguments, "-o", str(folder)]) == 2
    assert "holds the sweep of plant" in capsys.readouterr().err and content(folder) == before
    (tmp_path / "precious").write_text("precious")
    (folder / "sweep.json").unlink()
    (folder / "sweep.json").symlink_to(tmp_path / "precious")
    assert execute(["sweep", plant, *arguments, "-o", str(folder)]) == 2
    assert "is a link" in capsys.readouterr().err and (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("experiment", ["velox-model", "mrt-mqtt-bounds", "mqtt-scalability", "mrt-mqtt"])
@pytest.mark.parametrize("mark", ["{}", '{"experiment": "mine"}', "x"])
def test_a_foreign_reproduce_json_is_no_experiment(
    tmp_path: Path, experiment: str, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("precious")
    (tmp_path / "reproduce.json").write_text(mark)
    before = content(tmp_path)
    assert execute(["reproduce", experiment, "-o", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err and content(tmp_path) == before


def test_an_experiment_keeps_to_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    for _ in range(2):
        assert execute(["reproduce", "velox-model", "-o", str(folder)]) == 0
    assert json.loads((folder / "reproduce.json").read_text())["experiment"] == "velox-model"
    capsys.readouterr()
    assert execute(["reproduce", "mrt-mqtt-bounds", "-o", str(folder)]) == 2
    assert "holds the experiment velox-model" in capsys.readouterr().err
    (tmp_path / "home").mkdir()
    (folder / "figures" / "parts.svg").unlink()
    (folder / "figures").rmdir()
    (folder / "figures").symlink_to(tmp_path / "home")
    assert execute(["reproduce", "velox-model", "-o", str(folder)]) == 2
    assert "is a link" in capsys.readouterr().err and not list((tmp_path / "home").iterdir())
