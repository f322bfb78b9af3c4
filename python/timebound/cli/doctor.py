"""`timebound doctor`: what this host can do, and the one command for what is missing."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter

from timebound.cli.common import EXIT_INPUT, AsJson, print_json, stderr, stdout

PROGRAMS = {
    "mosquitto": ("mosquitto", "`stack: {mqtt: {broker: {program: mosquitto}}}`"),
    "tshark": ("tshark", "`timebound packets` and the packets of a run's captures"),
    "iperf3": ("iperf3", "measuring goodput from inside a node"),
    "chromium": ("chromium", "figures as PNG by a browser, and the tests of the report"),
}


def register(app: App) -> None:
    """Adds the verb."""
    app.command(doctor)


Calibrate = Annotated[
    bool,
    Parameter(
        name="--calibrate",
        negative=(),
        help="Measure (up to a minute) which rates, delays and node counts this host carries, and keep the result for this user.",
    ),
]
Quick = Annotated[bool, Parameter(name="--quick", negative=(), help="With --calibrate: in 15 seconds, more coarsely.")]


def doctor(*, calibrate: Calibrate = False, quick: Quick = False, json: AsJson = False) -> int:
    """Say what this host can do: user namespaces, real-time scheduling, the ring, and which optional programs are there.

    With `--calibrate` it is measured by real emulations; `validate`, `emulate` and `run` then warn before they start a scenario
    that asks for more.
    """
    from timebound.engine import calibration
    from timebound.engine.doctor import examine

    if quick and not calibrate:
        stderr("error: --quick is for --calibrate")
        return EXIT_INPUT
    checks, advice = examine()
    missing = [package for program, (package, _) in PROGRAMS.items() if _find(program) is None]
    programs = [
        {"program": program, "found": _find(program), "for": purpose} for program, (_, purpose) in PROGRAMS.items()
    ]
    ready = all(check.ok for check in checks if check.needed)
    measured = _calibrate(quick=quick, silent=json) if calibrate and ready else calibration.load()
    if json:
        print_json(
            {
                "checks": [asdict(c) for c in checks],
                "programs": programs,
                "advice": advice,
                "ready": ready,
                "calibration": measured,
            }
        )
        return 0 if ready else 3
    for check in checks:
        mark = "ok" if check.ok else "MISSING" if check.needed else "less"
        stdout(f"{mark:<8}{check.name}: {check.text}")
    for entry in programs:
        stdout(f"{'ok' if entry['found'] else 'absent':<8}{entry['program']}: {entry['found'] or entry['for']}")
    for said in calibration.lines(measured):
        stdout(f"{'less' if measured is None or said.startswith('the machine was busy') else 'ok':<8}{said}")
    for sentence in advice:
        stdout(f"\n{sentence}")
    if missing:
        stdout(f"\nOptional programs that are absent: sudo apt-get install {' '.join(missing)}")
    stdout("\nThis host can run the main job." if ready else "\nThis host cannot emulate; predict and simulate work.")
    return 0 if ready else 3


def _calibrate(*, quick: bool, silent: bool) -> dict[str, Any]:
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import calibration
    from timebound.engine.calibrate import CalibrationError, calibrate
    from timebound.engine.folder import FolderError

    try:
        with TerminalProgress(silent) as progress:
            result = calibrate(quick=quick, progress=progress)
    except CalibrationError as error:
        raise FolderError(
            f"this host cannot be measured: {error}", "timebound doctor says what is missing", 3
        ) from error
    file = calibration.store(result)
    stderr(f"measured in {result['took_s']:g} s; kept in {file}")
    return result


def _find(program: str) -> str | None:
    # Debian keeps servers where the path of a user does not look.
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
