"""The controller's service between a table and real Open vSwitches: from a request to a proven channel, a link that fails, a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.ovs_lab import Lab, lab, run, until
from tests.control.switch_helpers import Controller, controller, introduce, site
from timebound.control.controller.service import Service
from timebound.control.planner import Site
from timebound.control.srt.rows import (
    ChannelState,
    ConnectionRow,
    ManagerRow,
    Outcome,
    RequestRow,
    Requirements,
    Row,
    Side,
    VerdictRow,
)
from timebound.control.srt.store import Put, Role, Store, Writer, open_store

MS = 1_000_000
RING = [(1, 2), (2, 3), (3, 4), (4, 1)]
SITE = Site(meter_slack_bytes=16_000)


@pytest.fixture(scope="module")
def ring() -> Iterator[Lab]:
    with lab(4, RING, [1, 3, 2]) as made:
        yield made


@pytest.fixture
def held(ring: Lab) -> Iterator[Controller]:
    with controller(ring, site(ring)) as made:
        introduce(ring, made)
        yield made


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Store]:
    """The table as the manager on h3 writes it, alive."""
    store = open_store(f"file:{tmp_path / 'srt.db'}", Writer(Role.MANAGER, "m"))
    assert store.wait_connected(10)
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            row = ManagerRow(
                id="m", addresses=(Lab.address(3),), ports=(1883,), broker_address="127.0.0.1", broker_port=1884,
                version="1", beat_ns=time.time_ns(),
            )  # fmt: skip
            store.transact([Put(row)])
            over.wait(0.5)

    thread = threading.Thread(target=beat)
    thread.start()
    until(lambda: "m" in store.snapshot().managers, 5, "the manager's row")
    yield store
    over.set()
    thread.join()
    store.close()


@contextmanager
def serving(folder: Path, held: Controller) -> Iterator[Service]:
    store = open_store(f"file:{folder / 'srt.db'}", Writer(Role.CONTROLLER, "c"), adopt=True)
    assert store.wait_connected(10)
    service = Service("c", store, held.enforcer, SITE, grace_ns=500 * MS)
    service.start()
    try:
        yield service
    finally:
        service.close()
        store.close()


def asked(number: int, client: int, side: Side, topic: str) -> list[Row]:
    """A connection with one request."""
    connection = ConnectionRow(
        id=f"k{number}", manager="m", client_id=f"client{number}", user=None, client_address=Lab.address(client),
        client_port=20_000 + number, manager_address=Lab.address(3), manager_port=1883,
    )  # fmt: skip
    wanted = Requirements(deadline_ns=100 * MS, period_ns=100 * MS, size_bytes=200, qos=1)
    request = RequestRow(
        id=f"q{number}", connection=connection.id, side=side, topic=topic,
        requirements=wanted if side is Side.PUBLISH else Requirements(qos=1), revision=1, asked_ns=time.time_ns(),
    )  # fmt: skip
    return [connection, request]


def granted(store: Store, *requests: str) -> Callable[[], bool]:
    def look() -> bool:
        found = [store.snapshot().verdicts.get(request) for request in requests]
        return all(isinstance(row, VerdictRow) and row.outcome is Outcome.GRANTED for row in found)

    return look


def test_a_request_becomes_a_proven_channel_and_survives_a_link_and_a_restart(
    ring: Lab, held: Controller, manager: Store, tmp_path: Path
) -> None:
    with serving(tmp_path, held):
        rows = [*asked(1, 1, Side.PUBLISH, "plant/a"), *asked(2, 2, Side.SUBSCRIBE, "plant/#")]
        began = time.monotonic()
        manager.transact([Put(row) for row in rows])
        until(granted(manager, "q1", "q2"), 15, "both granted")
        print(f"from request to grant: {time.monotonic() - began:.3f} s")
        # Right after the grant they are installed once more, with their disjoint ways for failover.
        until(lambda: {row.state for row in manager.snapshot().channels.values()} == {ChannelState.PROVEN}, 5, "proven")
        channels = manager.snapshot().channels
        assert len(channels) == 4
        assert ring.ofctl("dump-flows", 1).count("tp_src=20001") >= 1
        way = channels["k1:up"].links
        assert way[0] == f"{Lab.address(1)}->s1"
        until(lambda: len(manager.snapshot().channels) == 4, 5, "all channels")
    # The controller is gone; its channels are not.
    assert ring.ofctl("dump-flows", 1).count("tp_src=20001") >= 1
    with serving(tmp_path, held):
        until(lambda: "c" in manager.snapshot().controllers, 5, "the controller's row")
        until(granted(manager, "q1", "q2"), 10, "still granted")
        first, second = way[1].split("->")
        run("ip", "-n", ring.inside, "link", "set", f"{first}-{second}", "down")
        try:
            until(lambda: way[1] not in manager.snapshot().channels["k1:up"].links, 10, "another way")
            until(
                lambda: {row.state for row in manager.snapshot().channels.values()} == {ChannelState.PROVEN},
                10,
                "proven",
            )
            assert granted(manager, "q1", "q2")()
        finally:
            run("ip", "-n", ring.inside, "link", "set", f"{first}-{second}", "up")
