"""`timebound node`: stop, start, restart, pause and resume nodes of a running experiment."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from timebound.cli.common import AsJson, print_json, stderr
from timebound.cli.target import NodeRange, RunName, connected, host_names
from timebound.engine.control import pick_nodes


def register(app: App) -> None:
    """Adds the verb."""
    app.command(node)


def node(
    run: RunName,
    order: Literal["stop", "start", "restart", "pause", "resume"],
    nodes: NodeRange,
    /,
    *,
    json: AsJson = False,
) -> int:
    """Stop, start, restart, pause or resume hosts of a running experiment; returns once they have obeyed.

    stop ends the processes of a host (SIGTERM, then SIGKILL) and takes its interface down; start brings both back. pause
    makes its processes stand still; its kernel goes on, so frames to it are still acknowledged and wait in socket buffers.
    """
    with connected(run) as link:
        chosen = pick_nodes(nodes, host_names(link))
        link.ask({"node": {"nodes": chosen, "order": order}})
        states = {entry["node"]: entry["state"] for entry in link.ask("status")["nodes"]}
    if json:
        print_json({name: states[name] for name in chosen})
    else:
        for state in sorted({states[name] for name in chosen}):
            stderr(f"{state}: {', '.join(name for name in chosen if states[name] == state)}")
    return 0
