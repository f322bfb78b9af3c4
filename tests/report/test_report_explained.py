"""Bars of what bounds are made of: they are as long as the bounds, hop after hop."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import report_runs as runs
from report_explained import explained, hop
from report_pages import read_page

from timebound.report import figure_svg
from timebound.report.explained import Explained

SVG = "{http://www.w3.org/2000/svg}"


def test_the_stages_of_a_way_add_up_to_it() -> None:
    for raw in explained():
        way = Explained.parse(raw)
        hops = [h for segment in raw["segments"] for h in segment["hops"]]
        links = sum(h["propagation_us"] + h["switching_us"] for h in hops)
        between = sum(part["bound_us"] for parts in raw["between"] for part in parts)
        jitter = raw["segments"][0]["source_jitter_us"]
        assert way.total == pytest.approx(sum(h["response_us"] for h in hops) + links + between + jitter)
        ports = [stage for stage in way.stages if "→" in stage.name]
        for stage, h in zip(ports, hops, strict=True):
            assert stage.total == pytest.approx(h["response_us"] + h["propagation_us"] + h["switching_us"])
            assert all(us > 0 for _, us in stage.parts)


def test_what_is_over_when_the_frame_arrives_is_taken_off_what_was_sent_first() -> None:
    raw = {"flow": "f", "receiver": "r", "segments": [{"hops": [hop("a->b", 1.0, window_us=200.0, shaping_us=20.0)]}]}
    (stage,) = Explained.parse(raw).stages
    assert dict(stage.parts) == pytest.approx(
        {"higher": 240 - (200 - 123.04), "same": 500.0, "own": 118.0, "link": 25.0}
    )
    assert "200 us are over when the frame arrives" in stage.detail and "12 others 480 us" in stage.detail


def test_a_bar_begins_where_the_one_before_ends_and_is_as_long_as_its_part() -> None:
    drawn = ElementTree.fromstring(figure_svg("explained", {**runs.predict_only(), "explained": explained()[:1]}))
    bars = [
        (float(box.attrib["x"]), float(box.attrib["width"]))
        for group in drawn.iter(f"{SVG}g")
        for box in group.findall(f"{SVG}rect")
    ]
    (way,) = [Explained.parse(raw) for raw in explained()[:1]]
    start = bars[0][0]
    kinds = len({kind for stage in way.stages for kind, _ in stage.parts})
    whole, stages = bars[:kinds], bars[kinds:]
    pixels = (whole[-1][0] + whole[-1][1] - start) / way.total
    at = start
    for (x, width), us in zip(stages, [us for stage in way.stages for _, us in stage.parts], strict=True):
        # What would be too short to be seen is a thin line.
        assert x == pytest.approx(at, abs=0.1) and width == pytest.approx(max(us * pixels, 0.6), abs=0.1)
        at += us * pixels
    words = "".join(drawn.itertext())
    assert "deadline 9 ms" in words and "slack" in words and "blocked by one frame of undeclared best effort" in words


def test_queues_are_listed_with_the_room_they_need(report: Any) -> None:
    summary = runs.all_well()
    page = read_page(report(summary))
    rows = page.rows["table-queues"]
    assert len(rows) == 1 + sum(len(port["queues"]) for port in summary["ports"])
    words = [[cell.text for cell in row] for row in rows]
    assert any("frames can be lost" in cell for row in words for cell in row)


def test_methods_stand_beside_the_bound(report: Any) -> None:
    summary = runs.all_well()
    page = read_page(report(summary))
    head, *body = page.rows["table-flows"]
    titles = [cell.text for cell in head]
    for method in ("holistic", "calculus"):
        place = titles.index(method)
        shown = {float(row[place].attributes["data-v"]) for row in body}
        assert shown == {flow["bound_us"][method] for flow in summary["flows"]}
