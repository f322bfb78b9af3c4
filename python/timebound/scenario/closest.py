"""The name that was probably meant, for hints: among a few names the closest of all, among many the closest of those that are alike at a glance."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

FEW = 500
"""So many names are compared in full."""
MOST = 5_000
"""Of more names than this the first ones: a file can have hundreds of problems, and each looks for a hint."""
LONGEST = 200
"""Characters of a name for which one is looked for."""


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name in `known` that differs from `name` in capitals alone, or else is most like it, by difflib's ratio; None where none reaches `cutoff`."""
    if len(name) > LONGEST:
        return None
    names = list(islice(known, MOST))
    folded = name.casefold()
    if (same := next((each for each in names if each.casefold() == folded and each != name), None)) is not None:
        return same
    if len(names) > FEW:
        # The ends of a word tell much of it, and most slips change one of them at most.
        first, last = name[:1], name[-1:]
        alike = (each for each in names if abs(len(each) - len(name)) <= 2 and (each[:1] == first or each[-1:] == last))
        names = sorted(islice(alike, FEW // 2), key=lambda each: each[:2] != name[:2])[: FEW // 10]
    found = difflib.get_close_matches(name, names, 1, cutoff)
    return found[0] if found else None
