"""`timebound reproduce`: the papers' experiments, our figures beside what the papers say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from timebound.cli import reproduce_bounds, reproduce_multicast, reproduce_scalability, reproduce_velox
from timebound.cli.common import AsJson, Output, Quiet, print_json, stdout
from timebound.cli.reproduce_bounds import BoundsOptions
from timebound.cli.reproduce_multicast import MulticastOptions, SharedOptions
from timebound.cli.reproduce_scalability import ScalabilityOptions
from timebound.cli.reproduce_velox import VeloxOptions
from timebound.files import FolderError, named_folder

EXPERIMENTS = {
    "mqtt-scalability": "up to 350 MQTT clients on one broker: CPU, traffic and packets by QoS (vNET, sections II and III)",
    "velox-model": "the mean delay of DDS by the model of Velox, as printed and corrected, beside a safe bound (section 2.1)",
    "mrt-mqtt-bounds": "the analyses of MRT-MQTT as printed, beside safe bounds and simulation (Figs. 16 to 18)",
    "mrt-mqtt": "MQTT, RT-MQTT, DM-MQTT and MRT-MQTT between three edge networks, run (section VII)",
}
SHARED = {"--full", "--rootless", "--seed", "--evaluations"}
"""Options of other experiments that `mrt-mqtt` has as well."""


def register(app: App) -> None:
    """Adds the verb."""
    app.command(reproduce)


def reproduce(
    experiment: Annotated[str | None, Parameter(help="Name of the experiment; without it, they are listed.")] = None,
    /,
    *,
    scalability: Annotated[ScalabilityOptions | None, Parameter(name="*")] = None,
    velox: Annotated[VeloxOptions | None, Parameter(name="*")] = None,
    bounds: Annotated[BoundsOptions | None, Parameter(name="*")] = None,
    multicast: Annotated[MulticastOptions | None, Parameter(name="*")] = None,
    output: Output = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run an experiment of a paper again and hold the outcome against the paper's statements, one by one.

    Finished parts are kept in the output folder: started again with the same folder, an experiment goes on where it was.
    """
    scalability, velox, bounds = scalability or ScalabilityOptions(), velox or VeloxOptions(), bounds or BoundsOptions()
    multicast = multicast or MulticastOptions()
    stated_of = (scalability.stated(), velox.stated(), bounds.stated(), multicast.stated())
    given = dict(zip(EXPERIMENTS, stated_of, strict=True))
    if experiment is None:
        for owner, stated in given.items():
            if stated:
                raise _refused(f"{stated[0]} without an experiment", f"timebound reproduce {owner} {stated[0]} ...")
        if output is not None:
            raise _refused("--output without an experiment", "timebound reproduce EXPERIMENT --output FOLDER")
        if json:
            print_json([{"name": name, "description": text} for name, text in EXPERIMENTS.items()])
        else:
            for name, text in EXPERIMENTS.items():
                stdout(f"{name:<20} {text}")
        return 0
    if experiment not in EXPERIMENTS:
        raise _refused(f"there is no experiment {experiment!r}", f"there are: {', '.join(EXPERIMENTS)}")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = named_folder(output) if output is not None else Path("runs") / f"{experiment}-{stamp}"
    for owner, stated in given.items():
        foreign = [name for name in stated if experiment != "mrt-mqtt" or name not in SHARED]
        if experiment != owner and foreign:
            raise _refused(f"{experiment} has no {foreign[0]}", f"it is a parameter of {owner}")
    if experiment == "velox-model":
        return reproduce_velox.run(velox, folder, json=json)
    if experiment == "mrt-mqtt-bounds":
        return reproduce_bounds.run(bounds, folder, json=json, quiet=quiet)
    if experiment == "mrt-mqtt":
        shared = SharedOptions(scalability.full, bounds.seed, bounds.evaluations, scalability.rootless)
        return reproduce_multicast.run(multicast, shared, folder, json=json, quiet=quiet)
    return reproduce_scalability.run(scalability, folder, json=json, quiet=quiet)


def _refused(message: str, hint: str) -> FolderError:
    return FolderError(message, hint)
