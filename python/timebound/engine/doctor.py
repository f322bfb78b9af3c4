"""What this host can do, as checks with an answer for people."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import Any

from timebound import _core
from timebound.engine.programs import PACKAGES, SERVERS
from timebound.stacks import switches


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A needed one that fails means that nothing can be emulated here."""

    name: str
    ok: bool
    needed: bool
    text: str


def examine() -> tuple[list[Check], list[str]]:
    """What the host allows, and what to do about what is missing, one sentence each."""
    found: dict[str, Any] = json.loads(_core.doctor())
    locked = found["locked_memory_bytes"]
    who = "root" if found["root"] else "a user without root"
    checks = [
        Check("namespaces", found["namespaces"], True, f"every node its own kernel stack; we run as {who}"),
        Check("ring", found["ring"], True, "packet ring of the data plane (AF_PACKET, TPACKET_V2)"),
        Check("user namespaces", found["user_namespaces"], False, "emulation without root"),
        Check("real-time thread", found["fifo"], False, "SCHED_FIFO: departures on time beside other load"),
        Check("cpus", found["cpus"] >= 2, False, f"{found['cpus']}; one for the data plane, one for the rest"),
        Check(
            "locked memory",
            locked is None or locked >= 1 << 26,
            False,
            "no limit" if locked is None else f"limit {locked // 1024} KiB: the data plane may be paged out",
        ),
        Check(
            "cgroups",
            found["cgroups_writable"],
            False,
            f"{found['cgroups']}: limits of CPU and memory for programs"
            + ("" if found["cgroups_writable"] else " need root"),
        ),
        Check(
            "process limits",
            found["processes_counted"],
            False,
            "number of processes of each node"
            + ("" if found["processes_counted"] else " needs root and the pids controller of cgroups"),
        ),
        gateway_programs(),
        real_switches(),
        Check("clock", found["clock_source"] == "tsc", False, f"clock source {found['clock_source']}"),
    ]
    return checks, list(found["advice"])


def gateway_programs() -> Check:
    """What nodes of kind gateway and hosts with leased addresses start."""
    path = f"{os.environ.get('PATH', os.defpath)}:{SERVERS}"
    missing = [
        PACKAGES[program] for program in ("nft", "dnsmasq", "udhcpc") if shutil.which(program, path=path) is None
    ]
    what = "nft, dnsmasq and udhcpc: gateways and leased addresses"
    return Check(
        "gateways", not missing, False, f"{what}: sudo apt-get install {' '.join(missing)}" if missing else what
    )


def real_switches() -> Check:
    """What switches with `engine: ovs` start."""
    missing = switches.missing(f"{os.environ.get('PATH', os.defpath)}:{SERVERS}")
    what = "Open vSwitch: switches with engine: ovs"
    advice = f"{what}: sudo apt-get install --no-install-recommends {switches.PACKAGE}"
    return Check("real switches", not missing, False, advice if missing else what)


def can_emulate() -> bool:
    """Does everything that an emulation needs work here?"""
    checks, _ = examine()
    return all(check.ok for check in checks if check.needed)
