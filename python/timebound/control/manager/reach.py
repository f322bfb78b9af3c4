"""Can the broker be reached? Tried when somebody asks, apart from the connections of clients: those tell nothing while no client comes."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

TRY_S = 1.0
"""A question is answered after that time at the latest, whatever the broker and its name server do."""
KEPT_S = 1.0
"""An answer holds for so long: questions cost the broker one connection in that time at most, however many come."""


class Reach:
    """Whether a TCP connection to the broker stands; any thread may ask. TLS and MQTT are not spoken on it."""

    def __init__(self, address: str, port: int) -> None:
        """`address` may be a name."""
        self._at = (address, port)
        self._name = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self._lock = threading.Lock()
        self._trouble = ""
        self._holds_until = 0.0
        self._trying: Future[str] | None = None

    def trouble(self) -> str:
        """Why the broker cannot be reached; empty where it can. Waits for `TRY_S` at most, and for whoever asks meanwhile."""
        with self._lock:
            if time.monotonic() >= self._holds_until:
                self._trouble = self._try()
                self._holds_until = time.monotonic() + KEPT_S
            return self._trouble

    def _try(self) -> str:
        if self._trying is None or self._trying.done():
            self._trying = Future()
            # Looking up a name knows no time limit; one try at a time, so that those that hang do not pile up.
            threading.Thread(target=self._connect, args=(self._trying,), name="manager-reach", daemon=True).start()
        try:
            return self._trying.result(TRY_S)
        except FutureTimeoutError:
            return f"the broker {self._name} cannot be reached: no answer within {TRY_S:g} s"

    def _connect(self, done: Future[str]) -> None:
        try:
            with socket.create_connection(self._at, timeout=TRY_S):
                done.set_result("")
        except (OSError, UnicodeError) as error:
            # A name of more than 63 characters is a UnicodeError.
            why = getattr(error, "strerror", None) or str(error)
            done.set_result(f"the broker {self._name} cannot be reached: {why}")
