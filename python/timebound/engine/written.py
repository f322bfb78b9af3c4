"""Which files a run writes into its folder, said before the first of them is there: so that a run that is killed leaves nothing unlisted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from timebound.engine.emulate import endpoint_processes
from timebound.files import REPORT, Claim
from timebound.scenario.builtin import builtin_name
from timebound.scenario.model import Scenario
from timebound.stacks import Plan

COMPUTED = ("scenario.yaml", "plan.json", "summary.json")
SIMULATED = ("simulated.parquet", "simulated_links.parquet")
HELD = ("emulation.json", "live.json", "hosts", "logs/sandbox.log")
RECORDS = ("frames.bin", "ingress.bin", "deliveries.bin", "endpoints.bin", "nodes.csv", "ports.csv", "lateness.csv")
MEASURED = tuple(f"{name}.parquet" for name in ("messages", "frames", "nodes", "links", "precision"))
SWITCHES = ("switches.json", "logs/ovsdb-server.log", "logs/ovs-vswitchd.log", "ovs/*")
TABLE = ("table.db", ".table.db.~lock~", "table.ovsschema", "table.ctl", "table.sock")
"""What the server of the controller's table keeps (`timebound.node table`)."""
STAGE = ".room"
"""Where nodes' own files are put together (crates/live/src/nodes/room.rs); gone when they are."""
FOLDERS = ("captures", "endpoints", "figures", "logs", "ovs", STAGE)


def claim(plan: Plan, parts: Iterable[str], *, paired: bool = False) -> Claim:
    """What a run of these parts writes."""
    parts = set(parts)
    files = [*COMPUTED, *REPORT]
    if "simulate" in parts:
        files += SIMULATED
    if "emulate" in parts:
        files += [*_held(plan), *MEASURED]
        # The folder is emptied whole before it is used (crates/live/src/traffic).
        files += ["endpoints/*"] if endpoint_processes(plan.scenario) == "per-node" else []
        files += ["packets.parquet"] if plan.scenario.run.captures else []
        files += ["pair.json"] if paired else []
    return _claim(plan.scenario, parts, files)


def held(plan: Plan) -> Claim:
    """What a network writes that is only brought up."""
    return _claim(plan.scenario, {"up"}, _held(plan))


def _claim(scenario: Scenario, parts: set[str], files: Iterable[str]) -> Claim:
    plain = tuple(dict.fromkeys(name for name in files if _is_plain(name)))
    return Claim(scenario.name, source(scenario), tuple(sorted(parts)), plain, FOLDERS, scenario.inputs)


def source(scenario: Scenario) -> str | None:
    """Where a scenario comes from: the absolute path of its file, or the name of a built-in one wherever that is installed."""
    if scenario.file is None:
        return None
    known = builtin_name(Path(scenario.file))
    return f"built-in {known}" if known is not None else str(Path(scenario.file).resolve())


def _held(plan: Plan) -> list[str]:
    """The files of programs, of what records and of the sandbox."""
    scenario = plan.scenario
    names = [*HELD, *RECORDS, *plan.files]
    for program in plan.programs:
        names += _of_program(program)
    # A virtual machine is a program of its host's name.
    names += [f"logs/{host.name}.log" for host in scenario.hosts]
    names += [f"captures/{port.replace('->', '-')}.pcapng" for port in scenario.run.captures]
    if scenario.real_switches:
        names += [*SWITCHES, *TABLE]
    return names


def _of_program(program: dict[str, Any]) -> Iterator[str]:
    """Its log, the file by which it says that it is ready, and those that its kind is known to write."""
    name, ready, argv = str(program["name"]), program.get("ready") or {}, [str(word) for word in program["argv"]]
    yield str(program.get("log") or f"logs/{name}.log")
    if ready.get("file") is not None:
        yield str(ready["file"])
    if "timebound.node" in argv:
        for option, form in (("--file", "{}"), ("--folder", "{}/*")):
            yield from (form.format(argv[at + 1]) for at, word in enumerate(argv[:-1]) if word == option)
    if "manager" in argv or name == "controller":
        yield f"logs/{name}-audit.jsonl"
    if Path(argv[0]).name == "dnsmasq":
        yield f"{name}.leases"


def _is_plain(name: str) -> bool:
    """Within the run folder; a scenario may name a file elsewhere, which is its own to keep."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and str(path) == name and len(path.parts) <= 3
