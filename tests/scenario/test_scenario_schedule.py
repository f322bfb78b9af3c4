"""Schedules of conditions: targets, profiles, repetitions, ramps."""

from __future__ import annotations

from timebound.scenario import load
from timebound.scenario.model import Scenario

NETWORK = """
name: x
conditions:
  edge: {rate: 250 kbit/s, delay: 30 ms, jitter: 5 ms, loss: 30 %}
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 1 ms}}
  nodes: {"h[1-4]": host, s1: switch, b1: {kind: bridge, delay: 10..20 us}, n1: segment}
  links:
    - ["h[1-2]", s1]
    - {between: [s1, b1], loss: 1 %, forward: {delay: 2 ms}}
    - [b1, n1]
    - ["h[3-4]", n1]
flows: [{name: f, from: h1, to: h3, size: 100 B, period: 10 ms}]
stack: {udp: {}}
"""


def _load(at: str) -> Scenario:
    return load(NETWORK + "at:\n" + at)


def test_a_bridge_is_a_switch() -> None:
    bridge = _load("  1 s: {link s1-b1: {up: false}}").node("b1")
    assert (bridge.kind, bridge.switching_min_ns, bridge.switching_max_ns) == ("switch", 10_000, 20_000)


def test_a_profile_is_laid_over_what_was_declared_and_original_takes_it_off() -> None:
    events = _load(
        "  1 s: {link s1-b1: {conditions: edge, loss: 5 %}}\n"
        "  2 s: {link s1->b1: {duplication: 1 %}}\n"
        "  3 s: {link s1-b1: {conditions: original}}"
    ).events
    edge = events[0].forward
    assert (edge.rate_bps, edge.delay_ns, edge.impairments.loss.probability) == (250_000, 30_000_000, 0.05)
    assert edge.impairments.jitter.max_ns == 5_000_000
    # The directions differ again where they were declared differently: one event each.
    forward, backward = events[-2:]
    assert [(e.ways, e.at_ns) for e in (forward, backward)] == [((True, False), 3 * 10**9), ((False, True), 3 * 10**9)]
    assert (forward.forward.delay_ns, backward.backward.delay_ns) == (2_000_000, 1_000_000)
    assert forward.forward.impairments.loss.probability == 0.01 and forward.forward.impairments.duplication == 0
    assert "duplication" in forward.changed and "duplication" not in backward.changed


def test_links_say_conditions_and_their_own_values_win() -> None:
    text = NETWORK.replace("{between: [s1, b1], loss: 1 %,", "{between: [s1, b1], conditions: edge, loss: 1 %,")
    link = load(text).links[2]
    assert (link.forward.rate_bps, link.forward.impairments.loss.probability) == (250_000, 0.01)
    assert (link.forward.delay_ns, link.backward.delay_ns) == (2_000_000, 30_000_000)


def test_ranges_pair_and_one_way_is_one_way() -> None:
    events = _load("  1 s: {'links h[1-2]->s1': {delay: 9 ms}}").events
    assert [(event.target, event.ways) for event in events] == [
        ("link h1->s1", (True, False)),
        ("link h2->s1", (True, False)),
    ]
    assert all(event.forward.delay_ns == 9_000_000 and event.backward.delay_ns == 1_000_000 for event in events)


def test_a_segment_is_every_way_into_it_so_that_a_frame_meets_it_once() -> None:
    events = _load("  1 s: {segment n1: {loss: 10 %}}").events
    assert [event.target for event in events] == ["link b1->n1", "link h3->n1", "link h4->n1"]


def test_one_direction_goes_down_alone() -> None:
    down, up = _load("  1 s: {link s1->b1: {up: false}}\n  2 s: {link s1-b1: {up: true}}").events
    assert (down.up_forward, down.up_backward, down.up) == (False, True, False)
    assert up.up and up.ways == (True, True)


def test_every_repeats_until_the_end_or_until() -> None:
    times = [event.at_ns // 10**9 for event in _load("  1 s: {link s1-b1: {up: true, every: 3 s}}").events]
    assert times == [1, 4, 7, 10]
    times = [e.at_ns // 10**9 for e in _load("  1 s: {link s1-b1: {up: true, every: 3 s, until: 7 s}}").events]
    assert times == [1, 4, 7]


def test_a_ramp_goes_in_equal_steps_from_the_values_at_its_start() -> None:
    events = _load(
        "  1 s: {link h1-s1: {rate: 5 Mbit/s}}\n"
        "  2 s: {link h1-s1: {rate: 1 Mbit/s, loss: 20 %, over: 4 s, steps: 4}}\n"
        "  3500 ms: {link h1-s1: {delay: 7 ms}}"
    ).events
    seen = [(e.at_ns // 10**6, e.forward.rate_bps, e.forward.delay_ns // 10**6) for e in events]
    assert seen == [
        (1000, 5_000_000, 1),
        (3000, 4_000_000, 1),
        (3500, 4_000_000, 7),
        (4000, 3_000_000, 7),
        (5000, 2_000_000, 7),
        (6000, 1_000_000, 7),
    ]
    losses = [e.forward.impairments.loss.probability for e in events if "loss" in e.changed]
    assert losses == [0.05, 0.1, 0.15000000000000002, 0.2]
    assert [e.note for e in events if e.note and "ramp" in e.note] == [
        "link h1-s1: loss, rate (ramp begins)",
        "link h1-s1: loss, rate (ramp ends)",
    ]


def test_a_ramp_between_directions_that_differ_keeps_them_apart() -> None:
    events = _load("  1 s: {link s1-b1: {delay: 10 ms, over: 2 s, steps: 2}}").events
    assert [(e.ways, e.forward.delay_ns, e.backward.delay_ns) for e in events] == [
        ((True, False), 6_000_000, 1_000_000),
        ((False, True), 6_000_000, 5_500_000),
        ((True, True), 10_000_000, 10_000_000),
    ]


def test_two_changes_of_one_link_at_one_time_keep_their_order() -> None:
    whole = _load("  1 s: {link h1-s1: {loss: 1 %}, 'link h1->s1': {loss: 2 %}, 'links h[1-2]-s1': {loss: 3 %}}")
    assert whole.events[-2].forward.impairments.loss.probability == 0.03
    assert load(whole.to_yaml()) == whole


def test_disconnections_and_what_waits() -> None:
    on, off = _load(
        "  1 s: {link s1-b1: {disconnections: {mean-up: 20 s, mean-down: 500 ms}, queued: held}}\n"
        "  2 s: {link s1-b1: {disconnections: none}}"
    ).events
    assert on.forward.impairments.declaration()["disconnections"] == {
        "mean_up_ns": 20 * 10**9,
        "mean_down_ns": 500 * 10**6,
        "distribution": "exponential",
    }
    assert on.forward.impairments.held and off.forward.impairments.held
    assert off.forward.impairments.disconnections is None
