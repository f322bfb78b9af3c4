"""The programs of a plan, checked before anything is computed or started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil

from timebound.engine.core import problem_at
from timebound.engine.folder import FolderError
from timebound.scenario.model import BackgroundProgram, MqttStack
from timebound.scenario.problems import Problem, ScenarioError
from timebound.stacks import Plan, hardware, switches, tools

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps servers where the path of a user does not look."""

CONTROL_EXTRA = "pip install 'timebound[control]', or make control in a checkout"
"""How what manager and controller need comes here."""

PACKAGES = {"mosquitto": "mosquitto", "nft": "nftables", "dnsmasq": "dnsmasq-base", "udhcpc": "udhcpc"}
"""Of Debian, for programs that stacks and gateways start."""


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
    stack = plan.scenario.stack
    if isinstance(stack, MqttStack) and stack.reserved and importlib.util.find_spec("structlog") is None:
        message = "manager and controller need packages that are not installed"
        problems.append(problem_at(plan.scenario, "stack", message, CONTROL_EXTRA))
    for path, file in hardware.missing_files(plan):
        message = f"the virtual machine's file {file} does not exist"
        problems.append(problem_at(plan.scenario, path, message, "paths count from the scenario's folder"))
    if problems:
        raise ScenarioError(problems)
