"""What can be wrong in a scenario, where it is, and how it is shown.

Every problem carries its place in a file (or the override that caused it), the offending line and a hint; a
`ScenarioError` carries all of them, because nobody likes to mend one mistake at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

OPTION = "--set "
"""With this the name of a source begins that is no file but an option of the command line."""


class Place(NamedTuple):
    """A place in a source: line and column count from 1; 0 means that the place is the whole source."""

    file: str
    line: int = 0
    column: int = 0
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong (`error`) or doubtful (`warning`).

    `path` is the dotted path inside the scenario (`network.links[3].rate`), `line` and `column` count from 1.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str
    source_line: str
    length: int = 1
    severity: Literal["error", "warning"] = "error"

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.file, self.line, self.column, self.length)

    def render(self) -> str:
        """The problem as a compiler prints it: message, place, the offending line with a caret, the hint."""
        lines = [f"{self.severity}: {self.message}"]
        at = str(self.place) + (f" ({self.path})" if self.path else "")
        if self.file.startswith(OPTION) and self.line == 1 and self.column == 1 and len(self.source_line) <= _WIDTH:
            # The whole value of an option: it has no lines worth counting.
            lines.append(f" --> {self.file}={self.source_line}" + (f" ({self.path})" if self.path else ""))
        elif self.line and self.source_line:
            number = str(self.line)
            gutter = " " * len(number)
            source, column = _window(self.source_line, self.column)
            caret = " " * (column - 1) + "^" * max(1, min(self.length, len(source) - column + 1))
            lines += [f"{gutter}--> {at}", f"{gutter} |", f"{number} | {source}", f"{gutter} | {caret}"]
        else:
            lines.append(f" --> {at}")
        if self.hint:
            lines.append(f"  = hint: {self.hint}")
        return "\n".join(lines)


def plain(text: str) -> str:
    """Text for a terminal: control characters, which a file or a name may hold, are shown and not obeyed."""
    keep = "\n\t\u00a0"
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )


_WIDTH = 140


def _window(line: str, column: int) -> tuple[str, int]:
    """A long line is cut around the column, so that the caret stays under what it points at."""
    line = "".join(character if character.isprintable() else " " for character in line)
    if len(line) <= _WIDTH:
        return line, min(column, len(line) + 1)
    start = max(0, column - _WIDTH // 2)
    return line[start : start + _WIDTH], column - start


class ScenarioError(Exception):
    """A scenario that cannot be used, with every reason."""

    subject = "the scenario"

    def __init__(self, problems: Iterable[Problem], note: str = "") -> None:
        """`note` is what all of them have in common."""
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.note = note
        super().__init__(self.problems)

    def __str__(self) -> str:
        first = self.problems[0] if self.problems else None
        return f"{len(self.problems)} problem(s) in {self.subject}" + (
            f", first: {first.place}: {first.message}" if first else ""
        )

    def render(self, most: int = 50) -> str:
        """All problems (at most `most` in full) as text for a terminal."""
        parts = [problem.render() for problem in self.problems[:most]]
        if len(self.problems) > most:
            parts.append(f"... and {len(self.problems) - most} more")
        count = len(self.problems)
        if self.note:
            parts.append(f"note: {self.note}")
        parts.append(f"{count} error{'' if count == 1 else 's'}: nothing was started")
        return "\n\n".join(parts)
