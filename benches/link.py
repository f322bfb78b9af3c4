"""How much longer than the model's an emulated link's round trip takes, as `ping` inside the nodes sees it.

    python benches/link.py [RUNS]

A link of 10 Mbit/s and 10 ms, 150 pings 10 ms apart in every run; RUNS of them (default 10). Of each the mean beyond the model (ms) and the run's own
verdict of its precision; then the least and the median of the undisturbed runs. Aim: at most 0.1 ms. Exit code 1 where the median misses it, or an
answer came early.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.live.test_link import MODEL_MS, emulate

AIM_MS = 0.1


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    beyond: dict[str, list[float]] = {}
    early = False
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            command = "[ping, -q, -c, 150, -i, 0.01, 10.0.0.2]"
            tool = f"[{{command: {command}, name: tool, start: 100 ms}}]"
            summary, printed = emulate(Path(folder), tool, "[]", "4 s")
        least, mean = (float(found) for found in printed.split("rtt min/avg/max/mdev = ")[1].split("/")[:2])
        early |= least < MODEL_MS - 0.001
        verdict = summary["precision"]["verdict"]
        beyond.setdefault(verdict, []).append(mean - MODEL_MS)
        print(
            f"run {number + 1}: least {least - MODEL_MS:+.3f} ms, mean {mean - MODEL_MS:+.3f} ms beyond the model, {verdict}"
        )
    good = beyond.get("good", [])
    if not good:
        print("every run was disturbed: no figure")
        return 1
    print(
        f"{len(good)} undisturbed runs: mean {min(good):.3f} ms (least), {statistics.median(good):.3f} ms (median); aim {AIM_MS}"
    )
    return int(early or statistics.median(good) > AIM_MS)


if __name__ == "__main__":
    sys.exit(main())
