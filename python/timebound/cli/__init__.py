"""The command line: one file per verb. It knows the API and nothing below it."""

from __future__ import annotations

import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130

_signals: list[int] = []


def main() -> None:
    """The entry point of `timebound`: interrupts end it in words, from the first import on. SIGTERM counts as one."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from timebound.cli.app import execute

        code = execute(sys.argv[1:])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    sys.exit(code)


def was_interrupted() -> bool:
    """Has SIGTERM come while `main` answered for it? An interrupt is lost where code that is not Python's was asked at that moment and cannot pass it
    on; a service that takes the signal over asks here, so that it does not serve on after it was told to end."""
    return bool(_signals)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _signals.append(number)
    raise KeyboardInterrupt


__all__ = ["main", "was_interrupted"]
