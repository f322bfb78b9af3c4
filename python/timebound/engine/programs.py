"""The programs of a plan, checked before anything is computed or started."""

from __future__ import annotations

import os
import re
import shutil

from timebound.engine.core import problem_at
from timebound.scenario.problems import Problem, ScenarioError
from timebound.stacks import Plan, hardware

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps servers where the path of a user does not look."""

PACKAGES = {"mosquitto": "mosquitto", "nft": "nftables", "dnsmasq": "dnsmasq-base", "udhcpc": "udhcpc"}
"""Of Debian, for programs that stacks and gateways start."""


def resolve(plan: Plan) -> None:
    """Replaces the first word of every command by the program's path.

    Raises:
        ScenarioError: a program that does not exist or cannot be run, a name that cannot name a log.
    """
    problems: list[Problem] = []
    names = [node.name for node in plan.scenario.nodes]
    for program in plan.programs:
        place = "stack" if program["name"].startswith("broker-") else f"nodes[{names.index(program['node'])}].run"
        if NAME.fullmatch(program["name"]) is None:
            message = f"{program['name']!r} cannot name a log file"
            problems.append(problem_at(plan.scenario, place, message, "use letters, digits, '.', '-' and '_'"))
        command = program["argv"][0]
        found = shutil.which(command, path=f"{os.environ.get('PATH', os.defpath)}:{SERVERS}")
        if found is None:
            message = f"program {command!r} of node {program['node']!r} does not exist here, or cannot be run"
            package = PACKAGES.get(command, "the package that has it")
            problems.append(problem_at(plan.scenario, place, message, f"install it (sudo apt-get install {package})"))
        else:
            program["argv"] = [found, *program["argv"][1:]]
    for path, file in hardware.missing_files(plan):
        message = f"the virtual machine's file {file} does not exist"
        problems.append(problem_at(plan.scenario, path, message, "paths count from the scenario's folder"))
    if problems:
        raise ScenarioError(problems)
