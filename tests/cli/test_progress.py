"""Progress on the terminal."""

from __future__ import annotations

from timebound.cli.live_progress import MOST_BARS, TerminalProgress


def test_a_terminal_shows_the_last_parts_however_many_there_are() -> None:
    with TerminalProgress(quiet=True) as progress:
        for number in range(3 * MOST_BARS):
            progress.step("part", f"number {number}")
        progress.at(0.5)
        shown = [task.description for task in progress._bars.tasks]
    assert shown == [f"number {number}" for number in range(2 * MOST_BARS, 3 * MOST_BARS)]
