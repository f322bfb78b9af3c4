"""Programs of nodes: files that they will not find, and what is said of those that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from timebound.engine.programs import TAIL_LINES, failed, failed_words, resolve, unfound
from timebound.engine.runs import plan_of
from timebound.report.page import _banner, _failure
from timebound.report.run import Run
from timebound.report.words import sentence
from timebound.scenario import ScenarioError, load

TEXT = """
name: programs
network:
  nodes: {h1: {kind: host, run: [PROGRAMS]}, h2: host, s: switch}
  links: [[h1, s], [h2, s]]
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}}
flows: [{name: alarm, from: h1, to: h2, size: 64 B, period: 50 ms, deadline: 20 ms}]
stack: {mqtt: {broker: h2}}
run: {duration: 1 s}
"""


def scenario(tmp_path: Path, programs: str) -> Any:
    file = tmp_path / "programs.yaml"
    file.write_text(TEXT.replace("PROGRAMS", programs))
    return load(file)


def test_a_script_beside_the_scenario_is_not_found_from_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    (said,) = unfound(scenario(tmp_path, "[python3, app.py]"))
    assert "'app.py'" in said and "the run folder" in said and "programs.yaml:4:" in said
    assert said.endswith("state folder: . to start it in the scenario's folder")
    assert unfound(scenario(tmp_path, "{command: [python3, app.py], folder: .}")) == []


def test_a_folder_that_does_not_exist_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    """It was made on the host, and left there."""
    file = tmp_path / "s.yaml"
    text = "name: s\nnetwork: {nodes: {h1: {kind: host, run: [{command: [sleep, 1], folder: FOLDER}]}, h2: host}, links: [[h1, h2]]}\n"
    text += "flows: [{name: f, from: h1, to: h2, size: 1 B, period: 1 s}]\nstack: udp\n"
    file.write_text(text.replace("FOLDER", "gone"))
    with pytest.raises(ScenarioError, match="the folder 'gone' of program 'sleep' of node 'h1' does not exist"):
        resolve(plan_of(load(file)))
    (tmp_path / "gone").mkdir()
    resolve(plan_of(load(file)))


def test_a_script_that_is_nowhere_is_said_and_what_is_no_file_is_not(tmp_path: Path) -> None:
    (said,) = unfound(scenario(tmp_path, "{command: [python3, -u, app.py], folder: .}"))
    assert "its folder ." in said
    fine = "[python3, -c, 'import time.py'], [python3, -m, http.server], [echo, 1.5], [ping, 10.0.0.1], [sh, /x/y.sh]"
    assert unfound(scenario(tmp_path, fine)) == []


def report(**other: Any) -> dict[str, Any]:
    base = {"name": "sh", "node": "h1", "exit_code": None, "signal": None, "stopped": False, "out_of_memory": False}
    return {**base, "started_ns": -5, "ended_ns": 2_000_000_000, "log": "logs/sh.log", **other}


def ended(tmp_path: Path, program: str = "[sh, -c, 'exit 3']", **other: Any) -> list[dict[str, Any]]:
    plan = plan_of(scenario(tmp_path, program))
    return failed(plan, {"programs": [report(**other), report(name="broker-h2", node="h2", exit_code=1)]}, tmp_path)


def test_a_program_that_failed_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "sh.log").write_text("first\n" * 100 + "no such file\n\n")
    (entry,) = ended(tmp_path, exit_code=3)
    assert (entry["program"], entry["node"], entry["how"], entry["at_s"]) == ("sh", "h1", "status 3", 2.0)
    assert len(entry["tail"]) == TAIL_LINES and entry["tail"][-1] == "no such file"
    assert failed_words(entry) == "program sh of node h1 ended with status 3 at 2.000 s: no such file (logs/sh.log)"
    told = Run.parse({"schema": 1, "failed_programs": [entry], "verdict": "failed"})
    assert "program sh of node h1 ended with status 3: no such file (logs/sh.log)" in sentence(told)


@pytest.mark.parametrize("verdict", ["failed", "disturbed", "met"])
def test_the_page_said_twice_that_a_program_failed(verdict: str) -> None:
    entries = [
        {"program": name, "node": "h1", "how": "status 2", "at_s": 1.0, "tail": [], "log": f"logs/{name}.log"}
        for name in ("app", "other")
    ]
    run = Run.parse({"schema": 1, "failed_programs": entries, "verdict": verdict})
    head = str(_banner(run)) + str(_failure(run))
    assert [head.count(f"program {name} of node h1") for name in ("app", "other")] == [1, 1]


def test_who_was_stopped_or_was_through_has_not_failed(tmp_path: Path) -> None:
    assert ended(tmp_path, exit_code=0) == ended(tmp_path, signal=15, stopped=True) == ended(tmp_path) == []
    (killed,) = ended(tmp_path, signal=9)
    assert failed_words({**killed, "at_s": -1.0}).startswith(
        "program sh of node h1 ended with signal 9 before the run began and said nothing"
    )
    # A server that ends is gone, whatever its status.
    assert ended(tmp_path, "{name: sh, command: [sh], ready-port: 80}", exit_code=0)


def test_clients_among_the_programs_start_after_the_broker(tmp_path: Path) -> None:
    plan = plan_of(scenario(tmp_path, "[sh], {name: server, command: [sh], ready-port: 80}"))
    assert {p["name"]: p.get("after_ready", False) for p in plan.programs} == {
        "sh": True,
        "server": False,
        "broker-h2": False,
    }
