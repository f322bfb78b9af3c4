"""The application: verbs, errors and exit codes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cyclopts import App, CycloptsError

from timebound import __version__
from timebound.cli import (
    admit,
    compare,
    controller,
    doctor,
    emulate,
    manager,
    node,
    packets,
    predict,
    profile_broker,
    ps,
    report,
    reproduce,
    run,
    scenarios,
    shell,
    show,
    simulate,
    srt,
    sweep,
    top,
    up,
    validate,
)
from timebound.cli import exec as exec_
from timebound.cli.common import EXIT_INPUT, EXIT_INTERRUPTED, stderr, to_whoever_reads, write_no_more
from timebound.engine import registry
from timebound.engine.control import ControlError
from timebound.engine.folder import FolderError
from timebound.scenario.problems import ScenarioError

HELP = """Do publish/subscribe messages arrive in time?

One scenario file describes a network, flows with deadlines and a protocol stack. Timebound **predicts** safe worst-case
latencies, **simulates** the network in virtual time, **emulates** it with real brokers and clients, and puts the three
side by side in one report.

    timebound run hello              # the main job, on a built-in scenario
    timebound scenarios              # what else is built in
    timebound predict plant.yaml     # bounds only, at once
    timebound run plant.yaml --set flows.alpha.period="10 ms"
    timebound up hello               # the network alone, to try things in it
    timebound exec hello 'h[1-2]' -- ip address

Exit codes: 0 all well, 1 a requirement is not met, 2 the input is wrong, 3 the host cannot do it, 4 the run was disturbed.
"""

# Interrupts are ours: cyclopts would end without a word.
app = App(name="timebound", help=HELP, help_format="markdown", version=__version__, suppress_keyboard_interrupt=False)
for verb in (
    run,
    predict,
    admit,
    simulate,
    emulate,
    sweep,
    reproduce,
    report,
    packets,
    compare,
    controller,
    profile_broker,
    validate,
    show,
    scenarios,
    doctor,
):
    verb.register(app)
for verb in (up, ps, exec_, shell, node, top):
    verb.register(app)
for verb in (manager, srt):
    verb.register(app)
app.register_install_completion_command()


def execute(arguments: list[str]) -> int:
    """Runs one command line; returns the exit code."""
    # Both may be closed (`>&-`): what is said then goes nowhere.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in ours
    registry.sweep()
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        # What cannot be written shows here and not at the interpreter's end, where nobody can say it in words.
        with to_whoever_reads():
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        _complain(as_json, "usage", [{"message": str(error), "hint": "timebound --help"}], str(error))
        return EXIT_INPUT
    except ScenarioError as error:
        problems = [
            {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message, "hint": p.hint}
            for p in error.problems
        ]
        _complain(as_json, "scenario", problems, error.render())
        return EXIT_INPUT
    except ControlError as error:
        text = f"error: {error}" + (f"\n  = hint: {error.hint}" if error.hint else "")
        _complain(as_json, "control", [{"message": str(error), "hint": error.hint}], text)
        return error.code
    except FolderError as error:
        _complain(
            as_json, "folder", [{"message": str(error), "hint": error.hint}], f"error: {error}\n  = hint: {error.hint}"
        )
        return error.code
    except BrokenPipeError:
        # Whoever read our output has had enough.
        write_no_more()
        return 0
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        try:
            _complain(as_json, "system", [{"message": text, "hint": ""}], f"error: {text}")
            sys.stdout.flush()
        except OSError:
            # It was standard output that could not be written: a full disk.
            stderr(f"error: {text}")
            write_no_more()
        return 3
    except KeyboardInterrupt:
        stderr("interrupted")
        return EXIT_INTERRUPTED


def _complain(as_json: bool, kind: str, problems: list[dict[str, object]], text: str) -> None:
    if as_json:
        print(json.dumps({"error": kind, "problems": problems}, indent=1))
    else:
        stderr(text)
