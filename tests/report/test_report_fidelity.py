"""The certificate in the report: at a glance in words, over time as a figure with its disturbed stretches."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import report_runs as runs
from report_pages import read_page

from timebound.report import figure_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_the_section_says_how_long_the_data_plane_was_held_up_and_what_that_is_beside_the_flows(report: Any) -> None:
    words = read_page(report(runs.disturbed())).elements[0].text
    assert "for 101 ms at worst at 4.377 s of the run; longer than 1 ms: 3 times" in words
    assert "p99 of lateness is 24 % of the smallest deadline slack (8 ms, alpha at h5)" in words
    assert "used 732 ms of CPU time and waited 110 ms for it" in words


def test_a_report_of_an_older_run_without_a_history_says_that_there_is_none(report: Any) -> None:
    run = runs.all_well()
    del run["precision"]["series"]
    words = read_page(report(run)).elements[0].text
    assert "lateness over time was not recorded" in words and "at worst at" not in words


def test_the_figure_shades_every_disturbed_stretch_and_draws_the_limit() -> None:
    picture = ElementTree.fromstring(figure_svg("fidelity", runs.disturbed()))
    titles = [element.text or "" for element in picture.iter(f"{SVG}title")]
    assert any(t.startswith("4.300 to 4.500 s: p99 beyond its limit, data plane held up; latest frame") for t in titles)
    assert any(t.startswith("9.000 to 9.100 s: frames lost in the ring") for t in titles)
    shaded = [e for e in picture.iter(f"{SVG}rect") if e.get("fill-opacity") == "0.18"]
    assert len(shaded) == 2
    assert any("limit for p99, 1 ms" in (element.text or "") for element in picture.iter(f"{SVG}text"))


@pytest.mark.parametrize(
    "series",
    [None, {}, {"time_s": [0.0]}, {"time_s": [0.0, 0.1], "p99_us": [1.0]}, {"time_s": "x", "p99_us": [1.0, "y"]}],
)
def test_a_series_of_another_form_is_no_figure_and_no_error(series: object) -> None:
    run = runs.disturbed()
    run["precision"]["series"] = series
    assert "nothing to show" in figure_svg("fidelity", run)


def test_real_switches_have_a_row_with_what_they_took_beside_what_is_declared(report: Any) -> None:
    run = runs.disturbed()
    transit = {"min": 13.5, "p50": 162.0, "p99": 380.0, "p999": 1245.0, "max": 7015.0}
    counts = {"arrived": 9467, "left": 9467, "vanished": 2, "entered": 31, "above": 6, "below": 0}
    switch = {"switch": "s1", "declared_us": [0.0, 5000.0], "transit_us": transit, "slowest_at_s": 2.2, **counts}
    run["switches"] = [switch, {"switch": "s9", "declared_us": "?", "transit_us": None}]
    words = read_page(report(run)).elements[0].text
    assert "Real switches" in words and "0 µs to 5 ms" in words.replace("us", "µs")
    assert "162" in words and "7.015 ms" in words and "s9" in words
    assert "Real switches" not in read_page(report(runs.all_well())).elements[0].text
