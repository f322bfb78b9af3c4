"""Cellular traces in mahimahi's format: a line is the time in milliseconds of an opportunity to deliver 1504 bytes.

The format is that of mahimahi's `mm-link` (Netravali et al., USENIX ATC 2015): whole numbers, one per line, not
decreasing; the trace repeats with the period of its last line. The resolved scenario carries a trace in one line of text,
`1 3x2 5` for opportunities at 1, 3, 3 and 5 ms. Limits are those of `crates/model/src/trace.rs`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

OPPORTUNITY_BYTES = 1504
"""What one opportunity delivers at most: an IP packet of 1500 bytes and the 4 bytes that a TUN device puts before it."""
MOST_OPPORTUNITIES = 1_000_000
MOST_BYTES = 16_000_000
LONGEST_MS = 86_400_000
"""Longest period: a day."""

_NUMBER = re.compile(rb"[0-9]{1,12}")
_ITEM = re.compile(r"([0-9]{1,12})(?:x([0-9]{1,7}))?")
_HINT = "write one whole number of milliseconds per line, in order of time, the last one above 0"


class TraceError(ValueError):
    """A text that is no trace; `line` counts from 1, 0 where the whole is meant."""

    def __init__(self, message: str, line: int = 0, hint: str = _HINT) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace. `millis` are the opportunities of one period; two traces are equal when these are."""

    millis: tuple[int, ...]
    name: str = field(default="", compare=False)
    """The file it came from."""
    key: str = field(default="", compare=False)
    """Its name in the declaration: the digest of its content."""

    @property
    def period_ns(self) -> int:
        """After this long it starts again."""
        return self.millis[-1] * 1_000_000

    @property
    def capacity_bps(self) -> int:
        """What all opportunities of a period deliver, in bit/s of the bytes that a trace counts; rounded down."""
        return len(self.millis) * OPPORTUNITY_BYTES * 8 * 1000 // self.millis[-1]

    def short(self) -> str:
        """The opportunities in one line."""
        return " ".join(
            f"{time}x{count}" if (count := sum(1 for _ in same)) > 1 else f"{time}"
            for time, same in itertools.groupby(self.millis)
        )


def parse_trace(content: bytes, name: str = "") -> Trace:
    """The trace in a file's content (bytes).

    Raises `TraceError` with the line for anything but whole numbers in order of time, and for traces that are empty,
    last no time, are longer than a day, or have more than a million opportunities.
    """
    if len(content) > MOST_BYTES:
        raise TraceError(f"a trace of more than {MOST_BYTES // 1_000_000} MB", hint="shorten it: a trace repeats")
    lines = content.split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    return _checked(_numbers(lines), name)


def _numbers(lines: Iterable[bytes]) -> Iterator[int]:
    for number, line in enumerate(lines, 1):
        text = line.strip(b" \t\r")
        if not _NUMBER.fullmatch(text):
            # What it is, is not shown: the name may have led to a file that is somebody's secret.
            raise TraceError("this line is no time in milliseconds" if text else "an empty line", number)
        yield int(text)


def parse_short(text: str) -> Trace:
    """The trace in one line of text, as `Trace.short` writes it; raises `TraceError`."""

    def numbers() -> Iterator[int]:
        for number, item in enumerate(text.split(), 1):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise TraceError(f"{item[:20]!r} is no time in milliseconds", number, "write for example 1 3x2 5")
            yield from itertools.repeat(int(match[1]), int(match[2] or 1))

    return _checked(numbers(), "")


def _checked(numbers: Iterator[int], name: str) -> Trace:
    millis: list[int] = []
    for line, time in enumerate(numbers, 1):
        if line > MOST_OPPORTUNITIES:
            raise TraceError(f"more than {MOST_OPPORTUNITIES} opportunities", line, "shorten it: a trace repeats")
        if millis and time < millis[-1]:
            raise TraceError(f"{time} comes after {millis[-1]}: times must not decrease", line)
        millis.append(time)
    if not millis:
        raise TraceError("a trace without opportunities")
    if millis[-1] == 0:
        raise TraceError("a trace that lasts no time", len(millis))
    if millis[-1] > LONGEST_MS:
        raise TraceError("a trace that is longer than a day", len(millis), "shorten it: a trace repeats")
    digest = hashlib.sha256(" ".join(map(str, millis)).encode()).hexdigest()
    return Trace(tuple(millis), name, f"trace-{digest[:16]}")
