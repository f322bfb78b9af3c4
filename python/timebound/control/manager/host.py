"""What the service asks of its host: its addresses, and room for its connections."""

from __future__ import annotations

import fcntl
import resource
import socket
import struct
from contextlib import suppress

_SIOCGIFADDR = 0x8915
OTHER_FILES = 128
"""Open files that are no connections of clients, as `crates/manager/src/limits.rs` counts them."""


def reached_at(bound: list[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """IPv4 addresses at which clients reach listeners, each once, and their ports."""
    addresses: dict[str, None] = {}
    for address, _ in bound:
        if address in ("0.0.0.0", "::"):
            addresses |= dict.fromkeys(_own_addresses())
        elif ":" not in address:
            addresses[address] = None
    return tuple(addresses), tuple(dict.fromkeys(port for _, port in bound))


def connections_that_fit(wanted: int) -> int:
    """How many clients the limit of open files leaves room for, at most `wanted`: each takes two, its own and one to the broker.

    Raises the limit to what the process may have: the intermediary has done so for its connections, but others open files as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(0, soft - OTHER_FILES) // 2)


def _own_addresses() -> list[str]:
    """The first IPv4 address of each interface, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return sorted(found, key=lambda address: address.startswith("127."))
