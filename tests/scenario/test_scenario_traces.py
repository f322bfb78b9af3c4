"""Cellular traces: the parser, and links that name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.scenario import ScenarioError, load, traces
from timebound.scenario.traces import Trace, TraceError, parse_short, parse_trace

MILLIS = st.lists(st.integers(0, 500), min_size=1, max_size=60).map(lambda gaps: [*sorted(gaps), max(gaps) + 1])


@settings(deadline=None)
@given(MILLIS, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_file_is_its_numbers(millis: list[int], ending: str, closed: bool) -> None:
    text = ending.join(map(str, millis)) + (ending if closed else "")
    trace = parse_trace(text.encode(), "x.up")
    assert trace.millis == tuple(millis)
    assert parse_short(trace.short()) == trace
    assert trace.period_ns == millis[-1] * 1_000_000


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text("0123456789\n\r -x.", max_size=60).map(str.encode)))
def test_any_bytes_are_a_trace_or_an_error_with_its_line(content: bytes) -> None:
    try:
        trace = parse_trace(content)
    except TraceError as error:
        assert 0 <= error.line <= content.count(b"\n") + 1
        assert error.hint
    else:
        assert list(trace.millis) == sorted(trace.millis) and trace.millis[-1] > 0


@settings(deadline=None)
@given(st.text("0123456789x -", max_size=12))
def test_any_line_of_text_is_a_trace_or_an_error(text: str) -> None:
    try:
        assert parse_short(parse_short(text).short()).millis
    except TraceError as error:
        assert error.message


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 0, "without opportunities"),
        (b"0\n0\n", 2, "lasts no time"),
        (b"1\n\n3\n", 2, "an empty line"),
        (b"1\n5\n3\n", 3, "must not decrease"),
        (b"1\n2 ms\n", 2, "no time in milliseconds"),
        (b"1\n-2\n", 2, "no time in milliseconds"),
        (b"\xff\xfe\n", 1, "no time in milliseconds"),
        (b"86400001\n", 1, "longer than a day"),
    ],
)
def test_errors_name_their_line(content: bytes, line: int, message: str) -> None:
    with pytest.raises(TraceError) as error:
        parse_trace(content)
    assert (error.value.line, message in error.value.message) == (line, True), error.value.message


def test_the_limits_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (Path(__file__).parents[2] / "crates/model/src/trace.rs").read_text(encoding="utf-8").replace("_", "")
    assert f"OPPORTUNITYBYTES: u32 = {traces.OPPORTUNITY_BYTES};" in source
    assert f"MOST: usize = {traces.MOST_OPPORTUNITIES};" in source
    assert f"LONGESTMILLIS: u64 = {traces.LONGEST_MS};" in source
    monkeypatch.setattr(traces, "MOST_OPPORTUNITIES", 3)
    with pytest.raises(TraceError, match="more than 3 opportunities"):
        parse_short("1x9999999")


def _scenario(link: str, more: str = "") -> str:
    return f"""
name: x
network:
  nodes: {{h1: host, h2: host, n1: segment}}
  links: [{link}]
flows: [{{name: f, from: h1, to: h2, size: 100 B, period: 10 ms}}]
stack: {{udp: {{}}}}
{more}"""


def _load(tmp_path: Path, link: str, more: str = "") -> object:
    (tmp_path / "a.up").write_text("1\n2\n4\n", encoding="utf-8")
    (tmp_path / "b.down").write_text("5\n", encoding="utf-8")
    (tmp_path / "bad.up").write_text("1\n2\nx\n", encoding="utf-8")
    file = tmp_path / "s.yaml"
    file.write_text(_scenario(link, more), encoding="utf-8")
    return load(file)


def test_a_link_follows_its_traces_and_the_resolved_scenario_carries_them(tmp_path: Path) -> None:
    whole = _load(tmp_path, "{between: [h1, h2], trace: {up: a.up, down: b.down}}")
    link = whole.links[0]
    assert link.forward.trace == Trace((1, 2, 4)) and link.backward.trace == Trace((5,))
    # Three packets of 1504 bytes in 4 ms.
    assert link.forward.rate_bps == 3 * 1504 * 8 * 250
    declaration = whole.declaration()
    assert declaration["traces"][declaration["links"][0]["forward"]["trace"]] == [1, 2, 4]
    assert load(whole.to_yaml()) == whole


def test_one_trace_for_both_ways_or_one_way_with_a_rate_for_the_other(tmp_path: Path) -> None:
    both = _load(tmp_path, "{between: [h1, h2], trace: a.up}").links[0]
    assert both.forward.trace == both.backward.trace == Trace((1, 2, 4))
    one = _load(tmp_path, "{between: [h1, h2], trace: {up: a.up}, rate: 5 Mbit/s}").links[0]
    assert one.forward.trace is not None and one.backward.trace is None and one.backward.rate_bps == 5_000_000
    side = _load(tmp_path, "{between: [h1, h2], backward: {trace: b.down}}").links[0]
    assert side.forward.trace is None and side.backward.trace == Trace((5,))


def test_a_trace_of_the_defaults_is_for_links_that_state_neither_trace_nor_rate(tmp_path: Path) -> None:
    """It was read by nobody, and links had the rate of the defaults: bounds were printed of a network that was another one."""

    def loaded(defaults: str) -> object:
        text = _scenario("[h1, h2], {between: [h2, h3], rate: 5 Mbit/s}, {between: [h3, h4], trace: b.down}")
        text = text.replace("n1: segment", "h3: host, h4: host").replace(
            "network:", f"network:\n  defaults: {{link: {defaults}}}"
        )
        (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
        return load(tmp_path / "s.yaml")

    _load(tmp_path, "[h1, h2]")
    plain, rated, own = loaded("{trace: {up: a.up, down: b.down}}").links
    assert plain.forward.trace == Trace((1, 2, 4)) and plain.backward.trace == Trace((5,))
    assert rated.forward.trace is None and rated.forward.rate_bps == 5_000_000
    assert own.forward.trace == Trace((5,))
    for defaults, message in (
        ("{trace: a.up, rate: 1 Mbit/s}", "a rate beside a trace"),
        ("{trace: none.up}", "does not exist"),
        ("{trace: {opportunities: 3 1}}", "must not decrease"),
    ):
        with pytest.raises(ScenarioError) as error:
            loaded(defaults)
        (problem,) = error.value.problems
        assert message in problem.message and problem.path.startswith("network.defaults.link.")


@pytest.mark.parametrize(
    ("link", "more", "message", "path"),
    [
        ("{between: [h1, h2], trace: none.up}", "", "does not exist", "network.links[0].trace"),
        ("{between: [h1, h2], trace: bad.up}", "", "bad.up:3: this line is no time", "network.links[0].trace"),
        ("{between: [h1, h2], trace: a.up, rate: 1 Mbit/s}", "", "a rate beside a trace", "network.links[0].rate"),
        ("{between: [h1, h2], trace: a.up, duplex: half}", "", "half-duplex", "network.links[0].duplex"),
        ("{between: [h1, n1], trace: a.up}, [h2, n1]", "", "shared segment", "network.links[0].trace"),
        (
            "{between: [h1, h2], forward: {trace: {up: a.up}}}",
            "",
            "belong to the link",
            "network.links[0].forward.trace",
        ),
        ("{between: [h1, h2], trace: {opportunities: 3 1}}", "", "must not decrease", "network.links[0].trace"),
        (
            "{between: [h1, h2], trace: a.up}",
            "at: {1 s: {link h1-h2: {rate: 1 Mbit/s}}}",
            "follows its trace",
            "at.1 s.link h1-h2.rate",
        ),
        (
            "{between: [h1, h2], trace: a.up}",
            "conditions: {e: {rate: 1 Mbit/s}}\nat: {1 s: {link h1-h2: {conditions: e}}}",
            "follows its trace",
            "at.1 s.link h1-h2.conditions",
        ),
    ],
)
def test_errors_name_their_place(tmp_path: Path, link: str, more: str, message: str, path: str) -> None:
    with pytest.raises(ScenarioError) as error:
        _load(tmp_path, link, more)
    assert {p.path for p in error.value.problems if message in p.message} == {path}, error.value.render()
