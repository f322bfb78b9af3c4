"""What is learned of a network: links, hosts, names, and what is forgotten when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.control.openflow.description import describe
from timebound.control.openflow.forwarding import Forwarding
from timebound.control.openflow.learned import Learned, SeenPort
from timebound.control.openflow.settings import Defaults, PortSettings, Settings, SwitchSettings
from timebound.control.topology import PortId
from timebound.scenario import loader

MS = 1_000_000
MAC = "0a:00:00:00:00:{:02x}"
SITE = """
name: site
stack: {udp: {}}
run: {duration: 1 s}
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {pump: {kind: host, address: 10.0.0.1}, valve: host, north: switch, south: switch}
  links:
    - [pump, north]
    - {between: [north, south], rate: 10 Mbit/s, jitter: 1 ms}
    - [south, valve]
"""


def learned(settings: Settings | None = None) -> Learned:
    made = Learned(
        describe(settings or Settings()),
        lost_after_ns=3000 * MS,
        edge_after_ns=500 * MS,
        grace_ns=500 * MS,
        most_hosts=3,
    )
    for switch in (1, 2, 3):
        made.switch_connected(switch, [port(switch, number) for number in (1, 2, 3, 4)], 0)
    return made


def port(switch: int, number: int, *, up: bool = True) -> SeenPort:
    return SeenPort(PortId(switch, number), f"p{number}", f"0e:00:00:00:0{switch}:0{number}", up, 10_000_000_000)


def join(net: Learned, a: PortId, b: PortId, now: int = 0) -> None:
    assert net.link_heard(a, b, now)
    assert net.link_heard(b, a, now)


def test_links_are_found_in_both_directions_each_on_its_own() -> None:
    net = learned()
    assert net.link_heard(PortId(1, 1), PortId(2, 1), 0)
    assert sorted(net.topology().links) == ["0000000000000001->0000000000000002"]
    assert net.link_heard(PortId(2, 1), PortId(1, 1), 0)
    link = net.topology().links["0000000000000002->0000000000000001"]
    assert (link.out, link.into, link.up, link.rate_bps) == (PortId(2, 1), PortId(1, 1), True, 10_000_000_000)
    assert not net.link_heard(PortId(2, 1), PortId(1, 1), 100 * MS)


def test_a_link_that_is_silent_or_whose_port_is_down_is_down_until_heard_again() -> None:
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    assert not net.expire(2999 * MS)
    assert net.expire(3000 * MS)
    assert not any(link.up for link in net.topology().links.values())
    assert net.link_heard(PortId(1, 1), PortId(2, 1), 3100 * MS)
    assert [link.name for link in net.topology().links.values() if link.up] == ["0000000000000001->0000000000000002"]
    assert net.port_seen(port(2, 1, up=False), 3200 * MS)
    assert net.port_seen(port(2, 1), 3300 * MS)
    assert not any(link.up for link in net.topology().links.values())


def test_a_link_that_carries_frames_is_up_though_its_own_are_lost() -> None:
    """LLDP has no DSCP: overload of best effort took links away that channels went over."""
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    net.frames_came(PortId(2, 1), 2900 * MS)
    assert net.expire(3000 * MS), "the other direction was silent"
    assert [link.name for link in net.topology().links.values() if link.up] == ["0000000000000001->0000000000000002"]
    net.frames_came(PortId(1, 1), 3100 * MS)
    assert len([link for link in net.topology().links.values() if link.up]) == 1, (
        "only its own frames bring a link back"
    )
    assert net.expire(5900 * MS)


def test_a_cable_that_was_moved_leaves_no_link_behind() -> None:
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    assert net.link_heard(PortId(1, 1), PortId(3, 1), 10 * MS)
    assert net.link_heard(PortId(3, 1), PortId(1, 1), 10 * MS)
    ends = {(link.out, link.into) for link in net.topology().links.values()}
    assert ends == {(PortId(1, 1), PortId(3, 1)), (PortId(3, 1), PortId(1, 1))}


def test_a_switch_that_comes_back_in_time_was_never_gone() -> None:
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    net.switch_disconnected(2, 1000 * MS)
    assert not net.expire(1400 * MS)
    net.switch_connected(2, [port(2, number) for number in (1, 2, 3, 4)], 1450 * MS)
    assert not net.expire(2000 * MS)
    assert all(link.up for link in net.topology().links.values())
    net.switch_disconnected(2, 2000 * MS)
    assert net.expire(2500 * MS)
    assert not net.topology().switches["0000000000000002"].connected
    assert not any(link.up for link in net.topology().links.values())


def test_a_host_is_at_one_place_and_moves() -> None:
    net = learned()
    assert net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    assert not net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    # A port that has just come up may be a link's: the host is believed to be there only when that is settled.
    assert not net.host_seen(MAC.format(1), "10.0.0.1", PortId(2, 2), 100 * MS)
    assert net.host_seen(MAC.format(1), "10.0.0.1", PortId(2, 2), 600 * MS)
    assert [host.at for host in net.topology().hosts.values()] == [PortId(2, 2)]
    assert sorted(net.topology().links) == ["0000000000000002->10.0.0.1", "10.0.0.1->0000000000000002"]


def test_an_address_belongs_to_who_claimed_it_last() -> None:
    net = learned()
    net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    net.host_seen(MAC.format(2), "10.0.0.1", PortId(2, 2), 0)
    (host,) = net.topology().hosts.values()
    assert (host.mac, host.at) == (MAC.format(2), PortId(2, 2))
    assert net.mac_of("10.0.0.1") == MAC.format(2)


def test_what_was_learned_at_a_port_is_forgotten_when_it_goes_down_or_is_a_links() -> None:
    net = learned()
    net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    net.host_seen(MAC.format(2), "10.0.0.2", PortId(2, 1), 0)
    net.link_heard(PortId(3, 1), PortId(2, 1), 10 * MS)
    assert list(net.topology().hosts) == ["10.0.0.1"]
    assert not net.host_seen(MAC.format(2), "10.0.0.2", PortId(2, 1), 20 * MS)
    net.port_seen(port(1, 2, up=False), 30 * MS)
    assert not net.topology().hosts


def test_a_port_can_lead_to_a_few_hosts_and_not_to_thousands() -> None:
    net = learned()
    seen = [net.host_seen(MAC.format(number), None, PortId(1, 2), 0) for number in range(1, 6)]
    assert seen == [True, True, True, False, False]


def test_edge_ports_have_no_switch_behind_them_as_far_as_can_be_known() -> None:
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    assert net.edge_ports(100 * MS) == [PortId(1, 2)]
    inner = {PortId(1, 1), PortId(2, 1)}
    everything = {PortId(switch, number) for switch in (1, 2, 3) for number in (1, 2, 3, 4)}
    assert set(net.edge_ports(500 * MS)) == everything - inner
    net.expire(3000 * MS)
    assert not inner & set(net.edge_ports(9000 * MS))


def found(net: Learned, address: str | None = "10.0.0.1") -> None:
    """What a controller before has left of host 1 at the second port of switch 1, in a line of three."""
    for switch, out in ((1, 2), (2, 1), (3, 1)):
        net.host_found(MAC.format(1), address, PortId(switch, out))


def line(net: Learned) -> None:
    join(net, PortId(1, 1), PortId(2, 1))
    join(net, PortId(2, 3), PortId(3, 1))


def test_a_host_found_in_switches_gives_way_to_one_that_is_seen() -> None:
    net = learned()
    line(net)
    found(net)
    assert net.is_awaited(MAC.format(1)) and not net.topology().hosts
    assert not net.recover(100 * MS), "its port may yet be a link's"
    assert net.recover(600 * MS)
    assert net.topology().hosts["10.0.0.1"].at == PortId(1, 2)
    assert not net.recover(700 * MS)
    assert net.host_seen(MAC.format(1), "10.0.0.1", PortId(3, 2), 710 * MS)
    assert net.topology().hosts["10.0.0.1"].at == PortId(3, 2)


def test_a_host_is_recovered_where_no_switch_is_behind_and_not_before_that_is_known() -> None:
    """Switches that connected half a second apart had it at a port between them; it was forgotten with the link that was found there."""
    net = learned()
    found(net)
    assert not net.recover(900 * MS), "three ports, each of which may be its own"
    line(net)
    assert net.recover(900 * MS)
    assert net.topology().hosts["10.0.0.1"].at == PortId(1, 2)
    alone = learned()
    alone.host_found(MAC.format(1), "10.0.0.1", PortId(3, 1))
    assert alone.recover(900 * MS)
    assert alone.topology().hosts["10.0.0.1"].at == PortId(3, 1)
    line(alone)
    assert alone.is_awaited(MAC.format(1))
    found(alone)
    assert alone.recover(1000 * MS)
    assert alone.topology().hosts["10.0.0.1"].at == PortId(1, 2)


def test_at_last_a_host_is_recovered_at_one_of_its_ports() -> None:
    net = learned()
    found(net)
    assert net.recover(900 * MS, at_last=True)
    assert net.topology().hosts["10.0.0.1"].at == PortId(1, 2)
    net.forget_found()
    assert not net.is_awaited(MAC.format(1))


@pytest.mark.parametrize("first", ["rule", "frame"])
def test_a_host_whose_first_frame_says_no_address_keeps_the_one_it_had(first: str) -> None:
    """An IPv6 frame in the first half second of a controller took a host's address, and the channels at it were broken."""
    net = learned()
    line(net)
    if first == "rule":
        found(net)
        assert net.host_seen(MAC.format(1), None, PortId(1, 2), 0)
    else:
        assert net.host_seen(MAC.format(1), None, PortId(1, 2), 0)
        assert net.host_found(MAC.format(1), "10.0.0.1", PortId(1, 2))
    assert not net.recover(600 * MS)
    assert net.topology().hosts["10.0.0.1"].mac == MAC.format(1)


def test_an_address_found_in_a_switch_gives_way_to_who_claims_it_and_is_forgotten() -> None:
    net = learned()
    found(net)
    net.host_found(MAC.format(3), "10.0.0.3", PortId(1, 3))
    assert net.host_seen(MAC.format(2), "10.0.0.1", PortId(2, 2), 0)
    assert net.host_seen(MAC.format(1), None, PortId(1, 2), 0)
    assert net.mac_of("10.0.0.1") == MAC.format(2)
    net.forget_found()
    assert net.host_seen(MAC.format(3), None, PortId(1, 2), 0)
    assert net.mac_of("10.0.0.3") is None


def test_names_rates_and_delays_come_from_the_sites_description() -> None:
    scenario = loader.load(SITE)
    switches = (SwitchSettings(name="north", datapath=1), SwitchSettings(name="south", datapath=2))
    net = learned(Settings(switches=switches, nodes=scenario.nodes, links=scenario.links))
    join(net, PortId(1, 1), PortId(2, 1))
    net.host_seen(MAC.format(1), "10.0.0.1", PortId(1, 2), 0)
    topology = net.topology()
    assert topology.links["north->south"].rate_bps == 10_000_000
    assert topology.links["north->south"].delay_ns == (5_000, 1_005_000)
    assert topology.links["pump->north"].rate_bps == 100_000_000
    assert topology.switches["north"].delay_ns == (10_000, 20_000)
    assert topology.hosts["pump"].address == "10.0.0.1"


def test_settings_of_a_port_count_more_than_the_description_and_defaults_least() -> None:
    ports = {"p1": PortSettings(rate_bps=7_000_000, delay_ns=(1, 2))}
    defaults = Defaults(rate_bps=1_000_000, delay_ns=(5, 6))
    switches = (SwitchSettings(name="north", datapath=1, ports=ports),)
    net = learned(Settings(switches=switches, defaults=defaults))
    join(net, PortId(1, 1), PortId(2, 1))
    links = net.topology().links
    there, back = links["north->0000000000000002"], links["0000000000000002->north"]
    assert (there.rate_bps, there.delay_ns) == (7_000_000, (1, 2))
    assert (back.rate_bps, back.delay_ns) == (1_000_000, (5, 6))


def test_parallel_links_have_names_of_their_own() -> None:
    net = learned()
    join(net, PortId(1, 1), PortId(2, 1))
    join(net, PortId(1, 3), PortId(2, 4))
    names = sorted(name for name in net.topology().links if name.startswith("0000000000000001"))
    assert names == [
        "0000000000000001.p1->0000000000000002.p1",
        "0000000000000001.p3->0000000000000002.p4",
    ]


EVENTS = st.one_of(
    st.tuples(st.just("link"), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.just("host"), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.just("port"), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("switch"), st.integers(1, 3), st.integers(0, 1), st.just(0), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_the_topology_holds_together(events: list[tuple[str, int, int, int, int]]) -> None:
    net = learned()
    for step, (kind, a, b, c, d) in enumerate(events):
        now = step * 200 * MS
        if kind == "link":
            net.link_heard(PortId(a, b), PortId(c, d), now)
        elif kind == "host":
            net.host_seen(MAC.format(a), f"10.0.0.{d}", PortId(b, c), now)
        elif kind == "port":
            net.port_seen(port(a, b, up=bool(c)), now)
        elif b:
            net.switch_connected(a, [port(a, number) for number in (1, 2, 3, 4)], now)
        else:
            net.switch_disconnected(a, now)
        net.expire(now)
        topology = net.topology()
        names = {*topology.switches, *topology.hosts}
        assert len(names) == len(topology.switches) + len(topology.hosts)
        macs = [(host.mac, host.at) for host in topology.hosts.values()]
        assert len({mac for mac, _at in macs}) == len(set(macs))
        inner = {end for link in topology.links.values() if link.out and link.into for end in (link.out, link.into)}
        assert not inner & {host.at for host in topology.hosts.values()}
        assert not inner & set(net.edge_ports(now))
        for link in topology.links.values():
            assert {link.source, link.target} <= names
            assert not link.up or all(topology.ports[end].up for end in (link.out, link.into) if end)
        forwarding = Forwarding(topology)
        for target in (1, 2, 3):
            assert_no_loop(forwarding, target, {link.out: link.into for link in topology.links.values() if link.up})


def assert_no_loop(forwarding: Forwarding, target: int, over: dict[PortId | None, PortId | None]) -> None:
    ports = forwarding.out_ports(target)
    for switch in ports:
        passed = set()
        while switch != target:
            assert switch not in passed
            passed.add(switch)
            into = over[PortId(switch, ports[switch])]
            assert into is not None
            switch = into.switch
