"""RT-MQTT in a scenario: the table, the controller, a manager before every broker, and clients that ask.

Nothing here is played: the programs are `timebound controller` and `timebound manager` as a plant runs them, with an OVSDB server for their table, and
the clients ask in user properties. Control runs beside the network, over sockets in the run folder: what it needs of the network is an
installation's own matter, and no part of the measurement.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from timebound.scenario.emit import to_yaml
from timebound.scenario.model import Flow, MqttStack
from timebound.scenario.resolve_reserved import CONTROLLER_FILE
from timebound.stacks import groups
from timebound.stacks.plan import Plan
from timebound.stacks.switches import own

BROKER_PORT = 18_830
"""At 127.0.0.1 of a broker's node: the manager has the port that clients know."""
METRICS_PORT = 9_464
CONTROLLER_PORT = 8_653
TABLE = "table.sock"
"""In the run folder, which is every program's working directory: paths of sockets are short."""
HOLD = "2 s"
"""Clients connect all at once when a run begins, and each is decided before it may go on."""


def asking(flow: Flow, role: dict[str, object]) -> tuple[dict[str, object], list[list[str]]]:
    """The role with what its SUBSCRIBE asks, and what its CONNECT asks (docs/attributes.md): a publisher names its topic there, so that its
    channel is there before its first message."""
    said = {"rt-deadline": f"{flow.deadline_ns} ns", "rt-priority": str(flow.priority)}
    if role["kind"] == "subscribe":
        return {**role, "user_properties": [[key, value] for key, value in said.items()]}, []
    said |= {
        "rt-period": f"{flow.period_ns} ns",
        "rt-jitter": f"{flow.jitter_ns} ns",
        "rt-size": f"{flow.size_bytes} B",
        "rt-qos": str(flow.qos),
    }
    return role, [["rt-topic", str(role["topic"])], *([key, value] for key, value in said.items())]


def lay(plan: Plan, stack: MqttStack) -> None:
    """Adds managers and their files; programs that wait until they are ready."""
    for broker in stack.brokers:
        name = f"manager-{broker.node}"
        configuration = {
            "name": broker.node,
            "listen": [{"address": plan.addresses[broker.node], "port": broker.port}],
            "broker": f"127.0.0.1:{BROKER_PORT}",
            "store": f"unix:{TABLE}",
            "hold": HOLD,
            "http": f"127.0.0.1:{METRICS_PORT}",
            "audit": f"logs/{name}-audit.jsonl",
            "log": {"format": "json"},
        }
        if stack.between == "groups":
            # One peer port at every manager of a site (docs/manager.md); a network is called as its broker's node.
            configuration["network"] = broker.node
            configuration["peer"] = {"address": plan.addresses[broker.node], "port": groups.peer_port(stack.brokers)}
        plan.role(broker.node, "manager")
        plan.files[f"{name}.yaml"] = json.dumps(configuration, indent=1)
        argv = [own("timebound"), "manager", f"{name}.yaml"]
        plan.programs += [
            _program(name, broker.node, argv, {"tcp_port": broker.port, "timeout_ms": 30_000}),
            ready(f"{name}-ready", broker.node, METRICS_PORT),
        ]


def control(plan: Plan, stack: MqttStack, node: str) -> list[dict[str, Any]]:
    """What runs beside the real switches before anything else: the table, and what waits for the controller; their files.

    The controller itself is the scenario's (`network.controller`).
    """
    scenario = plan.scenario
    assert scenario.controller is not None
    nodes = tuple(
        replace(node, address=plan.addresses[node.name]) if node.kind == "host" else node for node in scenario.nodes
    )
    plan.files["site.yaml"] = to_yaml(replace(scenario, nodes=nodes))
    configuration = {
        "name": "controller",
        "store": {"url": f"unix:{TABLE}"},
        "network": "site.yaml",
        "openflow": {
            "port": scenario.controller.port,
            "only-listed": True,
            # As `switches.json` of the run folder says (crates/live/src/switches).
            "switches": [
                {"name": switch.name, "datapath": f"{number:016x}"}
                for number, switch in enumerate(scenario.real_switches, 1)
            ],
        },
        # Built-in clients and managers mark what they send, and the emulated network cards sort by that mark. A switch in user space that waits
        # for the processor sees frames in bursts that were none when they were sent: its meters must not drop them.
        "planning": {"host-queue": "strict-priority", "meter-slack": "16 kB"}
        | ({} if stack.priorities else {"priorities": False}),
        "http": {"port": CONTROLLER_PORT},
        "audit": "logs/controller-audit.jsonl",
        "log": "json",
    }
    plan.files[CONTROLLER_FILE] = json.dumps(configuration, indent=1)
    return [_table(node), ready("controller-ready", node, CONTROLLER_PORT)]


def ready(name: str, node: str, port: int) -> dict[str, Any]:
    """A program that waits until a service on its node says that it is ready, and ends."""
    file = f"{name}.file"
    argv = [sys.executable, "-m", "timebound.node", "ready", "--port", str(port), "--ready", file]
    return {**_program(name, node, argv, {"file": file, "timeout_ms": 60_000}), "essential": False}


def _table(node: str) -> dict[str, Any]:
    """The OVSDB server with the table."""
    argv = [sys.executable, "-m", "timebound.node", "table", "--socket", TABLE]
    return _program("table", node, argv, {"file": TABLE, "timeout_ms": 15_000})


def _program(name: str, node: str, argv: list[str], until: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "node": node, "argv": argv, "essential": True, "ready": until}
