"""Whatever loads also loads from its resolved form, and is equal."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.scenario import load, units

NANOSECONDS = st.one_of(st.integers(0, 2000), st.integers(0, 10**12))
TIMES = NANOSECONDS.map(units.format_time)
POSITIVE = st.integers(1, 10**12).map(units.format_time)
RATES = st.integers(100, 10**13).map(units.format_rate)
SIZES = st.integers(1, 10**9).map(units.format_size)
SHARES = st.floats(0, 1).map(units.format_share)
RANGES = st.tuples(NANOSECONDS, NANOSECONDS).map(lambda pair: f"{min(pair)} ns..{max(pair)} ns")
OUTAGES = st.tuples(NANOSECONDS, st.integers(1, 10**9)).map(lambda pair: f"{pair[0]}..{pair[0] + pair[1]} ns")

JITTER = st.one_of(
    TIMES,
    st.fixed_dictionaries({"uniform": TIMES, "reorder": st.booleans()}),
    st.builds(lambda m, d: {"normal": {"mean": m, "deviation": d}}, TIMES, TIMES),
    st.builds(lambda m, x: {"exponential": {"mean": m, "max": x}}, TIMES, TIMES),
    st.builds(lambda s, a, x: {"pareto": {"scale": s, "alpha": a, "max": x}}, TIMES, st.floats(0.5, 9), TIMES),
)
LOSS = st.one_of(
    SHARES,
    st.builds(
        lambda *p: {"gilbert-elliott": dict(zip(("good-to-bad", "bad-to-good", "loss-in-bad"), p, strict=True))},
        SHARES,
        SHARES,
        SHARES,
    ),
)
QUEUE = st.one_of(
    st.sampled_from(["fifo", "strict-priority", "drr"]),
    st.dictionaries(st.sampled_from("01234567"), SIZES, max_size=3).map(lambda classes: {"drr": {"classes": classes}}),
)
CONDITIONS: dict[str, st.SearchStrategy[Any]] = {
    "rate": RATES, "delay": TIMES, "loss": LOSS, "jitter": JITTER, "corruption": SHARES, "duplication": SHARES,
    "corruption-drops": st.booleans(), "queue": QUEUE, "buffer": SIZES, "outages": st.lists(OUTAGES, max_size=2),
}  # fmt: skip
TURNS = st.integers(100_000, 10**10).map(units.format_time)
DISCONNECTIONS = st.one_of(
    st.just("none"),
    st.fixed_dictionaries(
        {"mean-up": TURNS, "mean-down": TURNS}, optional={"distribution": st.sampled_from(["fixed", "exponential"])}
    ),
)
QUEUED = st.sampled_from(["held", "dropped"])
CONDITIONS |= {"disconnections": DISCONNECTIONS, "queued": QUEUED}
SIDE = st.fixed_dictionaries({}, optional={**CONDITIONS, "conditions": st.sampled_from(["edge", "core"])})
LINK = st.fixed_dictionaries(
    {"between": st.just(["s1", "s2"])},
    optional={
        **CONDITIONS,
        "duplex": st.sampled_from(["half", "full"]),
        "length": st.just("1.5 km"),
        "forward": SIDE,
        "backward": SIDE,
    },
)
CHANGED = ("rate", "delay", "loss", "jitter", "corruption", "corruption-drops", "duplication", "buffer")
PROFILE = {key: CONDITIONS[key] for key in (*CHANGED, "disconnections", "queued")}
CHANGES = {**PROFILE, "up": st.booleans(), "conditions": st.sampled_from(["original", "edge", "core"])}
CHANGE = st.one_of(
    st.fixed_dictionaries({}, optional=CHANGES),
    st.fixed_dictionaries({"every": st.just("3 s")}, optional={**CHANGES, "until": st.just("10.5 s")}),
)
EVENTS = st.dictionaries(
    st.integers(0, 10_500_000_000).map(lambda n: f"{n} ns"),
    st.dictionaries(
        st.sampled_from(
            ["link s1-s2", "link s2->s1", "link s1->s2", "link h1-s1", "links h[1-2]-s1", "links s1-s2", "link s2-h4#0"]
        ),
        CHANGE,
        min_size=1,
        max_size=3,
    ),
    max_size=3,
)
FLOW = st.fixed_dictionaries(
    {"from": st.sampled_from(["h1", "h[1-2]"]), "to": st.sampled_from(["h3", ["h3", "h4"]]), "size": st.just("99 B")},
    optional={
        "jitter": TIMES, "deadline": TIMES, "priority": st.integers(0, 7), "qos": st.integers(0, 2), "count": st.integers(1, 3),
        "topic": st.text(st.characters(blacklist_characters="#+\0\ue000\ue001\ue002\ue003\ue004", blacklist_categories=["Cs", "Cn"]), min_size=1, max_size=9),
    },
)  # fmt: skip
PATTERN = st.one_of(
    st.fixed_dictionaries({"period": POSITIVE}, optional={"offset": TIMES}),
    st.builds(lambda low, more: {"period": f"{low}..{low + more} us"}, st.integers(1, 10**6), st.integers(0, 1000)),
    st.fixed_dictionaries({"pattern": st.just("sporadic"), "period": POSITIVE}, optional={"mean-extra": TIMES}),
    st.builds(
        lambda times: {"pattern": "trace", "trace": [f"{t} ns" for t in sorted(times)]},
        st.sets(st.integers(0, 10**9), min_size=1, max_size=4),
    ),
)
STACK = st.sampled_from(
    [
        {"udp": {}},
        {"udp": {"multicast": True}},
        {"mqtt": {"broker": "h4"}},
        {"mqtt": {"broker": ["h4", "h2"], "version": 5}},
    ]
)
SCENARIO = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "two words", "5", "true", "a: b", "ä#", 'q"\\']),
        "network": st.builds(
            lambda link, delay: {
                "defaults": {"switch": {"delay": delay}},
                "nodes": {"h[1-4]": "host", "s[1-2]": "switch"},
                "links": [["h[1-2]", "s1"], ["h[3-4]", "s2"], link],
            },
            LINK,
            RANGES,
        ),
        "conditions": st.fixed_dictionaries(
            {"edge": st.fixed_dictionaries({}, optional=PROFILE), "core": st.fixed_dictionaries({}, optional=PROFILE)}
        ),
        "stack": STACK,
        "flows": st.lists(st.builds(lambda a, b: {**a, **b}, FLOW, PATTERN), max_size=3).map(
            lambda flows: [{"name": f"f{i}", **flow} for i, flow in enumerate(flows)]
        ),
    },
    optional={
        "at": EVENTS,
        "description": st.text(
            st.characters(blacklist_characters="\ue000\ue001\ue002\ue003\ue004", blacklist_categories=["Cs"]),
            max_size=20,
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(SCENARIO)
def test_a_scenario_survives_being_resolved(whole: dict[str, Any]) -> None:
    loaded = load(yaml.safe_dump(whole, allow_unicode=False))
    assert load(loaded.to_yaml()) == loaded
    for link in loaded.links:
        for side in (link.forward, link.backward):
            assert 100 <= side.rate_bps <= 10**13
            assert 0 <= side.delay_ns <= units.LONGEST_NS
