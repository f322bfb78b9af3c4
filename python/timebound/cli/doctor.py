"""`timebound doctor`: what this host can do, and the one command for what is missing."""

from __future__ import annotations

import shutil
from dataclasses import asdict

from cyclopts import App

from timebound.cli.common import AsJson, print_json

PROGRAMS = {
    "mosquitto": ("mosquitto", "`stack: {mqtt: {broker: {program: mosquitto}}}`"),
    "tshark": ("tshark", "`timebound packets` and the packets of a run's captures"),
    "iperf3": ("iperf3", "measuring goodput from inside a node"),
    "chromium": ("chromium", "figures as PNG by a browser, and the tests of the report"),
}


def register(app: App) -> None:
    """Adds the verb."""
    app.command(doctor)


def doctor(*, json: AsJson = False) -> int:
    """Say what this host can do: user namespaces, real-time scheduling, the ring, and which optional programs are there."""
    from timebound.engine.doctor import examine

    checks, advice = examine()
    missing = [package for program, (package, _) in PROGRAMS.items() if _find(program) is None]
    programs = [
        {"program": program, "found": _find(program), "for": purpose} for program, (_, purpose) in PROGRAMS.items()
    ]
    ready = all(check.ok for check in checks if check.needed)
    if json:
        print_json({"checks": [asdict(c) for c in checks], "programs": programs, "advice": advice, "ready": ready})
        return 0 if ready else 3
    for check in checks:
        mark = "ok" if check.ok else "MISSING" if check.needed else "less"
        print(f"{mark:<8}{check.name}: {check.text}")
    for entry in programs:
        print(f"{'ok' if entry['found'] else 'absent':<8}{entry['program']}: {entry['found'] or entry['for']}")
    for sentence in advice:
        print(f"\n{sentence}")
    if missing:
        print(f"\nOptional programs that are absent: sudo apt-get install {' '.join(missing)}")
    print("\nThis host can run the main job." if ready else "\nThis host cannot emulate; predict and simulate work.")
    return 0 if ready else 3


def _find(program: str) -> str | None:
    # Debian keeps servers where the path of a user does not look.
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
