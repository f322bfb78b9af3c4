"""Lines of the audit log that one client makes the manager write: the first of those that are alike, and in the end how many more there were.

A client that connects again and again asks for the same each time, and gets the same answers. Without this it filled a disk by 12 MB a minute.

| lines in a minute | written |
|---|---|
| that say what another one of the same address and user said | the first |
| of one user at one address, beyond `MOST_OF_USER` | none |
| of one address, beyond `MOST_OF_ADDRESS` | none |
| what was not written | one line for each user and address, with how many of which kind |

Pure: time is an argument.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv6Network
from typing import Any

from timebound.control.text import json_line

WINDOW_NS = 60_000_000_000
MOST_OF_USER = 600
"""More than an honest client ever needs: 256 requests and their answers."""
MOST_OF_ADDRESS = 3_000
MOST_KNOWN = 10_000
"""Users and addresses that have counts of their own in one minute; the others share one."""
MORE = "more"
"""Kind of the line that sums up."""
_PASSING = frozenset({"at_ns", "id", "revision", "connection", "client_port"})
"""What differs each time."""

_Key = tuple[str, str | None]
_OTHERS: _Key = ("others", None)


@dataclass(slots=True)
class _Lines:
    """Of one user at one address, or of one address."""

    written: int = 0
    known: set[int] = field(default_factory=set)
    more: Counter[str] = field(default_factory=Counter)


class Repeats:
    """What was written in this minute, and what was not."""

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._users: dict[_Key, _Lines] = {}
        self._addresses: dict[_Key, _Lines] = {}

    def takes(self, entry: dict[str, Any]) -> bool:
        """Is it to be written? `entry` has its time (`at_ns`) and kind (`event`); what comes from no client always is."""
        address = entry.get("address", entry.get("client_address"))
        if address is None:
            return True
        address = _origin(str(address))
        if self._since_ns is None:
            self._since_ns = int(entry["at_ns"])
        of_user = _of(self._users, (address, entry.get("user")))
        said = hash(json_line({key: value for key, value in entry.items() if key not in _PASSING}, sort_keys=True))
        if said in of_user.known or of_user.written >= MOST_OF_USER:
            of_user.more[str(entry["event"])] += 1
            return False
        of_address = _of(self._addresses, (address, None))
        if of_address.written >= MOST_OF_ADDRESS:
            of_address.more[str(entry["event"])] += 1
            return False
        of_user.known.add(said)
        of_user.written += 1
        of_address.written += 1
        return True

    def due(self, now_ns: int, *, last: bool = False) -> list[dict[str, Any]]:
        """Lines about what was not written, once the minute is over (or with `last`)."""
        since_ns = self._since_ns
        if since_ns is None or (now_ns - since_ns < WINDOW_NS and not last):
            return []
        found = [
            _summary(key, lines, since_ns, now_ns)
            for kept in (self._users, self._addresses)
            for key, lines in kept.items()
            if lines.more
        ]
        self._since_ns, self._users, self._addresses = None, {}, {}
        return found


def _origin(address: str) -> str:
    """For whom an address counts: of IPv6 a host has the last 64 bits to itself (RFC 4291, section 2.5.4)."""
    return str(IPv6Network((address, 64), strict=False)) if ":" in address else address


def _of(kept: dict[_Key, _Lines], key: _Key) -> _Lines:
    if key not in kept and len(kept) >= MOST_KNOWN:
        key = _OTHERS
    return kept.setdefault(key, _Lines())


def _summary(key: _Key, lines: _Lines, since_ns: int, now_ns: int) -> dict[str, Any]:
    address, user = key
    return {
        "event": MORE,
        "at_ns": now_ns,
        "address": address,
        "user": user,
        "reason": f"and {lines.more.total():,} more in the last minute",
        "lines": lines.more.total(),
        "of": dict(sorted(lines.more.items())),
        "since_ns": since_ns,
    }
