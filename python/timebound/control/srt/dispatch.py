"""Callbacks of a store, on a thread of their own: a slow or failing callback holds up nobody but the other callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from timebound.control.srt import rules
from timebound.control.srt.rows import TableName
from timebound.control.srt.store import Change

log = logging.getLogger("timebound.srt")

Changed = Callable[[tuple[Change, ...]], None]


class Dispatcher:
    """Keeps for each watcher what it has not been told yet: of several changes of a row the last, so it never holds more than the table has rows."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Condition()
        self._pending: list[tuple[Changed, dict[tuple[TableName, str], Change]]] = []
        self._told: list[Callable[[bool], None]] = []
        self._states: list[Callable[[], None]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def watch(self, changed: Changed) -> None:
        """From now on `changed` is called."""
        with self._ready:
            self._pending.append((changed, {}))

    def on_state(self, told: Callable[[bool], None], now: bool) -> None:
        """From now on `told` is called, first with what is now."""
        with self._ready:
            self._told.append(told)
            self._states.append(partial(told, now))
            self._ready.notify()

    def changed(self, changes: tuple[Change, ...]) -> None:
        """Some rows have changed."""
        with self._ready:
            for _, pending in self._pending:
                for change in changes:
                    # To the end: what a transaction wrote together stays together and in its order.
                    pending.pop(rules.key(change), None)
                    pending[rules.key(change)] = change
            self._ready.notify()

    def state(self, connected: bool) -> None:
        """The connection came or went."""
        with self._ready:
            self._states += [partial(told, connected) for told in self._told]
            self._ready.notify()

    def close(self) -> None:
        """No callback begins after this, and none is running unless it is the caller."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._closed or self._states or any(rows for _, rows in self._pending))
                if self._closed:
                    return
                calls, self._states = self._states, []
                for number, (changed, rows) in enumerate(self._pending):
                    if rows:
                        calls.append(partial(changed, tuple(rows.values())))
                        self._pending[number] = (changed, {})
            for call in calls:
                try:
                    call()
                except Exception:
                    log.exception("a callback of the store failed")
