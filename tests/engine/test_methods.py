"""Methods by name: beside the bound, labelled, and never in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timebound.cli.app import execute
from timebound.engine.methods import work_out
from timebound.engine.predict import predict
from timebound.engine.runs import figures_only, plan_of
from timebound.scenario import load
from timebound.scenario.builtin import find

SAFETY = {
    "bound": "safe", "holistic": "safe", "calculus": "safe", "trajectory": "experimental",
    "holistic-as-published": "unsafe", "trajectory-as-published": "unsafe",
}  # fmt: skip


def test_every_method_is_labelled_for_what_it_is() -> None:
    prediction = predict(plan_of(load(find("hello"))))
    found = {name: work_out(prediction, name) for name in SAFETY}  # type: ignore[arg-type]
    assert {name: figures.safety for name, figures in found.items()} == SAFETY
    bounds = {key: outcome.actual_ns for key, outcome in found["bound"].outcomes.items()}
    assert bounds == {key: outcome.actual_ns for key, outcome in prediction.outcomes.items()}
    known = {key: bound for key, bound in bounds.items() if bound is not None}
    assert known
    for name in ("holistic", "calculus"):
        others = {key: found[name].outcomes[key].actual_ns for key in known}
        assert all(other is not None and known[key] <= other for key, other in others.items())


@pytest.mark.parametrize("name", ["trajectory", "trajectory-as-published"])
def test_the_bound_and_the_verdict_do_not_change(name: str) -> None:
    scenario = load(find("hello"))
    alone, beside = figures_only(scenario, {"predict"}), figures_only(scenario, {"predict"}, method=name)  # type: ignore[arg-type]
    method = beside.pop("method")
    assert alone == beside
    assert method["name"] == name and method["safety"] == SAFETY[name] and "not a bound" in method["label"]
    assert len(method["flows"]) == len(alone["flows"])
    assert all(entry["value_us"] > 0 for entry in method["flows"])


def test_what_a_method_does_not_cover_has_a_reason() -> None:
    scenario = load(find("segments"))
    method = figures_only(scenario, {"predict"}, method="trajectory")["method"]
    missing = [entry for entry in method["flows"] if entry["value_us"] is None]
    assert missing and all(entry["reason"] for entry in missing)


def test_the_label_is_in_table_json_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", "hello", "--method", "holistic-as-published", "-q"]) == 0
    out = capsys.readouterr().out
    assert "UNSAFE" in out and "rely on the bound" in out
    assert execute(["predict", "hello", "--method", "trajectory", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"]["safety"] == "experimental"
    folder = tmp_path / "run"
    assert execute(["predict", "hello", "--method", "trajectory-as-published", "-q", "-o", str(folder)]) == 0
    assert json.loads((folder / "summary.json").read_text())["method"]["safety"] == "unsafe"
    page = (folder / "report.html").read_text()
    assert "By another method: trajectory-as-published (UNSAFE, not a bound)" in page
    capsys.readouterr()
    assert execute(["predict", "hello", "--method", "guess", "-q"]) == 2


def test_too_little_effort_is_told_and_the_bounds_of_the_others_stay_port_by_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = plan_of(load(find("hello")))
    full, none = predict(plan), predict(plan, effort=0)
    assert full.looked_at is None and none.looked_at is not None
    assert none.looked_at["streams"] == 0 < none.looked_at["of"]
    compared = [(full.outcomes[key].actual_ns, outcome.actual_ns) for key, outcome in none.outcomes.items()]
    assert all((least is None) == (other is None) for least, other in compared)
    assert all(least <= other for least, other in compared if least is not None and other is not None)
    assert any(least != other for least, other in compared)
    assert execute(["predict", "hello", "--effort", "0", "-q", "--json"]) in (0, 1)
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert summary["looked_at"] == none.looked_at
    said = f"for 0 of {none.looked_at['of']:,} streams"
    assert said in shown.err and any(said in note for note in summary["scenario"]["notes"])
    assert execute(["predict", "hello", "--effort", "-1", "-q"]) == 2
