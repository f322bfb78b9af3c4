"""Reasons are in the words of the scenario."""

from __future__ import annotations

import json

import pytest

from timebound.engine.methods import work_out
from timebound.engine.predict import predict
from timebound.engine.runs import figures_only, plan_of
from timebound.scenario import load
from timebound.scenario.builtin import find
from timebound.stacks import build_plan

TEXT = """
name: words
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}}
  nodes: {a: host, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows:
  - {name: alpha, from: a, to: c, size: 100 B, period: 10 ms, qos: 1, priority: 2}
  - {name: bulk, from: a, to: c, size: 100 B, period: 10 ms, priority: 5, pattern: poisson}
background: [{name: noise, from: a, to: c, kind: tcp, priority: 1}]
stack: {mqtt: {broker: {node: b}}}
"""


def test_why_there_is_no_bound_names_flows_and_their_ends() -> None:
    found = predict(build_plan(load(TEXT)))
    reason = found.outcomes["bulk/publish", "b"].reason
    assert reason == "flow bulk (messages from a to b) has no declared arrival and crosses port a->s with class 5"
    assert found.outcomes["alpha/publish", "b"].reason == reason
    assert work_out(found, "trajectory").outcomes["alpha/publish", "b"].reason
    answers = found.outcomes["alpha/deliver>c/puback/ack", "c"].reason
    assert answers is not None and "bulk" in answers


@pytest.mark.parametrize("name", ["hello", "segments", "mqtt-scalability"])
def test_no_reason_has_the_name_of_a_stream(name: str) -> None:
    scenario = load(find(name))
    names = [stream.name for stream in plan_of(scenario).streams if "/" in stream.name]
    summary = figures_only(scenario, {"predict"})
    flows = [segment["reason"] for flow in summary["flows"] for segment in flow["segments"]]
    said = json.dumps([*flows, [port["bound_reason"] for port in summary["ports"]]])
    assert 'stream "' not in said and not any(name in said for name in names)
