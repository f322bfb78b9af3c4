"""Real switches in the plan: which nodes they are, and the program that controls them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from timebound.scenario.model import Scenario

NODE = ".switches"
"""The `node` of what runs where the real switches run (`SWITCHES` in crates/live/src/plan.rs)."""
CONTROLLER = "controller"
"""Name of the controller's program, and of its log."""
PROGRAMS = ("ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl")
PACKAGE = "openvswitch-switch"
"""Of Debian; has all of them."""


def switches_plan(scenario: Scenario) -> dict[str, Any] | None:
    """The JSON of `SwitchesPlan`; `None` where the fabric forwards everywhere."""
    nodes = [node.name for node in scenario.real_switches]
    if not nodes:
        return None
    controller = scenario.controller
    return {"nodes": nodes, "controller": None if controller is None else f"tcp:127.0.0.1:{controller.port}"}


def program(scenario: Scenario) -> dict[str, Any] | None:
    """The JSON of the controller's `ProgramPlan`, `{run}` still in its command; `None` where there is none."""
    controller = scenario.controller
    if controller is None:
        return None
    ready: dict[str, Any] = {"timeout_ms": -(-controller.timeout_ns // 1_000_000)}
    if controller.ready_file is not None:
        ready["file"] = controller.ready_file
    else:
        ready["tcp_port"] = controller.ready_port or controller.port
    return {
        "name": CONTROLLER,
        "node": NODE,
        "argv": [own(controller.command[0]), *controller.command[1:]],
        "env": dict(controller.environment),
        "folder": None,
        "essential": True,
        "ready": ready,
        "start_ns": None,
    }


def own(command: str) -> str:
    """`timebound` is this one, wherever it is installed."""
    beside = Path(sys.executable).parent / command
    return str(beside) if command == "timebound" and beside.is_file() else command


def in_folder(program: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A program of the switches with the run folder filled in."""
    return {**program, "argv": [word.replace("{run}", str(folder)) for word in program["argv"]]}


def missing(path: str) -> list[str]:
    """Programs of Open vSwitch that are not found in a search path."""
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]
