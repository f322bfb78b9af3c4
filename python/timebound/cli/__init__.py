"""The command line: one file per verb. It knows the API and nothing below it."""

from __future__ import annotations

import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


__all__ = ["main"]
