"""Interfaces, virtual machines and two computers: what resolves, what is refused and where, and the way back to YAML."""

from __future__ import annotations

import pytest
from scenario_helpers import problems

from timebound.engine.pair import best
from timebound.scenario import load
from timebound.stacks import PlanError, build_plan
from timebound.stacks.parts import take_part

TEXT = """name: x
network:
  nodes:
    h1: host
    h2: host
    plc: PLC
    s1: switch
  links: [[h1, s1], [h2, s1], {between: [s1, plc], delay: 10 ms}]
  EXTRA
flows: [{name: a, from: plc, to: h1, topic: a, size: 100 B, period: 10 ms}, {name: b, from: h1, to: plc, topic: b, size: 100 B, period: 10 ms}]
stack: STACK
"""
DEVICE = '{kind: host, address: 10.0.0.9, interface: enp3s0, mac: "02:00:00:00:00:09"}'
MACHINE = "{kind: host, vm: {kernel: k, initrd: i, ready-port: 80}}"


def text(plc: str = DEVICE, extra: str = "", stack: str = "{udp: {}}") -> str:
    return TEXT.replace("PLC", plc).replace("EXTRA", extra or "# one machine").replace("STACK", stack)


@pytest.mark.parametrize(
    ("plc", "column", "message"),
    [
        ("{kind: host, interface: enp3s0}", 34, "the address of the device behind 'plc' is not known"),
        ("{kind: host, address: 10.0.0.9, interface: lo}", 53, "the loopback interface of 'plc' has no cable"),
        ("{kind: switch, interface: enp3s0}", 36, "interface belongs to hosts, and 'plc' is a switch"),
        ("{kind: host, vm: {memory: 64 MiB}}", 27, "'plc' has nothing to boot"),
        ("{kind: host, vm: {initrd: i, image: d}}", 36, "an initrd without a kernel"),
        ("{kind: host, vm: {kernel: 'a,b'}}", 36, "'a,b' cannot name a file here"),
        ("{kind: host, vm: {image: d}, run: [ls]}", 44, "'plc' is a virtual machine: run concerns what we start"),
        ('{kind: host, mac: "03:00:00:00:00:01"}', 28, "03:00:00:00:00:01 is a group's address"),
        ("{kind: host, interface: {name: enp3s0, use: card, addresses: [x]}}", 72, "'x' is no IPv4 address"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(plc: str, column: int, message: str) -> None:
    found = [(p.line, p.column, p.message) for p in problems(text(plc))]
    assert any(line == 6 and at == column and said.startswith(message) for line, at, said in found), found


@pytest.mark.parametrize("plc", [DEVICE, MACHINE])
def test_nothing_of_ours_is_started_in_a_node_that_is_not_ours(plc: str) -> None:
    plan = build_plan(load(text(plc)))
    assert [sender["node"] for sender in plan.udp] == ["h1"]
    assert [receiver["node"] for receiver in plan.udp_receivers] == ["h1"]
    assert [(m.data, m.source_port, m.header) for m in plan.markers if m.data == "a/direct"] == [
        ("a/direct", None, None)
    ]
    assert any("plc is a " in note and "port 40000" in note for note in plan.notes)


def test_the_messages_of_a_device_are_told_by_the_port_of_its_broker() -> None:
    one = text(stack="{mqtt: {broker: h2}}").replace(", {name: b, from: h1, to: plc", ", {name: b, from: h1, to: h2")
    plan = build_plan(load(one))
    assert all(client["node"] != "plc" for client in plan.clients)
    ports = {m.data: (m.source_port, m.destination_port) for m in plan.markers if m.data and "publish" in m.data}
    assert ports["a/publish"][0] is None and ports["a/publish"][1] is not None
    with pytest.raises(PlanError, match="cannot be told apart"):
        build_plan(load(text(stack="{mqtt: {broker: h2}}")))


CUT = 'machines: {a: {nodes: ["h[1-2]", s1], address: 192.0.2.1}, b: {nodes: [plc], address: 192.0.2.2}}'


def test_two_machines_share_the_nodes_and_come_back_from_yaml() -> None:
    loaded = load(text(extra=CUT))
    assert [machine.nodes for machine in loaded.machines] == [("h1", "h2", "s1"), ("plc",)]
    again = load(loaded.to_yaml())
    assert again.machines == loaded.machines
    assert (again.node("plc").interface, again.node("plc").mac) == (loaded.node("plc").interface, "02:00:00:00:00:09")
    assert load(load(text(MACHINE)).to_yaml()).node("plc").machine == load(text(MACHINE)).node("plc").machine
    plan = build_plan(loaded)
    take_part(plan, "b")
    assert plan.remote == {"h1", "h2", "s1"} and plan.udp == [] and plan.udp_receivers == []
    with pytest.raises(PlanError, match="no machine 'c'"):
        take_part(build_plan(loaded), "c")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (CUT.replace(", s1]", "]"), "no machine has 's1'"),
        (CUT.replace("[plc]", "[plc, h1]"), "'h1' belongs to machine 'a' already"),
        (CUT.replace("192.0.2.2", "192.0.2.1"), "both machines have this address"),
        (CUT.replace("192.0.2.2", "there"), "'there' is no IPv4 address"),
        (
            CUT.replace(", b: {nodes: [plc], address: 192.0.2.2}", ""),
            "1 machines: a network is cut in two or not at all",
        ),
    ],
)
def test_machines_that_make_no_sense_are_refused(extra: str, message: str) -> None:
    found = problems(text(extra=extra))
    assert any(p.line == 9 and p.message.startswith(message) for p in found), found


def test_a_cut_link_needs_a_delay() -> None:
    (problem,) = problems(text(extra=CUT).replace("{between: [s1, plc], delay: 10 ms}", "[s1, plc]"))
    assert problem.message == "the link s1-plc lies between two machines and has no delay" and problem.line == 8


def test_the_exchange_with_the_shortest_round_trip_gives_the_offset() -> None:
    # The other clock is 1000 ahead. The second exchange waited 300 on its way back, which shifts its offset by 150.
    samples = [(0, 1050, 1060, 110), (200, 1250, 1260, 610), (700, 1790, 1800, 950)]
    assert best(samples) == (1000, 100)
