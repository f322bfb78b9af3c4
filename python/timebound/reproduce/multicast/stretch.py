"""A scenario in stretched time: what takes a moment in the original takes `factor` moments.

Rates of links and background are divided, periods, jitters, deadlines and propagation delays multiplied, so that every port is used as much as before
and every queue looks the same, while switches, brokers and clients have `factor` times as long for each frame. A time that was measured, divided by
the factor, is one of the original network with components that many times as fast (time dilation: Gupta et al., NSDI 2006; there the clock is
stretched, here the network).
"""

from __future__ import annotations

from dataclasses import replace

from timebound.scenario.model import Background, Direction, Flow, Impairments, Scenario


def stretched(scenario: Scenario, factor: int) -> Scenario:
    """The scenario with everything in the network `factor` times as slow; the run lasts that much longer, its warm-up does not.

    Switching delays stay: they are the switches' own. Raises `ValueError` for what has a time of its own that is not stretched here: slots, traces,
    impairments, token buckets, and events.
    """
    if factor < 1:
        raise ValueError(f"a factor of {factor}: at least 1")
    if scenario.events or scenario.node_events:
        raise ValueError("events are not stretched")
    return replace(
        scenario,
        links=tuple(
            replace(link, forward=_direction(link.forward, factor), backward=_direction(link.backward, factor))
            for link in scenario.links
        ),
        flows=tuple(_flow(flow, factor) for flow in scenario.flows),
        background=tuple(_background(source, factor) for source in scenario.background),
        run=replace(scenario.run, duration_ns=scenario.run.duration_ns * factor),
    )


def _direction(direction: Direction, factor: int) -> Direction:
    if direction.slots is not None or direction.trace is not None or direction.impairments != Impairments():
        raise ValueError("slots, traces and impairments of links are not stretched")
    return replace(direction, rate_bps=direction.rate_bps // factor, delay_ns=direction.delay_ns * factor)


def _flow(flow: Flow, factor: int) -> Flow:
    if flow.trace_ns or flow.token_bucket is not None:
        raise ValueError("traces and token buckets of flows are not stretched")
    return replace(
        flow,
        period_ns=flow.period_ns * factor,
        jitter_ns=flow.jitter_ns * factor,
        deadline_ns=None if flow.deadline_ns is None else flow.deadline_ns * factor,
        offset_ns=None if flow.offset_ns is None else flow.offset_ns * factor,
        mean_extra_ns=flow.mean_extra_ns * factor,
    )


def _background(source: Background, factor: int) -> Background:
    if source.token_bucket is not None:
        raise ValueError("token buckets of background are not stretched")
    return replace(
        source,
        rate_bps=None if source.rate_bps is None else source.rate_bps // factor,
        gap_ns=source.gap_ns * factor,
        # Pictures come at whole numbers a second: where the factor does not divide them, they are of another size than the original's.
        frames_per_second=max(1, round(source.frames_per_second / factor)),
    )
