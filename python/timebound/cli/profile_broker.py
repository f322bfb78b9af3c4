"""`timebound profile-broker`: a broker's own time, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Force, Quiet, print_json, stderr, stdout
from timebound.files import FolderError, may_write, named_file, write_file

if TYPE_CHECKING:
    from timebound.engine.broker_profile import Request


def register(app: App) -> None:
    """Adds the verb."""
    app.command(profile_broker, name="profile-broker")


def profile_broker(
    program: Literal["embedded", "mosquitto"] = "embedded",
    /,
    *,
    output: Annotated[str | None, Parameter(name=["--output", "-o"], help="The file; by default PROGRAM.json.")] = None,
    sizes: Annotated[str, Parameter(help="Payload sizes in bytes.")] = "64,1024,4096",
    qos: Annotated[str, Parameter(help="Qualities of service.")] = "0,1,2",
    fan_out: Annotated[str, Parameter(help="Numbers of receivers of each message.")] = "1,2,8",
    rootless: Annotated[bool, Parameter(negative=(), help="As without root, even where there is one.")] = False,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Measure how long a broker takes over messages on this machine, and write it to a profile.

    A scenario refers to the file (`broker: {node: h5, profile: mosquitto.json}`), and end-to-end figures then have the broker in
    them. A profile is measured, never guaranteed: docs/broker.md. It takes about 20 s and leaves nothing behind.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine.broker_profile import ProfilingError, Request, profile
    from timebound.engine.folder import lines

    request = Request(program, _numbers(sizes, "--sizes"), _numbers(qos, "--qos"), _numbers(fan_out, "--fan-out"))
    file = named_file(f"{program}.json" if output is None else output)
    may_write(file, force=force)
    try:
        with TerminalProgress(quiet or json) as progress:
            content = profile(request, progress, rootless=rootless)
    except ProfilingError as error:
        raise FolderError(str(error), error.hint, error.code) from None
    write_file(file, lines(content) + "\n", force=force)
    if json:
        print_json({**content, "file": str(file)})
    else:
        _print(content, request)
    stderr(f"profile: {file}")
    if content["precision"]["verdict"] == "disturbed":
        reasons = "; ".join(content["precision"]["reasons"])
        stderr(f"the machine was disturbed, and so is the profile: {reasons}")
        return 4
    return 0


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise FolderError(f"{option} {text!r} is no list of whole numbers", f"for example {option} 1,2") from None


def _print(content: dict[str, Any], request: Request) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from timebound.cli.table import duration, print_table

    broker = content["broker"]
    table = Table(title=f"{broker['program']} {broker['version']}", title_justify="left", box=SIMPLE_HEAD)
    for name in (
        "payload",
        "QoS",
        "receivers",
        "alone\nmedian",
        "alone\np99",
        "alone\nmax",
        "back to back\nper message",
    ):
        table.add_column(name, justify="right")
    for cell in content["cells"]:
        alone = cell["alone"]
        table.add_row(
            f"{cell['size_bytes']} B",
            str(cell["qos"]),
            str(cell["fan_out"]),
            *(duration(alone[f"{name}_ns"] / 1000) for name in ("median", "p99", "max")),
            duration(cell["back_to_back"]["median_ns"] / 1000),
        )
    print_table(table)
    fit = content["fit"]
    parts = ("message", "copy", "acknowledgement")
    costs = ", ".join(f"{duration(fit[f'{part}_ns'] / 1000)} per {part}" for part in parts)
    stdout(f"fit: {costs}, {fit['byte_ps'] / 1000:g} ns per byte; latency {duration(fit['latency_ns'] / 1000)}")
