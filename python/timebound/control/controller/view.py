"""What people and programs see of a controller: one JSON document, made after every decision, never changed afterwards."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from timebound.control.controller.desk import Desk
from timebound.control.srt.rows import RequestRow

VERSION = 1


def view(desk: Desk, now_ns: int, *, connected: bool) -> dict[str, Any]:
    """The controller's state for the REST interface and the page; times in ns, rates in bit/s."""
    world = desk.world()
    return {
        "version": VERSION,
        "time_ns": now_ns,
        "ready": desk.ready,
        "store_connected": connected,
        "topology": _topology(desk),
        "managers": [
            {**asdict(row), "alive": desk.alive is None or row.id in desk.alive, "trouble": world.trouble(row.id)}
            for _, row in sorted(desk.tables.managers.items())
        ],
        "requests": [_request(desk, row) for _, row in sorted(desk.tables.requests.items())],
        "channels": [
            {
                **asdict(held.row),
                "backup": list(held.backup),
                "reason": held.reason,
            }
            for _, held in sorted(desk.held.items())
        ],
        "groups": [
            {**asdict(held.row), "shown": None if held.shown is None else asdict(held.shown), "reason": held.reason}
            for _, held in sorted(desk.groups.items())
        ],
    }


def _topology(desk: Desk) -> dict[str, Any]:
    topology = desk.topology
    loads = _loads(desk)
    return {
        "revision": topology.revision,
        "switches": [
            {"name": name, "datapath": f"{switch.datapath:016x}", "connected": switch.connected}
            for name, switch in sorted(topology.switches.items())
        ],
        "hosts": [
            {"name": name, "address": host.address, "mac": host.mac} for name, host in sorted(topology.hosts.items())
        ],
        "links": [
            {
                "name": name,
                "source": link.source,
                "target": link.target,
                "rate_bps": link.rate_bps,
                "up": link.up,
                "reserved": loads.get((link.source, link.target), 0.0),
            }
            for name, link in sorted(topology.links.items())
        ],
    }


def _loads(desk: Desk) -> dict[tuple[str, str], float]:
    """Link, by its ends -> share of its rate that is reserved, 0 to 1."""
    judged = desk.state.judged
    if judged is None or judged.prediction is None:
        return {}
    names = {short: name for name, short in desk.world().names.items()}
    found = {}
    for port in judged.prediction.ports:
        source, _, target = str(port["name"]).partition("->")
        found[names.get(source, source), names.get(target, target)] = round(float(port["utilisation"]["value"]), 6)
    return found


def _request(desk: Desk, row: RequestRow) -> dict[str, Any]:
    connection = desk.tables.connections.get(row.connection)
    verdict = desk.tables.verdicts.get(row.id)
    told = verdict if verdict is not None and verdict.revision == row.revision else None
    return {
        **asdict(row),
        "client_id": None if connection is None else connection.client_id,
        "user": None if connection is None else connection.user,
        "client_address": None if connection is None else connection.client_address,
        "verdict": None if told is None else asdict(told),
    }
