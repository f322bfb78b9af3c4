"""What the services tell systemd (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def tell_systemd(state: str) -> None:
    """`READY=1`, `WATCHDOG=1`, `STOPPING=1`, `STATUS=...`; nothing, where nobody listens."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        notify.connect("\0" + path[1:] if path.startswith("@") else path)
        notify.send(state.encode())
