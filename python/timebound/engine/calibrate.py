"""`timebound doctor --calibrate`: what this host can carry, measured by real emulations through the sandbox.

Everything is bounded in time: steps that no longer fit are left out, and the result says which. What is worked out beyond what
was measured (node counts) says `extrapolated`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timebound import _core
from timebound.engine import calibration, records
from timebound.engine.emulate import EXIT_INTERRUPTED, SCHEMA, execute
from timebound.engine.progress import SILENT, Progress
from timebound.stacks.release import DSCP_PER_CLASS

LIMIT_S, QUICK_LIMIT_S = 60.0, 15.0
PAIRS = 4
PAYLOAD = 200
RATES = (2_000, 5_000, 10_000, 20_000, 30_000, 45_000, 70_000, 100_000, 150_000, 220_000)
"""Frames per second that are offered one after the other."""
DELIVERED = 0.97
"""Least share of what was offered that has to arrive; less means that the senders or the emulator do not keep up."""
DELAYS_US = (20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
KEPT = 0.1
"""Share of a delay that the p99 of its error may have."""
MEMORY_SHARE = 0.5
"""Of the memory that is free, nodes may take so much; programs need the rest."""
BRING_UP_S = 10.0
"""Bring-up time that bounds the number of nodes by time."""


class CalibrationError(Exception):
    """The host could not be measured at all; the text says why."""


@dataclass(slots=True)
class _Clock:
    """The time that is left."""

    end: float

    def left(self) -> float:
        return self.end - time.monotonic()


def calibrate(*, quick: bool, progress: Progress = SILENT) -> dict[str, Any]:
    """Measures the host: timers, bring-up, rates and delays; the content of the calibration file (docs/certificate.md).

    Raises:
        CalibrationError: not even the smallest emulation ran.
    """
    limit = QUICK_LIMIT_S if quick else LIMIT_S
    begun = time.monotonic()
    clock = _Clock(begun + limit)
    progress.step("timers", "timer wake-ups and clock reads")
    timers = json.loads(_core.timers(0.5 if quick else 2.0))
    root = os.geteuid() == 0
    modes = ["root", "rootless"] if root else ["rootless"]
    progress.step("nodes", "bringing up nodes")
    nodes = _nodes((10, 60) if quick else (10, 100, 350), root=root, clock=clock, progress=progress)
    result: dict[str, Any] = {
        "schema": calibration.SCHEMA,
        "identity": calibration.identity(),
        "date": calibration.now(),
        "quick": quick,
        "load": os.getloadavg()[0],
        "timers": timers,
        "nodes": nodes,
        "modes": {},
    }
    for index, mode in enumerate(modes):
        share = clock.left() / (len(modes) - index)
        own = _Clock(min(clock.end, time.monotonic() + share))
        progress.step(mode, "shortest delay and frames per second")
        result["modes"][mode] = _mode(mode, quick=quick, root=root, clock=own, progress=progress)
    result["took_s"] = round(time.monotonic() - begun, 1)
    return result


def _mode(mode: str, *, quick: bool, root: bool, clock: _Clock, progress: Progress) -> dict[str, Any]:
    rootless = root and mode == "rootless"
    seconds = 0.7 if quick else 1.5
    begun = time.monotonic()
    delays, live = _delays(seconds, rootless=rootless)
    cost = time.monotonic() - begun
    steps: list[dict[str, Any]] = []
    left_out: list[int] = []
    # The quick form leaves out every second rate, and all forms leave out what no longer fits.
    rates = RATES[1::2] if quick else RATES
    for index, rate in enumerate(rates):
        if clock.left() < cost + 0.5:
            left_out = list(rates[index:])
            break
        progress.at(index / len(rates), f"{rate} frames/s")
        begun = time.monotonic()
        step = _rate(rate, seconds, rootless=rootless)
        if not step["kept"] and clock.left() > 2 * cost:
            # One stall of the machine must not end the search.
            again = _rate(rate, seconds, rootless=rootless)
            step = again if again["kept"] else step
        cost = max(cost, time.monotonic() - begun)
        steps.append(step)
        if not step["kept"]:
            break
    kept = [step for step in steps if step["kept"]]
    best = kept[-1] if kept else None
    return {
        "fifo": live["precision"]["fifo"],
        "frames_per_s": None if best is None else best["frames_per_s"],
        "reached_limit": bool(steps) and not steps[-1]["kept"],
        "ended_by": None if not steps or steps[-1]["kept"] else steps[-1]["verdict"],
        "cpu_us_per_frame": None if best is None else best["cpu_us_per_frame"],
        "rates": steps,
        "left_out": left_out,
        "shortest_delay_us": shortest(delays),
        "delays": delays,
    }


def shortest(delays: list[dict[str, Any]]) -> float | None:
    """The shortest delay from which on all measured ones are kept within 10 % at the 99th percentile."""
    found = None
    for entry in sorted(delays, key=lambda entry: -entry["delay_us"]):
        if entry["frames"] == 0 or entry["lateness_p99_us"] > KEPT * entry["delay_us"]:
            break
        found = float(entry["delay_us"])
    return found


def _nodes(counts: tuple[int, ...], *, root: bool, clock: _Clock, progress: Progress) -> dict[str, Any]:
    """Bring-up time and memory per node, from emulated networks without traffic."""
    found: list[dict[str, Any]] = []
    for index, count in enumerate(counts):
        # A network takes about 3 ms per node here and at most a third of the time there is.
        if found and clock.left() < 3 * found[-1]["bring_up_s"] * count / found[-1]["nodes"] + 2:
            break
        progress.at(index / len(counts), f"{count} nodes")
        free = _free_memory()
        used: list[int] = []

        def tell(event: dict[str, Any], free: int = free, used: list[int] = used) -> None:
            if event.get("phase") == "measure":
                used.append(free - _free_memory())

        live, _ = _run(_star(count, [0] * count), 0.05, tell=tell)
        found.append(
            {
                "nodes": count,
                "bring_up_s": live["times"]["bring_up_ns"] / 1e9,
                "memory_bytes": used[0] if used else None,
            }
        )
    per_node = slope([(entry["nodes"], entry["bring_up_s"]) for entry in found])
    memory = slope([(e["nodes"], e["memory_bytes"]) for e in found if e["memory_bytes"] is not None])
    largest = found[-1]["nodes"]
    bounds = {
        "time": None if not per_node else int(BRING_UP_S / per_node),
        # Other programs come and go meanwhile: a slope of less than a page per node is none.
        "memory": None if not memory or memory < 4096 else int(_free_memory() * MEMORY_SHARE / memory),
        "namespaces": _namespaces(),
    }
    known = [bound for bound in bounds.values() if bound is not None]
    carried = max(largest, min(known)) if known else largest
    return {
        "measured": found,
        "bring_up_s_per_node": per_node,
        "memory_bytes_per_node": None if memory is None else round(memory),
        "bounds": bounds,
        "carried": carried,
        "extrapolated": carried > largest,
        "root": root,
    }


def slope(points: list[tuple[int, float]]) -> float | None:
    """Between the first and the last point; `None` where there are not two, or it does not rise."""
    if len(points) < 2:
        return None
    (first, low), (last, high) = points[0], points[-1]
    rise = (high - low) / (last - first)
    return rise if rise > 0 else None


def _delays(seconds: float, *, rootless: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The error of delays of several lengths at once, 200 frames/s each: per delay its frames and the p99 of their lateness."""
    delays = [delay * 1000 for delay in DELAYS_US for _ in range(2)]
    live, frames = _run(_star(len(delays), delays), seconds, rate=200 * len(DELAYS_US), rootless=rootless)
    found = []
    for index, delay in enumerate(DELAYS_US):
        late = frames["lateness_ns"][(frames["stream"] == index) & (frames["flags"] & records.DROPPED == 0)]
        p99 = float(np.quantile(late, 0.99)) / 1000 if len(late) else None
        found.append({"delay_us": delay, "frames": len(late), "lateness_p99_us": p99})
    return found, live


def _rate(rate: int, seconds: float, *, rootless: bool) -> dict[str, Any]:
    """One emulation at this many frames per second."""
    live, frames = _run(_star(2 * PAIRS, [500_000] * 2 * PAIRS), seconds, rate=rate, rootless=rootless)
    precision = live["precision"]
    delivered = int((frames["flags"] & records.DROPPED == 0).sum())
    return {
        "offered_per_s": rate,
        "frames_per_s": round(delivered / seconds),
        "lateness_p99_us": precision["lateness_ns"]["p99"] / 1000,
        "ring_lost": precision["ring_lost"],
        "verdict": precision["verdict"],
        "cpu_us_per_frame": round(precision["cpu_ns"] / 1000 / max(1, delivered), 3),
        "kept": precision["verdict"] == "good" and delivered >= DELIVERED * rate * seconds,
    }


def _star(hosts: int, delays_ns: list[int]) -> dict[str, Any]:
    """Hosts around one switch; `delays_ns` is that of the link from the switch to each."""
    queue = {"queue": {"kind": "strict-priority"}, "buffer_bytes": 1 << 20, "rate_bps": 1_000_000_000}
    names = [f"h{index}" for index in range(hosts)]
    return {
        "nodes": [{"name": "s", "kind": "switch"}, *({"name": name, "kind": "host"} for name in names)],
        "links": [
            {"a": name, "b": "s", "forward": {**queue, "delay_ns": 0}, "backward": {**queue, "delay_ns": delay}}
            for name, delay in zip(names, delays_ns, strict=True)
        ],
    }


def _run(
    network: dict[str, Any], seconds: float, *, rate: int = 0, rootless: bool = False, tell: Any = None
) -> tuple[dict[str, Any], Any]:
    """One emulation of a star in a folder of its own: `live.json` and the frame records.

    With a rate, even hosts send datagrams to odd ones, all together `rate` of them a second.
    """
    hosts = [node["name"] for node in network["nodes"] if node["kind"] == "host"]
    addresses = [f"10.77.{index // 250}.{index % 250 + 1}" for index in range(len(hosts))]
    pairs = range(0, len(hosts) - 1, 2) if rate else range(0)
    network["streams"] = [
        {
            "name": f"load{index // 2}",
            "source": hosts[index],
            "destinations": [hosts[index + 1]],
            "class": 3,
            "role": "data",
            "arrival": {"kind": "unbounded", "max_frame_bytes": 1538},
            "release": {"kind": "silent"},
        }
        for index in pairs
    ]
    background = [
        {
            "name": f"load{index // 2}",
            "source": hosts[index],
            "destination": hosts[index + 1],
            "source_address": addresses[index],
            "destination_address": addresses[index + 1],
            "port": 7000,
            "dscp": 3 * DSCP_PER_CLASS,
            "traffic": {"kind": "udp-constant", "rate_bps": rate * PAYLOAD * 8 // len(pairs), "payload_bytes": PAYLOAD},
        }
        for index in pairs
    ]
    duration = int(seconds * 1e9)
    with tempfile.TemporaryDirectory(prefix="timebound-calibrate-") as name:
        folder = Path(name)
        endpoints = {
            "clients": [],
            "udp": [],
            "udp_receivers": [],
            "background": background,
            "duration_ns": duration,
            "warmup_ns": 0,
            "settle_ns": 50_000_000,
            "fifo_priority": 5,
        }
        plan = {
            "schema": SCHEMA,
            "run_id": f"calibrate{os.getpid()}",
            "folder": str(folder),
            "seed": 1,
            "duration_ns": duration,
            "drain_ns": 20_000_000,
            "network": network,
            "hosts": [
                {"node": host, "address": address, "prefix": 16} for host, address in zip(hosts, addresses, strict=True)
            ],
            "markers": [
                {
                    "source": addresses[index],
                    "destination": addresses[index + 1],
                    "protocol": "udp",
                    "destination_port": 7000,
                    "data": f"load{index // 2}",
                }
                for index in pairs
            ],
            "endpoints": endpoints if background else None,
            "preflight": {"enabled": False},
            "statistics": {"node_interval_ns": 0, "port_interval_ns": 0},
            "force_rootless": rootless,
        }
        outcome = execute(plan, folder, tell or (lambda event: None))
        if outcome.status == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        live_file = folder / "live.json"
        if outcome.failure is not None or not live_file.exists():
            raise CalibrationError(outcome.failure or "the emulation gave no result")
        live = json.loads(live_file.read_text(encoding="utf-8"))
        frames = np.fromfile(folder / "frames.bin", dtype=records.FRAME)
    return live, frames


def _free_memory() -> int:
    """Bytes that could be had without swapping (proc_meminfo(5), MemAvailable)."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _namespaces() -> int | None:
    """The kernel's own limit on network namespaces of a user."""
    try:
        return int(Path("/proc/sys/user/max_net_namespaces").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
