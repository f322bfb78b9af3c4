"""The helpers beside the tests can be imported; stores of both kinds, each in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tools import OVSDB, need
from timebound.control.srt.store import Store, Writer, open_store

sys.path.insert(0, str(Path(__file__).parent))
from srt_helpers import Open, OvsdbServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OvsdbServer]:
    """A running ovsdb-server."""
    need(*OVSDB)
    server = OvsdbServer(tmp_path)
    server.start()
    yield server
    with suppress(ProcessLookupError):
        server.kill()


@pytest.fixture(params=["file", "ovsdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store, of each kind."""
    if request.param == "file":
        return f"file:{tmp_path / 'srt.db'}"
    found: OvsdbServer = request.getfixturevalue("server")
    return found.url


@pytest.fixture
def open_for() -> Iterator[Open]:
    """`open_for(url, writer)`: a connected store that is closed at the end."""
    stores: list[Store] = []

    def open_one(url: str, writer: Writer, *, wait: bool = True, **options: object) -> Store:
        store = open_store(url, writer, **options)  # type: ignore[arg-type]
        stores.append(store)
        assert not wait or store.wait_connected(10), store.trouble
        return store

    yield open_one
    for store in stores:
        store.close()
