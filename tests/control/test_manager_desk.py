"""The manager's requests: every state and step, random lives of clients, and events that are none."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_helpers import asked, closed, connection, requirements, withdrawn

from timebound.control.manager.desk import (
    MOST_TOLD_PER_S,
    TRANSITIONS,
    Desk,
    Doing,
    EventError,
    State,
    Step,
    verdict_json,
)
from timebound.control.manager.policy import Limits, Policy, Rule
from timebound.control.srt import rules
from timebound.control.srt.rows import Offer, Outcome, Tables, VerdictRow
from timebound.control.srt.store import Delete, Put, Role, Writer

ID = "m1-1-7.1"
DENY_BULK = Policy(
    (Rule(name="no bulk", topics=("bulk/#",), allow=False), Rule(name="few", topics=("few/#",), limits=Limits(flows=2)))
)


def desk(*, control: bool = True) -> Desk:
    found = Desk(DENY_BULK)
    if control:
        found.control("", 0)
    return found


def verdict(outcome: Outcome = Outcome.GRANTED, revision: int = 1, id: str = ID, reason: str = "") -> VerdictRow:
    return VerdictRow(id=id, revision=revision, outcome=outcome, reason=reason, priority=5, bound_ns=9)


def test_a_request_goes_to_the_table_and_its_verdict_to_the_client() -> None:
    ours = desk()
    doing = ours.event(asked(), 5)
    rows = [change.row for change in doing.changes if isinstance(change, Put)]
    assert [rules.table_of(row) for row in rows] == ["connections", "requests"]
    assert not doing.verdicts
    assert ours.requests[ID].state is State.WAITING
    answer = verdict()
    assert ours.verdict(answer, 6).verdicts == [answer]
    assert ours.requests[ID].state is State.GRANTED
    again = replace(answer, outcome=Outcome.REFUSED, reason="a link is gone", offer=Offer(deadline_ns=7))
    assert ours.verdict(again, 7).verdicts == [again], "a verdict may be given again"
    assert ours.requests[ID].state is State.REFUSED
    told = json.loads(json.dumps(verdict_json(again)))
    assert told == {
        "id": ID, "revision": 1, "outcome": "refused", "reason": "a link is gone", "priority": 5, "bound_ns": 9, "shared_with": [],
        "offer": {"deadline_ns": 7, "period_ns": None},
    }  # fmt: skip


def test_a_verdict_about_another_revision_or_nobody_is_passed_over() -> None:
    ours = desk()
    ours.event(asked(), 1)
    ours.event(asked(revision=2, deadline_ns=10), 2)
    assert ours.verdict(verdict(revision=1), 3) == Doing()
    assert ours.verdict(verdict(revision=2, id="other"), 3) == Doing()
    assert ours.requests[ID].state is State.WAITING
    assert ours.verdict(verdict(revision=2), 4).verdicts


def test_what_is_asked_anew_replaces_what_was_asked() -> None:
    ours = desk()
    ours.event(asked(), 1)
    doing = ours.event(asked(revision=2, deadline_ns=10), 2)
    (change,) = doing.changes
    assert isinstance(change, Put) and change.row.revision == 2 and change.row.requirements.deadline_ns == 10  # type: ignore[union-attr]


def test_a_rule_refuses_at_once_and_its_name_is_told() -> None:
    ours = desk()
    doing = ours.event(asked(topic="bulk/1"), 1)
    assert not doing.changes, "what is forbidden is not in the table"
    (answer,) = doing.verdicts
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "rule 'no bulk': nothing may be asked for here")
    assert [entry["event"] for entry in doing.audit] == ["asked", "answered"]
    assert doing.audit[0]["allowed"] is False and doing.audit[0]["rule"] == "no bulk"
    assert ours.event(withdrawn(), 2).changes == []
    assert ours.event(closed(), 3).changes == []


def test_limits_count_what_is_there_and_not_what_is_gone() -> None:
    ours = desk()
    for number in (1, 2, 3):
        ours.event(asked(f"r{number}", topic=f"few/{number}"), number)
    assert [ours.requests[f"r{number}"].state for number in (1, 2, 3)] == [
        State.WAITING,
        State.WAITING,
        State.FORBIDDEN,
    ]
    assert not ours.event(asked("r2", 2, topic="few/2"), 4).verdicts, "what is asked anew does not count against itself"
    ours.event(withdrawn("r1"), 5)
    assert ours.event(asked("r3", 2, topic="few/3"), 6).changes
    assert ours.event(asked("r4", topic="few/4", client_id="another"), 7).changes


def test_without_control_the_answer_comes_at_once_and_the_request_stays() -> None:
    ours = desk(control=False)
    doing = ours.event(asked(), 1)
    assert len(doing.changes) == 2, "it gets its channel when control is back"
    assert [(answer.outcome, answer.reason) for answer in doing.verdicts] == [
        (Outcome.UNAVAILABLE, "the store was not reached yet")
    ]
    ours.control("", 2)
    answer = verdict()
    assert ours.verdict(answer, 3).verdicts == [answer]


def test_control_that_is_lost_ends_waiting_and_nothing_else() -> None:
    ours = desk()
    ours.event(asked("waits"), 1)
    ours.event(asked("granted"), 1)
    ours.verdict(verdict(id="granted"), 2)
    ours.event(asked("forbidden", topic="bulk/1"), 2)
    doing = ours.control("no controller is alive", 3)
    assert [(answer.id, answer.outcome) for answer in doing.verdicts] == [("waits", Outcome.UNAVAILABLE)]
    assert {id: request.state.value for id, request in ours.requests.items()} == {
        "waits": "unavailable", "granted": "granted", "forbidden": "forbidden",
    }  # fmt: skip
    assert not ours.control("", 4).verdicts


def test_a_connection_takes_its_requests_with_it() -> None:
    ours = desk()
    ours.event(asked("r1"), 1)
    ours.event(asked("r2", topic="b"), 1)
    ours.event(asked("other", of="m1-1-8"), 1)
    doing = ours.event(closed(), 2)
    assert doing.changes == [Delete("requests", "r1"), Delete("requests", "r2"), Delete("connections", "m1-1-7")]
    assert doing.touched == {"r1": None, "r2": None}
    assert list(ours.requests) == ["other"]
    assert ours.event(closed(), 3) == Doing()


def test_what_no_table_can_hold_is_answered() -> None:
    ours = desk()
    ours.event(asked(), 1)
    (answer,) = ours.unwritable([ID, "unknown"], "it cannot be", 2).verdicts
    assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "it cannot be")


def test_every_state_knows_every_step_or_it_cannot_happen() -> None:
    assert set(TRANSITIONS) == set(State)
    answers = {Step.GRANT, Step.REFUSE, Step.FAIL}
    for state, steps in TRANSITIONS.items():
        assert set(steps) == set(Step) - (answers if state is State.FORBIDDEN else set())
        assert steps[Step.LOSE_CONTROL] is (State.UNAVAILABLE if state is State.WAITING else state)


def test_problems_and_offences_are_logged_and_kept() -> None:
    for kind in ("problems", "offence"):
        doing = desk().event(json.dumps({"kind": kind, "client_id": "x", "reason": "packet too large"}), 3)
        assert doing.audit == [{"event": kind, "at_ns": 3, "client_id": "x", "reason": "packet too large"}]
        assert doing.log and not doing.changes and not doing.verdicts


def test_a_flood_of_offences_does_not_fill_the_disk() -> None:
    ours = desk()
    event = json.dumps({"kind": "offence", "client_id": "x", "reason": "packet too large"})
    kept = sum(len(ours.event(event, 5_000_000_000 + number).audit) for number in range(1000))
    assert kept == MOST_TOLD_PER_S
    doing = ours.event(event, 6_000_000_000)
    assert len(doing.audit) == 1
    assert ("more was not kept", {"how_many": 1000 - MOST_TOLD_PER_S}) in doing.log


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.data())
def test_an_event_is_understood_or_an_error(data: st.DataObject) -> None:
    event = json.loads(asked())
    for part, known in ((event, event), (event["connection"], connection()), (event["requirements"], requirements())):
        if data.draw(st.booleans()):
            part[data.draw(st.sampled_from(sorted(known)))] = data.draw(JSON)
    with contextlib.suppress(EventError):
        desk().event(json.dumps(event), 1)
    with pytest.raises(EventError):
        desk().event(data.draw(JSON.map(json.dumps) | st.text(max_size=10)), 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 5), st.sampled_from(["plant", "bulk/1", "few/1"])),
        st.tuples(
            st.sampled_from(["withdraw", "close", "lose", "gain", "grant", "refuse"]), st.integers(0, 5), st.just("")
        ),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_the_table_has_what_is_asked_and_everybody_who_asked_is_answered(steps: list[tuple[str, int, str]]) -> None:
    ours, table, writer = desk(), Tables(), Writer(Role.MANAGER, "m1")
    revisions: dict[str, int] = {}
    answered: dict[str, VerdictRow] = {}
    for now, (what, number, topic) in enumerate(steps):
        id, of = f"r{number}", f"c{number % 2}"
        if what == "ask":
            revisions[id] = revisions.get(id, 0) + 1
            doing = ours.event(asked(id, revisions[id], topic, of), now)
        elif what == "withdraw":
            doing = ours.event(withdrawn(id), now)
        elif what == "close":
            doing = ours.event(closed(of), now)
        elif what in ("lose", "gain"):
            doing = ours.control("gone" if what == "lose" else "", now)
        else:
            outcome = Outcome.GRANTED if what == "grant" else Outcome.REFUSED
            doing = ours.verdict(verdict(outcome, revisions.get(id, 1), id), now)
        for change in rules.prepare(doing.changes, rules.Seen(writer, table, table)):
            kind, key = rules.key(change)
            if isinstance(change, Put):
                getattr(table, kind)[key] = change.row
            else:
                getattr(table, kind).pop(key, None)
        answered.update({answer.id: answer for answer in doing.verdicts})
        for id, request in ours.requests.items():
            assert (id in table.requests) == (request.state is not State.FORBIDDEN)
            answer = answered.get(id)
            current = answer is not None and answer.revision == request.row.revision
            assert current == (request.state is not State.WAITING)
            assert table.requests.get(id, request.row) == request.row
        assert table.requests.keys() <= ours.requests.keys()
        assert (
            sum(request.decision.rule == "few" and request.decision.allowed for request in ours.requests.values()) <= 2
        )
