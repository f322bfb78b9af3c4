"""Bounds where frames are really smaller than they are declared: those arrive earlier, and so what follows them varies by more."""

from __future__ import annotations

import random
from typing import Any

import pytest

from timebound.engine.assign import Task
from timebound.engine.core import Network
from timebound.engine.endtoend import end_to_end
from timebound.engine.predict import Outcome, Prediction, predict
from timebound.scenario import load
from timebound.scenario.emit import to_yaml
from timebound.scenario.problems import ScenarioError
from timebound.stacks import build_plan

SIMPLE = """
name: simple
network:
  best-effort: none
  defaults: {link: {rate: 10 Mbit/s, delay: 5 us}, switch: {delay: 0 us}}
  nodes: {a: HOST, b: host, c: host, s: switch}
  links: [[a, s], [b, s], [c, s]]
flows: [FLOW]
stack: {mqtt: {broker: b}}
"""
QOS1 = "{name: alpha, from: a, to: c, size: 100 B, period: 100 ms, qos: 1, priority: 2}"


def prediction(flow: str, host: str = "host") -> Prediction:
    return predict(build_plan(load(SIMPLE.replace("FLOW", flow).replace("HOST", host))))


def spread(outcome: Outcome) -> int:
    assert outcome.nominal_ns is not None and outcome.best_ns is not None
    return outcome.nominal_ns - outcome.best_ns


def test_an_acknowledgement_of_four_bytes_arrives_earlier_than_the_declared_one() -> None:
    """PUBACK: 6 bytes with a reason code, 96 on the wire, and 4 without (MQTT 5.0, section 3.4.2.1): 94 on two links of 800 ns a byte and 5 us."""
    found = prediction(QOS1)
    outcome = found.outcomes["alpha/publish/puback", "a"]
    assert found.streams["alpha/publish/puback"].frames_bytes == (96,)
    assert outcome.best_ns == outcome.whole_ns == 2 * (94 * 800 + 5_000)
    assert found.streams["alpha/publish/puback/ack"].jitter_ns == spread(outcome) + 40_000_000


def test_messages_of_one_size_on_connections_of_ours_are_exact() -> None:
    found = prediction(QOS1)
    size = found.streams["alpha/publish"].frames_bytes[0]
    outcome = found.outcomes["alpha/publish", "b"]
    assert outcome.best_ns == 2 * (size * 800 + 5_000)
    for stream in found.network.declaration["streams"]:
        smaller = stream.get("least_frame_bytes", 10_000) < min(stream["arrival"]["frames_bytes"])
        assert smaller == stream["name"].endswith("/puback")


def test_tcp_of_somebody_else_may_leave_out_timestamps() -> None:
    """12 bytes of each segment; one without payload is padded to the least frame of Ethernet."""
    found, ours = prediction(QOS1, "{kind: host, tcp: unknown}"), prediction(QOS1)
    size = ours.streams["alpha/publish"].frames_bytes[0]
    assert found.outcomes["alpha/publish", "b"].best_ns == 2 * ((size - 12) * 800 + 5_000)
    assert found.outcomes["alpha/publish/ack", "a"].best_ns == 2 * (84 * 800 + 5_000)
    assert found.outcomes["alpha/publish/puback", "a"].best_ns == 2 * (84 * 800 + 5_000)
    # The other connection has both ends at ours. The message there varies by those 12 bytes and by a ping that may be in the same segment.
    assert found.outcomes["alpha/deliver>c", "c"].best_ns == ours.outcomes["alpha/deliver>c", "c"].best_ns
    assert found.streams["alpha/deliver>c"].jitter_ns == ours.streams["alpha/deliver>c"].jitter_ns + 2 * (12 + 2) * 800


def test_what_is_passed_on_varies_by_what_the_least_message_is_earlier() -> None:
    least = prediction(QOS1.replace("100 B", "100 B, least-size: 20 B"))
    found = prediction(QOS1)
    assert least.outcomes["alpha/publish", "b"].actual_ns == found.outcomes["alpha/publish", "b"].actual_ns
    earlier = 2 * 80 * 800
    assert least.outcomes["alpha/publish", "b"].best_ns == (found.outcomes["alpha/publish", "b"].best_ns or 0) - earlier
    assert least.streams["alpha/deliver>c"].jitter_ns == found.streams["alpha/deliver>c"].jitter_ns + earlier


def test_the_least_size_is_a_key_of_flows() -> None:
    scenario = load(SIMPLE.replace("FLOW", QOS1.replace("100 B", "100 B, least-size: 0 B")).replace("HOST", "host"))
    assert scenario.flows[0].least_bytes == 0
    assert load(to_yaml(scenario)).flows == scenario.flows
    with pytest.raises(ScenarioError, match="the smallest message"):
        load(SIMPLE.replace("FLOW", QOS1.replace("100 B", "100 B, least-size: 101 B")).replace("HOST", "host"))


def test_a_larger_frame_than_declared_does_not_make_the_best_case_later() -> None:
    text = SIMPLE.replace("{mqtt: {broker: b}}", "udp").replace("HOST", "host")
    found = predict(build_plan(load(text.replace("FLOW", QOS1.replace("qos: 1, ", "")))))
    larger = found.observed({}, {"alpha/direct": 300})["alpha/direct", "c"]
    assert larger.best_ns == found.outcomes["alpha/direct", "c"].best_ns
    assert (larger.actual_ns or 0) > (found.outcomes["alpha/direct", "c"].actual_ns or 0)


def test_the_core_judges_an_assignment_by_the_same_least_frames() -> None:
    found = prediction(QOS1.replace("100 B", "100 B, least-size: 20 B, deadline: 1 s"), "{kind: host, tcp: unknown}")
    task = Task(found.plan, found)
    options = task.options(set(), "best")
    (told,) = task.network().assign(options)["before"]["latencies"]
    parts = [found.outcomes["alpha/publish", "b"].nominal_ns, found.outcomes["alpha/deliver>c", "c"].actual_ns]
    assert told["bound_ns"] == sum(part or 0 for part in parts) + options["requirements"][0]["extra_ns"]


RANDOM = """
name: random
network:
  best-effort: none
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 1..2 us}}
  nodes: {a: host, b: host, c: host, d: {kind: host, tcp: unknown}, e: host, s: switch, s2: switch}
  links: [[a, s], [b, s], [s, s2], [c, s2], [d, s2], [e, s]]
flows: [FLOWS]
stack: {mqtt: {broker: b}}
"""


def drawn(draw: random.Random) -> str:
    flows = []
    for number in range(4):
        source, receiver = draw.sample(["a", "c", "d", "e"], 2)
        size = draw.choice([24, 60, 200, 700, 1400, 3000])
        flows.append(
            f"{{name: f{number}, from: {source}, to: {receiver}, size: {size} B, least-size: {draw.choice([0, size // 2, size])} B, "
            f"period: {draw.choice([8, 16, 40])} ms, qos: {draw.randint(0, 2)}, priority: {draw.randint(0, 6)}}}"
        )
    return RANDOM.replace("FLOWS", ", ".join(flows))


def apart(stream: dict[str, Any], draw: random.Random) -> list[dict[str, Any]]:
    """A stream as two of twice its period: one sends what is declared, the other, a period later, frames of the sizes that they may have as well."""
    least = stream.get("least_frame_bytes")
    arrival = stream["arrival"]
    if least is None or arrival["kind"] != "periodic":
        return [stream]
    period = arrival["period_ns"]
    offset = draw.randrange(period)
    smaller = [draw.choice([least, draw.randint(least, size)]) for size in arrival["frames_bytes"]]
    return [
        {
            **{key: value for key, value in stream.items() if key != "least_frame_bytes"},
            "name": name,
            "arrival": {**arrival, "period_ns": 2 * period, "frames_bytes": frames},
            "release": {"kind": "periodic", "offset_ns": begin},
        }
        for name, begin, frames in (
            (stream["name"], offset, arrival["frames_bytes"]),
            (f"{stream['name']}, smaller", offset + period, smaller),
        )
    ]


@pytest.mark.parametrize("seed", range(4))
def test_no_smaller_frame_is_earlier_or_later_than_its_bounds(seed: int) -> None:
    draw = random.Random(seed)
    found = predict(build_plan(load(drawn(draw))))
    declaration = found.steady.declaration
    streams = [each for stream in declaration["streams"] for each in apart(stream, draw)]
    run = Network(found.plan, {**declaration, "streams": streams}).simulate(
        {"duration_ns": 2_000_000_000, "warmup_ns": 0, "seed": seed, "schedule": []}
    )
    held = 0
    for stream, result in zip(streams, run["streams"], strict=True):
        for receiver, leaf in zip(stream["destinations"], result["leaves"], strict=True):
            outcome = found.outcomes[stream["name"].removesuffix(", smaller"), receiver]
            if leaf["latency"] is None or outcome.actual_ns is None or outcome.best_ns is None:
                continue
            assert outcome.best_ns <= leaf["latency"]["min"] and leaf["latency"]["max"] <= outcome.actual_ns
            held += stream["name"].endswith(", smaller")
    assert held > 8


def test_what_somebody_else_writes_at_once_is_one_frame() -> None:
    """QoS 2: PUBREL, and PINGREQ, may leave with the next PUBLISH: 8 bytes more, and PUBREL arrives with all of them."""
    found, ours = (
        prediction(QOS1.replace("qos: 1", "qos: 2"), host) for host in ("{kind: host, tcp: unknown}", "host")
    )
    frames = {name: stream.frames_bytes for name, stream in found.streams.items()}
    size = ours.streams["alpha/publish"].frames_bytes[0]
    assert frames["alpha/publish"] == (size + 6 + 2,)
    assert frames["alpha/publish/pubrel"] == (96 + 2,)
    # What our own broker says it writes packet by packet.
    assert frames["alpha/publish/pubrec"] == frames["alpha/publish/pubcomp"] == (96,)
    together = found.outcomes["alpha/publish", "b"].actual_ns
    released = found.outcomes["alpha/publish/pubrel", "b"]
    assert released.actual_ns == together and together is not None
    assert released.nominal_ns == together + found.streams["alpha/publish/pubrel"].jitter_ns
    assert released.best_ns == 2 * (84 * 800 + 5_000)
    assert found.streams["alpha/deliver>c"].jitter_ns == spread(released) + 5_000_000
    # By itself it would be there earlier.
    assert (ours.outcomes["alpha/publish/pubrel", "b"].actual_ns or 0) < together
    task = Task(found.plan, found)
    options = task.options(set(), "best")
    told = task.network().assign(options)["before"]["latencies"][0]["bound_ns"]
    assert told == end_to_end(found, found.plan.scenario.flows[0], "c").bound_ns
