"""Runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_runs as runs
from report_pages import read_page
from test_report_page import row_of

from timebound.report import ReportError, write_comparison


def folders(tmp_path: Path, *kinds: str) -> list[Path]:
    return [runs.write(tmp_path / kind, runs.KINDS[kind]()) for kind in kinds]


def test_figures_and_changes_of_two_runs(tmp_path: Path) -> None:
    a, b = folders(tmp_path, "all-well", "violated")
    page = read_page(write_comparison([a, b], tmp_path / "both.html"))
    first, second = runs.all_well()["flows"][1], runs.violated()["flows"][1]
    row = row_of(page, "table-comparison", "beta → h5")
    assert row["network max A"] == first["latency_us"]["max"]
    assert row["network max B"] == second["latency_us"]["max"]
    change = (second["latency_us"]["max"] - first["latency_us"]["max"]) / first["latency_us"]["max"]
    assert row["B against A"] == pytest.approx(0) or row["B against A"] == pytest.approx(change)
    changed = next(e for e in page.elements if e.attributes.get("id") == "changes")
    assert "1 of 4 flows" in changed.text and "beta → h5" in changed.text


def test_what_the_scenarios_declare_differently(tmp_path: Path) -> None:
    a = runs.write(tmp_path / "a", runs.all_well())
    other = runs.all_well()
    other["topology"]["links"][0]["rate_bps"] = 10_000_000
    other["flows"][0]["period_us"] = 10000.0
    b = runs.write(tmp_path / "b", other)
    (b / "scenario.yaml").write_text("name: other\n", encoding="utf-8")
    page = read_page(write_comparison([a, b], tmp_path))
    row = row_of(page, "table-scenario", "link h1 – s1")
    assert (row["A"], row["B"]) == ("100 Mbit/s, delay 5 us", "10 Mbit/s, delay 5 us")
    assert row_of(page, "table-scenario", "flow alpha → h3: period")["B"] == "10 ms"
    assert len(page.rows["table-scenario"]) == 3
    assert (tmp_path / "comparison.html").exists()


@pytest.mark.parametrize(
    "kinds",
    [("all-well", "overloaded", "missed"), ("predict-only", "hostile"), ("empty", "empty"), ("empty", "disturbed")],
)
def test_any_mix_of_runs_gives_a_well_formed_page(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    page = read_page(write_comparison(folders(tmp_path, *kinds), tmp_path / "c.html"))
    assert [e.name for e in page.elements].count("script") == 1
    assert not any(e.name == "img" for e in page.elements)


def test_one_folder_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="2 to 6"):
        write_comparison(folders(tmp_path, "all-well"), tmp_path / "c.html")
