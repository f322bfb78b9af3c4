"""The page of a sweep: self-contained, deaf to what names say, true to its document."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.engine.sweep.results import METRICS, effects
from timebound.report import ReportError, write_sweep
from timebound.report.figures.sweep import Course, Picture, draw
from timebound.report.units import time_text

EVIL = "</script><b onload=alert(1)>&"


def content(*, evil: str = "fast") -> dict[str, Any]:
    axes = [
        {"paths": ["run.seed"], "steps": [["1"], ["2"]], "name": "run.seed", "numbers": [1.0, 2.0]},
        {"paths": ["flows.a.period"], "steps": [["5 ms"], ["10 ms"]], "name": "flows.a.period", "numbers": [5e6, 1e7]},
        {"paths": ["mode"], "steps": [[evil], ["slow"]], "name": "mode", "numbers": None},
    ]
    points: list[dict[str, Any]] = []
    for seed in "12":
        for period in ("5 ms", "10 ms"):
            for mode in (evil, "slow"):
                value = 1000.0 * (2 if period == "5 ms" else 1) + int(seed)
                points.append(
                    {
                        "index": len(points),
                        "settings": {"run.seed": seed, "flows.a.period": period, "mode": mode},
                        "key": f"{len(points):040d}",
                        "status": "done",
                        "exit_code": 0,
                        "verdict": "met",
                        "failure": None,
                        "folder": "results/x",
                        "elapsed_s": 1.0,
                        "metrics": {"bound_us": value, "lost_share": 0.0},
                        "flows": [
                            {
                                "flow": mode,
                                "receiver": "h",
                                "verdict": "met",
                                "bound_us": value,
                                "margin_us": -1.0,
                                "lost": 0,
                            }
                        ],
                    }
                )
    points[3] |= {
        "status": "failed",
        "verdict": "failed",
        "failure": f"because {evil}",
        "metrics": {},
        "flows": [],
        "exit_code": 3,
    }
    points[4] |= {
        "status": "missing",
        "verdict": "missing",
        "metrics": {},
        "flows": [],
        "exit_code": None,
        "folder": None,
    }
    used = ["bound_us", "lost_share"]
    return {
        "scenario": "plant",
        "verb": "predict",
        "timebound": "0",
        "settings": {},
        "axes": axes,
        "points": points,
        "metrics": [{"name": n, "title": METRICS[n][0], "unit": METRICS[n][1]} for n in used],
        "effects": effects(axes, points, used),
        "counts": {"done": 6, "failed": 1, "missing": 1},
    }


def test_the_page_names_what_matters_and_what_failed(tmp_path: Path) -> None:
    page = write_sweep(content(), tmp_path / "report.html").read_text()
    assert "6 of 8 points meet their requirements" in page
    assert "because fast" in page and "1 points have no result yet: 4" in page
    row = page[page.index('id="effects-table"') :]
    assert re.search(r"bound</th>.*?<strong>● 9\d %|bound</th>.*?<strong>● 100 %", row)
    # The bound over period (lines) and over mode (bars), wide and narrow; what is the same everywhere is not drawn.
    assert page.count("<svg") == 4 and "sweep-1-bound-us" in page and "sweep-2-bound-us" in page
    assert not re.search(r'(src|href)="(?!#)', page)


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    page = write_sweep(content(evil=EVIL), tmp_path / "report.html").read_text()
    assert EVIL not in page and "<b onload" not in page and "&lt;b onload" in page


def test_a_damaged_document_is_told(tmp_path: Path) -> None:
    broken = content()
    del broken["axes"][0]["steps"]
    with pytest.raises(ReportError, match="damaged"):
        write_sweep(broken, tmp_path / "report.html")
    with pytest.raises(ReportError, match="cannot be written"):
        write_sweep(content(), tmp_path / "none" / "report.html")


VALUE = st.one_of(st.floats(-1e12, 1e12), st.just(0.0), st.floats(0, 1), st.floats(0, 1e-300))
GROUPS = st.lists(st.lists(VALUE, max_size=4).map(tuple), min_size=3, max_size=3).map(tuple)


@given(st.lists(GROUPS, min_size=1, max_size=6), st.booleans(), st.sampled_from([344.0, 960.0]))
@settings(max_examples=80, deadline=None)
def test_any_values_are_drawn_within_the_figure(found: list[Any], numeric: bool, width: float) -> None:
    courses = tuple(Course(f"c{i}", groups) for i, groups in enumerate(found))
    picture = Picture("p", "t", "x", ("a", "b", "c"), (1.0, 2.0, 7.0) if numeric else None, courses, time_text, "foot")
    drawn = draw(picture, width)
    if not any(group for groups in found for group in groups):
        assert drawn is None
        return
    assert drawn is not None and "nan" not in drawn and "inf" not in drawn
    for x in re.findall(r'\b(?:cx|x1|x2)="(-?[\d.]+)"', drawn):
        assert -1 <= float(x) <= width + 1
