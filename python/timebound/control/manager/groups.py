"""What a manager has to do with managers of other edge networks, from the table. Pure."""

from __future__ import annotations

from typing import Any

from timebound.control.srt.rows import ChannelState, GroupRow, ManagerRow, Tables

FULL_FRAME_BYTES = 1_538
"""Of the longest Ethernet frame on the wire (`peer::pacing::FULL_FRAME`): with a smaller burst it could never be sent."""
_IN_USE = (ChannelState.INSTALLED, ChannelState.PROVEN)


def wanted(tables: Tables, name: str, *, relay: bool = False) -> dict[str, Any]:
    """`Groups` of `crates/manager/src/contract.rs` for the manager `name`: groups that are in the switches, whom they concern, and relays.

    A member that the table does not know stays a member: what it does not get is told. Managers of the same network, or of none, exchange nothing.
    A relay leads to every manager of another network whose clients are subscribed to something, whoever is alive: that shows when it is used.
    `relay`: the configuration lets it use them.
    """
    own = tables.managers.get(name)
    groups = [each for _, each in sorted(tables.groups.items()) if each.state in _IN_USE]
    sends, receives = [], []
    concerned: set[str] = set()
    for group in groups:
        if group.origin == name:
            members = [each for each in group.members if each != name and not _are_near(own, tables.managers.get(each))]
            concerned.update(members)
            sends.append(_send(group, members))
        elif name in group.members and not _are_near(own, tables.managers.get(group.origin)):
            concerned.add(group.origin)
            receives.append(
                {
                    "id": group.id,
                    "origin": group.origin,
                    "topic": group.topic,
                    "priority": group.priority,
                    "address": group.address,
                }
            )
    if relay and own is not None and own.peer_address is not None:
        for each in _others(tables, own, concerned):
            concerned.add(each.id)
            receives.append(_relay(each.id, str(own.peer_address)) | {"origin": each.id, "relay": True})
            if each.interests:
                sends.append(
                    _relay(each.id, str(each.peer_address)) | {"members": [each.id], "interests": list(each.interests)}
                )
    peers = [
        {"name": each, "address": row.peer_address, "port": row.peer_port}
        for each in sorted(concerned)
        if (row := tables.managers.get(each)) is not None and row.peer_address is not None and row.peer_port is not None
    ]
    return {"peers": peers, "sends": sends, "receives": receives}


def _others(tables: Tables, own: ManagerRow, concerned: set[str]) -> list[ManagerRow]:
    """Managers of other networks that can be reached, in order: one for each address, since a manager may have left a row behind under another name."""
    taken = {row.peer_address for each in concerned if (row := tables.managers.get(each)) is not None}
    found = []
    by_beat = sorted(tables.managers.values(), key=lambda row: (row.id not in concerned, -row.beat_ns, row.id))
    for row in by_beat:
        is_free = row.id in concerned or row.peer_address not in taken
        if row.peer_address in (None, own.peer_address) or not is_free or row.id == own.id or _are_near(own, row):
            continue
        taken.add(row.peer_address)
        found.append(row)
    return sorted(found, key=lambda row: row.id)


def _relay(other: str, address: str) -> dict[str, Any]:
    """What both ends of the relay to or from a manager have in common."""
    return {"id": f"relay-{other}", "topic": "#", "priority": 0, "address": address}


def _are_near(one: ManagerRow | None, other: ManagerRow | None) -> bool:
    """Are they in the same network, or one of them in none?"""
    if one is None or not one.network:
        return True
    return other is not None and other.network in ("", one.network)


def _send(group: GroupRow, members: list[str]) -> dict[str, Any]:
    return {
        "id": group.id, "topic": group.topic, "priority": group.priority, "address": group.address, "members": members,
        "request": group.request, "reservation": _reservation(group),
    }  # fmt: skip


def _reservation(group: GroupRow) -> dict[str, int] | None:
    """By what the group is paced; `None` where the row says too little for that: a controller from before `burst_bytes`, or nothing that has a rate."""
    if group.rate_bps <= 0 or group.burst_bytes < FULL_FRAME_BYTES:
        return None
    return {"rate_bps": group.rate_bps, "burst_bytes": group.burst_bytes}
