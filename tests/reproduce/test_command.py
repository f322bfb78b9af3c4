"""`timebound reproduce`: the list, what is refused, and an interruption that keeps what is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timebound.cli.app import execute
from timebound.engine import runs
from timebound.engine.folder import FolderError
from timebound.engine.progress import SILENT
from timebound.reproduce.scalability import experiment, measure
from timebound.reproduce.scalability.cells import Cell


def test_without_a_name_the_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["reproduce"]) == 0
    assert "mqtt-scalability" in capsys.readouterr().out
    assert execute(["reproduce", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "mqtt-scalability"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mqtt-scalabilty"], "there is no experiment 'mqtt-scalabilty'"),
        (["mqtt-scalability", "--clients", "1"], "1 clients are not possible"),
        (["mqtt-scalability", "--clients", "351"], "351 clients are not possible"),
        (["mqtt-scalability", "--scenario", "3"], "there is no scenario 3"),
        (["mqtt-scalability", "--qos", "7"], "there is no QoS 7"),
        (["velox-model", "--clients", "350"], "velox-model has no --clients"),
        (["velox-model", "--scenario", "1"], "velox-model has no --scenario"),
        (["velox-model", "--full"], "velox-model has no --full"),
        (["mrt-mqtt-bounds", "--rootless"], "mrt-mqtt-bounds has no --rootless"),
        (["mrt-mqtt-bounds", "--qos", "1"], "mrt-mqtt-bounds has no --qos"),
        (["mqtt-scalability", "--hops", "2"], "mqtt-scalability has no --hops"),
        (["--clients", "5"], "--clients without an experiment"),
        (["--output", "x"], "--output without an experiment"),
    ],
)
def test_what_is_not_possible_is_refused_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["reproduce", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FolderError, match="holds other files"):
        experiment.run([], tmp_path, SILENT)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


CELLS = [Cell(scenario=1, qos=qos, clients=4, join_ns=1_000_000, hold_ns=1_000_000_000) for qos in (0, 1)]
HELD = dict.fromkeys(
    ("broker_cpu", "broker_rx_bytes", "broker_tx_bytes", "broker_bytes", "subscriber_cpu", "subscriber_bytes"), 1.0
) | dict.fromkeys(("publisher_cpu", "publisher_bytes", "all_nodes_cpu"), 1.0)


def fake_runs(monkeypatch: pytest.MonkeyPatch, outcomes: list[str]) -> list[Path]:
    """Runs that end as told, without a network: `good`, `disturbed` or `interrupted`."""
    folders: list[Path] = []

    def run(scenario: object, folder: Path, parts: set[str], progress: object, *, rootless: bool = False) -> runs.Done:
        folders.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = outcomes[len(folders) - 1]
        return runs.Done(folder, {"verdict": outcome}, 130 if outcome == "interrupted" else 0)

    def figures(cell: Cell, folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
        return {
            "scenario": cell.scenario, "qos": cell.qos, "clients": cell.clients, "nodes": 6, "held": HELD, "curve": [],
            "certificate": {"verdict": summary["verdict"], "reasons": []}, "client_memory_bytes": None,
            "messages": {"sent": 1, "received": 1, "lost": 0}, "packets": None, "packets_missing": "made up",
        }  # fmt: skip

    monkeypatch.setattr(runs, "run", run)
    monkeypatch.setattr(measure, "figures", figures)
    return folders


def test_an_interrupted_experiment_keeps_finished_cells_and_goes_on_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = fake_runs(monkeypatch, ["good", "interrupted", "good"])
    with pytest.raises(KeyboardInterrupt):
        experiment.run(CELLS, tmp_path / "out", SILENT)
    kept = json.loads((tmp_path / "out" / "reproduce.json").read_text())
    assert not kept["complete"] and [cell["qos"] for cell in kept["cells"]] == [0]
    done = experiment.run(CELLS, tmp_path / "out", SILENT)
    assert done.result["complete"] and done.exit_code == 0
    assert [folder.parent.name for folder in folders] == ["s1-qos0", "s1-qos1", "s1-qos1"]


def test_a_disturbed_cell_is_run_once_more_and_then_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = fake_runs(monkeypatch, ["disturbed", "good", "disturbed", "disturbed"])
    done = experiment.run(CELLS, tmp_path / "out", SILENT)
    assert len(folders) == 4 and done.exit_code == 4
    assert [(cell["certificate"]["verdict"], cell["attempts"]) for cell in done.result["cells"]] == [
        ("good", 2),
        ("disturbed", 2),
    ]
    assert done.result["cells"][0]["run"].endswith("run-2")
    assert "disturbed" in (tmp_path / "out" / "report.html").read_text()


def test_a_cell_of_other_conditions_is_not_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = fake_runs(monkeypatch, ["good", "good"])
    experiment.run(CELLS[:1], tmp_path / "out", SILENT)
    other = [Cell(scenario=1, qos=0, clients=5, join_ns=1_000_000, hold_ns=1_000_000_000)]
    experiment.run(other, tmp_path / "out", SILENT)
    assert len(folders) == 2
