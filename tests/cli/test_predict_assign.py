"""`timebound predict --assign` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timebound.cli.app import execute

PLANT = """# the plant
name: plant
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {h[1-4]: host, s[1-4]: switch}
  links: [[h[1-2], s1], [h[3-4], s4], [s1, s2], [s2, s4], [s1, s3], [s3, s4]]
flows:
  # the valve is the urgent one
  - {name: valve, from: h1, to: h3, size: 300 B, period: 10 ms, deadline: 8 ms, priority: 1}
  - {name: camera, from: h2, to: h4, size: 1400 B, period: 4 ms, deadline: 20 ms, priority: 5, count: 2}
stack: {udp: {}}
"""


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    file = tmp_path / "plant.yaml"
    file.write_text(PLANT)
    return file


def test_the_table_shows_before_and_after(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", str(plant), "--assign", "priorities,routes"]) == 0
    out = capsys.readouterr().out
    assert "priorities and routes assigned" in out and "1 → 7" in out and "no → yes" in out
    assert "camera (2)" in out or "camera[1]" in out
    assert "deadlines not promised: 1 before, 0 after" in out
    assert "worst utilisation: " in out and " - s3 - " in out


def test_json_is_all_there_is_on_standard_output(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", str(plant), "--assign", "priorities", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["missed"] == {"before": ["valve at h3"], "after": []}
    assert document["priorities"]["method"] == "deadline-monotonic" and document["routes"] is None
    assert document["changed"]["valve"] == {"priority": 7}
    valve = document["flows"][0]
    assert valve["after"]["bound_us"] < valve["before"]["bound_us"] and valve["before"]["class"] == 1


def test_the_written_scenario_includes_the_original_and_predicts_the_same(
    plant: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = plant.with_name("assigned.yaml")
    assert execute(["predict", str(plant), "--assign", "priorities,routes", "--json", "-o", str(target)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert plant.read_text() == PLANT
    assert 'include: "plant.yaml"' in target.read_text()
    assert execute(["predict", str(target), "--json"]) == 0
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert [flow["end_to_end_us"]["bound"] for flow in flows] == [row["after"]["bound_us"] for row in document["flows"]]
    assert [flow["priority"] for flow in flows] == [row["after"]["class"] for row in document["flows"]]


def test_with_overrides_the_whole_scenario_is_written(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = plant.with_name("assigned.yaml")
    arguments = ["predict", str(plant), "--assign", "priorities", "-o", str(target), "--set", "flows.camera.count=1"]
    assert execute(arguments) == 0
    assert "include:" not in target.read_text()
    capsys.readouterr()
    assert execute(["predict", str(target), "--json"]) == 0
    assert [flow["flow"] for flow in json.loads(capsys.readouterr().out)["flows"]] == ["valve", "camera"]


def test_a_folder_gets_the_run_of_the_assigned_scenario(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plant.with_name("run")
    assert execute(["predict", str(plant), "--assign", "priorities", "-o", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["verdict"] == "met" and summary["flows"][0]["priority"] == 7
    assert (folder / "report.html").exists()
    assert "report: " in capsys.readouterr().err


def test_what_no_assignment_can_meet_is_an_unmet_requirement_with_its_reason(
    plant: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = execute(["predict", str(plant), "--assign", "priorities,routes", "--set", 'flows.valve.deadline="1 ms"'])
    out = capsys.readouterr().out
    assert code == 1 and "1 before, 1 after" in out
    assert "valve at h3 has a bound of " in out and "a heuristic here" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--assign", "prios"], "--assign: 'prios' cannot be assigned"),
        (["--assign", ""], "--assign: '' cannot be assigned"),
        (["--assign", "routes", "--assign-for", "soon"], "--assign-for: 'soon' is no time"),
        (["--assign", "routes", "--assign-by", "luck"], "luck"),
        (["--assign", "routes", "-o", "SELF"], "is read by this command"),
        (["--assign", "routes", "-o", "/nowhere/x.yaml"], "/nowhere is no folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], words: str, plant: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(plant) if argument == "SELF" else argument for argument in arguments]
    assert execute(["predict", str(plant), *given]) == 2
    assert words in capsys.readouterr().err
    assert plant.read_text() == PLANT


def test_a_search_without_time_says_that_it_was_broken_off(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["predict", str(plant), "--assign", "routes", "--assign-for", "0 s"])
    assert "broken off by --assign-for" in capsys.readouterr().out
