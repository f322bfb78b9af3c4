"""A whole site in one process: the embedded store, a manager that writes rows, a network in memory, the controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memory_network import MemoryNetwork
from planner_worlds import Table

from timebound.control.controller.audit import Audit
from timebound.control.controller.service import Service
from timebound.control.planner import Site
from timebound.control.srt.rows import ManagerRow, Outcome, RequestRow, Row, VerdictRow
from timebound.control.srt.store import Delete, Put, Role, Store, Writer, open_store
from timebound.control.topology import Topology


def until(found: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Waits for something to be so."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("it did not come about in time")


@dataclass
class SiteInOne:
    """Everything; `table` makes rows, `put` writes them as the manager would."""

    folder: Path
    table: Table
    network: MemoryNetwork
    manager: Store
    service: Service

    def put(self, *rows: Row) -> None:
        assert self.manager.transact([Put(row) for row in rows])

    def drop(self, *requests: str) -> None:
        assert self.manager.transact([Delete("requests", request) for request in requests])

    def beat(self) -> None:
        row = self.table.rows.managers["m"]
        self.put(replace(row, beat_ns=time.time_ns()))

    def ask(self, *requests: str) -> None:
        """Writes the rows that these requests need."""
        self.beat()
        rows = [self.table.rows.requests[request] for request in requests]
        connections = {row.connection: self.table.rows.connections[row.connection] for row in rows}
        self.put(*connections.values(), *(replace(row, asked_ns=time.time_ns()) for row in rows))

    def verdict(self, request: str, outcome: Outcome | None = None) -> VerdictRow:
        """The verdict of a request, once there is one (of this kind)."""

        def look() -> VerdictRow | None:
            row = self.manager.snapshot().verdicts.get(request)
            return row if row is not None and outcome in (None, row.outcome) else None

        found: VerdictRow = until(look)
        return found

    def request(self, request: str) -> RequestRow:
        return self.manager.snapshot().requests[request]


def start(
    folder: Path, network: MemoryNetwork, *, grace_ns: int = 0, audit: Path | None = None
) -> tuple[Service, Store]:
    """A controller's service with its store, begun."""
    store = open_store(f"file:{folder / 'srt.db'}", Writer(Role.CONTROLLER, "controller"), adopt=True)
    assert store.wait_connected(10)
    service = Service("controller", store, network, Site(), grace_ns=grace_ns, audit=Audit(audit))
    service.start()
    return service, store


@contextmanager
def site(folder: Path, topology: Topology, **options: Any) -> Iterator[SiteInOne]:
    """The whole, taken down at the end."""
    with ExitStack() as ends:
        network = MemoryNetwork(topology)
        table = Table(topology)
        table.manager()
        manager = open_store(f"file:{folder / 'srt.db'}", Writer(Role.MANAGER, "m"))
        ends.callback(manager.close)
        assert manager.wait_connected(10)
        service, store = start(folder, network, **options)
        ends.callback(store.close)
        found = SiteInOne(folder, table, network, manager, service)
        ends.callback(lambda: found.service.close())
        row = table.rows.managers["m"]
        assert isinstance(row, ManagerRow)
        found.beat()
        over = threading.Event()
        beating = threading.Thread(
            target=lambda: [found.beat() for _ in iter(lambda: over.wait(1.0), True)], daemon=True
        )
        beating.start()
        ends.callback(beating.join)
        ends.callback(over.set)
        yield found
