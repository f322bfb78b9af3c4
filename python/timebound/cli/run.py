"""`timebound run`: predict, simulate, emulate, and one report that puts them side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from timebound.cli.common import (
    AsJson,
    ForceFolder,
    Output,
    Quiet,
    ScenarioName,
    Settings,
    open_scenario,
    print_flows,
    print_json,
    stderr,
)

if TYPE_CHECKING:
    from timebound.engine.runs import Machine

Rootless = Annotated[
    bool,
    Parameter(name="--rootless", negative=(), help="Even as root, emulate with the rights of a user without root."),
]

TakeInterface = Annotated[
    tuple[str, ...],
    Parameter(
        name="--take-interface",
        negative=(),
        help="Take this interface for a node although this host's default route leads over it; may be given several times.",
    ),
]


MOST_NOTES = 8
"""Notes on what was measured that the terminal shows."""


def register(app: App) -> None:
    """Adds the verb."""
    app.command(run)


def run(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    output: Output = None,
    force: ForceFolder = False,
    rootless: Rootless = False,
    take_interface: TakeInterface = (),
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Predict, simulate and emulate a scenario; write one report that puts the three side by side.

    This is the main job. It needs no root and, with the embedded broker, no system package.
    """
    parts = {"predict", "simulate", "emulate"}
    return execute(
        scenario,
        set,
        output,
        parts,
        json=json,
        quiet=quiet,
        force=force,
        rootless=rootless,
        take_interfaces=take_interface,
    )


def execute(
    name: str,
    settings: tuple[str, ...],
    output: str | None,
    parts: set[str],
    *,
    json: bool,
    quiet: bool,
    rootless: bool,
    force: bool = False,
    take_interfaces: tuple[str, ...] = (),
    machine: Machine | None = None,
) -> int:
    """Runs the parts and closes with the table (or JSON) and where the report lies."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import runs
    from timebound.engine.certificate import one_line
    from timebound.engine.notes import interrupted_notes
    from timebound.engine.programs import failed_words

    scenario = open_scenario(name, settings)
    if "emulate" in parts:
        for sentence in runs.check(scenario, rootless=rootless):
            stderr(f"warning: {sentence}")
    with TerminalProgress(quiet or json) as progress:
        done = runs.run(
            scenario,
            output,
            parts,
            progress,
            rootless=rootless,
            take_interfaces=take_interfaces,
            machine=machine,
            force=force,
        )
    if json:
        print_json({**done.summary, "folder": str(done.folder)})
    else:
        print_flows(done.summary, written=True)
    if done.failure is not None:
        stderr(f"error: the emulation ended early: {done.failure}" + (f"\n  = hint: {done.hint}" if done.hint else ""))
        has_measured = done.summary["precision"]["verdict"] != "not-run"
        stderr(f"What it had measured is kept in {done.folder}." if has_measured else "Nothing of it was measured.")
    for note in interrupted_notes(done.summary.get("search_interrupted")):
        stderr(note)
    notes = done.summary.get("measured_notes", [])
    for note in notes[:MOST_NOTES]:
        stderr(f"note: {note}")
    if len(notes) > MOST_NOTES:
        stderr(f"{len(notes) - MOST_NOTES} more notes in {done.folder / 'summary.json'}")
    for entry in done.summary.get("failed_programs", []):
        stderr(f"program failed: {failed_words(entry)}")
    for violation in done.summary["violations"][:10]:
        stderr(f"BOUND VIOLATED: {violation['text']}")
    for answer in done.summary.get("channels", []):
        if answer["text"] is not None:
            stderr(f"no channel: {answer['text']}")
    if (certificate := one_line(done.summary["precision"])) is not None:
        stderr(certificate)
    if done.summary["precision"]["verdict"] == "disturbed":
        for reason in done.summary["precision"]["reasons"]:
            stderr(f"disturbed: {reason}")
    stderr(f"report: {done.folder / 'report.html'}")
    return done.exit_code
