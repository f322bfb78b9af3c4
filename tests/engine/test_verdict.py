"""What a run's verdict rests on: requirements that exist."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timebound.cli.app import execute
from timebound.cli.table import _caption
from timebound.engine.entry import Entry
from timebound.engine.explain import by_method
from timebound.engine.observed import Arrivals
from timebound.engine.predict import predict
from timebound.engine.progress import SILENT
from timebound.engine.runs import plan_of
from timebound.engine.simulate import simulate
from timebound.engine.summary import Results, overall
from timebound.report.run import read_run
from timebound.report.words import sentence
from timebound.scenario import load

TEXT = """
name: beside
network:
  nodes: {h[1-3]: host, s1: switch}
  links: [[h[1-3], s1]]
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us LINK}}
flows:
  - {name: alarm, from: h1, to: h3, size: 64 B, period: 50 ms, deadline: 20 ms, priority: 6}
  - {name: logs, from: h2, to: h3, size: 200 B, period: 50 ms, pattern: poisson, priority: 0}
stack: STACK
run: {duration: 1 s, simulate: {duration: 1 s, search: 20}}
"""


def written(tmp_path: Path, stack: str = "{udp: {}}", link: str = "", text: str = TEXT) -> Path:
    file = tmp_path / "beside.yaml"
    file.write_text(text.replace("STACK", stack).replace("LINK", link))
    return file


def verdicts(summary: dict[str, Any]) -> dict[str, str]:
    return {flow["flow"]: flow["verdict"] for flow in summary["flows"]}


@pytest.mark.parametrize("verb", ["predict", "simulate"])
@pytest.mark.parametrize("stack", ["{udp: {}}", "{mqtt: {broker: h2}}"])
def test_best_effort_beside_a_flow_that_is_met_is_no_miss(verb: str, stack: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert execute([verb, str(written(tmp_path, stack)), "--quiet", "-o", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["verdict"] == "met"
    assert verdicts(summary) == {"alarm": "met", "logs": "unbounded"}
    said = sentence(read_run(folder))
    assert "The only flow with a deadline keeps it" in said
    assert "1 without a finite bound, of which nothing is required" in said


def test_a_deadline_without_a_bound_is_no_promise(tmp_path: Path) -> None:
    text = TEXT.replace("pattern: poisson", "pattern: poisson, deadline: 1 s")
    assert execute(["predict", str(written(tmp_path, text=text)), "--quiet", "--json"]) == 1


def test_best_effort_may_lose_messages_and_need_no_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace("200 B, period: 50 ms, pattern: poisson, priority: 0", "60 kB, period: 50 ms, priority: 0")
    file = written(tmp_path, link=", buffer: 4 kB", text=text)
    assert execute(["predict", str(file), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert verdicts(summary)["logs"] == "met"
    assert "can be lost" in summary["flows"][1]["risk"]
    # Who has a deadline misses it with a message that is lost.
    timed = written(tmp_path, link=", buffer: 4 kB", text=text.replace("priority: 0", "priority: 0, deadline: 50 ms"))
    assert execute(["predict", str(timed), "--json"]) == 1


def test_a_point_of_a_sweep_is_met_beside_best_effort(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    axis = "network.defaults.link.rate=50 Mbit/s,100 Mbit/s"
    assert (
        execute(["sweep", str(written(tmp_path)), "--vary", axis, "--verb", "predict", "-o", str(out), "--quiet"]) == 0
    )


def test_a_run_that_measured_nothing_at_all_is_not_met() -> None:
    free = {"verdict": "unmeasured", "decides": False}
    assert overall([free, {"verdict": "met", "decides": True}], {"verdict": "good"}, []) == "met"
    assert overall([free], {"verdict": "good"}, []) == "unmeasured"
    assert (
        overall(
            [{"verdict": "unmeasured", "decides": True}, {"verdict": "met", "decides": True}], {"verdict": "good"}, []
        )
        == "unmeasured"
    )


def emulated(tmp_path: Path, early_ns: int, latency_ns: int) -> dict[str, Any]:
    """The alarm, searched for, and a run in which one of its frames took `latency_ns` and one came `early_ns` too early."""
    prediction = predict(plan_of(load(written(tmp_path))))
    name = "alarm/direct"
    arrivals = {name: Arrivals(frames=20, jitter_ns=early_ns, largest_wire=146, larger=0, retransmissions=0)}
    measured: Any = SimpleNamespace(arrivals=arrivals, worst_ns={(name, "h3"): latency_ns}, live={}, segments={})
    results = Results(prediction, simulate(prediction, SILENT), measured)
    entry = Entry(
        results, prediction.plan.scenario.flows[0], "h3", {}, {}, {}, by_method(prediction), [], results.is_kept(), {}
    )
    return entry._segment(prediction.plan.segments["alarm", "h3"][0], None)


def test_the_worst_found_is_never_below_what_was_observed_of_sources_that_kept_their_word(tmp_path: Path) -> None:
    simulated = emulated(tmp_path, 0, 1)["simulated_max_us"]
    assert emulated(tmp_path, 0, 1)["worst_found_us"] == simulated
    more = round(1000 * simulated) + 1000
    found = emulated(tmp_path, 0, more)
    assert found["worst_found_us"] == more / 1000
    assert found["tightness"] == pytest.approx(found["bound_us"] * 1000 / more, abs=1e-4)


def test_what_a_source_that_broke_its_word_brought_about_is_no_worst_case_of_the_declared_network(
    tmp_path: Path,
) -> None:
    found = emulated(tmp_path, 1_000_000, 900_000_000)
    assert found["worst_found_us"] == found["simulated_max_us"]
    shown = {
        **found,
        "latency_us": {"max": 900_000.0},
        **dict.fromkeys(("application_us", "end_to_end_us")),
        "bound_us": {"bound": None},
    }
    caption = _caption({"flows": [shown]}, 0, "")
    assert "in the run" in caption and "less regularly than declared" in caption


@pytest.mark.parametrize(("qos", "deadline"), [(0, ", deadline: 20 ms"), (1, ""), (0, "")])
def test_messages_that_could_not_be_told_apart_are_not_called_met(tmp_path: Path, qos: int, deadline: str) -> None:
    text = TEXT.replace("size: 64 B", "size: 0 B").replace(", deadline: 20 ms, priority: 6", f"{deadline}, qos: {qos}")
    prediction = predict(plan_of(load(written(tmp_path, "{mqtt: {broker: h2}}", text=text))))
    flow = prediction.plan.scenario.flows[0]
    for guesses in ({}, {("alarm", "h3"): "which ones is a guess"}):
        measured: Any = SimpleNamespace(guesses=guesses, unread={})
        entry = Entry(Results(prediction, None, measured), flow, "h3", {}, {}, {}, by_method(prediction), [], True, {})
        figures = {
            "deadline_us": 20_000.0 if deadline else None,
            "lost": 0,
            "risk": None,
            "late": 0,
            "late_by": None,
            "exceeded_by": [],
        }
        told = figures | {"received": 20, "decides": False, "end_to_end_us": {"bound": 1_000.0}}
        is_required = bool(qos or deadline)
        assert entry.verdict(told) == ("unmeasured" if guesses and is_required else "met")
        assert told["decides"] == bool(guesses and is_required)


@pytest.mark.parametrize("deadline", [", deadline: 20 ms", ""])
def test_messages_of_which_some_could_not_be_read_are_not_called_met(tmp_path: Path, deadline: str) -> None:
    text = TEXT.replace(", deadline: 20 ms, priority: 6", deadline)
    prediction = predict(plan_of(load(written(tmp_path, "{mqtt: {broker: h2}}", text=text))))
    flow = prediction.plan.scenario.flows[0]
    for unread in ({}, {("alarm", "h3"): "40 bytes could not be read as MQTT"}):
        measured: Any = SimpleNamespace(guesses={}, unread=unread)
        entry = Entry(Results(prediction, None, measured), flow, "h3", {}, {}, {}, by_method(prediction), [], True, {})
        told = {"deadline_us": 20_000.0 if deadline else None, "lost": 0, "risk": None, "late": 0, "late_by": None}
        told |= {"exceeded_by": [], "received": 20, "decides": bool(deadline), "end_to_end_us": {"bound": 1_000.0}}
        assert entry.verdict(told) == ("unmeasured" if unread else "met")
        # What nobody requires does not decide about the run.
        assert told["decides"] == bool(deadline)
