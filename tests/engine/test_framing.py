"""What frames bear counts in bounds, simulation, admission and the plan of an emulation alike."""

from __future__ import annotations

import pytest

from timebound.engine.admit import admit
from timebound.engine.predict import predict
from timebound.scenario import load
from timebound.stacks import build_plan

TEXT = """
name: framed
network:
  defaults: {link: {rate: 100 Mbit/s}}
  nodes: {a: host, b: host, d: host, s: switch}
  links: [[a, s], [b, s], [s, d]]
flows: [{name: f, from: a, to: d, size: SIZE B, period: 10 ms, priority: 5, deadline: 5 ms}]
stack: udp
run: {duration: 1 s, simulate: {search: 60}}
"""
MIXED = """
name: mixed
network:
  defaults: {link: {rate: 2 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {"h[1-5]": host, s1: switch, s2: switch}
  links: [["h[1-3]", s1], ["h[4-5]", s2], [s1, s2]]
flows:
  - {name: small, from: h1, to: h4, size: 1 B, period: 5 ms, jitter: 2 ms, deadline: 1 s, priority: 6, count: 3}
  - {name: large, from: h2, to: h4, size: 3000 B, period: 80 ms, jitter: 200 ms, deadline: 1 s, priority: 4}
  - {name: other, from: h3, to: h5, size: 80 B, period: 7 ms, deadline: 1 s, priority: 4, count: 2}
background: [{kind: udp, from: h3, to: h4, rate: 100 kbit/s, size: 300 B}]
stack: STACK
run: {duration: 1 s, simulate: {search: 150}}
"""
KINDS = ("ethernet", "vlan", "double-vlan", "prp", "hsr", "afdx")


@pytest.mark.parametrize(
    ("framing", "size", "frame", "undeclared"),
    [
        ("ethernet", 100, 166, 1_538),
        ("vlan", 100, 170, 1_542),
        ("double-vlan", 100, 174, 1_546),
        ("prp", 100, 172, 1_544),
        ("hsr", 8, 90, 1_544),
        ("vlan", 8, 88, 1_542),
        ("afdx", 100, 167, 1_538),
        ("afdx", 17, 84, 1_538),
        ("afdx", 18, 85, 1_538),
        ("{overhead: 4 B, least: 64 B}", 8, 84, 1_542),
    ],
)
def test_a_bound_is_of_frames_with_their_framing(framing: str, size: int, frame: int, undeclared: int) -> None:
    """Over two links of 100 Mbit/s (80 ns a byte): twice the frame, behind one undeclared frame at each port."""
    plan = build_plan(load(TEXT.replace("SIZE", str(size)), {"network.framing": framing}))
    [bound] = [outcome.actual_ns for outcome in predict(plan).outcomes.values()]
    assert plan.streams[0].frames_bytes == (frame,)
    assert bound == 2 * 80 * (frame + undeclared)


@pytest.mark.parametrize(
    ("framing", "size", "least"),
    [
        ("vlan", 8, 84),
        ("vlan", 18, 84),
        ("vlan", 19, 89),
        ("prp", 8, 84),
        ("afdx", 8, 84),
        ("{kinds: [vlan], least: 68 B}", 8, 88),
    ],
)
def test_the_earliest_frame_is_padded_with_its_framing(framing: str, size: int, least: int) -> None:
    """A sender may pad a tagged frame to 64 bytes in all: it is through earlier, and what follows it varies by more."""
    plan = build_plan(load(TEXT.replace("SIZE", str(size)), {"network.framing": framing}))
    [best] = [outcome.best_ns for outcome in predict(plan).outcomes.values()]
    assert best == 2 * 80 * least


@pytest.mark.parametrize("stack", ["udp", "{mqtt: {broker: h5}}"])
def test_every_frame_is_longer_by_the_framing(stack: str) -> None:
    """Data, acknowledgements, answers, keep-alives and background of a network are longer by the same bytes: none is left at Ethernet's sizes."""
    found = {kind: build_plan(load(MIXED.replace("STACK", stack), {"network.framing": kind})) for kind in KINDS}
    plain = {stream.name: stream for stream in found["ethernet"].streams}
    for kind, longer in (("vlan", 4), ("double-vlan", 8), ("prp", 6), ("hsr", 6)):
        assert len(found[kind].streams) == len(plain)
        for stream in found[kind].streams:
            expected = tuple(size + longer for size in plain[stream.name].frames_bytes)
            assert stream.frames_bytes == expected, (kind, stream.name)


@pytest.mark.parametrize("framing", ["double-vlan", "afdx", "[vlan, hsr]"])
@pytest.mark.parametrize("stack", ["udp", "{mqtt: {broker: h5}}"])
def test_nothing_that_is_simulated_is_above_its_bound(framing: str, stack: str) -> None:
    found = predict(build_plan(load(MIXED.replace("STACK", stack), {"network.framing": framing})))
    bounds = {name: outcome.actual_ns for (name, _), outcome in found.outcomes.items()}
    network = found.network
    for seed in (1, 2):
        worst = network.search({"evaluations": 150, "seed": seed})["worst"]
        assert worst
        for one in worst:
            limit = bounds[found.plan.streams[one["stream"]].name]
            assert limit is None or one["latency"] <= limit, one


def test_admission_refuses_what_the_framing_makes_late() -> None:
    """Of 100 bytes: 272.64 us with plain Ethernet (2 x 80 ns x 1704), 273.92 us with a tag (1712)."""
    settings: dict[str, object] = {"flows.f.deadline": "273 us", "run.simulate.search": 0}
    text = TEXT.replace("SIZE", "100")
    answers = [
        [answer.admitted for answer in admit(load(text, {**settings, "network.framing": framing}))]
        for framing in ("ethernet", "vlan")
    ]
    assert answers == [[True], [False]]
