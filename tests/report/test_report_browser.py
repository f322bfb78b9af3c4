"""The page in headless Chromium: nothing sticks out on a phone, no error, sorting and filtering work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import report_runs as runs

from timebound.report import write_comparison

OVERFLOW = """(() => {
  const root = document.documentElement, wide = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('.box, pre, .skip')) continue;
    const r = e.getBoundingClientRect();
    if (r.width && r.right > root.clientWidth + 0.5) wide.push(`${e.tagName} ${Math.round(r.right)} ${e.textContent.slice(0, 40)}`);
  }
  wide.sort((a, b) => Number(b.split(' ')[1]) - Number(a.split(' ')[1]));
  return { scroll: root.scrollWidth, client: root.clientWidth, wide };
})()"""


@pytest.mark.parametrize("kind", ["all-well", "overloaded", "hostile", "empty"])
def test_no_horizontal_overflow_on_a_phone_and_no_error(kind: str, report: Any, browser: Any) -> None:
    found = browser(report(runs.KINDS[kind]()), 360, OVERFLOW)["result"]
    assert found["scroll"] <= found["client"], found["wide"]
    assert found["wide"] == []


def test_a_comparison_fits_a_phone(tmp_path: Path, browser: Any) -> None:
    folders = [runs.write(tmp_path / kind, runs.KINDS[kind]()) for kind in ("all-well", "overloaded")]
    found = browser(write_comparison(folders, tmp_path / "c.html"), 360, OVERFLOW)["result"]
    assert found["wide"] == [] and found["scroll"] <= found["client"]


def test_sorting_and_filtering(report: Any, browser: Any) -> None:
    script = """(() => {
      const table = document.getElementById('table-flows');
      const names = () => [...table.tBodies[0].rows].filter((r) => !r.hidden).map((r) => r.cells[0].textContent);
      const heads = [...table.tHead.rows[0].cells];
      const bound = heads.find((h) => h.textContent === 'bound');
      bound.querySelector('button').click();
      const up = names();
      bound.querySelector('button').click();
      const down = names();
      return { up, down, sort: bound.getAttribute('aria-sort'), tips: document.querySelectorAll('[data-tip]').length };
    })()"""
    summary = runs.overloaded()
    found = browser(report(summary), 1200, script)["result"]
    bounded = sorted(
        (f for f in summary["flows"] if f["bound_us"]["bound"] is not None), key=lambda f: f["bound_us"]["bound"]
    )
    expected = [f"{f['flow']} → {f['receiver']}" for f in bounded]
    assert found["up"][: len(expected)] == expected
    assert found["down"][: len(expected)] == expected[::-1]
    assert found["sort"] == "descending" and found["tips"] > 20


def test_filter_hides_rows_and_says_how_many(report: Any, browser: Any) -> None:
    script = """(() => {
      const tools = document.querySelector('.tools[data-for="table-flows"]');
      return { rows: document.getElementById('table-flows').tBodies[0].rows.length, said: tools.textContent, input: !!tools.querySelector('input') };
    })()"""
    found = browser(report(runs.all_well(30)), 1200, script)["result"]
    assert found == {"rows": 30, "said": "30 of 30 rows", "input": True}
