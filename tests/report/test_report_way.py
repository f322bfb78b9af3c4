"""From publisher to subscriber in the report: stacked parts, what they rest on, assumptions that did not hold."""

from __future__ import annotations

from typing import Any

import report_runs as runs

from timebound.cli.table import broker_lines, flow_row
from timebound.report import figure_svg
from timebound.report.run import Run
from timebound.report.way import Way


def test_the_parts_of_a_way_are_stacked_in_order() -> None:
    summary = runs.all_well()
    drawn = figure_svg("way", summary)
    flow = summary["flows"][0]
    name = f"{flow['flow']} → {flow['receiver']}"
    titles = [
        drawn.find(f"{name}, {part}") for part in ("network segment publish", "broker h2", "network segment deliver")
    ]
    assert -1 not in titles and titles == sorted(titles)


def test_a_figure_without_a_brokers_time_is_marked() -> None:
    summary = runs.all_well()
    assert "* leaves" in figure_svg("way", summary) and "ms *<" not in figure_svg("way", summary)
    for flow in summary["flows"]:
        flow["end_to_end_us"]["covers"] = "network"
    assert "ms *<" in figure_svg("way", summary)


def test_the_margin_is_that_of_the_whole_way() -> None:
    summary = runs.all_well()
    for flow in Run.parse(summary).flows:
        assert flow.deadline is None or flow.way.bound is None or flow.margin == flow.deadline - flow.way.bound


def test_the_page_says_what_the_figures_rest_on_and_never_calls_measured_times_safe(report: Any) -> None:
    summary = runs.all_well()
    broken = "broker h2 took up to 12.0 us: the profile does not hold on this machine"
    summary["assumptions"] = [{"flow": "alpha", "receiver": "h5", "broker": "h2", "text": broken}]
    page = report(summary).read_text(encoding="utf-8")
    assert "measured, not guaranteed" in page
    assert "Assumptions that did not hold" in page and broken in page
    assert "with measured, not guaranteed, times of brokers" in page
    lines = broker_lines(summary)
    assert any("measured, not guaranteed" in line for line in lines)
    assert f"assumption broken: {broken}" in lines


def test_a_way_without_brokers_has_no_figure_and_no_column() -> None:
    summary = runs.all_well()
    for flow in summary["flows"]:
        flow.setdefault("tightness", None)
        flow["end_to_end_us"]["parts"] = flow["end_to_end_us"]["parts"][:1]
    assert "nothing to show" in figure_svg("way", summary)
    # The cell of the column "end to end".
    assert flow_row(summary["flows"][0])[10] == "-"
    assert flow_row(runs.all_well()["flows"][0] | {"tightness": None})[10] == "1.975 ms"
    assert broker_lines({**summary, "assumptions": []}) == []


def test_what_is_not_a_way_is_absent() -> None:
    for value in (
        None,
        3,
        "x",
        [],
        {"parts": 3},
        {"bound": float("nan")},
        {"bound": True},
        {"parts": [None, {"kind": 7}]},
    ):
        found = Way.parse(value)
        assert found.bound is None and not found.has_broker
