"""Emulation: the plan of the sandbox, its process, and what it says while it runs."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timebound.engine import opened, registry, tcp
from timebound.engine.control import ControlError
from timebound.engine.nodes import host_plan
from timebound.engine.pair import Pair, PairError
from timebound.engine.predict import Prediction
from timebound.files import Place
from timebound.scenario.model import Event, MqttStack, Node, Scenario
from timebound.stacks import hardware, switches

SETTLE_NS = 1_000_000_000
RECONNECT_NS = 200_000_000
SCHEMA = 1
RUNNER = "timebound.sandbox"
EXIT_OK, EXIT_HOST, EXIT_DISTURBED, EXIT_INTERRUPTED = 0, 3, 4, 130
ENDED_AT_ONCE = "interrupted a second time, it was ended at once and wrote nothing down"

KILLED = re.compile(r"the sandbox was killed by signal: (\d+)")
"""What crates/live/src/sandbox.rs says of the process that is the network."""
KILLED_HINT = "somebody ended it, or the kernel for want of memory (dmesg says so); run the scenario again"

Report = Callable[[dict[str, Any]], None]
"""Called with every event that the sandbox reports."""


@dataclass(slots=True)
class Emulation:
    """How an emulation ended. `status` is the sandbox's exit code, `failure` its own words when it failed."""

    status: int
    measuring: bool = False
    """Did it get as far as measuring?"""
    failure: str | None = None
    hint: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)


def emulation_plan(
    prediction: Prediction,
    folder: Path,
    *,
    record_ingress: bool,
    rootless: bool,
    take_interfaces: tuple[str, ...] = (),
    pair: Pair | None = None,
) -> dict[str, Any]:
    """The JSON of `Plan` (crates/live/src/plan.rs)."""
    plan = prediction.plan
    scenario = plan.scenario
    run = scenario.run
    endpoints = None
    if plan.clients or plan.udp or plan.udp_receivers or plan.background:
        endpoints = {
            "clients": plan.clients,
            "udp": plan.udp,
            "udp_receivers": plan.udp_receivers,
            "background": plan.background,
            "duration_ns": run.duration_ns,
            "warmup_ns": run.warm_up_ns,
            "settle_ns": SETTLE_NS,
            "fifo_priority": 5,
            # Where nodes are stopped, connections break by order: they are opened again, and nothing has failed.
            "reconnect_after_ns": RECONNECT_NS if endpoint_processes(scenario) == "per-node" else None,
        }
    base = Path(scenario.file).resolve().parent if scenario.file else Path.cwd()
    programs = [
        switches.in_folder(program, folder.resolve())
        if program["node"] == switches.NODE
        else {**program, "folder": str(base / program["folder"])}
        if program.get("folder")
        else program
        for program in plan.programs
    ]
    return {
        "schema": SCHEMA,
        "run_id": f"tb{os.getpid()}-{time.monotonic_ns() & 0xFFFFFF:x}",
        "folder": str(folder.resolve()),
        "seed": run.seed,
        "duration_ns": run.warm_up_ns + run.duration_ns,
        "drain_ns": SETTLE_NS,
        "setup_timeout_ns": hardware.setup_timeout_ns(scenario),
        "network": prediction.network.declaration,
        "hosts": [
            {
                **host_plan(node, plan.addresses[node.name], _given(prediction, node)),
                "mac": node.mac,
                "hardware": hardware.host_plan(node, plan, take_interfaces),
            }
            for node in scenario.hosts
        ],
        "markers": [marker.plan() for marker in plan.markers],
        "programs": programs,
        "endpoints": endpoints,
        "endpoint_processes": endpoint_processes(prediction.plan.scenario),
        "captures": [
            {
                "file": f"{port.replace('->', '-')}.pcapng",
                "ports": [dict(zip(("from", "to"), port.split("->"), strict=True))],
            }
            for port in run.captures
        ],
        "events": [change for event in scenario.events for change in _changes(prediction, event)],
        "precision": run.precision.stated(),
        "framing": scenario.framing.plan(),
        "data_plane": run.data_plane.plan(),
        "record_ingress": record_ingress,
        "switches": switches.switches_plan(scenario),
        "cut": None if pair is None else pair.cut_plan(),
        "force_rootless": rootless,
        "shown": opened.shown(base),
        "writable": opened.writable(),
        "control": _listing(scenario),
        "lifecycle": [{"at_ns": e.at_ns, "node": e.node, "order": e.order} for e in scenario.node_events],
        "log_limit_bytes": run.log_limit_bytes,
    }


def _given(prediction: Prediction, node: Node) -> dict[str, Any]:
    """What follows from network and connections for a host."""
    given, transport = prediction.plan.hosts.get(node.name, {}), tcp.host_plan(prediction, node)
    if "sysctls" not in transport:
        return given
    return {**given, **transport, "sysctls": {**transport["sysctls"], **given.get("sysctls", {})}}


def endpoint_processes(scenario: Scenario) -> str:
    """Whether each host gets a process of its own for its built-in clients (`clients` of the stack)."""
    stack = scenario.stack
    stated = stack.clients if isinstance(stack, MqttStack) else "auto"
    if stated != "auto":
        return stated
    limited = any(host.is_limited for host in scenario.hosts)
    return "per-node" if limited or scenario.node_events else "shared"


def _listing(scenario: Scenario) -> dict[str, Any] | None:
    """Where the run lists itself; None where that cannot be, which is no reason not to run."""
    try:
        folder = registry.own()
    except ControlError:
        return None
    file = str(Path(scenario.file).resolve()) if scenario.file else None
    return {"registry": str(folder), "scenario": scenario.name, "file": file}


def _changes(prediction: Prediction, event: Event) -> Iterator[dict[str, Any]]:
    """An event of the scenario as changes of both directions of its link."""
    links = prediction.plan.scenario.links
    link = links[event.link]
    ends = {link.a, link.b}
    parallel = sum(1 for other in links[: event.link] if {other.a, other.b} == ends)
    ways = ((link.a, link.b), (link.b, link.a))
    for way, (source, target) in enumerate(ways):
        if not event.ways[way]:
            continue
        change: dict[str, Any] = {
            "at_ns": event.at_ns,
            "port": {"from": source, "to": target, "parallel": parallel},
        }
        yield {**change, **conditions(event, way)}


def conditions(event: Event, way: int) -> dict[str, Any]:
    """What an event states of one direction (0 forward, 1 backward)."""
    direction = (event.forward, event.backward)[way]
    changed: dict[str, Any] = {}
    if "rate" in event.changed:
        changed["rate_bps"] = direction.rate_bps
    if "delay" in event.changed:
        changed["delay_ns"] = direction.delay_ns
    if "buffer" in event.changed:
        changed["buffer_bytes"] = direction.buffer_bytes
    if set(event.changed) - {"rate", "delay", "buffer", "up"}:
        changed["impairments"] = direction.impairments.declaration()
    if "up" in event.changed:
        changed["up"] = (event.up_forward, event.up_backward)[way]
    return changed


def emulate(
    prediction: Prediction,
    folder: Path,
    report: Report,
    *,
    record_ingress: bool = False,
    rootless: bool = False,
    take_interfaces: tuple[str, ...] = (),
    pair: Pair | None = None,
) -> Emulation:
    """Runs the emulation in its sandbox and waits for it; see `execute`."""
    with Place(folder) as place:
        for name, content in prediction.plan.files.items():
            place.write(name, content)
    plan = emulation_plan(
        prediction,
        folder,
        record_ingress=record_ingress,
        rootless=rootless,
        take_interfaces=take_interfaces,
        pair=pair,
    )
    return execute(plan, folder, report, pair)


def execute(plan: dict[str, Any], folder: Path, report: Report, pair: Pair | None = None) -> Emulation:
    """Hands a plan to its sandbox and waits for it, and on two machines (`pair`) for the other one.

    Whatever happens to this process, the sandbox ends with it: PID 1 of its namespaces is told by the kernel. The first
    interrupt asks it to stop and keep what was measured, a second one ends it at once.
    """
    plan_file = folder / "emulation.json"
    with Place(folder) as place:
        place.write(plan_file.name, json.dumps(plan))
        log = place.create("logs/sandbox.log")
    result = Emulation(status=1)
    with log, sandbox_process(plan_file, log.fileno()) as process:
        stopping, apart = 0, False
        lines = event_lines(process)
        while True:
            try:
                event = next(lines, None)
                if event is None:
                    break
                result.events.append(event) if event.get("event") != "progress" else None
                if event.get("event") == "failed":
                    result.failure = result.failure or str(
                        event.get("message") or event.get("reason") or "it gave no reason"
                    )
                    result.hint = event.get("hint")
                if event.get("event") == "barrier" and pair is not None and not stopping:
                    _meet(pair, str(event.get("name")), process, plan["setup_timeout_ns"] / 1e9)
                report(event)
            except PairError as error:
                result.failure, result.hint = str(error), error.hint
                stop_process(process, at_once=False)
                stopping, apart = stopping + 1, True
                lines = event_lines(process)
            except KeyboardInterrupt:
                stopping += 1
                stop_process(process, at_once=stopping > 1)
                lines = event_lines(process)
        result.status = process.wait()
        if result.status < 0 and stopping > 1:
            # Whatever it said of the way down is what we asked for.
            result.failure, result.hint = ENDED_AT_ONCE, None
        elif result.status < 0:
            result.failure = result.failure or f"the emulation's process was ended by {signal_name(-result.status)}"
            result.status = 1
        if not stopping and (found := KILLED.fullmatch(result.failure or "")):
            result.failure = f"the emulation's process was ended by {signal_name(int(found[1]))}"
        if not stopping and result.failure is not None and "process was ended by" in result.failure:
            result.hint = result.hint or KILLED_HINT
        if stopping:
            result.status = EXIT_HOST if apart else EXIT_INTERRUPTED
    return result


def signal_name(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    with suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"


@contextmanager
def sandbox_process(plan_file: Path, log: int) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: Ctrl-C reaches us alone, and we tell the sandbox in words.
    process = subprocess.Popen(
        [sys.executable, "-m", RUNNER, str(plan_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _meet(pair: Pair, name: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Waits for the other machine and lets the sandbox go on."""
    zero = pair.barrier(name, timeout_s)
    assert process.stdin is not None
    process.stdin.write(f"go {name} {zero}\n".encode() if zero is not None else f"go {name}\n".encode())
    process.stdin.flush()


def stop_process(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    if at_once:
        process.kill()
        return
    assert process.stdin is not None
    try:
        process.stdin.write(b"stop\n")
        process.stdin.flush()
    except OSError:
        process.kill()


def event_lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The events that the sandbox writes, one JSON object per line; anything else is passed over."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    pending = b""
    while True:
        select.select([descriptor], [], [])
        chunk = os.read(descriptor, 65_536)
        if not chunk:
            return
        *complete, pending = (pending + chunk).split(b"\n")
        for line in complete:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
