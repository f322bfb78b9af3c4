"""Switches with `engine: ovs` and their controller: what loads, what it becomes, and what is refused at its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_helpers import problems

from timebound.engine import doctor, programs
from timebound.engine.emulate import emulation_plan
from timebound.engine.folder import FolderError
from timebound.engine.predict import predict
from timebound.scenario import Scenario, load
from timebound.stacks import build_plan, switches

TEXT = """name: test
network:
  defaults: {{link: {{rate: 10 Mbit/s}}, switch: {{{defaults}}}}}
  nodes: {{h1: host, h2: host, s1: {{kind: switch{s1}}}, s2: switch}}
  links: [[h1, s1], [s1, s2], [s2, h2]]
  {more}
flows: [{{name: alpha, from: h1, to: h2, size: 100 B, period: 10 ms, jitter: 1 ms, deadline: 10 ms, priority: 5}}]
stack: {{udp: {{}}}}
"""
CONTROLLER = 'controller: {program: [python3, "{run}/control.py", 3], ready-file: ready, port: 6633, env: {A: 1}}'


def text(s1: str = "", more: str = "", defaults: str = "delay: 10..20 us") -> str:
    return TEXT.format(s1=s1, more=more, defaults=defaults)


def scenario(s1: str = "", more: str = "", defaults: str = "delay: 10..20 us") -> Scenario:
    return load(text(s1, more, defaults))


def test_a_real_switch_is_a_switch_with_a_range_and_nothing_else_to_the_bounds() -> None:
    real = scenario(", engine: ovs, delay: 50 us..2 ms")
    ours = scenario(", delay: 50 us..2 ms")
    assert [node.name for node in real.real_switches] == ["s1"] and ours.real_switches == ()
    assert real.declaration() == ours.declaration()
    assert predict(build_plan(real)).network.declaration == predict(build_plan(ours)).network.declaration


def test_the_engine_of_all_switches_can_be_a_default_and_an_unstated_delay_is_a_range() -> None:
    found = scenario(", engine: fabric", defaults="engine: ovs")
    assert [(node.name, node.engine) for node in found.nodes if node.kind == "switch"] == [
        ("s1", "fabric"),
        ("s2", "ovs"),
    ]
    assert (found.node("s2").switching_min_ns, found.node("s2").switching_max_ns) == (0, 2_000_000)
    assert found.node("s1").switching_max_ns == 0


def test_it_survives_being_resolved() -> None:
    found = scenario(", engine: ovs", CONTROLLER)
    assert load(found.to_yaml()) == found


def test_the_plan_names_the_switches_and_runs_the_controller_where_they_are(tmp_path: Path) -> None:
    found = scenario(", engine: ovs", CONTROLLER)
    plan = emulation_plan(predict(build_plan(found)), tmp_path, record_ingress=False, rootless=False)
    assert plan["switches"] == {"nodes": ["s1"], "controller": "tcp:127.0.0.1:6633"}
    (program,) = plan["programs"]
    assert program["node"] == ".switches" and program["essential"]
    assert program["argv"] == ["python3", f"{tmp_path}/control.py", "3"]
    assert (program["env"], program["ready"]) == ({"A": "1"}, {"timeout_ms": 30_000, "file": "ready"})
    alone = emulation_plan(predict(build_plan(scenario())), tmp_path, record_ingress=False, rootless=False)
    assert alone["switches"] is None and alone["programs"] == []


def test_a_controller_is_ready_when_the_port_accepts_at_which_switches_look_for_it() -> None:
    found = switches.program(scenario(", engine: ovs", "controller: [python3, control.py]"))
    assert found is not None and found["ready"] == {"timeout_ms": 30_000, "tcp_port": 6653}


@pytest.mark.parametrize(
    ("broken", "place", "message"),
    [
        (
            text().replace("h1: host", "h1: {kind: host, engine: ovs}"),
            (4, 36),
            "engine belongs to switches, and 'h1' is a host",
        ),
        (
            text(", engine: ovs, delay: 5 us"),
            (4, 70),
            "no real switch always takes the same time, and 's1' is declared to",
        ),
        (
            text(", engine: ovs, replication: 1..2 us"),
            (4, 76),
            "what 's1' takes to copy is part of its delay: it is real",
        ),
        (text(more=CONTROLLER), (6, 15), "there is a controller and no switch that it could control"),
        (
            text(", engine: ovs", "controller: {program: [x], ready-port: 1, ready-file: a}"),
            (6, 15),
            "two conditions for being ready",
        ),
        (text(", engine: ovs", "controller: x -v"), (6, 15), "a controller is a list of words"),
        (
            text(", engine: ovs").replace("s1", "much-too-long-for-a-bridge"),
            (4, 82),
            "'much-too-long-for-a-bridge' cannot be the name of a bridge of Open vSwitch",
        ),
        (
            text(", engine: ovs") + "run: {data-plane: {back-end: tap}}\n",
            (9, 30),
            "TAP devices carry hosts only, and 's1' is a real switch",
        ),
        (
            text(
                ", engine: ovs",
                "machines: {a: {nodes: [h1, s1], address: 192.0.2.1}, b: {nodes: [s2, h2], address: 192.0.2.2}}",
            ).replace("rate: 10 Mbit/s", "rate: 10 Mbit/s, delay: 1 ms"),
            (6, 13),
            "'s1' is a real switch, and the network is emulated by two machines",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(broken: str, place: tuple[int, int], message: str) -> None:
    found = [(problem.line, problem.column, problem.message) for problem in problems(broken)]
    assert found == [(*place, message)]
    assert all(problem.hint for problem in problems(broken))


def test_without_open_vswitch_nothing_starts_and_the_hint_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "SERVERS", str(tmp_path))
    monkeypatch.setattr(doctor, "SERVERS", str(tmp_path))
    programs.resolve(build_plan(scenario()))
    with pytest.raises(FolderError) as caught:
        programs.resolve(build_plan(scenario(", engine: ovs")))
    assert caught.value.code == 3
    assert ":4:" in str(caught.value) and "ovs-vswitchd" in str(caught.value)
    assert "sudo apt-get install openvswitch-switch" in caught.value.hint
    check = doctor.real_switches()
    assert not check.ok and not check.needed and "openvswitch-switch" in check.text
