"""What this host was measured to carry: kept per user, and held against scenarios before they start."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timebound.engine.core import Network
from timebound.stacks import Plan

SCHEMA = 1
HOW = "timebound doctor --calibrate"


def path() -> Path:
    """`$XDG_CACHE_HOME/timebound/calibration.json` (XDG Base Directory Specification; a relative value is ignored)."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (base if base.is_absolute() else Path.home() / ".cache") / "timebound" / "calibration.json"


def now() -> str:
    """Wall clock, seconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def identity() -> dict[str, Any]:
    """What a measurement holds for: another host, kernel or number of CPUs is another measurement."""
    system = platform.uname()
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "host": system.node,
        "kernel": system.release,
        "machine": system.machine,
        "cpu": model,
        "cpus": os.cpu_count(),
    }


def store(result: dict[str, Any]) -> Path:
    """Writes the result whole or not at all.

    Raises:
        OSError: the cache folder cannot be written.
    """
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(file)
    return file


def damaged(found: Any) -> bool:
    """Is this something else than what `calibrate` wrote?"""
    try:
        lines(found)
        compare({"frames_per_s": 0.0, "nodes": 0, "latency_us": {"": 0.0}}, found, "root")
        compare({"frames_per_s": 0.0, "nodes": 0, "latency_us": {"": 0.0}}, found, "rootless")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return True
    return False


def load() -> dict[str, Any] | None:
    """The result for this host as it is now; `None` where there is none, it is damaged, or it is of another host or kernel."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or found.get("identity") != identity():
        return None
    return None if damaged(found) else found


def mode_of(*, rootless: bool) -> str:
    """With which rights a run emulates."""
    return "root" if os.geteuid() == 0 and not rootless else "rootless"


def demands(plan: Plan, network: Network) -> dict[str, Any]:
    """What a scenario asks of the host: declared deliveries per second, nodes, and the latency of each path without queueing."""
    frames = sum(
        len(stream.frames_bytes) * max(1, len(stream.destinations)) / stream.period_ns * 1e9
        for stream in plan.streams
        if stream.period_ns
    )
    ports: dict[str, tuple[int, int]] = {}
    for link in plan.scenario.links:
        for source, target, direction in ((link.a, link.b, link.forward), (link.b, link.a, link.backward)):
            known = ports.get(f"{source}->{target}")
            delay = direction.delay_ns if known is None else min(known[0], direction.delay_ns)
            ports[f"{source}->{target}"] = (delay, direction.rate_bps)
    largest = {stream.name: max(stream.frames_bytes) for stream in plan.streams if stream.role == "data"}
    latencies = {}
    for stream, receivers in network.paths().items():
        if stream not in largest:
            continue
        for receiver, way in receivers.items():
            hops = [ports[port.partition("#")[0]] for port in way if port.partition("#")[0] in ports]
            latencies[f"{stream} to {receiver}"] = sum(d + largest[stream] * 8e9 / r for d, r in hops) / 1000
    return {"frames_per_s": frames, "nodes": len(plan.scenario.hosts), "latency_us": latencies}


def warnings(plan: Plan, network: Network, *, rootless: bool = False) -> list[str]:
    """Where the scenario asks for more than the host was measured to carry, one sentence each; none without a measurement."""
    found = load()
    if found is None:
        return []
    return compare(demands(plan, network), found, mode_of(rootless=rootless))


def compare(asked: dict[str, Any], found: dict[str, Any], mode: str) -> list[str]:
    """The sentences of `warnings`, from figures alone."""
    measured = found["modes"].get(mode)
    said = []
    if measured is not None:
        carried = measured["frames_per_s"]
        if carried is not None and asked["frames_per_s"] > carried:
            said.append(
                f"the scenario declares {asked['frames_per_s']:.0f} frames/s; this host was measured to carry {carried} "
                f"({mode}) within the limits of precision"
            )
        short = measured["shortest_delay_us"]
        below = {way: value for way, value in asked["latency_us"].items() if short is not None and value < short}
        if below:
            way, value = min(below.items(), key=lambda entry: entry[1])
            said.append(
                f"{len(below)} of {len(asked['latency_us'])} paths take less than {short:g} us without queueing, the shortest delay "
                f"that this host keeps within 10 % ({mode}): {way} takes {value:.0f} us"
            )
    nodes = found["nodes"]
    if asked["nodes"] > nodes["carried"]:
        how = "is estimated" if nodes["extrapolated"] else "was measured"
        said.append(f"the scenario has {asked['nodes']} nodes; this host {how} to carry {nodes['carried']}")
    return said


def lines(found: dict[str, Any] | None) -> list[str]:
    """The measurement for people; how to get one where there is none."""
    if found is None:
        return [f"not calibrated (or on another host or kernel): {HOW} measures what this host carries, in a minute"]
    timers, nodes = found["timers"], found["nodes"]
    said = [
        f"calibrated {found['date']}{' (quick)' if found['quick'] else ''}: clock read {timers['clock_read_ns']} ns"
    ]
    if found["load"] > (found["identity"]["cpus"] or 1) / 2:
        said.append(f"the machine was busy then (load {found['load']:.1f}): measure again when it is quiet")
    for name, key in (("normal thread", "normal_ns"), ("SCHED_FIFO", "fifo_ns")):
        if timers[key] is not None:
            late = timers[key]
            said.append(f"bare timer, {name}: p50 {late['p50'] / 1000:.0f}, p99 {late['p99'] / 1000:.0f} us late")
    for mode, measured in found["modes"].items():
        rate, short = measured["frames_per_s"], measured["shortest_delay_us"]
        carried = "no rate was kept" if rate is None else f"{rate} frames/s on one core"
        if rate is not None and not measured["reached_limit"]:
            carried = f"at least {carried}"
        kept = "no delay was kept" if short is None else f"delays from {short:g} us on"
        if measured["ended_by"] == "good":
            carried += " (more was not delivered in time: the senders of the test share the CPUs)"
        said.append(f"{mode}{' with SCHED_FIFO' if measured['fifo'] else ''}: {carried}; {kept} within 10 %")
    per = nodes["bring_up_s_per_node"]
    cost = "" if per is None else f", {per * 1000:.1f} ms each"
    kind = "extrapolated" if nodes["extrapolated"] else "measured"
    said.append(f"nodes: {nodes['carried']} ({kind}; up to {nodes['measured'][-1]['nodes']} were brought up{cost})")
    return said
