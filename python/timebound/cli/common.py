"""What the verbs share: parameters, loading, printing, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from timebound.files import given
from timebound.scenario.problems import OPTION, Problem, ScenarioError, plain

if TYPE_CHECKING:
    from timebound.scenario.model import Scenario

EXIT_INPUT, EXIT_INTERRUPTED = 2, 130


def _given(_: object, tokens: Sequence[Token]) -> Path:
    """Before `Path` makes the current folder of nothing."""
    return given(tokens[0].value)


def whole(_: object, tokens: Sequence[Token]) -> int:
    """A whole number, in Python's writing or as `1e6`: what is none must not be rounded to one.

    Raises:
        ValueError: it is none.
    """
    text = tokens[0].value.strip()
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError, ArithmeticError):
        number = Decimal(text)
        if number == number.to_integral_value() and number.adjusted() < 19:
            return int(number)
    raise ValueError(f"{tokens[0].value!r} is no whole number")


def wholes(kind: object, tokens: Sequence[Token]) -> tuple[int, ...]:
    """As `whole`, of an option that may be given several times."""
    return tuple(whole(kind, [token]) for token in tokens)


Given = Annotated[Path, Parameter(converter=_given)]
"""A folder or file that is read."""
ScenarioName = Annotated[
    str, Parameter(help="A scenario file, or the name of a built-in scenario (`timebound scenarios`).")
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative=(),
        help='Override a value of the scenario, as `flows.alpha.period="10 ms"`; may be given several times.',
    ),
]
AsJson = Annotated[
    bool, Parameter(name="--json", negative=(), help="Print the result as JSON to standard output and nothing else.")
]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), help="No progress.")]
Force = Annotated[bool, Parameter(negative=(), help="Replace the file of --output if it is there.")]
ForceFolder = Annotated[
    bool,
    Parameter(
        name="--force", negative=(), help="Replace the results of another scenario or verb in the folder of --output."
    ),
]
Output = Annotated[
    str | None, Parameter(name=["--output", "-o"], help="The run folder; a new one below `runs/` by default.")
]
OutputIfNamed = Annotated[
    str | None,
    Parameter(
        name=["--output", "-o"], help="Write a run folder with its report, of this name; without it none is written."
    ),
]


def stderr(text: str) -> None:
    """Messages go to standard error; standard output belongs to results."""
    print(plain(text), file=sys.stderr)


def stdout(text: str, *, end: str = "\n") -> None:
    """Results for people. What names, files and strangers say is shown and not obeyed (`plain`)."""
    print(plain(text), end=end)


def open_scenario(name: str, settings: tuple[str, ...]) -> Scenario:
    """Loads a scenario with its overrides; prints warnings."""
    from timebound.scenario import load
    from timebound.scenario.builtin import find

    try:
        scenario = load(find(name), assignments(settings))
    except ScenarioError as error:
        if settings and any(problem.line and not problem.file.startswith(OPTION) for problem in error.problems):
            # The place is right, and yet the file may be well-formed as it is.
            said = ", ".join(f"{OPTION}{setting}" for setting in settings)
            raise ScenarioError(error.problems, f"the file was read with {said}") from None
        raise
    for warning in scenario.warnings:
        stderr(warning.render())
    return scenario


def assignments(settings: Iterable[str]) -> dict[str, str]:
    """The values of `--set`."""
    overrides: dict[str, str] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            problem = Problem(
                file="--set", line=0, column=0, path=key, message=f"{setting!r} is no assignment",
                hint='write it as KEY=VALUE, for example --set flows.alpha.period="10 ms"', source_line="",
            )  # fmt: skip
            raise ScenarioError([problem])
        overrides[key.strip()] = value.strip()
    return overrides


def write_no_more() -> None:
    """What is still in the buffer of standard output goes nowhere, at exit as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def to_whoever_reads() -> Iterator[None]:
    """A reader that has had enough (`| head`) changes no exit code: that is the verdict's."""
    try:
        yield
    except BrokenPipeError:
        write_no_more()


def print_json(value: Any) -> None:
    """The one thing on standard output."""
    with to_whoever_reads():
        print(json.dumps(value, indent=1))


def everything(*, written: bool) -> str:
    """Where everything is that a table leaves out. `written`: is there a run folder?"""
    from timebound.cli.table import IN_JSON

    return "in the summary" if written else IN_JSON


def print_flows(summary: dict[str, Any], *, written: bool) -> None:
    """The table of flows that closes a verb. `written`: is there a run folder that has everything?"""
    from timebound.cli.table import broker_lines, flow_reasons, flow_table, method_lines, print_table

    where = everything(written=written)
    with to_whoever_reads():
        print_table(flow_table(summary, where))
        for tell in (method_lines, flow_reasons, broker_lines):
            for line in tell(summary, where):
                stdout(line)
