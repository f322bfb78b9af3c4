"""Quantities with units, exactly: `15..20 ms`, `0.1 %`, `100 Mbit/s`, `256 KiB`, `12.5 km`.

Arithmetic is done with fractions; the results are integers (nanoseconds, bit/s, bytes, millimetres) or, for shares, the
float nearest to the exact value. What is no whole number of the base unit is refused (`exactly`): a period that is rounded up promises less
than was said, a jitter that is rounded down as well. The limits are those of `crates/model/src/compile.rs`, so that what is accepted here
also compiles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

LONGEST_NS = 1_000_000_000_000_000
"""Longest time (11.5 days), as in the model."""
SPEED_M_PER_S = 200_000_000
"""Speed of light in fibre and copper, about two thirds of that in vacuum: 5 us per km."""


class UnitError(ValueError):
    """A text that is no quantity of the wanted kind."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of quantity: its name, units (each in the base unit), limits in the base unit and an example."""

    name: str
    units: dict[str, Fraction]
    least: int
    most: int
    example: str

    @property
    def pattern(self) -> str:
        """Regular expression of one quantity, for JSON Schema."""
        return rf"^\s*{_NUMBER}\s*({'|'.join(re.escape(unit) for unit in self.units)})\s*$"

    @property
    def range_pattern(self) -> str:
        """Regular expression of one quantity or a range of them, for JSON Schema."""
        units = "|".join(re.escape(unit) for unit in self.units)
        return rf"^\s*{_NUMBER}(\s*({units}))?(\s*(\.\.|±|\+/?-)\s*{_NUMBER})?\s*({units})\s*$"


def _scaled(base: int, prefixes: dict[str, int], units: dict[str, int]) -> dict[str, Fraction]:
    return {
        prefix + unit: Fraction(factor * times, base)
        for unit, times in units.items()
        for prefix, factor in prefixes.items()
    }


_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_NUMBER = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"

TIME = Kind(
    "time",
    {
        "ns": Fraction(1),
        "us": Fraction(10**3),
        "µs": Fraction(10**3),
        "μs": Fraction(10**3),
        "ms": Fraction(10**6),
        "s": Fraction(10**9),
        "min": Fraction(60 * 10**9),
        "h": Fraction(3600 * 10**9),
    },
    0,
    LONGEST_NS,
    "15 ms",
)
COST = Kind(
    "time",
    {"ps": Fraction(1), "ns": Fraction(10**3), "us": Fraction(10**6)},
    0,
    10**12,
    "0.5 ns",
)
"""Time per byte, in picoseconds: whole nanoseconds would be too coarse."""
RATE = Kind(
    "rate",
    _scaled(1, _DECIMAL, {"bit/s": 1, "B/s": 8}) | _scaled(1, _BINARY, {"B/s": 8}),
    100,
    10_000_000_000_000,
    "100 Mbit/s",
)
SIZE = Kind(
    "size",
    _scaled(1, _DECIMAL, {"B": 1}) | _scaled(1, _BINARY, {"B": 1}) | _scaled(8, _DECIMAL, {"bit": 1}),
    0,
    10**13,
    "1446 B",
)
SHARE = Kind("share", {"%": Fraction(1, 100), "‰": Fraction(1, 1000), "ppm": Fraction(1, 10**6)}, 0, 1, "0.1 %")
CORES = Kind("CPU share", {"%": Fraction(1, 100)}, 0, 1024, "50 %")
"""Of one core; 100 % is a whole one."""
LEAST_CORES = 0.001
"""The kernel enforces no less: 1 ms in its longest period of 1 s (Documentation/scheduler/sched-bwc.rst)."""
FREQUENCY = Kind(
    "frequency", {"kHz": Fraction(10**3), "MHz": Fraction(10**6), "GHz": Fraction(10**9)}, 0, 10**13, "200 MHz"
)
LENGTH = Kind(
    "length",
    {"mm": Fraction(1), "cm": Fraction(10), "m": Fraction(1000), "km": Fraction(10**6)},
    0,
    100_000 * 10**6,
    "12.5 km",
)

_QUANTITY = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>[^\s0-9.+±-][^\s.±+]*)?")
_SIGNED = re.compile(r"\s*-\s*[0-9]")


def parse(text: object, kind: Kind) -> Fraction:
    """The exact value in the base unit of `kind`.

    Raises `UnitError` for anything else than a number with one of the kind's units within its limits.
    """
    return _parse(_text(text, kind), kind)


@lru_cache(maxsize=4096)
def _parse(text: str, kind: Kind) -> Fraction:
    """Large files say the same few quantities again and again."""
    number, unit = _split(text, kind)
    if unit is None:
        raise _missing(text, kind)
    return _limit(_value(number, unit, kind), text, kind)


def parse_range(text: object, kind: Kind) -> tuple[Fraction, Fraction]:
    """Least and greatest value of `a`, `a..b`, `m ± d` (also `+-`, `+/-`), each with a unit or one unit for both."""
    written = _text(text, kind)
    for separator in ("..", "±", "+/-", "+-"):
        if separator not in written:
            continue
        left, right = (_split(part, kind) for part in written.split(separator, 1))
        unit = right[1]
        if unit is None:
            raise _missing(written, kind)
        second = _value(right[0], unit, kind)
        first = _value(left[0], left[1] or unit, kind)
        low, high = (first, second) if separator == ".." else (first - second, first + second)
        if low > high:
            raise UnitError(f"the range {written!r} runs backwards", "write it as least..greatest")
        if low < 0:
            raise UnitError(f"the range {written!r} reaches below zero", "make the deviation smaller than the middle")
        return _limit(low, written, kind), _limit(high, written, kind)
    value = parse(text, kind)
    return value, value


def integer(value: Fraction) -> int:
    """The value rounded upwards: of what was converted from other programs' units. What a user writes goes through `exactly`."""
    return math.ceil(value)


def exactly(value: Fraction, text: object, kind: Kind) -> int:
    """The value in the base unit of its kind, as it was written.

    Raises:
        UnitError: it is no whole number of them.
    """
    if value.denominator == 1:
        return value.numerator
    base, form = _BASES[kind.name, kind.units.get("ns")]
    below = max(math.floor(value), kind.least)
    near = dict.fromkeys(form(number) for number in (below, math.ceil(value)))
    raise UnitError(f"{text!r} is no whole number of {base}", f"write {' or '.join(near)}")


def share(value: Fraction, text: object = "") -> float:
    """The float nearest to a share.

    Raises:
        UnitError: that would be none or all of it, and the share is neither.
    """
    found = float(value)
    if found in (0.0, 1.0) and value != found:
        raise UnitError(
            f"{text!r} cannot be told from {format_share(found)}", f"write {format_share(found)} if that is meant"
        )
    return found


def propagation_ns(millimetres: int) -> int:
    """Propagation delay of a length at `SPEED_M_PER_S`, rounded up."""
    return math.ceil(Fraction(millimetres * 10**9, 1000 * SPEED_M_PER_S))


def _text(text: object, kind: Kind) -> str:
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UnitError(f"expected a {kind.name}", f"write a number with a unit, for example {kind.example}")
    if isinstance(text, str):
        if len(text) > 100:
            raise UnitError(f"this is too long for a {kind.name}", f"write for example {kind.example}")
        return text.strip()
    raise _missing(str(text), kind)


def _missing(text: str, kind: Kind) -> UnitError:
    if kind.name == "time" or kind.name == "length" or kind.name == "share":
        units = ", ".join(unit for unit in kind.units if unit not in ("µs", "μs"))
    else:
        units = ", ".join(unit for unit in kind.units if "Ki" not in unit and "Mi" not in unit)
    if _SIGNED.match(text):
        return UnitError(f"{text!r} is negative", f"write a {kind.name} from zero up, for example {kind.example}")
    own = kind.example.split()[1]
    number = text if re.fullmatch(_NUMBER, text) else kind.example.split()[0]
    return UnitError(f"{text!r} has no unit", f"write a {kind.name}, for example {number} {own} (units: {units})")


def _split(text: str, kind: Kind) -> tuple[str, str | None]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        if _SIGNED.match(text):
            raise UnitError(f"{text!r} is negative", f"write a {kind.name} from zero up, for example {kind.example}")
        raise UnitError(f"{text!r} is no {kind.name}", f"write a number with a unit, for example {kind.example}")
    unit: str | None = match["unit"]
    return match["number"], unit


def _value(number: str, unit: str, kind: Kind) -> Fraction:
    factor = kind.units.get(unit)
    if factor is None:
        lowered = {known.lower(): known for known in kind.units}
        close = lowered.get(unit.lower()) or _ALIASES.get((kind.name, unit.lower()))
        hint = f"did you mean {close!r}?" if close else f"units of a {kind.name}: {', '.join(kind.units)}"
        raise UnitError(f"{unit!r} is no unit of a {kind.name}", hint)
    if len(number) > 40:
        raise UnitError("this number has too many digits", f"write for example {kind.example}")
    return Fraction(number) * factor


_ALIASES = {
    ("rate", "mbps"): "Mbit/s",
    ("rate", "kbps"): "kbit/s",
    ("rate", "gbps"): "Gbit/s",
    ("rate", "bps"): "bit/s",
    ("time", "sec"): "s",
    ("time", "seconds"): "s",
    ("time", "msec"): "ms",
    ("time", "usec"): "us",
    ("time", "m"): "min",
    ("size", "bytes"): "B",
    ("size", "byte"): "B",
    ("length", "meters"): "m",
}


def _limit(value: Fraction, text: str, kind: Kind) -> Fraction:
    if value > kind.most or value < kind.least:
        least, most = limits(kind)
        raise UnitError(f"{text!r} is out of range", f"write a {kind.name} from {least} to {most}")
    return value


def limits(kind: Kind) -> tuple[str, str]:
    """The least and the greatest quantity of a kind, as text."""
    return {
        "time": ("0 s", "277 h"),
        "rate": ("100 bit/s", "10 Tbit/s"),
        "size": ("0 B", "10 TB"),
        "share": ("0 %", "100 %"),
        "length": ("0 m", "100000 km"),
        "CPU share": ("0 %", "102400 %"),
        "frequency": ("0 MHz", "10000 GHz"),
    }[kind.name]


def format_time(nanoseconds: int) -> str:
    """A time that `parse` reads back exactly, in the largest unit that needs at most three decimals."""
    return _format(nanoseconds, (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)))


def format_ms(nanoseconds: int) -> str:
    """A time in milliseconds that `parse` reads back exactly, whatever its decimals: such times are compared by eye."""
    whole, rest = divmod(nanoseconds, 10**6)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " ms"


def format_rate(bits_per_second: int) -> str:
    """A rate that `parse` reads back exactly."""
    units = (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3), ("bit/s", 1))
    return _format(bits_per_second, units)


def format_size(size: int) -> str:
    """A size that `parse` reads back exactly."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def format_share(value: float) -> str:
    """A share that `parse` reads back to the same float."""
    percent = Decimal(repr(value)).scaleb(2).normalize()
    return f"{percent:f} %" if percent == 0 or percent >= Decimal("1e-6") else f"{percent} %"


def format_frequency(hertz: int) -> str:
    """A frequency that `parse` reads back exactly."""
    return f"{Decimal(hertz).scaleb(-6).normalize():f} MHz"


def _format(value: int, units: tuple[tuple[str, int], ...]) -> str:
    for unit, factor in units:
        if value >= factor and (factor == 1 or value % (factor // 1000) == 0):
            whole, rest = divmod(value, factor)
            decimals = f"{rest * 1000 // factor:03d}".rstrip("0") if factor > 1 else ""
            return f"{whole}.{decimals} {unit}" if decimals else f"{whole} {unit}"
    return f"0 {units[-1][0]}"


_BASES: dict[tuple[str, Fraction | None], tuple[str, Callable[[int], str]]] = {
    ("time", Fraction(1)): ("nanoseconds", format_time),
    ("time", Fraction(1000)): ("picoseconds", lambda value: f"{value} ps"),
    ("rate", None): ("bit/s", format_rate),
    ("size", None): ("bytes", format_size),
    ("length", None): ("millimetres", lambda value: f"{value} mm"),
    ("frequency", None): ("Hz", format_frequency),
}
"""By name and how many of them a nanosecond is: the base unit in words, and how a number of them is written."""
