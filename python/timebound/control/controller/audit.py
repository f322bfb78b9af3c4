"""The audit log: one JSON object a line for everything that was granted, refused, withdrawn, reserved or lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timebound.control.controller.desk import Told
from timebound.control.srt.rows import Tables
from timebound.control.text import json_line


class Audit:
    """Appends to a file that only its owner may read. Without a file nothing is written."""

    def __init__(self, file: Path | None) -> None:
        """Raises `OSError` where the file cannot be appended to."""
        self._lock = threading.Lock()
        self._stream = None
        if file is not None:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._stream = os.fdopen(descriptor, "a", encoding="utf-8")

    def write(self, told: Iterable[Told], tables: Tables, now_ns: int) -> None:
        """Notes what happened, with who had asked."""
        if self._stream is None:
            return
        lines = [json_line(entry(item, tables, now_ns)) for item in told]
        with self._lock:
            if lines and not self._stream.closed:
                self._stream.write("\n".join([*lines, ""]))
                self._stream.flush()

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._stream is not None:
                self._stream.close()


def entry(told: Told, tables: Tables, now_ns: int) -> dict[str, Any]:
    """One line."""
    found: dict[str, Any] = {
        "time": datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat(timespec="microseconds"),
        "what": told.what,
        "id": told.id,
        "outcome": told.outcome,
    }
    if told.text:
        found["reason"] = told.text
    request = tables.requests.get(told.id)
    connection = tables.connections.get(told.id.rpartition(":")[0] if request is None else request.connection)
    if request is not None:
        found |= {"side": request.side.value, "topic": request.topic, "revision": request.revision}
    if connection is not None:
        found |= {
            "manager": connection.manager,
            "client_id": connection.client_id,
            "user": connection.user,
            "address": f"{connection.client_address}:{connection.client_port}",
        }
    return found
