"""Ranges of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.scenario.names import RangeError, expand, group_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h1", ["h1"]),
        ("h[1-3]", ["h1", "h2", "h3"]),
        ("h[08-11]", ["h08", "h09", "h10", "h11"]),
        ("h[0-2]", ["h0", "h1", "h2"]),
        ("h[1,4,7-8]", ["h1", "h4", "h7", "h8"]),
        ("r[1-2]p[1-2]x", ["r1p1x", "r1p2x", "r2p1x", "r2p2x"]),
        ("[1-2]a", ["1a", "2a"]),
    ],
)
def test_expansion(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "h[]", "h[3-1]", "h[a-b]", "h[1-2", "-h", "h ", "h[1-20001]", "h[1-200][1-200]", "x" * 70]
)
def test_what_is_no_name_says_so(text: str) -> None:
    with pytest.raises(RangeError) as error:
        expand(text)
    assert error.value.hint


@given(st.integers(0, 999), st.integers(0, 60), st.integers(1, 5))
def test_a_range_has_as_many_different_names_as_numbers(first: int, more: int, width: int) -> None:
    low = str(first).zfill(width)
    names = expand(f"n[{low}-{first + more}]")
    assert len(set(names)) == more + 1
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))
    assert names[0] == f"n{low}"


@given(st.text(max_size=20))
def test_any_text_expands_or_is_a_range_error(text: str) -> None:
    try:
        assert expand(text)
    except RangeError as error:
        assert error.message


def test_an_instance_knows_its_flow() -> None:
    assert group_of("alpha[3]") == "alpha"
    assert group_of("alpha") == "alpha"
