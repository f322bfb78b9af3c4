#!/usr/bin/env python3
"""Writes the cellular traces of the built-in scenario `segments`: synthetic, seeded, in mahimahi's format.

A rate that wanders between two limits (a random walk with steps of 100 ms) is turned into opportunities of 1504 bytes, with a
gap of silence now and then, as fading does. No recording of anybody's network is in them.
"""

import random
import sys
from pathlib import Path

BYTES = 1504
STEP_MS = 100


def trace(seed: int, seconds: int, least_kbps: int, most_kbps: int) -> list[int]:
    """Times of opportunities, ms."""
    draw = random.Random(seed)
    rate, credit, times = (least_kbps + most_kbps) / 2, 0.0, []
    fade_until = 0
    for now in range(1, seconds * 1000 + 1):
        if now % STEP_MS == 0:
            rate = min(most_kbps, max(least_kbps, rate * draw.uniform(0.75, 1.33)))
            if draw.random() < 0.02:
                fade_until = now + draw.randrange(50, 250)
        if now >= fade_until:
            credit += rate / 8
        while credit >= BYTES:
            credit -= BYTES
            times.append(now)
    # The period is the last entry.
    return [*times, seconds * 1000] if times[-1] < seconds * 1000 else times


def main(folder: Path) -> None:
    """Writes both directions."""
    for name, seed, least, most in (("field.up", 1, 500, 4000), ("field.down", 2, 2000, 12000)):
        lines = "".join(f"{time}\n" for time in trace(seed, 5, least, most))
        (folder / name).write_text(lines, encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
