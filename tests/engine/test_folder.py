"""Files of a run's folder."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timebound.engine.folder import lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.integers(0, 4))
def test_lines_are_the_same_json(content: Any, depth: int) -> None:
    assert json.loads(lines(content, depth)) == content


def test_each_entry_of_what_is_at_the_top_has_a_line() -> None:
    text = lines({"flows": [{"flow": "a", "bounds": [1, 2]}, {"flow": "b"}], "none": [], "verdict": "met"})
    assert text.splitlines() == [
        "{",
        ' "flows": [',
        '  {"flow": "a", "bounds": [1, 2]},',
        '  {"flow": "b"}',
        " ],",
        ' "none": [],',
        ' "verdict": "met"',
        "}",
    ]


@pytest.mark.parametrize("content", [float("nan"), {"a": [float("inf")]}, [[{"a": [float("-inf")]}]]])
def test_what_json_does_not_know_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        lines(content)
