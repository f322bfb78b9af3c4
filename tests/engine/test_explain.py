"""Explanations: they add up through both segments of a broker, name who is in the way, and are part of summary and command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timebound.cli.app import execute
from timebound.engine import explain, runs
from timebound.engine.predict import Prediction, predict
from timebound.scenario import load
from timebound.scenario.problems import ScenarioError
from timebound.stacks import build_plan

TEXT = """
name: shared
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, d: host, idle: host, s: switch, t: switch}
  links: [[a, s], [b, s], [s, t], [c, t], [d, t], [idle, t]]
flows:
  - {name: alpha, from: a, to: c, size: 1000 B, period: 10 ms, jitter: 1 ms, priority: 5, deadline: 20 ms}
  - {name: beta, from: a, to: [c, d], size: 400 B, period: 10 ms, priority: 5, deadline: 30 ms}
  - {name: urgent, from: d, to: c, size: 100 B, period: 5 ms, priority: 6}
  - {name: night report/1.b, from: d, to: c, size: 2000 B, period: 20 ms, priority: 2}
stack: {mqtt: {broker: b}}
"""


def prediction(text: str = TEXT) -> Prediction:
    return predict(build_plan(load(text, {})))


def parts(hop: dict[str, Any]) -> int:
    """The parts of one hop, summed up again."""
    sums = {name: sum(part["time_ns"] for part in hop[name]) for name in ("higher", "same", "shaping")}
    more = hop["blocking"]["time_ns"] + hop["own_ns"] + hop["service_ns"] + hop["rounding_ns"]
    return int(more + sums["higher"] + sums["same"] - sums["shaping"] - hop["window_ns"])


def test_all_parts_of_all_flows_add_up_to_the_bounds() -> None:
    found = prediction()
    pairs = explain.pairs_of(found, [flow.name for flow in found.plan.scenario.flows])
    entries = explain.explain(found, pairs)
    assert [(entry["flow"], entry["receiver"]) for entry in entries] == pairs and len(pairs) == 5
    for entry in entries:
        assert [segment["name"] for segment in entry["segments"]] == ["publish", "deliver"]
        for segment in entry["segments"]:
            outcome = found.outcomes[segment["stream"], segment["destination"]]
            explanation = segment["explanation"]
            assert (explanation["from_actual_ns"], explanation["best_case_ns"]) == (outcome.actual_ns, outcome.whole_ns)
            assert tuple(hop["name"] for hop in explanation["hops"]) == outcome.path
            for hop in explanation["hops"]:
                assert parts(hop) == hop["response_ns"]
                assert hop["propagation_ns"] + hop["link_jitter_ns"] + hop["switching_ns"] == hop["traversal_ns"]
            whole = sum(
                hop["response_ns"] - hop["counted_before_ns"] + hop["traversal_ns"] for hop in explanation["hops"]
            )
            assert whole == outcome.actual_ns


def test_who_is_in_the_way_is_named() -> None:
    found = prediction()
    entry = explain.explain(found, [("alpha", "c")])[0]
    last = entry["segments"][1]["explanation"]["hops"][-1]
    blocking = last["blocking"]
    assert (last["name"], blocking["by"], blocking["bytes"]) == ("t->c", "stream", 1538)
    assert "night report/1.b" in blocking["stream"]
    assert last["higher"][0]["stream"] == "urgent/deliver>c"
    assert "beta/deliver>c" in [part["stream"] for part in last["same"]]


def test_each_method_has_its_own_figure_and_the_bound_is_the_least() -> None:
    summary = runs.figures_only(load(TEXT, {}), {"predict"})
    for flow in summary["flows"]:
        bounds = flow["bound_us"]
        assert bounds["bound"] <= min(bounds["holistic"], bounds["calculus"])
        assert 0 < flow["best_us"] < bounds["bound"]
        for segment in flow["segments"]:
            assert segment["best_us"] < segment["bound_us"] <= min(segment["holistic_us"], segment["calculus_us"])
    assert any(flow["bound_us"]["bound"] < flow["bound_us"]["holistic"] for flow in summary["flows"])


def test_the_summary_explains_the_flows_with_the_least_slack() -> None:
    summary = runs.figures_only(load(TEXT, {}), {"predict"})
    slack = {
        (f["flow"], f["receiver"]): f["deadline_us"] - f["end_to_end_us"]["bound"]
        for f in summary["flows"]
        if f["deadline_us"] is not None
    }
    shown = [(entry["flow"], entry["receiver"]) for entry in summary["explained"]]
    assert shown[: len(slack)] == sorted(slack, key=lambda pair: slack[pair]) and len(shown) == explain.LEAST_SLACK
    json.dumps(summary["explained"])


def test_a_buffer_of_the_backlog_loses_nothing_and_a_smaller_one_may() -> None:
    summary = runs.figures_only(load(TEXT, {}), {"predict"})
    port = next(port for port in summary["ports"] if port["port"] == "t->c")
    assert [queue["class"] for queue in port["queues"]] == sorted((q["class"] for q in port["queues"]), reverse=True)
    backlog = max(queue["backlog_bytes"] for queue in port["queues"])
    assert all(queue["room_bytes"] >= queue["backlog_bytes"] and not queue["exceeds"] for queue in port["queues"])
    tight = TEXT.replace(
        "link: {rate: 100 Mbit/s, delay: 5 us}", f"link: {{rate: 100 Mbit/s, delay: 5 us, buffer: {backlog - 1} B}}"
    )
    port = next(port for port in runs.figures_only(load(tight, {}), {"predict"})["ports"] if port["port"] == "t->c")
    assert sum(queue["exceeds"] for queue in port["queues"]) >= 1


def test_conditions_that_change_elsewhere_leave_the_jitter_of_answers_in_place() -> None:
    """The bound behind the broker was that for the declared jitter alone where any link's conditions changed."""
    calm = prediction()
    changing = prediction(TEXT + "at: {1 s: {link idle-t: {rate: 50 Mbit/s}}}\n")
    assert calm.outcomes and all(outcome.actual_ns is not None for outcome in calm.outcomes.values())
    assert changing.outcomes == calm.outcomes
    assert any(stream.follows is not None and stream.jitter_ns > 1_000_000 for stream in changing.streams.values())


def test_an_unknown_flow_is_an_error_with_suggestions() -> None:
    with pytest.raises(ScenarioError) as error:
        explain.pairs_of(prediction(), ["alhpa", "beta"])
    (problem,) = error.value.problems
    assert "no flow 'alhpa'" in problem.message and "'alpha'" in problem.hint
    with pytest.raises(ScenarioError) as error:
        explain.pairs_of(prediction(), ["zzz"])
    assert "the flows are 'alpha'" in error.value.problems[0].hint
    assert error.value.problems[0].hint.count("'alpha'") == 1


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shared.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_the_command_prints_hops_whose_figures_add_up(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", file, "--explain", "alpha", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("alpha -> c: ") and "deadline 20,000.000 us" in lines[0]
    hops = [number for number, line in enumerate(lines) if line.startswith("    port ")]
    assert len(hops) == 5
    for start in hops:
        printed = float(lines[start].split("%: ")[1].split(" us")[0].replace(",", ""))
        total = 0.0
        for line in lines[start + 1 :]:
            if not line.startswith("      ") or "  then " in line:
                break
            sign, value = line.split()[:2]
            total += float(value.replace(",", "")) * (1 if sign == "+" else -1)
        assert total == pytest.approx(printed, abs=1e-6)


def test_the_command_answers_in_json_and_refuses_what_is_not_there(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["predict", file, "--explain", "beta", "--explain", "night report/1.b", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [(entry["flow"], entry["receiver"]) for entry in entries] == [
        ("beta", "c"),
        ("beta", "d"),
        ("night report/1.b", "c"),
    ]
    bounds = entries[0]["segments"][0]["bounds_ns"]
    assert bounds["bound"] <= min(bounds["holistic"], bounds["calculus"])
    assert execute(["predict", file, "--explain", "bta"]) == 2
    assert "did you mean 'beta'" in capsys.readouterr().err
    assert execute(["predict", file, "--explain", "beta", "--ports"]) == 2


def test_a_flow_without_bound_is_explained_by_its_reason(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    over = [
        "--set",
        "flows.alpha.period=50 us",
        "--set",
        "flows.alpha.deadline=50 us",
        "--set",
        "flows.alpha.jitter=0 us",
    ]
    assert execute(["predict", file, "--explain", "alpha", "-q", *over]) == 1
    assert "no bound: utilisation" in capsys.readouterr().out


def test_ports_are_listed_with_the_backlog_of_each_queue(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", file, "--ports", "-q"]) == 0
    out = capsys.readouterr().out
    assert "t->c" in out and "loses nothing" in out and "holistic" in out and "calculus" in out
