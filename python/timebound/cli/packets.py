"""`timebound packets`: what captures are made of."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Force, Given, Quiet, print_json, stderr
from timebound.engine.write import write_parquet
from timebound.files import FolderError, Place, adopt, holding, may_write, named_file, results_of, write_with

if TYPE_CHECKING:
    from timebound.engine.packets import Analysis


def register(app: App) -> None:
    """Adds the verb."""
    app.command(packets)


def packets(
    first: Annotated[Given, Parameter(help="A run folder with captures, or a capture file (.pcap, .pcapng).")],
    /,
    *more: Annotated[Given, Parameter(help="More capture files.")],
    interval: Annotated[str, Parameter(help="Resolution over time.")] = "1 s",
    mqtt_port: Annotated[
        tuple[int, ...],
        Parameter(negative=(), help="A TCP port to be read as MQTT besides 1883 and those of the run's brokers."),
    ] = (),
    partial: Annotated[
        bool, Parameter(negative=(), help="Count a file that is damaged or cut short up to the damage.")
    ] = False,
    output: Annotated[
        str | None, Parameter(name=["--output", "-o"], help="Write the table (Parquet) to this file.")
    ] = None,
    force: Force = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Size classes, control and payload, goodput, overhead and retransmissions of captures, by tshark.

    For a run folder, `packets.parquet`, the key `packets` of `summary.json` and the report are brought up to date.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import packets as engine

    paths = [first, *more]
    for port in mqtt_port:
        if not 0 < port < 65536:
            raise FolderError(f"--mqtt-port {port} is no TCP port", "use 1 to 65535")
    run = first if first.is_dir() else None
    if run is not None and more:
        raise FolderError("a run folder is analysed on its own", "name one run folder, or files only")
    if any(path.is_dir() for path in more):
        raise FolderError("a run folder is analysed on its own", "name one run folder, or files only")
    table = None if output is None else named_file(output)
    inputs = paths if run is None else _inputs_of(run)
    if table is not None:
        may_write(table, force=force, inputs=inputs)
    interval_ns = _nanoseconds(interval)
    with ExitStack() as held:
        if run is not None and (run / "summary.json").is_file():
            place = held.enter_context(Place(run))
            held.enter_context(holding(place))
            # An analysis of a run of an earlier version, or of its folder's copy, is brought up to date.
            adopt(place, ["packets.parquet"], force=force, ours=_has_packets)
            adopt(place, ["summary.json"], ours=lambda _: True)
        sources = engine.of_files(paths, mqtt_port) if run is None else engine.of_run(run, mqtt_port)
        if not sources:
            raise FolderError(f"{first} has no captures", 'ask for them in the scenario: run: {captures: ["h1->s1"]}')
        with TerminalProgress(quiet or json) as progress:
            analysis = engine.analyse(sources, interval_ns=interval_ns, partial=partial, progress=progress)
        if table is not None:
            write_with(table, lambda file: write_parquet(analysis.table, file), force=force, inputs=inputs)
        if run is not None and (run / "summary.json").is_file():
            _keep(run, analysis, force=force)
    print_json(analysis.summary) if json else _print(analysis.summary)
    return 0


def _keep(run: Path, analysis: Analysis, *, force: bool) -> None:
    from timebound.engine.folder import read_summary, write_json
    from timebound.report import ReportError, write_report

    summary = read_summary(run)
    with Place(run) as place, place.writing("packets.parquet") as file:
        write_parquet(analysis.table, file)
    write_json(run / "summary.json", {**summary, "packets": analysis.summary})
    try:
        write_report(run, force=force)
    except ReportError as error:
        raise FolderError(str(error), f"the figures are in {run / 'summary.json'}") from error


def _inputs_of(run: Path) -> list[Path]:
    """All that belongs to the run, but for the table that is made anew."""
    return [*(file for file in results_of(run) if file.name != "packets.parquet"), *(run / "captures").glob("*")]


def _has_packets(place: Place) -> bool:
    """Does the summary have an analysis already, whose table it then is?"""
    from timebound.engine.folder import read_summary

    return "packets" in read_summary(place.path)


def _nanoseconds(text: str) -> int:
    from timebound.scenario import units

    try:
        return units.exactly(units.parse(text, units.TIME), text, units.TIME)
    except units.UnitError as error:
        raise FolderError(f"--interval {text}: {error.message}", error.hint) from None


def _print(summary: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from timebound.cli.table import print_table
    from timebound.engine.packets.frames import CATEGORIES, CLASSES

    columns = [(entry["capture"], entry) for entry in summary["captures"]]
    table = Table(box=SIMPLE_HEAD, title=f"packets (tshark {summary['tshark']})", title_justify="left")
    table.add_column("")
    for name, _ in columns:
        table.add_column(escape(name), justify="right", overflow="fold")

    def row(title: str, *path: str, show: Any = str) -> None:
        cells = []
        for _, entry in columns:
            value: Any = entry
            for key in path:
                value = None if value is None else value.get(key)
            cells.append("-" if value is None else show(value))
        table.add_row(title, *cells)

    share = lambda value: f"{100 * value:.1f} %"  # noqa: E731
    row("frames", "totals", "frames")
    row("bytes of frames", "totals", "frame_bytes")
    row("bytes on the wire", "totals", "wire_bytes")
    row("application payload, bytes", "totals", "payload_bytes")
    row("goodput, bytes/s", "totals", "goodput_bytes_per_s")
    row("overhead on the wire", "totals", "overhead", "wire_share", show=share)
    row("without TCP/UDP payload", "totals", "without_transport_payload", "share", show=share)
    row("without application payload", "totals", "without_application_payload", "share", show=share)
    for category in CATEGORIES:
        if any(entry["totals"]["categories"][category]["frames"] for _, entry in columns):
            row(f"  {category}", "totals", "categories", category, "share", show=share)
    for name in CLASSES:
        row(f"  frames of {name} bytes", "sizes", "frame", name)
    for name in ("retransmissions", "spurious_retransmissions", "duplicate_acks", "out_of_order"):
        row(name.replace("_", " "), "totals", "tcp", name)
    print_table(table)
    for name, entry in columns:
        for words in filter(None, [entry["problem"], *entry["notes"]]):
            stderr(f"{name}: {words}")
