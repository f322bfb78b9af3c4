"""Names and ranges of names: `h[1-3]` is h1, h2, h3; `h[01-12]` keeps its zeros; `r[1-2]p[1-2]` is four names."""

from __future__ import annotations

import itertools
import re

MOST_NAMES = 20_000
"""As many nodes as the model accepts."""
MOST_DIGITS = 6
"""Of a number in a range; leading zeros count."""

_BRACKET = re.compile(r"\[([0-9,\- ]*)\]")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]{0,61}[A-Za-z0-9_])?")
_FLOW = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./ \-]{0,126}[A-Za-z0-9_])?(?:\[[0-9]{1,6}\])?")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


class RangeError(ValueError):
    """A name or range that cannot be used."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def expand(text: str) -> list[str]:
    """All names of a range, the last bracket running fastest.

    Raises `RangeError` where the range is malformed, has more than `MOST_NAMES` names, or a name has other characters
    than letters, digits, `_`, `.` and `-`.
    """
    pieces: list[list[str]] = []
    position, total = 0, 1
    for match in _BRACKET.finditer(text):
        pieces.append([text[position : match.start()]])
        values = _values(match[1], text)
        total *= len(values)
        if total > MOST_NAMES:
            raise RangeError(f"{text!r} stands for more than {MOST_NAMES} names", "make the range smaller")
        pieces.append(values)
        position = match.end()
    pieces.append([text[position:]])
    names = ["".join(parts) for parts in itertools.product(*pieces)]
    for name in names[:1]:
        if not _NAME.fullmatch(name):
            raise RangeError(
                f"{text!r} is no name of a node",
                "use letters, digits, '_', '.' and '-' (at most 63), ranges as h[1-60]"
                + ("; parameters stand in values, not in keys" if "${" in text else ""),
            )
    return names


def split_names(text: str) -> list[str]:
    """Names and ranges between commas or blanks outside brackets: `h[1,3], s1` are two."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character in ", " and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def is_flow_name(text: str) -> bool:
    """May a flow be called so (`alpha`, `plant/alpha`, also the name of an instance: `alpha[3]`)? None that leads elsewhere as the name of a file."""
    return _FLOW.fullmatch(text) is not None and not {"", ".", ".."} & set(text.split("/"))


def group_of(name: str) -> str:
    """The flow to which an instance belongs: `alpha` for `alpha[3]`."""
    return re.sub(r"\[[0-9]+\]$", "", name)


def _values(inside: str, text: str) -> list[str]:
    values: list[str] = []
    for part in inside.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise RangeError(f"{text!r} is no range of names", "write ranges as h[1-60] or h[1,3,7-9]")
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > MOST_DIGITS:
            raise RangeError(f"a number in {text!r} has more than {MOST_DIGITS} digits", "use smaller numbers")
        if int(last) < int(first):
            raise RangeError(f"the range in {text!r} runs backwards", "write the smaller number first")
        if int(last) - int(first) >= MOST_NAMES:
            raise RangeError(f"{text!r} stands for more than {MOST_NAMES} names", "make the range smaller")
        width = len(first) if first.startswith("0") and len(first) > 1 else 0
        values += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return values
