"""Addresses of multicast groups between edge networks: the controller that gives them out and whoever looks for their frames find the same ones."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection

GROUPS = ipaddress.IPv4Network("239.194.0.0/15")
"""Half of the organisation-local scope (RFC 2365, section 6.2); the other half is left to whoever else multicasts at a site (`stacks.udp` among
them). Its 17 bits fit the 23 that Ethernet keeps (RFC 1112, section 6.4), so groups have addresses of their own there, too."""


def group_of(topic: str, priority: int, taken: Collection[str] = ()) -> str:
    """The group of a topic in a class: by hash, and the next free one where that is another's.

    Every controller that knows the same groups in use finds the same one. `taken` are those of other topics or classes.

    Raises:
        ValueError: a priority that is no class, or no group is free.
    """
    if not 0 <= priority <= 7:
        raise ValueError(f"{priority} is no class: 0 to 7")
    digest = hashlib.sha256(f"{priority}/{topic}".encode()).digest()
    size = GROUPS.num_addresses
    start = int.from_bytes(digest[:8], "big") % size
    used = set(taken)
    for step in range(size):
        address = str(GROUPS[(start + step) % size])
        if address not in used:
            return address
    raise ValueError("every group is in use")
