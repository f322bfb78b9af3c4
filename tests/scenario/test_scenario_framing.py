"""`network: {framing: ...}`: how long frames are on the wire, and what is said of what cannot be."""

from __future__ import annotations

import pytest

from timebound.scenario import Scenario, load
from timebound.scenario.framing import Framing
from timebound.scenario.problems import ScenarioError

TEXT = """name: framed
network:
  defaults: {link: {rate: 100 Mbit/s}}
  nodes: {a: host, d: host, s: switch}
  links: [[a, s], [s, d]]
  framing: FRAMING
flows: [{name: f, from: a, to: d, size: 100 B, period: 10 ms, priority: 5, deadline: 5 ms}]
stack: udp
run: {duration: 1 s}
"""


def scenario(framing: str, text: str = TEXT) -> Scenario:
    return load(text.replace("FRAMING", framing))


@pytest.mark.parametrize(
    ("framing", "empty", "small", "sixty", "full"),
    [
        # Bytes on the wire of IP packets of 28, 46, 60 and as many bytes as a host sends without fragments.
        ("ethernet", 84, 84, 98, 1_538),
        ("vlan", 88, 88, 102, 1_542),
        ("double-vlan", 92, 92, 106, 1_546),
        ("prp", 90, 90, 104, 1_544),
        ("hsr", 90, 90, 104, 1_544),
        ("afdx", 84, 85, 99, 1_538),
        ("[vlan, prp]", 94, 94, 108, 1_548),
        ("[vlan, afdx]", 88, 89, 103, 1_542),
        ("{overhead: 4 B, least: 64 B}", 84, 88, 102, 1_542),
        ("{kinds: [vlan], overhead: 2 B}", 90, 90, 104, 1_544),
    ],
)
def test_each_kind_has_its_sizes(framing: str, empty: int, small: int, sixty: int, full: int) -> None:
    found = scenario(framing)
    wire = found.framing.wire
    assert (wire(28), wire(46), wire(60), wire(found.node("a").mtu)) == (empty, small, sixty, full)
    assert found.best_effort_frame_bytes == full == found.framing.full
    assert load(found.to_yaml()).framing == found.framing
    assert [found.framing.packet(wire(packet)) for packet in (60, 1_499)] == [60, 1_499]


@pytest.mark.parametrize("framing", ["ethernet", "vlan", "hsr", "afdx", "{overhead: 4 B, least: 66 B}"])
def test_what_meters_see_of_a_frame_is_the_frame_without_its_framing(framing: str) -> None:
    """Meters of switches and whoever paces what was reserved see frames as they leave the hosts."""
    found = scenario(framing).framing
    for packet in (20, 28, 46, 47, 50, 51, 600, 1_499):
        assert Framing().wire(packet) <= found.plain(found.wire(packet)) <= Framing().wire(packet) + 4
        if framing != "{overhead: 4 B, least: 66 B}":
            assert found.plain(found.wire(packet)) == Framing().wire(packet)


def test_without_the_key_everything_is_as_before() -> None:
    plain = load(TEXT.replace("  framing: FRAMING\n", ""))
    assert plain.framing == Framing() and "framing" not in plain.to_yaml()
    assert scenario("ethernet").declaration() == plain.declaration()


@pytest.mark.parametrize(
    ("framing", "place", "message", "hint"),
    [
        ("vlann", (6, 12), "'vlann' is not possible here", "did you mean 'vlan'?"),
        ("[vlan, vlan]", (6, 19), "vlan is named twice", "two tags are double-vlan"),
        ("VLAN", (6, 12), "'VLAN' is not possible here", "did you mean 'vlan'?"),
        ("{kinds: vlan}", (6, 20), "expected a list, found 'vlan'", "write a list: [vlan]"),
        ("{least: 63 B}", (6, 20), "the shortest frame cannot have 63 B with nothing added", "leave least out"),
        ("[vlan, prq]", (6, 19), "'prq' is not possible here", "did you mean 'prp'?"),
        ("{kinds: [vlan, prp, prp]}", (6, 32), "prp is named twice", "name each once"),
        ("4", (6, 12), "expected how frames are framed", "use one of: ethernet, vlan, double-vlan, prp, hsr, afdx"),
        ("{overhead: 300 B}", (6, 23), "an overhead of 300 B is more than frames bear", "state at most 256 B"),
        ("{overhead: 4 B, least: 69 B}", (6, 35), "the shortest frame cannot have 69 B", "state 64 B"),
        ("{overhead: 4}", (6, 23), "'4' has no unit", "write a size, for example 4 B"),
        ("{overhaed: 4 B}", (6, 13), "unknown key 'overhaed'", "did you mean 'overhead'?"),
    ],
)
def test_a_framing_that_cannot_be_is_refused_where_it_stands(
    framing: str, place: tuple[int, int], message: str, hint: str
) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(framing)
    [problem] = error.value.problems
    assert (problem.line, problem.column) == place, error.value.render()
    assert message in problem.message and hint in problem.hint, error.value.render()


def test_a_packet_that_leaves_no_room_for_the_sequence_number_is_refused() -> None:
    text = TEXT.replace("a: host", "a: {kind: host, mtu: 1500}")
    assert scenario("vlan", text).node("a").mtu == 1_500
    with pytest.raises(ScenarioError) as error:
        scenario("afdx", text)
    [problem] = error.value.problems
    assert (problem.line, problem.message) == (
        4,
        "frames of afdx carry IP packets of 1499 B at most, and 'a' has an mtu of 1500",
    )


def test_a_trace_counts_packets_so_framing_beside_it_is_refused() -> None:
    text = TEXT.replace("[a, s]", '{between: [a, s], trace: {opportunities: "1 2 3"}}')
    scenario("ethernet", text)
    with pytest.raises(ScenarioError) as error:
        scenario("vlan", text)
    [problem] = error.value.problems
    assert problem.line == 6 and "which counts IP packets" in problem.message
