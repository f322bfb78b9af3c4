"""Messages of any size from 0 B are predicted and simulated; sensors send 1 to 16."""

from __future__ import annotations

import pytest

from timebound.engine.predict import predict
from timebound.engine.progress import SILENT
from timebound.engine.simulate import simulate
from timebound.scenario import load
from timebound.stacks import build_plan

SCENARIO = """
name: sensors
network:
  defaults: {{link: {{rate: 10 Mbit/s, delay: 5 us}}}}
  nodes: {{a: host, b: host, c: host, s: switch}}
  links: [[a, s], [b, s], [c, s]]
flows:
  - {{name: big, from: b, to: c, size: 100 B, period: 20 ms}}
  - {{name: sensor, from: a, to: c, size: {size} B, period: 10 ms, deadline: 9 ms, priority: 5}}
stack: {stack}
run: {{duration: 1 s, warm-up: 0 s}}
"""


@pytest.mark.parametrize(("size", "wire"), [(0, 84), (1, 84), (16, 84), (18, 84), (19, 85), (23, 89), (24, 90)])
def test_a_small_datagram_is_a_frame_of_the_least_size(size: int, wire: int) -> None:
    prediction = predict(build_plan(load(SCENARIO.format(size=size, stack="udp"))))
    stream = next(stream for stream in prediction.plan.streams if stream.name == "sensor/direct")
    assert stream.frames_bytes == (wire,)
    bound = prediction.outcomes["sensor/direct", "c"].actual_ns
    assert bound is not None and simulate(prediction, SILENT).worst_ns["sensor/direct", "c"] <= bound


@pytest.mark.parametrize("size", [0, 1, 23])
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_small_message_is_carried_by_mqtt_and_never_later_than_its_bound(size: int, version: str) -> None:
    stack = f'{{mqtt: {{broker: b, version: "{version}"}}}}'
    prediction = predict(build_plan(load(SCENARIO.format(size=size, stack=stack))))
    found = simulate(prediction, SILENT)
    for key, worst in found.worst_ns.items():
        bound = prediction.outcomes[key].actual_ns
        assert bound is not None and worst <= bound, key
    larger = predict(build_plan(load(SCENARIO.format(size=size + 1, stack=stack))))
    frames = [
        next(stream for stream in each.plan.streams if stream.name == "sensor/publish").frames_bytes
        for each in (prediction, larger)
    ]
    assert frames[1][0] == frames[0][0] + 1


@pytest.mark.parametrize("size", [0, 23])
def test_small_messages_are_emulated(size: int) -> None:
    for stack in ("udp", "{mqtt: {broker: b}}"):
        plan = build_plan(load(SCENARIO.format(size=size, stack=stack)))
        assert plan.unemulated is None
        known = {short.payload_bytes for marker in plan.markers for short in marker.short}
        assert known == {size}
