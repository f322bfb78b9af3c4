"""Multicast groups over real Open vSwitches in user space: three edge networks, a switch and a manager's host in each, one with a host more."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.control.group_helpers import ADDRESS, Listener, Source, order
from tests.control.ovs_lab import Lab, lab, run, until
from tests.control.switch_helpers import Controller, controller, introduce, queued_site, site
from timebound.control.srt.rows import ChannelState

TRIANGLE = [(1, 2), (2, 3), (1, 3)]
TO_TWO = "h1->s1 s1->s2 s2->h2"
TO_BOTH = f"{TO_TWO} s1->s3 s3->h3"
OVER_TWO = f"{TO_TWO} s2->s3 s3->h3"


@pytest.fixture(scope="module")
def net() -> Iterator[Lab]:
    with lab(3, TRIANGLE, [1, 2, 3, 3]) as made:
        yield made


@pytest.fixture(scope="module")
def held(net: Lab) -> Iterator[Controller]:
    with controller(net, site(net)) as made:
        introduce(net, made)
        yield made


@pytest.fixture(autouse=True)
def _no_groups_left(held: Controller, net: Lab) -> Iterator[None]:
    yield
    for name in {name for _at, name, _state, _reason in held.states}:
        held.enforcer.remove(name)
    until(lambda: not groups(net), 3, "no groups left")


def groups(net: Lab) -> list[str]:
    """Of all switches."""
    lines = [line for switch in (1, 2, 3) for line in net.ofctl("dump-groups", switch).splitlines()]
    return [line for line in lines if "group_id=" in line]


@pytest.fixture
def listeners(net: Lab) -> Iterator[dict[int, Listener]]:
    """Every host but the first has joined by IGMP; that is nobody's business."""
    made = {number: Listener(net, number) for number in (2, 3, 4)}
    yield made
    for listener in made.values():
        listener.close()


@pytest.fixture
def source(net: Lab) -> Iterator[Source]:
    made = Source(net)
    yield made
    made.close()


def install(held: Controller, links: str, **changes: object) -> tuple[ChannelState, str]:
    seen = len(held.of("g"))
    held.enforcer.install_group(order("g", links, **changes))
    return held.settled("g", after=seen)


def once(listener: Listener, numbers: range) -> bool:
    heard = listener.numbers()
    return all(heard[number] == 1 for number in numbers)


def test_data_arrives_once_at_each_member_marked_and_nowhere_else(
    net: Lab, held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    assert install(held, TO_BOTH) == (ChannelState.PROVEN, "")
    assert len(groups(net)) == 1 and "type=all" in groups(net)[0]
    numbers = source.send(200)
    until(lambda: once(listeners[2], numbers) and once(listeners[3], numbers), 3, "all of it at both members")
    time.sleep(0.1)
    assert set(listeners[2].numbers().values()) == set(listeners[3].numbers().values()) == {1}
    assert listeners[2].marks() == listeners[3].marks() == {40}
    assert not listeners[4].heard, "it asked by IGMP, and is no member"


def test_without_a_group_nothing_is_flooded_and_hosts_are_still_reached(
    net: Lab, held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    source.send(50)
    time.sleep(0.2)
    assert not any(listener.heard for listener in listeners.values())
    assert net.ping(1, 4) and net.ping(2, 3)
    assert "nw_proto=2" in net.ofctl("dump-flows", 1)


def test_a_member_joins_and_another_leaves_while_data_goes_on(
    held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    assert install(held, TO_TWO)[0] is ChannelState.PROVEN
    source.begin()
    until(lambda: listeners[2].heard, 3, "the first member hears")
    assert install(held, OVER_TWO)[0] is ChannelState.PROVEN
    joined = source.sent
    until(lambda: listeners[3].heard, 3, "the new one hears")
    assert install(held, "h1->s1 s1->s3 s3->h3 s3->h4")[0] is ChannelState.PROVEN
    until(lambda: listeners[4].heard, 3, "the third hears")
    time.sleep(0.3)
    left = len(listeners[2].heard)
    time.sleep(0.2)
    assert len(listeners[2].heard) == left
    source.close()
    time.sleep(0.2)
    heard = listeners[3].numbers()
    assert all(heard[number] for number in range(joined, source.sent)), "nothing is lost while others come and go"
    assert set(listeners[2].numbers().values()) == {1}


def test_a_link_that_fails_breaks_the_tree_another_one_mends_it_and_what_is_whole_again_is_proven(
    net: Lab, held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    assert install(held, TO_BOTH)[0] is ChannelState.PROVEN
    seen = len(held.of("g"))
    run("ip", "-n", net.inside, "link", "set", "s1-s3", "down")
    try:
        state, reason = held.settled("g", after=seen)
        assert state is ChannelState.BROKEN and "s1" in reason
        assert install(held, OVER_TWO)[0] is ChannelState.PROVEN
        numbers = source.send(100)
        until(lambda: once(listeners[2], numbers) and once(listeners[3], numbers), 3, "all of it by the other way")
        assert not listeners[4].heard
        seen = len(held.of("g"))
        held.enforcer.install_group(order("g", TO_BOTH))
        assert held.settled("g", after=seen)[0] is ChannelState.BROKEN
        seen = len(held.of("g"))
    finally:
        run("ip", "-n", net.inside, "link", "set", "s1-s3", "up")
    until(lambda: held.links_up() == 6, 10, "the link again")
    assert held.settled("g", 10, after=seen)[0] is ChannelState.PROVEN


def test_what_exceeds_a_group_is_dropped_at_its_first_switch(
    held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    assert install(held, TO_TWO, rate_bps=100_000, burst_bytes=2000)[0] is ChannelState.PROVEN
    source.send(400, 0.001)
    time.sleep(0.2)
    assert 10 < len(listeners[2].heard) < 250


def test_links_that_are_no_tree_are_refused(held: Controller) -> None:
    for links, said in (
        ("h1->s1 s1->s2", "no tree"),
        ("h1->s1 s1->s2 s2->h2 s2->s3", "leads to no host"),
        ("s1->s2 s2->h2", "no tree"),
        ("h1->s1 s1->s9 s9->h2", "no link"),
    ):
        state, reason = install(held, links)
        assert state is ChannelState.BROKEN and said in reason, (links, reason)
    assert install(held, TO_TWO, address="10.0.0.1")[0] is ChannelState.BROKEN


def test_a_switch_that_restarts_gets_its_branch_back(
    net: Lab, held: Controller, listeners: dict[int, Listener], source: Source
) -> None:
    assert install(held, TO_BOTH)[0] is ChannelState.PROVEN
    seen = len(held.of("g"))
    net.kill_vswitchd()
    until(lambda: any(state is ChannelState.BROKEN for state, _ in held.of("g")[seen:]), 10, "broken")
    net.start_vswitchd()
    until(lambda: held.of("g")[-1][0] is ChannelState.PROVEN, 15, "proven again")
    # Hosts are heard of again by what they send.
    numbers = source.send(50)
    until(lambda: once(listeners[2], numbers) and once(listeners[3], numbers), 3, "all of it at both members")


def test_queues_of_the_switches_are_chosen_for_every_copy(net: Lab) -> None:
    with controller(net, queued_site(net)) as queued:
        introduce(net, queued)
        queued.enforcer.install_group(order("q", TO_BOTH))
        state, reason = queued.settled("q", 10)
        # The userspace datapath passes all of them through queue 0, which the proof says (docs/controller.md).
        assert state is ChannelState.PROVEN or "did not move" in reason
        flows = net.ofctl("dump-groups", 1)
        assert flows.count("set_queue:5") == 2, flows
        queued.enforcer.remove("q")
        until(lambda: not groups(net), 3, "no groups left")
    assert ADDRESS.startswith("239.194.")
