"""The controller's network over real Open vSwitches in user space: a ring of four with three hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.control.ovs_lab import Lab, lab, run, until
from tests.control.switch_helpers import Controller, channel, controller, introduce, site, stream, way
from tests.live.wires import ping
from timebound.control.srt.rows import ChannelState
from timebound.control.topology import PortId

RING = [(1, 2), (2, 3), (3, 4), (4, 1)]
WAY, AROUND = "h1 s1 s2 s3 h2", "h1 s1 s4 s3 h2"


@pytest.fixture(scope="module")
def ring() -> Iterator[Lab]:
    with lab(4, RING, [1, 3, 2]) as made:
        yield made


@pytest.fixture(scope="module")
def held(ring: Lab) -> Iterator[Controller]:
    with controller(ring, site(ring)) as made:
        introduce(ring, made)
        yield made


@pytest.fixture(autouse=True)
def _no_channels_left(held: Controller) -> Iterator[None]:
    yield
    for name in {name for _at, name, _state, _reason in held.states}:
        held.enforcer.remove(name)


def rules(ring: Lab, switch: int) -> str:
    return ring.ofctl("dump-flows", switch)


def test_switches_links_and_hosts_are_found(ring: Lab, held: Controller) -> None:
    topology = held.enforcer.topology()
    assert sorted(topology.switches) == ["s1", "s2", "s3", "s4"]
    inner = sorted(name for name, link in topology.links.items() if link.out and link.into)
    assert inner == sorted(f"s{a}->s{b}" for link in RING for a, b in (link, link[::-1]))
    for number, switch in ((1, 1), (2, 3), (3, 2)):
        host = topology.host_of(ring.address(number))
        assert host is not None
        assert topology.ports[host.at].name == f"s{switch}-h{number}" and host.at.switch == switch
    link = topology.links["s1->s2"]
    assert link.out is not None and topology.ports[link.out].name == "s1-s2"


def test_best_effort_arrives_once_and_unmarked_whatever_its_sender_marked(ring: Lab, held: Controller) -> None:
    with stream(ring, ports=(5100, 6100), mark=46) as sent:
        time.sleep(0.4)
        sent.end()
    assert sent.lost == [] and sent.marks() == {0}


def test_a_channel_is_proven_and_its_frames_alone_are_marked(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "marks", WAY))
    assert held.settled("marks") == (ChannelState.PROVEN, "")
    assert [state for state, _reason in held.of("marks")] == [ChannelState.INSTALLED, ChannelState.PROVEN]
    overload = stream(ring, ports=(5100, 6100), mark=40, size=400)
    with stream(ring) as mine, overload as other:
        time.sleep(0.5)
        other.end()
        mine.end()
    assert mine.lost == [] and mine.marks() == {40}
    assert other.marks() == {0}


def test_what_exceeds_a_channel_is_dropped_at_its_first_switch(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "police", WAY, rate_bps=1_000_000, burst_bytes=3000))
    assert held.settled("police")[0] is ChannelState.PROVEN
    began = time.monotonic()
    with stream(ring, size=1000, period_s=0.001) as sent:
        time.sleep(1.5)
        sent.end()
    lasted = time.monotonic() - began
    # The meter counts 42 bytes of headers, too.
    received = len(sent.arrived) * 1042 * 8
    assert sent.sent * 1042 * 8 / lasted > 2_500_000
    assert received / lasted > 700_000 and received < 1_000_000 * lasted + 3000 * 8 + 1042 * 8
    until(
        lambda: (load := held.enforcer.counters().channels.get("police")) and load.policed > 100,
        3,
        "the meter's counter",
    )


def test_loads_are_known(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "load", WAY))
    assert held.settled("load")[0] is ChannelState.PROVEN
    out = held.enforcer.topology().links["s1->s2"].out
    assert out is not None
    loads = held.enforcer.counters
    with stream(ring, size=500, period_s=0.004):
        until(
            lambda: (load := loads().channels.get("load")) and 500_000 < load.bps < 1_500_000, 5, "the channel's load"
        )
        until(lambda: loads().ports[out].send_bps > 500_000, 5, "the port's load")


SABOTAGE = {
    "a drop": (2, "udp,tp_dst=6000,actions=drop", "a probe from s1 did not reach s3"),
    "another mark": (2, "udp,tp_dst=6000,actions=set_field:8->ip_dscp,output:{s2-s3}", "with mark 8 in place of 40"),
    "another way": (
        1,
        "udp,tp_dst=6000,actions=set_field:40->ip_dscp,output:{s1-s4}",
        "a probe strayed: s4 has no rule",
    ),
    "the last rule": (3, "udp,nw_tos=160,nw_src=10.77.0.1,actions=output:{s3-h2}", "rule at s3 did not take a frame"),
}


@pytest.mark.parametrize("kind", SABOTAGE)
def test_a_channel_that_others_disturb_is_broken_and_says_how(ring: Lab, held: Controller, kind: str) -> None:
    """Rules of others, of higher priority: the switch has everything that it was sent, and does something else."""
    switch, rule, words = SABOTAGE[kind]
    name = f"sabotage {kind}"
    numbers = {port.name: port.id.number for port in held.enforcer.topology().ports.values()}
    ring.ofctl("add-flow", switch, f"cookie=0x1,priority=55000,{rule.format(**numbers)}")
    try:
        held.enforcer.install(channel(ring, name, WAY))
        state, reason = held.settled(name)
        assert state is ChannelState.BROKEN and words in reason
        assert ChannelState.PROVEN not in [state for state, _reason in held.of(name)]
    finally:
        ring.ofctl("del-flows", switch, "cookie=0x1/-1")
    seen = len(held.of(name))
    held.enforcer.install(channel(ring, name, WAY))
    assert held.settled(name, after=seen)[0] is ChannelState.PROVEN


def test_a_way_that_is_none_is_broken_and_says_why(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "none", "h1 s1 s3 h2"))
    assert held.settled("none") == (ChannelState.BROKEN, "no link 's1->s3' is known")


def test_a_channel_moves_to_another_way_without_losing_a_frame(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "move", WAY))
    assert held.settled("move")[0] is ChannelState.PROVEN
    with stream(ring) as sent:
        time.sleep(0.2)
        for nodes in (AROUND, WAY, AROUND):
            seen = len(held.of("move"))
            held.enforcer.install(channel(ring, "move", nodes))
            assert held.settled("move", after=seen)[0] is ChannelState.PROVEN
            time.sleep(0.3)
        sent.end()
    assert sent.lost == [] and sent.marks() == {40}
    assert "tp_dst=6000" in rules(ring, 4) and "tp_dst=6000" not in rules(ring, 2)


def test_nothing_is_left_of_a_channel_that_was_removed(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "gone", WAY), way(ring, *AROUND.split()))
    assert held.settled("gone")[0] is ChannelState.PROVEN
    assert "group_id" in ring.ofctl("dump-groups", 1)
    with stream(ring) as sent:
        time.sleep(0.1)
        held.enforcer.remove("gone")
        until(lambda: all("tp_dst=6000" not in rules(ring, n) for n in range(1, 5)), 5, "no rules")
        time.sleep(0.1)
        sent.end()
    # Its frames are best effort from then on.
    assert sent.lost == [] and 0 in sent.marks(sent.sent - 20)
    assert "group_id" not in ring.ofctl("dump-groups", 1)
    assert "rate=2000" not in ring.ofctl("dump-meters", 1)


def test_a_stream_that_runs_already_has_the_channel_as_soon_as_caches_follow(ring: Lab, held: Controller) -> None:
    with stream(ring) as sent:
        time.sleep(0.2)
        held.enforcer.install(channel(ring, "later", WAY))
        assert held.settled("later")[0] is ChannelState.PROVEN
        # Open vSwitch asks its rules again about what it has cached, at least every half a second.
        time.sleep(1)
        followed = sent.sent
        time.sleep(0.3)
        sent.end()
    assert sent.lost == [] and sent.marks() == {0, 40}
    assert sent.marks(followed) == {40}


@pytest.mark.parametrize("link", ["s1-s2", "s2-s3"], ids=["at the first switch", "further on"])
def test_a_link_fails_and_the_backup_way_carries_on(ring: Lab, held: Controller, link: str) -> None:
    name = f"over {link}"
    held.enforcer.install(channel(ring, name, WAY), way(ring, *AROUND.split()))
    assert held.settled(name)[0] is ChannelState.PROVEN
    seen = len(held.of(name))
    try:
        with stream(ring) as sent:
            time.sleep(0.3)
            run("ip", "-n", ring.inside, "link", "set", link, "down")
            state, reason = held.settled(name, after=seen)
            time.sleep(0.3)
            sent.end()
        assert state is ChannelState.PROVEN and reason.startswith("on its backup way: the link from s")
        # The aim is 50 ms, which the benchmark measures; here other tests may have the processor.
        assert len(sent.lost) < 250 and sent.longest_gap_s() < 0.25
        assert sent.marks() == {40}
        assert not held.enforcer.topology().links["->".join(link.split("-"))].up
    finally:
        run("ip", "-n", ring.inside, "link", "set", link, "up")
        until(lambda: held.links_up() == 8, 5, "the link again")


def test_without_a_backup_it_is_broken_until_the_link_is_back(ring: Lab, held: Controller) -> None:
    held.enforcer.install(channel(ring, "alone", WAY))
    assert held.settled("alone")[0] is ChannelState.PROVEN
    seen = len(held.of("alone"))
    run("ip", "-n", ring.inside, "link", "set", "s2-s3", "down")
    try:
        state, reason = held.settled("alone", after=seen)
        assert state is ChannelState.BROKEN and "the link from s2 to s3 is down" in reason
    finally:
        seen = len(held.of("alone"))
        run("ip", "-n", ring.inside, "link", "set", "s2-s3", "up")
    assert held.settled("alone", after=seen)[0] is ChannelState.PROVEN


def test_a_host_that_moves_is_at_its_new_port_alone(ring: Lab, held: Controller) -> None:
    before = held.enforcer.topology().host_of(ring.address(3))
    assert before is not None and before.at.switch == 2
    run("ip", "-n", ring.inside, "link", "set", "s2-h3", "down")
    try:
        until(lambda: held.enforcer.topology().host_of(ring.address(3)) is None, 5, "h3 forgotten")
    finally:
        run("ip", "-n", ring.inside, "link", "set", "s2-h3", "up")
    until(lambda: ring.ping(1, 3), 10, "h3 again")
    after = held.enforcer.topology().host_of(ring.address(3))
    assert after is not None and after.at == PortId(before.at.switch, before.at.number)


def test_broadcasts_reach_every_host_once(ring: Lab, held: Controller) -> None:
    receiver = ring.udp(3, 7000)
    receiver.close()
    counted = run("ip", "netns", "exec", ring.host(2), "cat", "/proc/net/dev")
    before = int(counted.split("eth0:")[1].split()[1])
    # Nobody has this address, so the question for it is flooded and stays unanswered.
    run("ip", "netns", "exec", ring.host(1), *ping("10.77.0.99", 3, 0.2), "-W", "1", check=False)
    counted = run("ip", "netns", "exec", ring.host(2), "cat", "/proc/net/dev")
    received = int(counted.split("eth0:")[1].split()[1]) - before
    assert 1 <= received <= 30
