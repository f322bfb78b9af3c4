"""The controller's service between a table and real Open vSwitches: three edge networks, from requests to datagrams that arrive, members that come and go,
a link that fails, a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.group_helpers import Listener, Source, asked, beating
from tests.control.ovs_lab import Lab, lab, run, until
from tests.control.switch_helpers import Controller, controller, introduce, site
from tests.control.test_controller_over_switches import granted, serving
from timebound.control.srt.rows import ChannelState, GroupRow, Side
from timebound.control.srt.store import Delete, Put, Store

GROUP = "group:m1:plant/a"


@pytest.fixture(scope="module")
def net() -> Iterator[Lab]:
    # Managers on h1, h2, h3, a client in each network on h4, h5, h6.
    with lab(3, [(1, 2), (2, 3), (1, 3)], [1, 2, 3, 1, 2, 3]) as made:
        yield made


@pytest.fixture
def held(net: Lab) -> Iterator[Controller]:
    with controller(net, site(net)) as made:
        introduce(net, made)
        yield made


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[dict[int, Store]]:
    with beating(tmp_path) as stores:
        yield stores


def row_of(store: Store) -> GroupRow | None:
    return store.snapshot().groups.get(GROUP)


def shows(store: Store, members: tuple[str, ...], state: ChannelState = ChannelState.PROVEN) -> bool:
    row = row_of(store)
    return row is not None and (row.members, row.state) == (members, state)


def arrives(source: Source, listeners: list[Listener]) -> bool:
    """Twenty datagrams, each once."""
    numbers = source.send(20)
    until(lambda: all(set(numbers) <= listener.numbers().keys() for listener in listeners), 3, "all of them")
    return all(listener.numbers()[number] == 1 for listener in listeners for number in numbers)


def test_from_requests_to_datagrams_at_every_member_through_joins_failures_and_a_restart(
    net: Lab, held: Controller, managers: dict[int, Store], tmp_path: Path
) -> None:
    table = managers[1]
    listeners: list[Listener] = []
    source = None
    try:
        with serving(tmp_path, held):
            managers[1].transact([Put(row) for row in asked(1, Side.PUBLISH, "plant/a")])
            managers[2].transact([Put(row) for row in asked(2, Side.SUBSCRIBE, "plant/#")])
            until(granted(table, "q1", "q2"), 20, "both granted")
            until(lambda: shows(table, ("m2",)), 5, "a group with one member")
            row = row_of(table)
            assert row is not None
            between = {
                name: channel for name, channel in table.snapshot().channels.items() if name.startswith("peers:")
            }
            assert {name.rpartition(":")[2] for name in between} == {"tcp-to", "tcp-from", "udp"}
            assert {channel.state for channel in between.values()} == {ChannelState.PROVEN}
            listeners = [Listener(net, number, row.address) for number in (2, 3, 5)]
            source = Source(net, row.address)
            assert arrives(source, listeners[:1]) and not listeners[1].heard
            # A member joins: it is named when its branch is there.
            managers[3].transact([Put(row) for row in asked(3, Side.SUBSCRIBE, "plant/a")])
            until(lambda: shows(table, ("m2", "m3")), 10, "two members")
            assert arrives(source, listeners[:2])
            until(granted(table, "q1", "q2", "q3"), 10, "all granted")
            # A link of the tree fails: it goes another way, for the same members.
            used = next(name for name in (row_of(table) or row).links if name.startswith("s1->s"))
            ends = used.split("->")
            run("ip", "-n", net.inside, "link", "set", "-".join(ends), "down")
            try:
                began = time.monotonic()
                until(
                    lambda: shows(table, ("m2", "m3")) and used not in (row_of(table) or row).links, 10, "another tree"
                )
                print(f"from the link's end to a proven tree: {time.monotonic() - began:.3f} s")
                assert arrives(source, listeners[:2])
            finally:
                run("ip", "-n", net.inside, "link", "set", "-".join(ends), "up")
            until(lambda: held.links_up() == 6, 10, "the link again")
        # The controller is gone; its tree is not, and the next one takes it up.
        assert arrives(source, listeners[:2])
        with serving(tmp_path, held):
            until(lambda: "c" in table.snapshot().controllers, 5, "the controller's row")
            until(lambda: shows(table, ("m2", "m3")), 10, "the group as it was")
            assert arrives(source, listeners[:2])
            managers[2].transact([Delete("connections", "k2")])
            until(lambda: shows(table, ("m3",)), 10, "one member")
            managers[1].transact([Delete("connections", "k1")])
            until(lambda: row_of(table) is None, 10, "no group without its publisher")
            until(
                lambda: not any(row.address in net.ofctl("dump-flows", switch) for switch in (1, 2, 3)), 5, "no rules"
            )
        assert not listeners[2].heard, "a host that is no member hears nothing"
    finally:
        for listener in listeners:
            listener.close()
        if source is not None:
            source.close()
