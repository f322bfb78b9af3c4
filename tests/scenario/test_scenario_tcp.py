"""`tcp` of hosts: what contradicts itself is told with its place, and nothing that is stated is dropped without a word."""

from __future__ import annotations

import pytest

from timebound.scenario import ScenarioError, load
from timebound.scenario.model_tcp import SOMEBODYS

TEXT = """
name: windows
network:
  defaults: {{host: {{{default}}}}}
  nodes:
    cam: {{kind: host{cam}}}
    s: switch
    b: host
  links: [[cam, s], [b, s]]
flows:
  - {{name: video, from: cam, to: b, size: 1 kB, period: 1 s}}
stack: {{mqtt: {{broker: b}}}}
run: {{duration: 1 s}}
"""


def text(cam: str = "", default: str = "") -> str:
    return TEXT.format(cam=f", tcp: {cam}" if cam else "", default=f"tcp: {default}" if default else "")


CONTRADICTIONS = [
    ("{congestion-control: bbr, pacing: false}", "bbr paces what it sends", "tcp.pacing"),
    ("{unknown: true, initial-window: 10}", "what is unknown has nothing stated", "tcp.unknown"),
    ("{unknown: true, pacing: false}", "what is unknown has nothing stated", "tcp.unknown"),
    ("null", "tcp has no value", "tcp"),
    ("~", "tcp has no value", "tcp"),
]


@pytest.mark.parametrize(("stated", "said", "path"), CONTRADICTIONS)
def test_a_tcp_that_contradicts_itself_is_refused_where_it_is_written(stated: str, said: str, path: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        load(text(cam=stated))
    (problem,) = raised.value.problems
    assert (problem.message, problem.line, problem.path) == (said, 6, f"network.nodes.cam.{path}")
    assert problem.column > 20 and problem.hint


@pytest.mark.parametrize(("stated", "said", "path"), CONTRADICTIONS)
def test_a_default_that_contradicts_itself_is_told_once_for_all_hosts(stated: str, said: str, path: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        load(text(default=stated))
    (problem,) = raised.value.problems
    assert (problem.message, problem.line, problem.path) == (said, 4, f"network.defaults.host.{path}")


def test_what_does_not_contradict_itself_loads_as_before() -> None:
    def sender(stated: str) -> object:
        return load(text(cam=stated)).node("cam").sender

    assert sender("unknown") == sender("{unknown: true}") == SOMEBODYS
    assert sender("{unknown: false, pacing: false}") == sender("{}") == sender("")
    assert (
        sender("{congestion-control: bbr, pacing: true}")
        == load(text(default="{congestion-control: bbr, pacing: true}")).node("b").sender
    )
