"""What the controller answered to the clients of a run that ask for channels, from its audit log.

A bound of the scenario holds for who has a channel: a flow whose request was refused is best effort, and its figures say nothing about the bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

AUDIT = Path("logs") / "controller-audit.jsonl"


def answers(folder: Path, topics: Mapping[str, str], warm_up_ns: int, live: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each client and topic of the scenario's flows (`topics`: topic -> flow) that asked in the judged part of a run: the last answer in it, and for which
    share of it a channel was granted. Empty where no controller of ours decided.
    """
    file = folder / AUDIT
    if not file.exists() or live.get("epoch_unix_ns") is None:
        return []
    begin = live["epoch_unix_ns"] + warm_up_ns
    end = begin + live["measured_ns"]
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    found: dict[tuple[str, str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for entry in lines:
        at = round(datetime.fromisoformat(entry["time"]).timestamp() * 1e9)
        # What is said later is about a network that is taken down.
        if entry["what"] in ("verdict", "withdrawn") and at < end and entry.get("topic") in topics:
            key = (topics[entry["topic"]], str(entry.get("side", "")), str(entry.get("client_id", "")))
            found.setdefault(key, []).append((at, entry))
    return [
        _entry(flow, side, client, told[-1][1], _granted_ns(told, begin, end) / (end - begin))
        for (flow, side, client), told in sorted(found.items())
    ]


def without_channel(told: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Flows that asked and had no channel, or not all the time -> the first reason."""
    found: dict[str, str] = {}
    for entry in told:
        if entry["text"] is not None:
            found.setdefault(entry["flow"], str(entry["text"]).removeprefix(f"{entry['flow']}: "))
    return found


def _entry(flow: str, side: str, client: str, last: Mapping[str, Any], granted: float) -> dict[str, Any]:
    entry = {
        "flow": flow,
        "side": side,
        "client": client,
        "outcome": str(last["outcome"]),
        "reason": str(last.get("reason", "")),
        "granted": round(granted, 4),
    }
    is_whole = entry["outcome"] == "granted" and granted >= 1
    who = {"publish": "publisher", "subscribe": "subscriber"}.get(side, side)
    return {**entry, "text": None if is_whole else f"{flow}: the {who}'s channel was {_said(entry)}"}


def _granted_ns(told: Iterable[tuple[int, Mapping[str, Any]]], begin: int, end: int) -> int:
    total, since = 0, None
    for at, entry in told:
        if entry["outcome"] == "granted":
            since = at if since is None else since
        elif since is not None:
            total += max(0, at - max(since, begin))
            since = None
    return total if since is None else total + max(0, end - max(since, begin))


def _said(entry: Mapping[str, Any]) -> str:
    reason = f": {entry['reason']}" if entry["reason"] else ""
    if entry["granted"] == 0:
        return f"{entry['outcome']}{reason}. Its messages were best effort, for which the bound does not hold"
    lasted = f"granted for {entry['granted']:.0%} of the time, best effort in the rest"
    return lasted if entry["outcome"] == "granted" else f"{lasted}; at the end it was {entry['outcome']}{reason}"
