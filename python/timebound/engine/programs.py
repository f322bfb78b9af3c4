"""The programs of a plan, checked before anything is computed or started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timebound.engine.core import problem_at
from timebound.engine.folder import FolderError
from timebound.scenario.model import BackgroundProgram, MqttStack, Scenario
from timebound.scenario.problems import Problem, ScenarioError
from timebound.stacks import Plan, hardware, switches, tools

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps servers where the path of a user does not look."""

CONTROL_EXTRA = "pip install 'timebound[control]', or make control in a checkout"
"""How what manager and controller need comes here."""

PACKAGES = {"mosquitto": "mosquitto", "nft": "nftables", "dnsmasq": "dnsmasq-base", "udhcpc": "udhcpc"}
"""Of Debian, for programs that stacks and gateways start."""


TAIL_LINES, TAIL_BYTES = 10, 4096
"""Of a program's log, where it failed."""


def check_switches(plan: Plan) -> None:
    """Can the plan's real switches be had here?

    Raises:
        FolderError: a program of Open vSwitch is missing (exit code 3).
    """
    real = next((index for index, node in enumerate(plan.scenario.nodes) if node.engine == "ovs"), None)
    missing = [] if real is None else switches.missing(f"{os.environ.get('PATH', os.defpath)}:{SERVERS}")
    if real is not None and missing:
        name = plan.scenario.nodes[real].name
        message = f"{name!r} is to be a real switch, and {', '.join(missing)} of Open vSwitch cannot be found"
        hint = f"install it (sudo apt-get install {switches.PACKAGE}), or take engine: fabric"
        problem = problem_at(plan.scenario, f"nodes[{real}].engine", message, hint)
        raise FolderError(problem.render(), hint, 3)


def lacking(program: BackgroundProgram) -> str | None:
    """What of a program that makes background traffic is not installed here, and which packages have it; `None`: nothing."""
    absent = tools.missing(program, f"{os.environ.get('PATH', os.defpath)}:{SERVERS}")
    if not absent:
        return None
    packages = " ".join(dict.fromkeys(absent.values()))
    return f"background traffic of {program} needs {', '.join(absent)}, which cannot be found (sudo apt-get install {packages})"


def _background(plan: Plan) -> list[Problem]:
    """Programs of background traffic that are not installed, each once."""
    first: dict[BackgroundProgram, int] = {}
    for index, item in enumerate(plan.scenario.background):
        if item.program is not None:
            first.setdefault(item.program, index)
    hint = "install it, or leave out program: Timebound's own generator makes the same load"
    return [
        problem_at(plan.scenario, f"background[{index}].program", message, hint)
        for program, index in first.items()
        if (message := lacking(program)) is not None
    ]


def resolve(plan: Plan) -> None:
    """Replaces the first word of every command by the program's path.

    Raises:
        ScenarioError: a program that does not exist or cannot be run, a name that cannot name a log.
        FolderError: real switches, and Open vSwitch is not installed.
    """
    check_switches(plan)
    problems = _background(plan)
    if problems:
        raise ScenarioError(problems)
    names = [node.name for node in plan.scenario.nodes]
    for program in plan.programs:
        if program["node"] == switches.NODE:
            place = "network.controller"
        else:
            place = "stack" if program["name"].startswith("broker-") else f"nodes[{names.index(program['node'])}].run"
        if NAME.fullmatch(program["name"]) is None:
            message = f"{program['name']!r} cannot name a log file"
            problems.append(problem_at(plan.scenario, place, message, "use letters, digits, '.', '-' and '_'"))
        command = program["argv"][0]
        found = shutil.which(command, path=f"{os.environ.get('PATH', os.defpath)}:{SERVERS}")
        if found is None:
            owner = "controller" if program["node"] == switches.NODE else f"node {program['node']!r}"
            message = f"program {command!r} of {owner} does not exist here, or cannot be run"
            package = PACKAGES.get(command, "the package that has it")
            problems.append(problem_at(plan.scenario, place, message, f"install it (sudo apt-get install {package})"))
        else:
            program["argv"] = [found, *program["argv"][1:]]
    base = Path(plan.scenario.file).resolve().parent if plan.scenario.file else Path.cwd()
    for index, node in enumerate(plan.scenario.nodes):
        for started in node.programs:
            if started.folder is not None and not (base / started.folder).is_dir():
                message = (
                    f"the folder {started.folder!r} of program {started.name!r} of node {node.name!r} does not exist"
                )
                hint = "make it; paths count from the scenario's folder, and without folder: a program runs in the run folder"
                problems.append(problem_at(plan.scenario, f"nodes[{index}].run", message, hint))
    stack = plan.scenario.stack
    if isinstance(stack, MqttStack) and stack.reserved and importlib.util.find_spec("structlog") is None:
        message = "manager and controller need packages that are not installed"
        problems.append(problem_at(plan.scenario, "stack", message, CONTROL_EXTRA))
    for path, file in hardware.missing_files(plan):
        message = f"the virtual machine's file {file} does not exist"
        problems.append(problem_at(plan.scenario, path, message, "paths count from the scenario's folder"))
    if problems:
        raise ScenarioError(problems)


INTERPRETERS = re.compile(r"(python[0-9.]*|bash|sh|dash|node|perl|ruby|java)")


def unfound(scenario: Scenario) -> list[str]:
    """Programs of nodes that will not find a file they name: relative paths count from the program's folder, and that is the run folder where none
    is stated. No error: a program may make the file itself."""
    base = Path(scenario.file).resolve().parent if scenario.file else Path.cwd()
    found = []
    for index, node in enumerate(scenario.nodes):
        for program in node.programs:
            folder = None if program.folder is None else base / program.folder
            for word in _files(program.command):
                if folder is not None and (folder / word).exists():
                    continue
                is_beside = (base / word).exists()
                if not is_beside and not INTERPRETERS.fullmatch(Path(program.command[0]).name):
                    continue
                where = "the run folder" if folder is None else f"its folder {program.folder}"
                hint = (
                    "state folder: . to start it in the scenario's folder"
                    if is_beside
                    else "paths count from that folder"
                )
                message = f"program {program.name!r} of node {node.name!r} runs in {where}, where there is no {word!r}"
                problem = problem_at(scenario, f"nodes[{index}].run", message, hint)
                place = f" ({problem.file}:{problem.line}:{problem.column})" if problem.line else ""
                found.append(f"{message}{place}; {hint}")
    return found


def _files(command: tuple[str, ...]) -> list[str]:
    """The first argument of a command that names a file, if it is a relative one."""
    for word in command[1:]:
        if word.startswith("-"):
            if word in ("-c", "-m", "-e"):
                return []
            continue
        return [word] if not word.startswith("/") and Path(word).suffix and re.fullmatch(r"[\w./-]+", word) else []
    return []


def failed(plan: Plan, live: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Programs of nodes that ended badly by themselves, with the end of what they said (`failed_programs` of docs/results.md)."""
    own = {(program["node"], program["name"]): program for program in plan.programs if program["name"] in _own(plan)}
    found = []
    for report in live.get("programs") or []:
        program = own.get((report["node"], report["name"]))
        if program is None or report["stopped"] or report["started_ns"] is None:
            continue
        code, signal = report["exit_code"], report["signal"]
        if signal is None and (code is None or (code == 0 and program["ready"] is None)):
            continue
        how = "out of memory" if report["out_of_memory"] else f"signal {signal}" if signal else f"status {code}"
        found.append(
            {
                "program": report["name"],
                "node": report["node"],
                "how": how,
                "at_s": None if report["ended_ns"] is None else report["ended_ns"] / 1e9,
                "log": str(report["log"]),
                "tail": _tail(folder / report["log"]),
            }
        )
    return found


def failed_words(entry: Mapping[str, Any]) -> str:
    """One line on a program that failed."""
    at = "" if entry["at_s"] is None else " before the run began" if entry["at_s"] < 0 else f" at {entry['at_s']:.3f} s"
    said = f": {entry['tail'][-1]}" if entry["tail"] else " and said nothing"
    return f"program {entry['program']} of node {entry['node']} ended with {entry['how']}{at}{said} ({entry['log']})"


def _own(plan: Plan) -> set[str]:
    """Names of the programs that nodes of the scenario state, as `build_plan` gives them."""
    stated = [(node.name, program.name) for node in plan.scenario.hosts for program in node.programs]
    return {name for node, program in stated for name in (program, f"{node}-{program}")}


def _tail(log: Path) -> list[str]:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-TAIL_LINES:]
