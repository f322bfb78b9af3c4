"""Token buckets of flows and background, time slots of links and segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.scenario import Scenario, ScenarioError, load
from timebound.scenario.model_media import Slots, TokenBucket
from timebound.stacks import build_plan
from timebound.stacks.plan import PlanError

_SLOTS = "{r1: [{at: 0 ms, length: 6 ms}, {at: 12 ms, length: 6 ms}], r2: {at: 6 ms, length: 6 ms}, r3: {at: 18 ms, length: 6 ms}}"
_BUCKET = "token-bucket: {rate: 50 kbit/s, burst: 2 kB}"


def _write(
    folder: Path,
    *,
    tdma: str = f"{{cycle: 24 ms, slots: {_SLOTS}}}",
    link: str = "[r4, r3]",
    flow: str = _BUCKET,
    stack: str = "udp",
    background: str = "",
) -> Path:
    file = folder / "radio.yaml"
    file.write_text(
        f"""
name: radio
network:
  defaults: {{link: {{rate: 1 Mbit/s}}}}
  nodes:
    r[1-4]: {{kind: host, mtu: 576}}
    radio: {{kind: segment, tdma: {tdma}}}
  links:
    - [r[1-3], radio]
    - {link}
flows:
  - {{name: report, from: r1, to: r3, size: 500 B, {flow}}}
stack: {stack}
{background}
""",
        encoding="utf-8",
    )
    return file


def _errors(file: Path) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        load(file)
    return [f"{problem.place.line}: {problem.message}" for problem in error.value.problems if problem.place is not None]


def _between(scenario: Scenario, a: str, b: str) -> tuple[Slots | None, Slots | None]:
    link = next(link for link in scenario.links if (link.a, link.b) == (a, b))
    return link.forward.slots, link.backward.slots


def test_every_member_of_a_segment_sends_in_its_slots(tmp_path: Path) -> None:
    scenario = load(_write(tmp_path))
    millis = 1_000_000
    two = Slots(cycle_ns=24 * millis, slots_ns=((0, 6 * millis), (12 * millis, 6 * millis)))
    assert _between(scenario, "r1", "radio") == (two, None)
    assert scenario.declaration()["links"][0]["forward"]["slots"] == two.declaration()
    assert "slots" not in scenario.declaration()["links"][0]["backward"]
    assert scenario.locate("links[0].forward.slots") is not None
    file = tmp_path / "resolved.yaml"
    file.write_text(scenario.to_yaml(), encoding="utf-8")
    assert load(file) == scenario


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_a_link_has_slots_by_end_or_direction(tmp_path: Path, duplex: str) -> None:
    slots = "{r4: {at: 0 ms, length: 6 ms}, backward: {at: 7 ms, length: 5 ms}}"
    link = f"{{between: [r4, r3], duplex: {duplex}, tdma: {{cycle: 12 ms, slots: {slots}}}}}"
    scenario = load(_write(tmp_path, link=link))
    forward, backward = _between(scenario, "r4", "r3")
    assert forward is not None and backward is not None
    assert (forward.slots_ns, backward.slots_ns) == (((0, 6_000_000),), ((7_000_000, 5_000_000),))
    file = tmp_path / "resolved.yaml"
    file.write_text(scenario.to_yaml(), encoding="utf-8")
    assert load(file) == scenario


_OK = "{at: 0 ms, length: 6 ms}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tdma": "{cycle: 0 ms, slots: {r1: " + _OK + "}}"}, "7: a cycle of no length"),
        ({"tdma": "{cycle: 24 ms, slots: {r1: {at: 0 ms, length: 0 ms}}}"}, "7: a slot of no length"),
        (
            {"tdma": "{cycle: 24 ms, slots: {r1: {at: 20 ms, length: 5 ms}}}"},
            "7: the slot ends behind its cycle of 24 ms",
        ),
        ({"tdma": "{cycle: 24 ms, slots: {r1: [" + _OK + ", " + _OK + "]}}"}, "7: two slots of one sender overlap"),
        (
            {"tdma": "{cycle: 24 ms, slots: {r1: " + _OK + ", r2: " + _OK + "}}"},
            "7: the slots of 'r1' and 'r2' overlap",
        ),
        ({"tdma": "{cycle: 24 ms, slots: {r1: " + _OK + ", r9: " + _OK + "}}"}, "7: 'r9' is not on segment 'radio'"),
        ({"tdma": "{cycle: 24 ms, slots: {r1: []}}"}, "7: no slot, so that it never sends"),
        ({"tdma": "{cycle: 24 ms, slots: {r1: " + _OK + "}}"}, "7: 'r2' has no slots on segment 'radio'"),
        (
            {"tdma": "{cycle: 24 ms, slots: " + _SLOTS.replace("18 ms, length: 6 ms", "18 ms, length: 4 ms") + "}"},
            "7: the longest slot of 'r3' (4 ms) carries 500 bytes on the wire, and its mtu of 576 needs 614",
        ),
        (
            {"link": "{between: [r4, r3], tdma: {cycle: 24 ms, slots: {r1: " + _OK + "}}}"},
            "10: 'r1' is no end of this link",
        ),
        (
            {"link": "{between: [r4, r3], tdma: {cycle: 24 ms, slots: {r4: " + _OK + ", forward: " + _OK + "}}}"},
            "10: 'r4' has slots already",
        ),
        (
            {"link": "{between: [r4, radio], tdma: {cycle: 24 ms, slots: {radio: " + _OK + "}}}"},
            "10: 'radio' is a segment and sends nothing of its own",
        ),
        ({"flow": _BUCKET + ", period: 5 ms"}, "12: a period beside a token bucket"),
        ({"flow": _BUCKET + ", jitter: 5 ms"}, "12: a jitter beside a token bucket"),
        ({"flow": _BUCKET + ", pattern: poisson"}, "12: a pattern beside a token bucket"),
        (
            {"stack": "{mqtt: {broker: r3}}"},
            "12: a token bucket with MQTT, whose frames TCP sends in its own time",
        ),
        (
            {"background": "background: [{kind: udp, from: r1, to: r3, rate: 5 kbit/s, " + _BUCKET + "}]"},
            "14: token-bucket has no meaning for udp",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, change: dict[str, str], expected: str) -> None:
    assert expected in _errors(_write(tmp_path, **change))


def test_slots_of_a_switch_belong_to_its_links(tmp_path: Path) -> None:
    file = _write(tmp_path)
    text = file.read_text(encoding="utf-8").replace("radio: {kind: segment,", "radio: {kind: switch,")
    file.write_text(text, encoding="utf-8")
    assert "7: 'radio' is a switch: slots belong to links and segments" in _errors(file)


def test_a_token_bucket_is_a_period_and_a_burst(tmp_path: Path) -> None:
    plan = build_plan(load(_write(tmp_path)))
    (stream,) = plan.streams
    # 500 B and 66 of headers at 50 kbit/s; the burst holds three, and what is left of it.
    assert (stream.period_ns, stream.jitter_ns) == (90_560_000, 320_000_000 - 90_560_000)
    assert stream.observed_jitter(5) == 5 + 90_560_000
    declared = stream.declaration()
    assert declared["arrival"] == {
        "kind": "token-bucket",
        "rate_bps": 50_000,
        "burst_bytes": 2000,
        "min_frame_bytes": 566,
        "max_frame_bytes": 566,
    }
    assert declared["release"] == {"kind": "greedy", "offset_ns": None, "frames_bytes": [566]}
    # One message of the burst is kept back where the host is real.
    assert plan.udp[0]["release"]["pattern"] == {"kind": "token-bucket", "period_ns": 90_560_000, "burst": 2}


def test_a_burst_below_a_message_is_refused(tmp_path: Path) -> None:
    scenario = load(_write(tmp_path, flow="token-bucket: {rate: 50 kbit/s, burst: 565 B}"))
    with pytest.raises(
        PlanError, match="a burst of 565 bytes never lets a message pass, which takes 566 bytes"
    ) as error:
        build_plan(scenario)
    assert scenario.locate(error.value.path) is not None


@pytest.mark.parametrize(("kind", "least"), [("poisson", 542), ("video", 84)])
def test_background_may_declare_what_it_keeps_to(tmp_path: Path, kind: str, least: int) -> None:
    background = f"background: [{{kind: {kind}, from: r1, to: r3, rate: 5 kbit/s, size: 476 B, {_BUCKET}}}]"
    scenario = load(_write(tmp_path, background=background))
    assert scenario.background[0].token_bucket == TokenBucket(rate_bps=50_000, burst_bytes=2000)
    stream = build_plan(scenario).streams[-1]
    arrival = stream.declaration()["arrival"]
    assert (arrival["kind"], arrival["min_frame_bytes"], arrival["max_frame_bytes"]) == ("token-bucket", least, 542)
    file = tmp_path / "resolved.yaml"
    file.write_text(scenario.to_yaml(), encoding="utf-8")
    assert load(file) == scenario


@settings(deadline=None)
@given(
    st.integers(1, 10**13),
    st.integers(84, 10**7),
    st.integers(84, 1538),
    st.integers(0, 10**12),
)
def test_period_and_jitter_never_let_less_pass_than_the_bucket(rate: int, burst: int, size: int, window: int) -> None:
    """Whole messages that the bucket allows in a closed window, against those of the period with its jitter."""
    bucket = TokenBucket(rate_bps=rate, burst_bytes=max(burst, size))
    allowed = (bucket.burst_bytes * 8 * 10**9 + rate * window) // (size * 8 * 10**9)
    period = bucket.time_ns(size)
    jitter = max(0, bucket.time_ns(bucket.burst_bytes) - period)
    # The period is rounded up by less than a nanosecond for each message.
    assert (window + jitter + allowed) // period + 1 >= allowed
