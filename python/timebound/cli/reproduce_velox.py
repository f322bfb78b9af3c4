"""`timebound reproduce velox-model`: its parameters, its table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from timebound.cli.common import print_json, stderr, stdout, whole
from timebound.engine.folder import FolderError
from timebound.scenario.units import RATE, SIZE, TIME, Kind, UnitError, parse

if TYPE_CHECKING:
    from timebound.reproduce.velox.model import Parameters

MOST_HOPS, MOST_PACKETS, MOST_RATE = 64, 1000, 1_000_000_000
MOST_PACKET_BITS = 72_000


@dataclass(frozen=True, slots=True)
class VeloxOptions:
    """Parameters of `velox-model`; the paper's by default."""

    lambda_: Annotated[
        float | None, Parameter(name="--lambda", help="velox-model: packets per second that are published (12000).")
    ] = None
    mu: Annotated[float | None, Parameter(help="velox-model: packets per second that a CPU serves (125000).")] = None
    hops: Annotated[int | None, Parameter(converter=whole, help="velox-model: M, links on the way (2).")] = None
    packets: Annotated[int | None, Parameter(converter=whole, help="velox-model: N, packets of a message (1).")] = None
    link_rate: Annotated[str | None, Parameter(help="velox-model: rate of every link (100 Mbit/s).")] = None
    packet_size: Annotated[str | None, Parameter(help="velox-model: size of a packet (8192 bit).")] = None
    processing: Annotated[str | None, Parameter(help="velox-model: P, processing per hop (5 us).")] = None
    propagation: Annotated[str | None, Parameter(help="velox-model: L, propagation per link (500 ns).")] = None
    appmid: Annotated[str | None, Parameter(help="velox-model: application to middleware (1600 ns).")] = None
    midapp: Annotated[str | None, Parameter(help="velox-model: middleware to application (42 us).")] = None

    def stated(self) -> list[str]:
        """The options that were given, as written on the command line."""
        names = (field.name for field in fields(self) if getattr(self, field.name) is not None)
        return ["--" + name.rstrip("_").replace("_", "-") for name in names]


def parameters_of(options: VeloxOptions) -> Parameters:
    """The model's parameters.

    Raises:
        FolderError: a value that is none, or that makes no sense.
    """
    from timebound.reproduce.velox.model import Parameters

    found: dict[str, Any] = {}
    for name, option, rate in (("arrivals_per_s", "lambda", options.lambda_), ("services_per_s", "mu", options.mu)):
        if rate is not None:
            if not 0.001 <= rate <= MOST_RATE:
                raise FolderError(
                    f"--{option} {rate:g} is out of range", f"use 0.001 to {MOST_RATE:g} packets per second"
                )
            found[name] = Fraction(str(rate))
    for name, count, most in (("hops", options.hops, MOST_HOPS), ("packets", options.packets, MOST_PACKETS)):
        if count is not None:
            if not 1 <= count <= most:
                raise FolderError(f"--{name} {count} is out of range", f"use 1 to {most}")
            found[name] = count
    if options.link_rate is not None:
        found["link_bps"] = int(_quantity("link-rate", options.link_rate, RATE))
    if options.packet_size is not None:
        bits = _quantity("packet-size", options.packet_size, SIZE) * 8
        if bits.denominator != 1 or not 1 <= bits <= MOST_PACKET_BITS:
            raise FolderError(
                f"--packet-size {options.packet_size} is out of range", f"use 1 bit to {MOST_PACKET_BITS} bit"
            )
        found["packet_bits"] = int(bits)
    for name in ("processing", "propagation", "appmid", "midapp"):
        text = getattr(options, name)
        if text is not None:
            found[f"{name}_us"] = _quantity(name, text, TIME) / 1000
    try:
        return Parameters(**found)
    except ValueError as error:
        raise FolderError(
            str(error), "timebound reproduce --help lists the parameters with the paper's values"
        ) from None


def _quantity(option: str, text: str, kind: Kind) -> Fraction:
    try:
        return parse(text, kind)
    except UnitError as error:
        raise FolderError(f"--{option}: {error}", error.hint) from None


def run(options: VeloxOptions, folder: Path, *, json: bool) -> int:
    """Works the model out, writes its folder and prints it."""
    from timebound.reproduce.velox import experiment

    done = experiment.run(parameters_of(options), folder)
    if json:
        print_json({**done.result, "folder": str(folder)})
    else:
        _tables(done.result)
    stderr(f"report: {folder / 'report.html'}")
    return 0


def _tables(result: dict[str, Any]) -> None:
    from rich.table import Table

    from timebound.cli.table import print_table
    from timebound.reproduce.velox.page import number, worst

    table = Table(title=f"velox-model: {result['label']}", title_justify="left", box=None, pad_edge=False)
    for column in ("where", "quantity"):
        table.add_column(column, overflow="fold")
    for column in ("printed", "by its formula", "corrected"):
        table.add_column(column, justify="right")
    for entry in result["quantities"]:
        table.add_row(
            entry["where"],
            entry["quantity"],
            entry["paper"] or "",
            number(entry["printed"], entry["unit"]),
            number(entry["corrected"], entry["unit"]),
        )
    print_table(table)
    wrong = Table(title="\nwhat is wrong", title_justify="left", box=None, pad_edge=False)
    for column in ("where", "the paper", "printed", "right"):
        wrong.add_column(column, overflow="fold")
    for defect in result["defects"]:
        wrong.add_row(defect["where"], defect["says"], defect["printed"], defect["right"])
    print_table(wrong)
    stdout(
        "\nworst case: none. Poisson arrivals and exponential service have no greatest value, so these means promise nothing."
    )
    stdout("Safe bound of the network alone if packets are never closer than 1/lambda:")
    for entry in result["bounds"]:
        stdout(f"  {entry['words']} ({entry['frame_bytes']} B, {entry['utilisation']:.1%} of a link): {worst(entry)}")
        if entry["reason"]:
            stdout(f"    {entry['reason']}")
