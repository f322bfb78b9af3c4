"""Groups, rendezvous points and trees, held against their definitions on random networks."""

from __future__ import annotations

import ipaddress
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.control.topology import Host, Link, PortId, Switch, Topology
from timebound.control.trees import GROUPS, delay_ns, group_of, tree


def network(
    edges: list[tuple[int, int, int]], hosts: dict[str, int], switches: int, *, gone: frozenset[int] = frozenset()
) -> Topology:
    """Switches s0, s1, ... with edges (a, b, delay in us), and hosts at switches."""
    links: dict[str, Link] = {}

    def join(a: str, b: str, delay_us: int) -> None:
        for source, target in ((a, b), (b, a)):
            name = f"{source}->{target}"
            links[name] = Link(
                name=name,
                source=source,
                target=target,
                out=None,
                into=None,
                rate_bps=100_000_000,
                delay_ns=(delay_us * 1000, delay_us * 1000),
            )

    for a, b, delay in edges:
        if a != b:
            join(f"s{a}", f"s{b}", delay)
    for name, at in hosts.items():
        join(name, f"s{at}", 1)
    return Topology(
        switches={
            f"s{n}": Switch(datapath=n, name=f"s{n}", connected=n not in gone, delay_ns=(10_000, 20_000))
            for n in range(switches)
        },
        ports={},
        links=links,
        hosts={
            name: Host(name=name, mac=f"02:00:00:00:00:{n:02x}", address=f"10.0.0.{n + 1}", at=PortId(at, n + 1))
            for n, (name, at) in enumerate(hosts.items())
        },
    )


def test_the_network_of_the_paper() -> None:
    """RT-MQTT Fig. 15: from A over s1-s4 to B (s2), and over s4-s5 to C (s3); s4 or s5 lies in the middle of both."""
    edges = [(1, 4, 5), (4, 2, 5), (4, 5, 5), (5, 3, 5), (1, 6, 5), (6, 7, 5), (7, 8, 5), (8, 3, 5)]
    net = network(edges, {"h1": 1, "h5": 1, "h10": 2, "h15": 3}, 9)
    found = tree(net, "h1", ["h10", "h15"])
    assert found.rendezvous == "s4"
    assert found.ways["h10"] == ("h1->s1", "s1->s4", "s4->s2", "s2->h10")
    assert found.ways["h15"] == ("h1->s1", "s1->s4", "s4->s5", "s5->s3", "s3->h15")
    assert found.outputs(net)["s4"] == ("s4->s2", "s4->s5")


def test_a_copy_branches_off_before_it_would_come_back() -> None:
    # s2 is nearest to most; h9 sits beside the source.
    net = network([(0, 1, 50), (1, 2, 50)], {"src": 0, "h9": 0, "a": 2, "b": 2, "c": 2}, 3)
    found = tree(net, "src", ["h9", "a", "b", "c"])
    assert found.rendezvous == "s2"
    assert found.ways["h9"] == ("src->s0", "s0->h9")


def test_a_tree_moves_only_for_a_gain() -> None:
    net = network([(0, 1, 100), (0, 2, 105), (1, 2, 10)], {"src": 0, "a": 1, "b": 2}, 3)
    first = tree(net, "src", ["a"])
    assert first.rendezvous == "s1"
    assert tree(net, "src", ["a", "b"], first).rendezvous == "s1"
    assert tree(net, "src", ["b"]).rendezvous == "s2"
    far = network([(0, 1, 100), (0, 2, 105), (1, 2, 500)], {"src": 0, "a": 1, "b": 2}, 3)
    assert tree(far, "src", ["b"], first).rendezvous == "s2"


def test_receivers_without_a_way_are_named() -> None:
    net = network([(0, 1, 5)], {"src": 0, "a": 1, "b": 2}, 3)
    found = tree(net, "src", ["a", "b", "nobody"])
    assert (found.unreachable, list(found.ways)) == (("b", "nobody"), ["a"])
    assert tree(net, "src", []).links == ()
    with pytest.raises(KeyError):
        tree(net, "s0", ["a"])


def test_a_switch_that_nobody_controls_carries_nothing() -> None:
    edges = [(0, 1, 1), (1, 3, 1), (0, 2, 50), (2, 3, 50)]
    hosts = {"src": 0, "a": 3}
    assert tree(network(edges, hosts, 4), "src", ["a"]).ways["a"][1] == "s0->s1"
    assert tree(network(edges, hosts, 4, gone=frozenset({1})), "src", ["a"]).ways["a"][1] == "s0->s2"


@given(st.text(max_size=30), st.integers(0, 7))
def test_groups_are_multicast_and_differ(topic: str, priority: int) -> None:
    first = group_of(topic, priority)
    assert ipaddress.IPv4Address(first) in GROUPS
    assert group_of(topic, priority) == first
    second = group_of(topic, priority, {first})
    assert second != first and ipaddress.IPv4Address(second) in GROUPS


def test_a_class_is_checked() -> None:
    with pytest.raises(ValueError, match="no class"):
        group_of("a", 8)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    switches = draw(st.integers(1, 7))
    possible = list(itertools.combinations(range(switches), 2))
    chosen = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    edges = [(a, b, draw(st.integers(1, 50))) for a, b in chosen]
    count = draw(st.integers(1, 6))
    hosts = {f"h{n}": draw(st.integers(0, switches - 1)) for n in range(count)}
    gone = draw(st.frozensets(st.integers(0, switches - 1), max_size=1))
    return network(edges, hosts, switches, gone=gone)


@settings(max_examples=200)
@given(networks(), st.randoms(use_true_random=False))
def test_trees_reach_whoever_can_be_reached_once(net: Topology, random: object) -> None:
    names = sorted(net.hosts)
    source, receivers = names[0], names[1:]
    found = tree(net, source, receivers)
    assert set(found.ways) | set(found.unreachable) == set(receivers)
    into: dict[str, str] = {}
    for receiver, way in found.ways.items():
        node = source
        for name in way:
            link = net.links[name]
            assert link.source == node and into.setdefault(link.target, name) == name
            node = link.target
            assert node == receiver or net.switches[node].connected
        assert node == receiver
        assert found.delays_ns[receiver] == sum(delay_ns(net, net.links[name]) for name in way)
    assert sorted(into.values()) == sorted(found.links)
    sent = [name for names in found.outputs(net).values() for name in names]
    assert sorted(sent) == sorted(found.links)
    # Whoever is told unreachable shares no component with the source.
    for receiver in found.unreachable:
        assert receiver not in _flood(net, source)


def _flood(net: Topology, start: str) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node != start and (node in net.hosts or not net.switches[node].connected):
            continue
        for link in net.links.values():
            fine = link.target in net.hosts or net.switches[link.target].connected
            if link.source == node and link.target not in seen and fine:
                seen.add(link.target)
                waiting.append(link.target)
    return seen
