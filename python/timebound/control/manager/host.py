"""What the service asks of its host: its addresses, and the manager of services (systemd's notify protocol, sd_notify(3))."""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress

_SIOCGIFADDR = 0x8915


def reached_at(bound: list[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """IPv4 addresses at which clients reach listeners, each once, and their ports."""
    addresses: dict[str, None] = {}
    for address, _ in bound:
        if address in ("0.0.0.0", "::"):
            addresses |= dict.fromkeys(_own_addresses())
        elif ":" not in address:
            addresses[address] = None
    return tuple(addresses), tuple(dict.fromkeys(port for _, port in bound))


def _own_addresses() -> list[str]:
    """The first IPv4 address of each interface, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return sorted(found, key=lambda address: address.startswith("127."))
