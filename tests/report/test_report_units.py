"""Quantities for people, scales and text that fits."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timebound.report.palette import PALETTE
from timebound.report.svg import MOST, Scale, fit, text_width, value_scale, wrap
from timebound.report.units import bytes_text, count_text, rate_text, share_text, time_text


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (None, "–"),
        (0, "0 us"),
        (0.85, "850 ns"),
        (123.04, "123 us"),
        (999.6, "1 ms"),
        (1363.44, "1.36 ms"),
        (15_000, "15 ms"),
        (2_500_000, "2.5 s"),
        (-6000, "−6 ms"),
    ],
)
def test_times(us: float | None, shown: str) -> None:
    assert time_text(us) == shown


def test_other_quantities() -> None:
    assert rate_text(10_000_000) == "10 Mbit/s"
    assert bytes_text(12288) == "12 KiB"
    assert bytes_text(0) == "0 B"
    assert (share_text(0.28), share_text(0.004), share_text(1.69), share_text(0)) == ("28 %", "0.4 %", "169 %", "0 %")
    assert count_text(12345) == "12\u202f345"


@given(st.floats(1e-3, 1e12), st.floats(1e-3, 1e12))
def test_the_larger_time_never_reads_as_the_smaller(a: float, b: float) -> None:
    def value(us: float) -> float:
        number, unit = time_text(us).split(" ")
        return float(number) * {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}[unit]

    assert (value(a) <= value(b) * 1.0000001) or a >= b
    assert value(a) == pytest.approx(a, rel=0.006)


@given(
    st.one_of(
        st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20),
        # Subnormal values among them: a margin of the last bit, or a file that somebody wrote by hand.
        st.lists(st.floats(0, exclude_min=True, allow_infinity=False), min_size=1, max_size=20),
    ),
    st.integers(2, 12),
)
@example([5e-324], 6)
@example([5e-324, 1.0], 6)
@example([1e-320, 1.7e308], 6)
@example([2.3e-308, 1.0], 6)
def test_scales_keep_values_inside_and_ticks_in_order(values: list[float], most: int) -> None:
    scale = value_scale(values, 10, 500, room=0.1)
    assert all(10 <= scale(v) <= 500 for v in values)
    assert max(map(scale, values)) <= 500 - 0.1 * 490 + 1 or scale.log or max(values) > MOST
    ticks = scale.ticks(most)
    assert ticks == sorted(set(ticks)) and len(ticks) <= most + 2
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in ticks)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@example(0.0, 5e-324)
@example(-1.7e308, 1.7e308)
@example(1e15, 1e15 + 0.5)
def test_linear_ticks_are_in_order_whatever_the_ends(a: float, b: float) -> None:
    ticks = Scale(min(a, b), max(a, b), 0, 1).ticks()
    assert ticks and all(map(math.isfinite, ticks)) and ticks == sorted(set(ticks)) and len(ticks) <= 9


def test_a_wide_range_becomes_logarithmic_and_a_narrow_one_starts_at_zero() -> None:
    assert value_scale([1, 1000], 0, 1).log
    linear = value_scale([10, 100], 0, 1)
    assert not linear.log and linear.low == 0
    assert Scale(0, 0, 5, 9)(3) == 5


@given(st.text(max_size=60), st.floats(20, 300))
def test_text_fits(text: str, width: float) -> None:
    assert text_width(fit(text, width, 12), 12) <= max(width, text_width("…", 12))
    assert all(text_width(line, 12) <= max(width, text_width("…", 12)) for line in wrap(text, width, 12))


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("name", ["ink", "muted", "alarm", "deadline", "observed", "broker", "host"])
def test_text_and_what_carries_text_has_contrast_aa(name: str, theme: int) -> None:
    values = sorted(luminance(PALETTE[colour][theme]) for colour in (name, "ground"))
    assert (values[1] + 0.05) / (values[0] + 0.05) >= 4.5
