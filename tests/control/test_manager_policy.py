"""Who may ask for what: rules against requests, and filters as sets of topics."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.control.manager.policy import (
    DEFAULT_FLOWS,
    Asker,
    Decision,
    Held,
    Limits,
    Policy,
    Rule,
    bandwidth_bps,
    decide,
    default_rule,
)
from timebound.control.manager.topics import covers, is_filter, meets
from timebound.control.srt.rows import Requirements, Side

LEVELS = ["a", "b", "", "$s", "other"]
TOPICS = ["/".join(levels) for length in (1, 2, 3, 4) for levels in itertools.product(LEVELS, repeat=length)]
FILTERS = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(st.sampled_from(["a", "b", "", "$s", "+"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
) | st.just("#")


def matches(filter: str, topic: str) -> bool:
    """Section 4.7 of the standard, word by word."""
    if topic.startswith("$") and filter[0] in "+#":
        return False
    ours, theirs = filter.split("/"), topic.split("/")
    if ours[-1] == "#":
        ours = ours[:-1]
        if len(theirs) < len(ours):
            return False
        theirs = theirs[: len(ours)]
    return len(ours) == len(theirs) and all(a in ("+", b) for a, b in zip(ours, theirs, strict=True))


@settings(deadline=None, max_examples=300)
@given(FILTERS, FILTERS)
def test_covering_and_meeting_are_what_the_topics_say(filter: str, other: str) -> None:
    ours = {topic for topic in TOPICS if _matches(filter, topic)}
    theirs = {topic for topic in TOPICS if _matches(other, topic)}
    assert meets(filter, other) == meets(other, filter) == bool(ours & theirs)
    if covers(filter, other):
        assert theirs <= ours
    # What covers by its topics, but not by its levels, is only `+` or `#` that stands where nothing but `$` was left out.
    elif theirs <= ours:
        assert not theirs or "$" in filter + other


def _matches(filter: str, topic: str) -> bool:
    return matches(filter or "/", topic) if filter else topic == ""


@given(st.sampled_from(TOPICS), FILTERS)
def test_a_topic_is_a_filter_of_one(topic: str, filter: str) -> None:
    assert covers(filter, topic) == _matches(filter, topic)


@pytest.mark.parametrize("text", ["", "a/#/b", "a#", "a/b+", "+a", "a\0", "#/a", "a" * 70_000])
def test_what_is_no_filter(text: str) -> None:
    assert not is_filter(text)


WHO = Asker(client_id="press-7", user="alice", certificate="plc-01", address="10.1.2.3")


def ask(
    *rules: Rule,
    topic: str = "plant/alarm",
    needs: Requirements | None = None,
    held: Collection[Held] = (),
    who: Asker = WHO,
    side: Side = Side.PUBLISH,
    allow: bool = True,
) -> Decision:
    def counting(rule: str, key: str) -> list[Held]:
        return [each for each in held if (each.rule, each.key) == (rule, key)]

    return decide(Policy(rules, default_rule(allow=allow)), who, side, topic, needs or Requirements(), counting)


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        (Rule(name="r", users=("al*",)), True),
        (Rule(name="r", users=("bob", "alice")), True),
        (Rule(name="r", users=("bob",)), False),
        (Rule(name="r", users=("ALICE",)), False),
        (Rule(name="r", clients=("press-?",)), True),
        (Rule(name="r", clients=("press-??",)), False),
        (Rule(name="r", certificates=("plc-[0-9]*",)), True),
        (Rule(name="r", certificates=("line-*",)), False),
        (Rule(name="r", addresses=(ip_network("10.1.0.0/16"),)), True),
        (Rule(name="r", addresses=(ip_network("10.2.0.0/16"), ip_network("::/0"))), False),
        (Rule(name="r", topics=("plant/#",)), True),
        (Rule(name="r", topics=("plant/+/x",)), False),
        (Rule(name="r", side=Side.SUBSCRIBE), False),
        (Rule(name="r", users=("alice",), topics=("office/#",)), False),
    ],
)
def test_a_rule_applies_when_all_matches_that_it_states(rule: Rule, applies: bool) -> None:
    assert ask(rule, allow=False).allowed == applies
    assert ask(rule).rule == ("r" if applies else "default")


def test_who_states_no_user_matches_no_rule_about_users() -> None:
    nobody = Asker(client_id="x", address="10.0.0.1")
    for rule in (Rule(name="r", users=("*",)), Rule(name="r", certificates=("*",))):
        assert ask(rule, who=nobody, allow=False).rule == "default"


def test_ipv4_over_ipv6_is_the_same_address() -> None:
    rule = Rule(name="r", addresses=(ip_network("10.1.0.0/16"),))
    assert ask(rule, who=Asker(client_id="x", address="::ffff:10.1.9.9")).rule == "r"


def test_the_first_rule_that_applies_decides_and_is_named() -> None:
    deny = Rule(name="no bulk", topics=("plant/bulk/#",), allow=False)
    rest = Rule(name="plant", topics=("plant/#",))
    assert ask(deny, rest, topic="plant/alarm").rule == "plant"
    refused = ask(deny, rest, topic="plant/bulk/1")
    assert refused.reason == "rule 'no bulk': nothing may be asked for here"
    assert ask(rest, deny, topic="plant/bulk/1").allowed
    assert ask(topic="x", allow=False).reason == "rule 'default': nothing may be asked for here"


def test_a_filter_gets_no_more_than_the_rules_give_for_its_topics() -> None:
    deny = Rule(name="secret", topics=("plant/secret/#",), allow=False)
    allow = Rule(name="alarms", topics=("plant/alarm/#",))
    assert ask(allow, topic="plant/alarm/+", allow=False).allowed
    assert not ask(allow, topic="plant/#", allow=False).allowed
    assert ask(deny, topic="plant/#").rule == "secret"
    assert ask(deny, topic="plant/other").allowed


def test_limits() -> None:
    limits = Limits(priority=5, bandwidth_bps=1_000_000, flows=2, deadline_ns=5_000_000)
    rule = Rule(name="r", limits=limits)
    fits = Requirements(priority=5, size_bytes=1000, period_ns=10_000_000, deadline_ns=5_000_000)
    assert ask(rule, needs=fits).allowed
    assert (
        ask(rule, needs=Requirements(priority=6, size_bytes=1, period_ns=10**9)).reason
        == "rule 'r': priority 5 at most"
    )
    assert "5 ms or more" in ask(rule, needs=Requirements(deadline_ns=4_999_999, size_bytes=1, period_ns=10**9)).reason
    assert "state a bandwidth" in ask(rule, needs=Requirements(size_bytes=1)).reason
    held = [Held(rule="r", key="press-7", bandwidth_bps=300_000)]
    assert "1 Mbit/s per client at most (700 kbit/s left)" in ask(rule, needs=fits, held=held).reason
    assert ask(rule, needs=Requirements(bandwidth_bps=(1, 700_000)), held=held).allowed
    assert ask(rule, needs=fits, held=[*held, *held]).reason == "rule 'r': 2 requests per client at most"
    others = [
        Held(rule="r", key="press-8", bandwidth_bps=10**9),
        Held(rule="other", key="press-7", bandwidth_bps=10**9),
    ]
    assert ask(rule, needs=fits, held=others * 5).allowed, "others, and other rules, do not count"


def test_a_limited_priority_is_asked_for_where_none_was_stated() -> None:
    rule = Rule(name="r", limits=Limits(priority=4))
    assert ask(rule).requirements.priority == 4
    assert ask(rule, needs=Requirements(priority=2)).requirements.priority == 2
    assert ask().requirements.priority is None


@pytest.mark.parametrize(
    ("per", "key"), [("client", "press-7"), ("user", "alice"), ("certificate", "plc-01"), ("address", "10.1.2.3")]
)
def test_limits_count_for_whom_the_rule_says(per: str, key: str) -> None:
    rule = Rule(name="r", limits=Limits(flows=1, per=per))  # type: ignore[arg-type]
    assert ask(rule).held == Held(rule="r", key=key, bandwidth_bps=0)
    assert not ask(rule, held=[Held(rule="r", key=key, bandwidth_bps=0)]).allowed


def test_without_rules_a_client_may_have_so_many() -> None:
    held = [Held(rule="default", key="press-7", bandwidth_bps=0)] * DEFAULT_FLOWS
    assert ask(held=held[1:]).allowed
    assert not ask(held=held).allowed


def test_numbers_that_no_table_can_hold_are_refused() -> None:
    assert ask(needs=Requirements(deadline_ns=2**63)).reason == "rule 'default': a number is out of range"


def test_bandwidth_is_rounded_up() -> None:
    assert bandwidth_bps(Requirements(size_bytes=1, period_ns=3 * 10**9)) == 3
    assert bandwidth_bps(Requirements(size_bytes=1, period_ns=0)) is None
    assert bandwidth_bps(Requirements(bandwidth_bps=(5, 9), size_bytes=1, period_ns=1)) == 9
