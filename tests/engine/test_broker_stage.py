"""The broker as a stage: its response, what follows through it, and one figure from publisher to subscriber."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound import _core
from timebound.engine import settling
from timebound.engine.endtoend import EndToEnd, end_to_end
from timebound.engine.predict import Prediction, predict
from timebound.engine.runs import figures_only
from timebound.scenario import load
from timebound.scenario.model import Scenario
from timebound.stacks import build_plan

TEXT = """
name: stage
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, d: host, s: switch}
  links: [[a, s], [b, s], [c, s], [d, s]]
flows:
  - {name: alpha, from: a, to: [c, d], size: 100 B, period: 10 ms, jitter: 1 ms, deadline: 10 ms, qos: QOS WAY}
  - {name: beta, from: c, to: a, size: 200 B, period: 20 ms, jitter: 0 ms, qos: QOS}
stack: {mqtt: {broker: [{node: b, program: mosquitto SERVICE}, {node: d, program: mosquitto SERVICE}]}}
run: {duration: 1 s, warm-up: 0 s, simulate: {duration: 1 s, search: 20}}
"""
SERVICE = "{latency: 200 us, per-message: 30 us, per-copy: 10 us, per-acknowledgement: 5 us}"


def scenario(service: str | None = SERVICE, qos: int = 1, way: str = "broker: b") -> Scenario:
    stated = "" if service is None else f", service: {service}"
    text = TEXT.replace("SERVICE", stated).replace("WAY", f", {way}").replace("QOS}", f"{qos}, broker: b}}")
    return load(text.replace("QOS", str(qos)))


def prediction(service: str | None = SERVICE, qos: int = 1, way: str = "broker: b") -> Prediction:
    return predict(build_plan(scenario(service, qos, way)))


def whole(found: Prediction, receiver: str = "c", flow: int = 0) -> EndToEnd:
    return end_to_end(found, found.plan.scenario.flows[flow], receiver)


def test_the_figure_is_the_sum_of_segment_broker_and_segment_from_the_nominal_release() -> None:
    found = prediction()
    publish, deliver = found.outcomes["alpha/publish", "b"], found.outcomes["alpha/deliver>c", "c"]
    response = found.servers.responses["b"].span_ns
    assert publish.nominal_ns is not None and publish.actual_ns is not None
    assert deliver.actual_ns is not None and response is not None
    assert publish.nominal_ns == publish.actual_ns + 1_000_000
    assert [part.stage.kind for part in whole(found).parts] == ["network", "broker", "network"]
    assert whole(found).bound_ns == publish.nominal_ns + response + deliver.actual_ns


def test_the_response_is_that_of_all_packets_that_can_meet_at_the_broker() -> None:
    # QoS 1, no packet twice within its jitter: alpha 30 + 2 * 10, beta 30 + 10, PUBACKs of c, d and a 5 each.
    found = prediction()
    assert found.servers.responses["b"].span_ns == 200_000 + 50_000 + 40_000 + 3 * 5_000
    load_of_b = found.servers.responses["b"].utilisation
    assert load_of_b == pytest.approx((50 + 2 * 5) / 10_000 + (40 + 5) / 20_000)


def test_bytes_of_the_packet_and_of_every_copy_are_work_rounded_upwards() -> None:
    plan = build_plan(scenario("{per-byte: 0.5 ns}", 0))
    message = next(client for client in plan.clients if client["name"] == "alpha/publish")
    assert message["role"]["payload_bytes"] == 100
    # Fixed header 2, topic 2 + 5, no properties 1, payload 100: 110 bytes.
    assert plan.packets["alpha/publish@b"].work_ns == 55 + 110


def test_what_a_broker_sends_follows_through_it() -> None:
    found = prediction()
    arrival = found.outcomes["alpha/publish", "b"]
    response = found.servers.responses["b"].span_ns
    assert arrival.nominal_ns is not None and arrival.best_ns is not None and response is not None
    jitter = arrival.nominal_ns - arrival.best_ns + response
    assert found.streams["alpha/deliver>c"].jitter_ns == jitter
    assert found.streams["alpha/publish/puback"].jitter_ns == jitter


def test_of_quality_of_service_2_a_broker_forwards_when_the_release_comes() -> None:
    found = prediction(qos=2)
    follows = found.streams["alpha/deliver>c"].follows
    assert follows is not None and follows.stream == "alpha/publish/pubrel"
    kinds = [(part.stage.kind, part.stage.name) for part in whole(found).parts]
    assert kinds == [("network", "publish"), ("handshake", "b"), ("broker", "b"), ("network", "deliver")]
    handshake = whole(found).parts[1].bound_ns
    there, back = found.outcomes["alpha/publish/pubrec", "a"], found.outcomes["alpha/publish/pubrel", "b"]
    response = found.servers.responses["b"].span_ns
    assert there.actual_ns is not None and back.actual_ns is not None and response is not None
    assert handshake == response + there.actual_ns + 1_000_000 + back.actual_ns
    assert "clients answer within 1 ms" in whole(found).statement


def test_several_brokers_are_stages_one_after_another() -> None:
    found = prediction(way="via: [b, d]")
    # d is the last broker and a receiver: what it gets crosses no network behind the broker.
    assert [part.stage.kind for part in whole(found, "c").parts] == [
        "network", "broker", "hold", "network", "broker", "network"
    ]  # fmt: skip
    assert [part.stage.kind for part in whole(found, "d").parts] == ["network", "broker", "hold", "network", "broker"]
    publish = found.outcomes["alpha/publish", "b"].nominal_ns
    bridge = found.outcomes["alpha/bridge>d", "d"].actual_ns
    b, d = (found.servers.responses[name].span_ns for name in "bd")
    assert publish is not None and bridge is not None and b is not None and d is not None
    assert whole(found, "d").bound_ns == publish + b + 50_000_000 + bridge + d
    # The publisher's message is one copy at b, two at d.
    assert found.plan.packets["alpha/publish@b"].work_ns == 40_000
    assert found.plan.packets["alpha/bridge>d@d"].work_ns == 50_000


def test_without_a_service_time_the_figure_says_what_it_leaves_out() -> None:
    found = prediction(None)
    figure = whole(found)
    publish, deliver = found.outcomes["alpha/publish", "b"], found.outcomes["alpha/deliver>c", "c"]
    assert publish.nominal_ns is not None and deliver.actual_ns is not None
    assert figure.covers == "network" and "without the own time of broker b" in figure.statement
    assert figure.bound_ns == publish.nominal_ns + deliver.actual_ns
    assert not figure.parts[1].known


def test_a_broker_without_enough_time_has_no_finite_response_and_takes_all_flows_with_it() -> None:
    found = prediction("{per-message: 9 ms}")
    reason = whole(found).reason
    assert whole(found).bound_ns is None and reason is not None
    assert "broker b needs 1.35 s of work in every second" in reason
    assert whole(found, "a", 1).bound_ns is None
    summary = figures_only(found.plan.scenario, {"predict"})
    assert {flow["verdict"] for flow in summary["flows"]} == {"unbounded"}
    assert summary["flows"][0]["end_to_end_us"]["reason"] == reason


def test_a_flow_without_least_distance_leaves_nobody_at_its_broker_a_bound() -> None:
    text = TEXT.replace("SERVICE", f", service: {SERVICE}").replace("WAY", ", pattern: poisson").replace("QOS", "0")
    # On the network beta is above alpha; in the broker it stands in line behind it.
    found = predict(build_plan(load(text.replace("name: beta,", "name: beta, priority: 7,"))))
    reason = whole(found, "a", 1).reason
    assert reason is not None and reason.startswith(
        "broker b is reached by flow alpha (messages from a to b), which has no bound"
    )


def test_a_deadline_is_compared_with_the_whole_figure() -> None:
    met = figures_only(scenario(), {"predict", "simulate"})["flows"][0]
    assert met["verdict"] == "met" and met["end_to_end_us"]["bound"] < 10_000
    slow = figures_only(scenario("{latency: 9 ms}"), {"predict", "simulate"})["flows"][0]
    assert slow["bound_us"]["bound"] < 10_000 < slow["end_to_end_us"]["bound"]
    assert slow["verdict"] == "missed"
    for flow in (met, slow):
        assert flow["simulated_max_us"] < (whole := flow["end_to_end_us"])["from_actual"]["simulated"]
        assert whole["from_actual"]["simulated"] <= whole["from_actual"]["bound"]
        assert whole["from_actual"]["bound"] == pytest.approx(whole["bound"] - flow["jitter_us"], abs=1e-6)
        parts = [part["bound"] for part in flow["end_to_end_us"]["parts"]]
        assert flow["end_to_end_us"]["bound"] == pytest.approx(sum(parts), abs=1e-6)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("broker", ["a", "c"])
def test_clients_on_the_brokers_own_host_are_part_of_the_figure(qos: int, broker: str) -> None:
    text = TEXT.replace("SERVICE", f", service: {SERVICE}").replace("WAY", "").replace("QOS", str(qos))
    found = predict(build_plan(load(text.replace("node: b", f"node: {broker}"))))
    figure = whole(found, "c")
    assert figure.bound_ns is not None and figure.covers == "declared"
    packets = [packet for packet in found.plan.packets.values() if packet.stream is None]
    # PUBLISH and PUBREL of a publisher, PUBACK or PUBREC and PUBCOMP of a receiver.
    assert len(packets) >= (1 if broker == "a" or qos else 0)
    response = found.servers.responses[broker].span_ns
    assert response is not None and figure.bound_ns >= response + 1_000_000


def test_more_work_and_more_jitter_never_shorten_a_figure() -> None:
    spans = []
    for step in range(0, 400, 50):
        figure = whole(prediction(f"{{per-message: {step} us, per-acknowledgement: {step // 2} us}}"))
        assert figure.bound_ns is not None
        spans.append(figure.bound_ns)
    assert spans == sorted(spans) and spans[0] < spans[-1]


def test_a_response_that_grows_for_ever_ends_at_the_limit_of_rounds_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "MOST_ROUNDS", 1)
    found = prediction(qos=2)
    assert found.rounds < 40
    assert any("did not settle" in (outcome.reason or "") for outcome in found.outcomes.values())
    # What settles within the rounds keeps its bound, and none of it is above what it is without the limit.
    monkeypatch.undo()
    free = prediction(qos=2)
    for key, outcome in found.outcomes.items():
        if outcome.actual_ns is not None:
            assert free.outcomes[key].actual_ns is not None


def test_hundreds_of_flows_take_as_many_analyses_as_a_few() -> None:
    def rounds(count: int) -> int:
        text = TEXT.replace("SERVICE", ", service: {latency: 50 us, per-message: 2 us}").replace("WAY", "")
        text = text.replace("QOS", "1").replace("period: 10 ms", f"period: 100 ms, count: {count}")
        return predict(build_plan(load(text))).rounds

    assert rounds(200) <= rounds(2) + 12


def test_the_bound_of_a_message_is_that_of_its_last_frame() -> None:
    text = """
name: large
network: {defaults: {link: {rate: 100 Mbit/s, delay: 5 us}}, nodes: {a: host, b: host}, links: [[a, b]]}
flows: [{name: alpha, from: a, to: b, size: SIZE B, period: 100 ms, qos: 0}]
stack: {mqtt: {broker: b}}
"""
    for size in (1000, 1439, 1440, 4000, 14_000):
        found = predict(build_plan(load(text.replace("SIZE", str(size)))))
        frames = found.streams["alpha/publish"].frames_bytes
        # Fixed header 2 or 3, topic 2 + 5, property length 1; 1448 bytes fit in a segment.
        message = size + (10 if size + 8 < 128 else 11)
        assert len(frames) == -(-message // 1448)
        others = found.streams["alpha/publish/keep-alive-there"].frames_bytes
        bound = found.outcomes["alpha/publish", "b"].actual_ns
        # One best-effort frame, all of the message, the keep-alive's two frames of the same class, 5 us.
        assert bound == sum(80 * bytes_ for bytes_ in (1538, *frames, *others)) + 5_000


@given(jobs=st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**63), st.integers(0, 2**63)), max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_jobs_have_an_answer(jobs: list[tuple[int, int, int]]) -> None:
    names = ("period_ns", "jitter_ns", "work_ns")
    answer: dict[str, Any] = json.loads(_core.server(json.dumps([dict(zip(names, job, strict=True)) for job in jobs])))
    assert answer["kind"] in ("response", "overloaded", "too-long")
    if answer["kind"] == "response":
        assert answer["response_ns"] >= max((work for _, _, work in jobs), default=0)
