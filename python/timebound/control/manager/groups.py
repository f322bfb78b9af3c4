"""What a manager has to do with managers of other edge networks, from the table. Pure."""

from __future__ import annotations

from typing import Any

from timebound.control.srt.rows import ChannelState, GroupRow, ManagerRow, Tables

FULL_FRAME_BYTES = 1_538
"""Of the longest Ethernet frame on the wire (`peer::pacing::FULL_FRAME`): with a smaller burst it could never be sent."""
_IN_USE = (ChannelState.INSTALLED, ChannelState.PROVEN)


def wanted(tables: Tables, name: str) -> dict[str, Any]:
    """`Groups` of `crates/manager/src/contract.rs` for the manager `name`: groups that are in the switches, and whom they concern.

    A member that the table does not know stays a member: what it does not get is told. Managers of the same network, or of none, exchange nothing.
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
    peers = [
        {"name": each, "address": row.peer_address, "port": row.peer_port}
        for each in sorted(concerned)
        if (row := tables.managers.get(each)) is not None and row.peer_address is not None and row.peer_port is not None
    ]
    return {"peers": peers, "sends": sends, "receives": receives}


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
