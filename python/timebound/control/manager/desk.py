"""What the manager knows of requests, and what it does about each thing that happens. Pure: time is an argument, what is to be done is returned.

A request passes through `State`s by `TRANSITIONS`. Control is what gives verdicts: a store that is connected and a controller that is alive. Without it
a request is answered `unavailable` at once, and stays in the table: it gets its channel when control is back. What was granted stays granted
meanwhile, because its channel is in the switches.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, TypeVar

from timebound.control.manager import policy
from timebound.control.manager.repeats import Repeats
from timebound.control.srt.columns import flatten, unflatten
from timebound.control.srt.rows import ConnectionRow, Outcome, RequestRow, Requirements, Side, VerdictRow, table_of
from timebound.control.srt.store import Change, Delete, Put


class State(StrEnum):
    """Of a request."""

    FORBIDDEN = "forbidden"
    """The site's rules refuse it; it is not in the table."""
    WAITING = "waiting"
    """In the table, no answer to this revision yet."""
    GRANTED = "granted"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    """The controller could not decide or reserve, or there was none."""


class Step(StrEnum):
    """What happens to a request."""

    FORBID = "forbid"
    """It is asked, or asked anew, and a rule forbids it."""
    ASK = "ask"
    """It is asked, or asked anew, there is control, and the rules let it through."""
    ASK_NOBODY = "ask-nobody"
    """The same, without control."""
    GRANT = "grant"
    REFUSE = "refuse"
    FAIL = "fail"
    """The controller answers `unavailable`."""
    LOSE_CONTROL = "lose-control"


_ASKED = {Step.FORBID: State.FORBIDDEN, Step.ASK: State.WAITING, Step.ASK_NOBODY: State.UNAVAILABLE}
_ANSWERED = {Step.GRANT: State.GRANTED, Step.REFUSE: State.REFUSED, Step.FAIL: State.UNAVAILABLE}

TRANSITIONS: dict[State, dict[Step, State]] = {
    State.FORBIDDEN: {**_ASKED, Step.LOSE_CONTROL: State.FORBIDDEN},
    State.WAITING: {**_ASKED, **_ANSWERED, Step.LOSE_CONTROL: State.UNAVAILABLE},
    State.GRANTED: {**_ASKED, **_ANSWERED, Step.LOSE_CONTROL: State.GRANTED},
    State.REFUSED: {**_ASKED, **_ANSWERED, Step.LOSE_CONTROL: State.REFUSED},
    State.UNAVAILABLE: {**_ASKED, **_ANSWERED, Step.LOSE_CONTROL: State.UNAVAILABLE},
}
"""By state and step; what is missing cannot happen (no verdict is read for what is not in the table)."""

_STEP_OF = {Outcome.GRANTED: Step.GRANT, Outcome.REFUSED: Step.REFUSE, Outcome.UNAVAILABLE: Step.FAIL}


@dataclass(slots=True)
class Request:
    """A request that is there."""

    row: RequestRow
    decision: policy.Decision
    asker: policy.Asker
    state: State
    verdict: VerdictRow | None = None
    """The last answer to this revision; of `FORBIDDEN` and without control the manager's own."""


@dataclass(slots=True)
class Doing:
    """What is to be done, in this order."""

    changes: list[Change] = field(default_factory=list)
    """Of the table, all together."""
    verdicts: list[VerdictRow] = field(default_factory=list)
    """To be told to the intermediary."""
    audit: list[dict[str, Any]] = field(default_factory=list)
    forbidden: int = 0
    """Requests that a rule refused."""
    log: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Warnings."""
    touched: dict[str, Request | None] = field(default_factory=dict)
    """Requests whose announcement has changed, by id; `None`: gone."""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Groups to which this manager sends whose members have changed, by id, as they are to be announced."""
    interests: tuple[str, ...] | None = None
    """What clients are subscribed to from now on; `None`: as before."""


class EventError(ValueError):
    """An event that is none of `crates/manager/src/contract.rs`."""


MOST_TOLD_PER_S = 50
"""Problems and offences that are logged and kept each second."""
_TOLD = {
    "problems": "attributes that cannot be read",
    "offence": "a client was disconnected for what it did",
    "handshake": "a handshake of TLS or WebSocket failed",
    "group": "members of a group",
    "undelivered": "messages that another network did not get",
    "peering": "between managers, or to the broker",
}
SUMMED_UP = "lines of the audit log were summed up: clients did the same again and again"
WORKS_AGAIN = "works again, between managers or to the broker"
"""The one thing of these that is no reason to worry."""


class Desk:
    """The manager's requests. One method for each thing that can happen; each returns what is to be done."""

    def __init__(self, rules: policy.Policy) -> None:
        self._rules = rules
        self.requests: dict[str, Request] = {}
        self._connections: dict[str, ConnectionRow] = {}
        self._of: dict[str, set[str]] = {}
        """Requests by connection."""
        self._held: dict[tuple[str, str], dict[str, policy.Held]] = {}
        """By rule and whom it counts for: requests that were let through."""
        self._repeats = Repeats()
        self._second = self._told_now = 0
        self._troubled: set[str] = set()
        """Managers, and the broker, of which a problem was told that stands."""
        self.without_control = "the store was not reached yet"
        """Why nobody decides; empty: somebody does."""

    def event(self, text: str, now_ns: int) -> Doing:
        """Something that the intermediary tells (a line of JSON); `now_ns`: wall clock, as everywhere here.

        Raises:
            EventError: it is none of its events.
        """
        try:
            said = json.loads(text)
            kind = said["kind"]
            if kind == "request":
                return self._asked(said, now_ns)
            if kind == "withdrawn":
                return self._withdrawn([str(said["id"])], now_ns)
            if kind == "closed":
                return self._closed(str(said["connection"]), now_ns)
            if kind == "interests":
                return Doing(interests=_filters(said["filters"]))
            if kind in _TOLD:
                return self._told(kind, {key: value for key, value in said.items() if key != "kind"}, now_ns)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EventError(f"{type(error).__name__}: {error} in {text[:200]!r}") from None
        raise EventError(f"an event of kind {kind!r}")

    def verdict(self, row: VerdictRow, now_ns: int) -> Doing:
        """The controller's answer; one that is not about what stands in the table now is passed over."""
        request = self.requests.get(row.id)
        step = _STEP_OF[row.outcome]
        if request is None or row.revision != request.row.revision or step not in TRANSITIONS[request.state]:
            return Doing()
        return self._answer(request, step, row, "controller", now_ns)

    def control(self, why: str, now_ns: int) -> Doing:
        """Whether anybody decides has changed. `why`: why not; empty: somebody does."""
        doing = Doing()
        self.without_control = why
        for request in list(self.requests.values()):
            if why and request.state is State.WAITING:
                own = self._own(request.row, Outcome.UNAVAILABLE, why, now_ns)
                _join(doing, self._answer(request, Step.LOSE_CONTROL, own, "manager", now_ns))
        return doing

    def unwritable(self, ids: Iterable[str], why: str, now_ns: int) -> Doing:
        """The store refuses these requests for good: nobody will ever answer them."""
        doing = Doing()
        for request in [self.requests[id] for id in ids if id in self.requests]:
            own = self._own(request.row, Outcome.UNAVAILABLE, why, now_ns)
            step = Step.FAIL if Step.FAIL in TRANSITIONS[request.state] else Step.ASK_NOBODY
            _join(doing, self._answer(request, step, own, "manager", now_ns))
        return doing

    def _told(self, kind: str, what: dict[str, Any], now_ns: int) -> Doing:
        """What clients do wrong is kept, but not as fast as they may do it: nobody fills a disk from outside."""
        doing = Doing()
        if kind == "group":
            doing.groups[str(what["id"])] = {key: value for key, value in what.items() if key != "id"}
        if not (audit := self._noted({"event": kind, "at_ns": now_ns, **what})):
            return doing
        second = now_ns // 1_000_000_000
        if second != self._second:
            if self._told_now > MOST_TOLD_PER_S:
                doing.log.append(("more was not kept", {"how_many": self._told_now - MOST_TOLD_PER_S}))
            self._second, self._told_now = second, 0
        self._told_now += 1
        if self._told_now <= MOST_TOLD_PER_S:
            doing.log += self._words(kind, what)
            doing.audit += audit
        return doing

    def _noted(self, entry: dict[str, Any]) -> list[dict[str, Any]]:
        """The entry of the audit log, unless its client has had it written already."""
        return [entry] if self._repeats.takes(entry) else []

    def summed_up(self, now_ns: int, *, last: bool = False) -> Doing:
        """Once a minute (or with `last`): what was left out of the audit log, because it was written already."""
        found = self._repeats.due(now_ns, last=last)
        if not found:
            return Doing()
        lines = {"lines": sum(entry["lines"] for entry in found), "of_clients": len(found)}
        return Doing(audit=found, log=[(SUMMED_UP, lines)])

    def _words(self, kind: str, what: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if kind != "peering":
            return [(_TOLD[kind], what)]
        about = str(what["about"])
        if what["problem"]:
            self._troubled.add(about)
            return [(_TOLD[kind], what)]
        if about not in self._troubled:
            return []
        self._troubled.discard(about)
        return [(WORKS_AGAIN, {"about": about})]

    def _asked(self, said: dict[str, Any], now_ns: int) -> Doing:
        connection, asker = _connection(said["connection"])
        row = _typed(
            RequestRow(
                id=said["id"],
                connection=connection.id,
                side=Side(said["side"]),
                topic=said["topic"],
                requirements=_requirements(said["requirements"]),
                revision=said["revision"],
                asked_ns=now_ns,
            )
        )
        id, before = row.id, self.requests.get(row.id)
        if before is not None:
            self._release(before)
        decision = policy.decide(self._rules, asker, row.side, row.topic, row.requirements, self._counting)
        row = replace(row, requirements=decision.requirements)
        state = before.state if before is not None else State.UNAVAILABLE
        request = self.requests[id] = Request(row, decision, asker, state)
        self._of.setdefault(connection.id, set()).add(id)
        doing = Doing(audit=self._noted(_audit_asked(request, now_ns)), touched={id: request})
        if not decision.allowed:
            if before is not None and before.state is not State.FORBIDDEN:
                doing.changes.append(Delete("requests", id))
            doing.forbidden += 1
            own = self._own(row, Outcome.REFUSED, decision.reason, now_ns)
            return _join(doing, self._answer(request, Step.FORBID, own, "manager", now_ns))
        self._hold(request)
        if self._connections.get(connection.id) != connection:
            self._connections[connection.id] = connection
            doing.changes.append(Put(connection))
        doing.changes.append(Put(row))
        if self.without_control:
            own = self._own(row, Outcome.UNAVAILABLE, self.without_control, now_ns)
            return _join(doing, self._answer(request, Step.ASK_NOBODY, own, "manager", now_ns))
        request.state = TRANSITIONS[state][Step.ASK]
        return doing

    def _withdrawn(self, ids: Iterable[str], now_ns: int) -> Doing:
        doing = Doing()
        for id in ids:
            request = self.requests.pop(id, None)
            if request is None:
                continue
            self._release(request)
            self._of.get(request.row.connection, set()).discard(id)
            if request.state is not State.FORBIDDEN:
                doing.changes.append(Delete("requests", id))
            doing.audit += self._noted({"event": "withdrawn", "at_ns": now_ns, "id": id, **_audit_who(request)})
            doing.touched[id] = None
        return doing

    def _closed(self, id: str, now_ns: int) -> Doing:
        doing = self._withdrawn(sorted(self._of.pop(id, set())), now_ns) if id in self._of else Doing()
        if self._connections.pop(id, None) is not None:
            doing.changes.append(Delete("connections", id))
        return doing

    def _answer(self, request: Request, step: Step, row: VerdictRow, by: str, now_ns: int) -> Doing:
        request.state = TRANSITIONS[request.state][step]
        request.verdict = row
        answered = {"event": "answered", "at_ns": now_ns, "by": by, **verdict_json(row), **_audit_who(request)}
        return Doing(verdicts=[row], audit=self._noted(answered), touched={row.id: request})

    def _own(self, row: RequestRow, outcome: Outcome, reason: str, now_ns: int) -> VerdictRow:
        """The manager's own answer."""
        return VerdictRow(
            id=row.id, revision=row.revision, outcome=outcome, reason=reason, priority=0, bound_ns=None, decided_ns=now_ns
        )  # fmt: skip

    def _counting(self, rule: str, key: str) -> Collection[policy.Held]:
        return self._held.get((rule, key), {}).values()

    def _hold(self, request: Request) -> None:
        held = request.decision.held
        self._held.setdefault((held.rule, held.key), {})[request.row.id] = held

    def _release(self, request: Request) -> None:
        held = request.decision.held
        of_key = self._held.get((held.rule, held.key), {})
        of_key.pop(request.row.id, None)
        if not of_key:
            self._held.pop((held.rule, held.key), None)


def verdict_json(row: VerdictRow) -> dict[str, Any]:
    """A verdict as the intermediary takes it (`Verdict` of the contract)."""
    return {key: value for key, value in asdict(row).items() if key != "decided_ns"}


def _join(first: Doing, second: Doing) -> Doing:
    first.changes += second.changes
    first.verdicts += second.verdicts
    first.audit += second.audit
    first.forbidden += second.forbidden
    first.log += second.log
    first.touched |= second.touched
    first.groups |= second.groups
    first.interests = first.interests if second.interests is None else second.interests
    return first


def join(doings: Iterable[Doing]) -> Doing:
    """All of them, in order."""
    whole = Doing()
    for doing in doings:
        _join(whole, doing)
    return whole


def _connection(said: dict[str, Any]) -> tuple[ConnectionRow, policy.Asker]:
    names = {each.name for each in fields(ConnectionRow)}
    parts = {key: value for key, value in said.items() if key in names}
    leg = parts.get("broker_leg")
    parts["broker_leg"] = None if leg is None else (str(leg[0]), int(leg[1]), str(leg[2]), int(leg[3]))
    row = _typed(ConnectionRow(**parts))
    ip_address(row.client_address)
    asker = policy.Asker(
        client_id=row.client_id, address=row.client_address, user=row.user, certificate=said.get("certificate")
    )
    return row, asker


Typed = TypeVar("Typed", ConnectionRow, RequestRow)


def _typed(row: Typed) -> Typed:
    """The row, if its values are of the types that it declares.

    Raises:
        ValueError: they are not.
    """
    checked = unflatten(table_of(row), flatten(row))
    assert isinstance(checked, type(row))
    return checked


def _filters(said: list[str]) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in said):
        raise TypeError("a filter that is no text")
    return tuple(said)


def _requirements(said: dict[str, Any]) -> Requirements:
    bandwidth = said.get("bandwidth_bps")
    return Requirements(
        **{**said, "bandwidth_bps": None if bandwidth is None else (int(bandwidth[0]), int(bandwidth[1]))}
    )


def _audit_who(request: Request) -> dict[str, Any]:
    """Every line says by itself whose it is: of those that are alike only the first is written."""
    return {**asdict(request.asker), "side": request.row.side.value, "topic": request.row.topic}


def _audit_asked(request: Request, now_ns: int) -> dict[str, Any]:
    row = request.row
    return {
        "event": "asked",
        "at_ns": now_ns,
        "id": row.id,
        "revision": row.revision,
        **_audit_who(request),
        "requirements": {key: value for key, value in asdict(row.requirements).items() if value is not None},
        "rule": request.decision.rule,
        "allowed": request.decision.allowed,
    }
