"""Measures a broker's own time: `timebound profile-broker` (docs/broker.md).

The broker runs as in any emulation, with real clients, over fast links. Every cell (payload size, QoS, receivers) is a flow of its own
that is alone on the network in its part of the run: first messages with nothing else under way, then bursts. Times are those of
the frames: from a message's last frame in to the last frame of its last copy out; of QoS 2 from the PUBREL, at which brokers forward.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from timebound import __version__
from timebound.engine import programs
from timebound.engine.broker_fit import Burst, CellSamples, Costs, fit, quantiles
from timebound.engine.core import Network
from timebound.engine.emulate import EXIT_HOST, EXIT_INTERRUPTED, emulate
from timebound.engine.measured import Measured, crossings, measure
from timebound.engine.predict import Prediction
from timebound.engine.progress import Progress
from timebound.engine.servers import Servers
from timebound.scenario import load
from timebound.scenario.broker_profile import FORMAT
from timebound.stacks import Plan, build_plan
from timebound.stacks.wire import MEASUREMENT_HEADER_BYTES, mqtt_publish

if TYPE_CHECKING:
    import polars as pl

Program = Literal["embedded", "mosquitto"]
ALONE, ALONE_GAP_US = 30, 4_000
BURSTS, BURST_GAP_US, WITHIN_BURST_US = 4, 30_000, 20
LONGEST_BURST = 25
BURST_BYTES = 14_000
"""About ten segments: what TCP sends at once after a pause (RFC 6928), so that a burst is the broker's work and not TCP's."""
CELL_PAUSE_US = 40_000
WARM_UP_MS = 200
MOST_CELLS, MOST_FAN_OUT, LARGEST_BYTES = 64, 64, 64_000
METHOD = (
    "The broker and real clients in network namespaces, links of 10 Gbit/s; times from the stamps of frames: from the last frame of a PUBLISH "
    "(of QoS 2: of its PUBREL) handed to the broker to the last frame of the last copy that it sends. "
    f"Per cell {ALONE} messages {ALONE_GAP_US // 1000} ms apart (alone), then {BURSTS} bursts of up to {LONGEST_BURST} messages (back to back: work per "
    "message while more are waiting, by burst). Fit: non-negative least squares of the cells' medians, raised until no median is above "
    "it; latency: the most by which any message was later than a first-in-first-out server with these costs."
)


class ProfilingError(Exception):
    """The broker could not be measured; with a hint and an exit code."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure; sizes in bytes of payload."""

    program: Program
    sizes: tuple[int, ...] = (64, 1024, 4096)
    qos: tuple[int, ...] = (0, 1, 2)
    fan_outs: tuple[int, ...] = (1, 2, 8)

    def cells(self) -> list[Cell]:
        """All combinations.

        Raises:
            ProfilingError: nothing to measure, or more than a profile's time allows.
        """
        cells = [Cell(*each) for each in product(self.sizes, self.qos, self.fan_outs)]
        if not 1 <= len(cells) <= MOST_CELLS:
            raise ProfilingError(f"{len(cells)} combinations of size, QoS and fan-out", f"ask for 1 to {MOST_CELLS}", 2)
        for size in self.sizes:
            if not MEASUREMENT_HEADER_BYTES <= size <= LARGEST_BYTES:
                message = f"a payload of {size} bytes cannot be measured"
                raise ProfilingError(message, f"use {MEASUREMENT_HEADER_BYTES} to {LARGEST_BYTES} bytes", 2)
        for fan_out in self.fan_outs:
            if not 1 <= fan_out <= MOST_FAN_OUT:
                raise ProfilingError(f"{fan_out} receivers cannot be measured", f"use 1 to {MOST_FAN_OUT}", 2)
        if any(qos not in (0, 1, 2) for qos in self.qos):
            raise ProfilingError("QoS is 0, 1 or 2", "--qos 0,1,2", 2)
        return cells


@dataclass(frozen=True, slots=True)
class Cell:
    """One payload size, QoS and number of receivers."""

    size: int
    qos: int
    fan_out: int

    @property
    def name(self) -> str:
        return f"s{self.size}q{self.qos}f{self.fan_out}"

    @property
    def burst(self) -> int:
        """Messages of a burst."""
        return max(4, min(LONGEST_BURST, BURST_BYTES // (self.size + 50)))

    def times_us(self, start: int) -> tuple[list[int], int]:
        """Release times from `start` on, and when the next cell may begin."""
        times = [start + index * ALONE_GAP_US for index in range(ALONE)]
        at = times[-1] + BURST_GAP_US
        for _ in range(BURSTS):
            times += [at + index * WITHIN_BURST_US for index in range(self.burst)]
            at = times[-1] + BURST_GAP_US
        return times, at + CELL_PAUSE_US


def profile(request: Request, progress: Progress, *, rootless: bool = False) -> dict[str, Any]:
    """Measures and returns the content of a profile file. Leaves nothing behind.

    Raises:
        ProfilingError: the host cannot emulate, the broker cannot be started, messages were lost.
        ScenarioError: the program is not installed.
    """
    cells = request.cells()
    plan = build_plan(load(f"{_scenario(request, cells)}\n"))
    programs.resolve(plan)
    network = Network(plan, plan.declaration())
    streams = {stream.name: stream for stream in plan.streams}
    prediction = Prediction(plan, network, streams, {}, [], 0, network, Servers(plan))
    started = datetime.now(UTC)
    progress.step("profile", f"{request.program}: {len(cells)} combinations of size, QoS and fan-out")
    with tempfile.TemporaryDirectory(prefix="timebound-profile-") as temporary:
        folder = Path(temporary)
        emulation = emulate(prediction, folder, _teller(plan, progress), rootless=rootless)
        live = json.loads((folder / "live.json").read_text()) if (folder / "live.json").exists() else {}
        if emulation.status == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if emulation.failure is not None or live.get("epoch_unix_ns") is None:
            message = emulation.failure or "the emulation did not get as far as measuring"
            raise ProfilingError(message, emulation.hint or "timebound doctor says what this host lacks", EXIT_HOST)
        measured = measure(prediction, folder, live)
    samples = [_samples(plan, cell, measured) for cell in cells]
    return _content(request, samples, measured, started)


def _scenario(request: Request, cells: list[Cell]) -> str:
    """The scenario as JSON, which is YAML."""
    receivers = [f"s{number}" for number in range(1, max(request.fan_outs) + 1)]
    hosts = ["publisher", "broker", *receivers]
    flows, at = [], 0
    for cell in cells:
        times, at = cell.times_us(at)
        flows.append(
            {
                "name": cell.name,
                "from": "publisher",
                "to": receivers[: cell.fan_out],
                "size": f"{cell.size} B",
                "qos": cell.qos,
                "pattern": "trace",
                "trace": [f"{time} us" for time in times],
            }
        )
    link = {"rate": "10 Gbit/s", "delay": "1 us", "buffer": "16 MiB"}
    return json.dumps(
        {
            "name": "profile-broker",
            "network": {
                "defaults": {"link": link, "switch": {"delay": "1 us"}},
                "nodes": {"switch": "switch", **dict.fromkeys(hosts, "host")},
                "links": [[host, "switch"] for host in hosts],
            },
            "flows": flows,
            "stack": {"mqtt": {"broker": {"node": "broker", "program": request.program}}},
            # Messages that leave before the warm-up's end are measured as well.
            "run": {"duration": f"{at + 300_000} us", "warm-up": f"{WARM_UP_MS} ms", "seed": 1},
        }
    )


def _teller(plan: Plan, progress: Progress) -> Any:
    total = plan.scenario.run.warm_up_ns + plan.scenario.run.duration_ns

    def tell(event: dict[str, Any]) -> None:
        if event.get("event") == "progress":
            progress.at(min(1.0, float(event.get("run_ns", 0)) / total), f"of {total / 1e9:.0f} s")

    return tell


def _samples(plan: Plan, cell: Cell, measured: Measured) -> CellSamples:
    """The times of one cell.

    Raises:
        ProfilingError: not all messages came through.
    """
    import polars as pl

    publish = f"{cell.name}/publish"
    copies = [f"{cell.name}/deliver>s{number}" for number in range(1, cell.fan_out + 1)]
    found = crossings(plan, measured.frames)
    out = (
        found.filter(pl.col("stream").is_in(copies))
        .group_by("sequence")
        .agg(
            pl.col("began_ns").min().alias("first"),
            pl.col("ended_ns").max().alias("last"),
            pl.len().alias("copies"),
        )
        .filter(pl.col("copies") == cell.fan_out)
    )
    came = found.filter(pl.col("stream") == publish).select(
        "sequence", (pl.col("delivered_ns") + pl.col("lateness_ns")).alias("came")
    )
    table = came.join(out, on="sequence").sort("sequence")
    wanted = ALONE + BURSTS * cell.burst
    if table.height < wanted:
        raise ProfilingError(
            f"{cell.name}: {wanted - table.height} of {wanted} messages were not seen to the last copy",
            "the machine is too busy, or the broker dropped them: try again, with a smaller fan-out",
            EXIT_HOST,
        )
    if cell.qos == 2:
        table = _from_release(table, measured.frames.filter(pl.col("name") == f"{publish}/pubrel"))
    rows = list(table.select("came", "first", "last").iter_rows())
    bursts = [
        Burst(tuple((came, last) for came, _, last in rows[start : start + cell.burst]))
        for start in range(ALONE, wanted, cell.burst)
    ]
    size = mqtt_publish(cell.name, cell.size, cell.qos, True)[0]
    return CellSamples(
        size_bytes=cell.size,
        message_bytes=size,
        qos=cell.qos,
        fan_out=cell.fan_out,
        first_ns=tuple(max(0, first - came) for came, first, _ in rows[:ALONE]),
        alone=tuple(Burst(((came, last),)) for came, _, last in rows[:ALONE]),
        bursts=tuple(bursts),
    )


def _from_release(table: pl.DataFrame, releases: pl.DataFrame) -> pl.DataFrame:
    """Of QoS 2 a broker forwards when the PUBREL comes: the last one that had come when the first copy left."""
    import polars as pl

    came = (
        releases.select((pl.col("delivered_ns") + pl.col("lateness_ns")).alias("released"))
        .drop_nulls()
        .sort("released")
    )
    joined = table.sort("first").join_asof(came, left_on="first", right_on="released", strategy="backward")
    return joined.with_columns(came=pl.max_horizontal("came", "released")).sort("sequence")


def _content(request: Request, samples: list[CellSamples], measured: Measured, started: datetime) -> dict[str, Any]:
    costs = fit(samples)
    precision = measured.live["precision"]
    return {
        "format": FORMAT,
        "schema": 1,
        "measured": started.isoformat(timespec="seconds"),
        "broker": {"program": request.program, "version": version(request.program), "protocol": "5"},
        "machine": _machine(),
        "timebound": __version__,
        "method": METHOD,
        "precision": {
            "verdict": "good" if precision["verdict"] == "good" else "disturbed",
            "reasons": list(precision["reasons"]),
        },
        "cells": [_cell(cell, costs) for cell in samples],
        "fit": {
            "latency_ns": costs.latency_ns,
            "message_ns": costs.message_ns,
            "copy_ns": costs.copy_ns,
            "byte_ps": costs.byte_ps,
            "acknowledgement_ns": costs.acknowledgement_ns,
        },
    }


def _cell(cell: CellSamples, costs: Costs) -> dict[str, Any]:
    return {
        "size_bytes": cell.size_bytes,
        "message_bytes": cell.message_bytes,
        "qos": cell.qos,
        "fan_out": cell.fan_out,
        "alone": quantiles([burst.spans()[0] for burst in cell.alone]),
        "first_copy": quantiles(list(cell.first_ns)),
        "back_to_back": {
            **quantiles(cell.work_each_ns()),
            "count": sum(len(burst.times) for burst in cell.bursts),
        },
        "fitted_work_ns": costs.work_ns(cell),
    }


def version(program: Program) -> str:
    """What the broker says of itself."""
    if program == "embedded":
        return f"of timebound {__version__}"
    path = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:{programs.SERVERS}")
    if path is None:
        return "unknown"
    said = subprocess.run([path, "-h"], capture_output=True, text=True, timeout=10, check=False)
    found = re.search(r"version (\S+)", said.stdout)
    return "unknown" if found is None else found.group(1)


def _machine() -> dict[str, Any]:
    system = platform.uname()
    return {
        "machine": system.machine,
        "kernel": f"{system.system} {system.release}",
        "cores": os.cpu_count(),
        "cpu": next(_cpu_names(), "unknown"),
    }


def _cpu_names() -> Iterator[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor", "CPU part"):
            yield value.strip()
