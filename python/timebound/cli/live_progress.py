"""Progress on the terminal: a bar per part on standard error, plain lines where that is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from timebound.scenario.problems import plain

MOST_BARS = 12
"""An experiment of a thousand iterations has thousands of parts; a terminal shows the last ones."""


class TerminalProgress:
    """`timebound.engine.progress.Progress` with rich bars; a context manager."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._plain = quiet or not sys.stderr.isatty()
        self._bars = Progress(
            SpinnerColumn(), TextColumn("{task.fields[part]:<9}"), BarColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(), console=self._console, disable=self._plain,
        )  # fmt: skip
        self._task: TaskID | None = None

    def __enter__(self) -> TerminalProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()

    def step(self, name: str, text: str) -> None:
        """A new part begins."""
        self._finish()
        text = plain(text)
        self._task = self._bars.add_task(escape(text), total=1.0, part=name)
        for old in self._bars.task_ids[:-MOST_BARS]:
            self._bars.remove_task(old)
        if self._plain and not self._quiet:
            self._console.print(f"{name}: {text}", highlight=False, markup=False)

    def at(self, share: float, text: str = "") -> None:
        """The part is at a share of 0..1."""
        if self._task is None:
            return
        if text:
            self._bars.update(self._task, completed=share, description=escape(plain(text)))
        else:
            self._bars.update(self._task, completed=share)

    def note(self, text: str) -> None:
        """Something that the user should read."""
        if text and not self._quiet:
            self._console.print(plain(text), highlight=False, markup=False)

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1.0)
        self._task = None
