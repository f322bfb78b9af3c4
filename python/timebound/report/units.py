"""Quantities as people read them: three significant digits and the unit that keeps the number between 1 and 1000."""

from __future__ import annotations

import math

MISSING = "–"


def _digits(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, digits - 1 - magnitude)
    text = f"{value:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def _scaled(value: float, units: list[tuple[float, str]], digits: int) -> str:
    chosen = units[-1]
    for size, unit in units:
        # 0.9995 of a unit already prints as 1 of it with three digits; below, the smaller unit reads better.
        if abs(value) >= size * (1 - 0.5 * 10.0**-digits):
            chosen = (size, unit)
            break
    return f"{_digits(value / chosen[0], digits)} {chosen[1]}"


def time_text(us: float | None, digits: int = 3) -> str:
    """Microseconds as `850 ns`, `123 us`, `1.36 ms`, `2.5 s`."""
    if us is None:
        return MISSING
    if us == 0:
        return "0 us"
    return _scaled(us, [(1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns")], digits)


def rate_text(bits_per_second: float | None) -> str:
    """Bits per second as `10 Mbit/s`."""
    if bits_per_second is None:
        return MISSING
    return _scaled(bits_per_second, [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")], 3)


def bytes_text(size: float | None) -> str:
    """Bytes as `512 B`, `12 KiB`, `3.4 MiB`."""
    if size is None:
        return MISSING
    if size == 0:
        return "0 B"
    return _scaled(size, [(2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")], 3)


def ratio_text(ratio: float | None) -> str:
    """Bound / worst found as `1.04`, rounded up, so that no bound looks tighter than it is."""
    return MISSING if ratio is None else f"{math.ceil(ratio * 100 - 1e-9) / 100:.2f}"


def share_text(share: float | None) -> str:
    """A share of one as per cent: `28 %`, `0.4 %`."""
    if share is None:
        return MISSING
    percent = share * 100
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or percent == 0 else f"{_digits(percent, 2)} %"


def count_text(count: float | None) -> str:
    """A count with thin spaces between groups of three digits."""
    if count is None:
        return MISSING
    return f"{count:,.0f}".replace(",", "\u202f")


def plain_text(value: float | None, digits: int = 4) -> str:
    """A number without a unit."""
    return MISSING if value is None else _digits(value, digits)
