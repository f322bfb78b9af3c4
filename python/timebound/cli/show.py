"""`timebound show`: draws the topology."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli.common import (
    AsJson,
    Force,
    ScenarioName,
    Settings,
    open_scenario,
    print_json,
    stderr,
)
from timebound.files import FolderError, may_write, named_file, suffix, write_file


def register(app: App) -> None:
    """Adds the verb."""
    app.command(show)


def show(
    scenario: ScenarioName,
    /,
    *,
    set: Settings = (),
    output: Annotated[
        str | None,
        Parameter(name=["--output", "-o"], help="Write a file: .svg, .png, .graphml, .gml or .json (topology)."),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> int:
    """Draw a scenario's network: as text, or as SVG or PNG; or export it as GraphML, GML or topohub JSON."""
    from timebound.scenario import draw, topology

    loaded = open_scenario(scenario, set)
    if output is None:
        if force:
            raise FolderError("--force without --output", "it says that the file of --output may be replaced")
        print_json(loaded.declaration()) if json else print(draw.text(loaded))
        return 0
    writers = {
        ".svg": lambda: draw.svg(loaded).encode(),
        ".png": lambda: _png(draw.svg(loaded)),
        ".graphml": lambda: topology.to_graphml(loaded).encode(),
        ".gml": lambda: topology.to_gml(loaded).encode(),
        ".json": lambda: topology.to_json(loaded).encode(),
    }
    file = named_file(output)
    writer = writers.get(suffix(file))
    if writer is None:
        raise FolderError(f"{file}: unknown kind of file", f"end its name in one of {', '.join(writers)}")
    may_write(file, force=force, inputs=loaded.inputs)
    write_file(file, writer(), force=force, inputs=loaded.inputs)
    stderr(f"written: {file}")
    return 0


def _png(svg: str) -> bytes:
    from timebound.report import svg_to_png

    return svg_to_png(svg)
