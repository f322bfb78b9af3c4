"""Quantities: exact, never rounded, never without a unit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.scenario import load, units
from timebound.scenario.problems import ScenarioError
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
        ("1e3 ns", TIME, 1000),
        ("100 Mbit/s", RATE, 100_000_000),
        ("9.6 kbit/s", RATE, 9600),
        ("1 MB/s", RATE, 8_000_000),
        ("1 KiB/s", RATE, 8192),
        ("1446 B", SIZE, 1446),
        ("256 KiB", SIZE, 262_144),
        ("2 kB", SIZE, 2000),
        ("16 bit", SIZE, 2),
        ("1.5 km", LENGTH, 1_500_000),
    ],
)
def test_a_quantity_is_exact(text: str, kind: units.Kind, value: int) -> None:
    assert integer(parse(text, kind)) == units.exactly(parse(text, kind), text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        ("1e-30 s", TIME, "'1e-30 s' is no whole number of nanoseconds", "write 0 ns or 1 ns"),
        ("1.0000005 ms", TIME, "nanoseconds", "write 1 ms or 1000.001 us"),
        ("0.5 B", SIZE, "'0.5 B' is no whole number of bytes", "write 0 B or 1 B"),
        ("9 bit", SIZE, "bytes", "write 1 B or 2 B"),
        ("100.5 bit/s", RATE, "bit/s", "write 100 bit/s or 101 bit/s"),
        ("0.0001 m", LENGTH, "millimetres", "write 0 mm or 1 mm"),
        ("0.0005 ns", units.COST, "picoseconds", "write 0 ps or 1 ps"),
        ("0.0001 kHz", units.FREQUENCY, "Hz", "write 0 MHz or 0.000001 MHz"),
    ],
)
def test_what_is_no_whole_number_of_the_base_unit_is_refused(
    text: str, kind: units.Kind, message: str, hint: str
) -> None:
    with pytest.raises(UnitError) as error:
        units.exactly(parse(text, kind), text, kind)
    assert message in error.value.message and error.value.hint == hint


@pytest.mark.parametrize(("text", "close"), [("1e-900 %", "0 %"), ("99." + "9" * 30 + " %", "100 %")])
def test_a_share_that_is_neither_none_nor_all_does_not_become_it(text: str, close: str) -> None:
    with pytest.raises(UnitError, match=f"cannot be told from {close}"):
        units.share(parse(text, SHARE), text)


QUANTITIES = """
name: q
network:
  framing: {overhead: OVERHEAD}
  nodes: {a: host, b: host, s: {kind: switch, delay: SWITCHING}}
  links: [{between: [a, s], rate: RATE, delay: DELAY, loss: LOSS, length: LENGTH}, [b, s]]
flows: [{name: f, from: a, to: b, size: SIZE, period: PERIOD, jitter: JITTER}]
stack: udp
run: {duration: 1 s}
at: {WHEN: {link a-s: {delay: 5 us}}}
"""
GOOD = {
    "OVERHEAD": "4 B",
    "SWITCHING": "5..9 us",
    "RATE": "10 Mbit/s",
    "DELAY": "1 us",
    "LOSS": "1 %",
    "LENGTH": "2 m",
    "SIZE": "64 B",
    "PERIOD": "1 ms",
    "JITTER": "1 us",
    "WHEN": "500 ms",
}


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("OVERHEAD", "0.5 B", "network.framing.overhead"),
        ("SWITCHING", "5.0001..9 us", "delay"),
        ("RATE", "1000.5 bit/s", "rate"),
        ("DELAY", "0.1 ns", "delay"),
        ("LOSS", "1e-900 %", "loss"),
        ("LENGTH", "0.01 mm", "length"),
        ("SIZE", "100 bit", "size"),
        ("PERIOD", "1e-30 s", "flows[0].period"),
        ("JITTER", "1.5 ns", "flows[0].jitter"),
        ("WHEN", "0.3 ns", "at"),
    ],
)
def test_no_key_of_a_scenario_rounds_without_a_word(key: str, value: str, place: str, tmp_path: Path) -> None:
    text = QUANTITIES if key == "LENGTH" else QUANTITIES.replace(", length: LENGTH", "")
    if key == "LENGTH":
        text = text.replace(" delay: DELAY,", "")
    file = tmp_path / "q.yaml"

    def written(values: dict[str, str]) -> None:
        found = text
        for name, each in values.items():
            found = found.replace(name, each)
        file.write_text(found)

    written(GOOD)
    load(file)
    written({**GOOD, key: value})
    with pytest.raises(ScenarioError) as error:
        load(file)
    (problem,) = error.value.problems
    assert place in problem.path and problem.line > 1 and problem.hint.startswith("write ")
    assert "no whole number of" in problem.message or "cannot be told from 0 %" in problem.message


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
