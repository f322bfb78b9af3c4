"""Who asked for what and what was answered: JSON objects, one per line, only ever appended."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timebound.control.text import json_line, shortened

LONGEST = 1_000
"""Characters of one text: MQTT allows client ids, users and topics of 65,535 bytes."""

log = logging.getLogger("timebound.manager")


class Audit:
    """An audit log. A file that cannot be written is said once, and MQTT goes on; `reopen` after it was moved away (logrotate)."""

    def __init__(self, path: Path | None) -> None:
        """`None`: nothing is kept.

        Raises:
            OSError: the file cannot be opened.
        """
        self._path = path
        self._file: int | None = None
        self._failed = False
        if path is not None:
            self._file = self._open(path)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def write(self, entries: Iterable[dict[str, Any]]) -> None:
        """Appends entries; their time `at_ns` is also written for people."""
        lines = [json_line({"time": _time(entry["at_ns"]), **shortened(entry, LONGEST)}) + "\n" for entry in entries]
        if self._file is None or not lines:
            return
        data = memoryview("".join(lines).encode())
        try:
            while data:
                data = data[os.write(self._file, data) :]
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.error("the audit log cannot be written", extra={"file": str(self._path), "why": str(error)})
            self._failed = True

    def reopen(self) -> None:
        """Goes on in a file of that name, a new one where the old one was moved."""
        if self._path is None:
            return
        try:
            file = self._open(self._path)
        except OSError as error:
            log.error("the audit log cannot be opened anew", extra={"file": str(self._path), "why": str(error)})
            return
        self.close()
        self._file = file

    def close(self) -> None:
        """Ends it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _time(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / 1e9, UTC).isoformat(timespec="milliseconds")
