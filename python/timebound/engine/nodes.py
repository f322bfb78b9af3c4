"""Hosts of a scenario as hosts of the emulation plan: what depends on the machine that emulates them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from timebound.engine.core import problem_at
from timebound.scenario.model import Node, Scenario
from timebound.scenario.problems import ScenarioError
from timebound.stacks.gateway import SUBNET

_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_IN_NAME = re.compile(r"@\s*([0-9.]+)\s*GHz")


@lru_cache(maxsize=1)
def nominal_hz() -> tuple[int, str]:
    """The nominal frequency of this machine's processors, and where it is stated; (0, reason) where nothing says.

    In this order: the base frequency that cpufreq states, the one in the processor's name, the greatest of cpufreq, and that
    of /proc/cpuinfo, which in virtual machines is the time stamp counter's.
    """
    return read_nominal_hz(_CPUFREQ, Path("/proc/cpuinfo"))


def read_nominal_hz(cpufreq: Path, cpuinfo: Path) -> tuple[int, str]:
    """As `nominal_hz`, from these files."""
    base = _kilohertz(cpufreq / "base_frequency")
    if base:
        return base, "cpufreq base_frequency"
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    named = _IN_NAME.search(text)
    if named:
        return round(float(named[1]) * 1e9), "the processor's name"
    most = _kilohertz(cpufreq / "cpuinfo_max_freq")
    if most:
        return most, "cpufreq cpuinfo_max_freq"
    listed = re.search(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)
    if listed:
        return round(float(listed[1]) * 1e6), "/proc/cpuinfo"
    return 0, "this host does not say its frequency"


def _kilohertz(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii").strip()) * 1000
    except (OSError, ValueError):
        return 0


def check_nodes(scenario: Scenario) -> None:
    """Can this host give the nodes what they ask for?

    Raises:
        ScenarioError: a frequency where the host's is unknown or too low, reservations of more CPUs than there are.
    """
    problems = []
    hertz, reason = nominal_hz()
    cpus = len(os.sched_getaffinity(0))
    reserved = 0.0
    for index, node in enumerate(scenario.nodes):
        place = f"nodes[{index}]"
        if node.cpu_hz is not None and not hertz:
            problems.append(problem_at(scenario, place, f"cpu in MHz: {reason}", "state it as a share: cpu: 10 %"))
        reserved += node.cpu_reservation or 0.0
        if node.cpu_reservation is not None and reserved > cpus * (1 + 1e-9):
            message = f"up to {node.name!r} the nodes reserve {reserved:.2f} CPUs, and this host has {cpus}"
            problems.append(problem_at(scenario, place, message, "reserve less, or fewer nodes"))
            break
    if problems:
        raise ScenarioError(problems)


def host_plan(node: Node, address: str, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The JSON of `HostPlan` (crates/live/src/plan.rs); `given` is what follows from the network (`Plan.hosts`)."""
    limit = node.cpu_share
    if node.cpu_hz is not None:
        limit = node.cpu_hz / nominal_hz()[0]
    own = [
        {"path": file.path, "content": file.content, "source": file.source, "mode": file.mode} for file in node.files
    ]
    # What the scenario states wins.
    others = [file for file in given.get("files", []) if file["path"] not in {entry["path"] for entry in own}]
    return {
        "node": node.name,
        "address": address,
        "prefix": SUBNET.prefixlen,
        "mtu": node.mtu,
        "hostname": node.hostname,
        "env": dict(node.environment),
        "cpu": {"limit": limit, "reservation": node.cpu_reservation},
        "memory_bytes": node.memory_bytes,
        **({} if node.processes is None else {"processes": node.processes}),
        **given,
        "files": own + others,
    }
