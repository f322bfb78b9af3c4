"""Quantities: exact, rounded upwards, never without a unit."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.scenario import units
from timebound.scenario.units import LENGTH, RATE, SHARE, SIZE, TIME, UnitError, integer, parse, parse_range


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("15 ms", TIME, 15_000_000),
        ("0.4ms", TIME, 400_000),
        ("123.04 µs", TIME, 123_040),
        ("123.04 μs", TIME, 123_040),
        ("2 min", TIME, 120_000_000_000),
        ("1.5 h", TIME, 5_400_000_000_000),
        ("0.0000001 us", TIME, 1),
        ("1e3 ns", TIME, 1000),
        ("100 Mbit/s", RATE, 100_000_000),
        ("9.6 kbit/s", RATE, 9600),
        ("1 MB/s", RATE, 8_000_000),
        ("1 KiB/s", RATE, 8192),
        ("1446 B", SIZE, 1446),
        ("256 KiB", SIZE, 262_144),
        ("2 kB", SIZE, 2000),
        ("9 bit", SIZE, 2),
        ("1.5 km", LENGTH, 1_500_000),
    ],
)
def test_a_quantity_is_exact_and_rounds_upwards(text: str, kind: units.Kind, value: int) -> None:
    assert integer(parse(text, kind)) == value


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("15..20 ms", 15_000_000, 20_000_000),
        ("10 us..1 ms", 10_000, 1_000_000),
        ("30 ± 5 ms", 25_000_000, 35_000_000),
        ("30+-5 ms", 25_000_000, 35_000_000),
        ("30 +/- 5 ms", 25_000_000, 35_000_000),
        ("1.5..2.5 s", 1_500_000_000, 2_500_000_000),
        ("7 ms", 7_000_000, 7_000_000),
    ],
)
def test_ranges(text: str, low: int, high: int) -> None:
    assert parse_range(text, TIME) == (Fraction(low), Fraction(high))


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        ("15", TIME, "no unit", "15 ms"),
        (15, TIME, "no unit", "15 ms"),
        (0.5, SHARE, "no unit", "%"),
        ("15..20", TIME, "no unit", "15 ms"),
        ("10 Mbps", RATE, "no unit of a rate", "'Mbit/s'"),
        ("10 MS", TIME, "no unit of a time", "'ms'"),
        ("-5 ms", TIME, "negative", "zero up"),
        ("20..15 ms", TIME, "backwards", "least..greatest"),
        ("5 ± 6 ms", TIME, "below zero", "smaller"),
        ("101 %", SHARE, "out of range", "100 %"),
        ("99 bit/s", RATE, "out of range", "100 bit/s"),
        ("278 h", TIME, "out of range", "277 h"),
        ("1e99 s", TIME, "out of range", "277 h"),
        ("soon", TIME, "no time", "15 ms"),
        ("", TIME, "no time", "15 ms"),
        (True, TIME, "expected a time", "15 ms"),
        (None, SIZE, "expected a size", "1446 B"),
        ("9" * 200, TIME, "too long", "15 ms"),
    ],
)
def test_a_bad_quantity_says_what_to_write(text: object, kind: units.Kind, message: str, hint: str) -> None:
    with pytest.raises(UnitError) as error:
        parse_range(text, kind) if kind is TIME else parse(text, kind)
    assert message in error.value.message
    assert hint in error.value.hint


@given(st.integers(0, units.LONGEST_NS))
def test_times_survive_printing(value: int) -> None:
    assert parse(units.format_time(value), TIME) == value


@given(st.integers(100, 10**13))
def test_rates_survive_printing(value: int) -> None:
    assert parse(units.format_rate(value), RATE) == value


@given(st.integers(0, 10**13))
def test_sizes_survive_printing(value: int) -> None:
    assert parse(units.format_size(value), SIZE) == value


@given(st.floats(0, 1))
def test_shares_survive_printing(value: float) -> None:
    assert units.share(parse(units.format_share(value), SHARE)) == value


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(sorted(TIME.units)))
def test_a_range_is_its_two_ends(low: int, extra: int, unit: str) -> None:
    wide = parse_range(f"{low}..{low + extra} ns", TIME)
    assert wide == (Fraction(low), Fraction(low + extra))
    one = Fraction(low % 200) * TIME.units[unit]
    assert parse_range(f"{low % 200} {unit}", TIME) == (one, one)


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_a_unit_error(text: str) -> None:
    for kind in (TIME, RATE, SIZE, SHARE, LENGTH):
        try:
            low, high = parse_range(text, kind)
            assert kind.least <= low <= high <= kind.most
        except UnitError as error:
            assert error.hint


def test_light_takes_5_us_per_km() -> None:
    assert units.propagation_ns(1_000_000) == 5_000
    assert units.propagation_ns(1) == 1


@pytest.mark.parametrize("kind", [value for value in vars(units).values() if isinstance(value, units.Kind)])
def test_every_kind_has_words_for_its_limits(kind: units.Kind) -> None:
    unit = next(iter(kind.units))
    with pytest.raises(UnitError, match="out of range") as error:
        parse(f"1e300 {unit}", kind)
    assert kind.name in error.value.hint
