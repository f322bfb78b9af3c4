"""Admission: may this stream join those that are there?

The state keeps the bounds of all streams and follows each change to the numbers that depend on it; every answer is what a full
analysis of the resulting network says (crates/bounds/src/admission, docs/admission.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from timebound import _core
from timebound.engine.core import problem_at
from timebound.engine.predict import network_of
from timebound.scenario.problems import ScenarioError
from timebound.stacks import Plan, Stream


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a request."""

    admitted: bool
    bounds_ns: dict[str, int | None]
    """Receiver -> bound from the nominal release; empty where refused, None without a bound."""
    touched: int
    """Streams whose bounds the request changes, itself included; 0 where refused."""
    breaches: tuple[dict[str, Any], ...] = ()
    """What would break, the gravest first (`Breach` of crates/bounds; at most 16)."""
    texts: tuple[str, ...] = ()
    """The same in words."""
    total: int = 0
    """How many breaches there are."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What would still be admitted in the place of a stream; None: nothing."""

    smallest_period_ns: int | None
    smallest_deadline_ns: int | None
    """Its own bound, if nothing else breaks."""
    lowest_class: int | None
    largest_rate_bps: int | None
    """Of a token bucket."""
    decisions: int
    """How many decisions the search took."""


class Admission:
    """Bounds of all streams of a network, kept while streams join, leave and change. Threads may share it."""

    def __init__(self, plan: Plan, streams: Iterable[Stream], *, check_buffers: bool = False) -> None:
        """The plan's network with these streams, which are there without being asked about, also where they miss deadlines.

        With `check_buffers` a request is refused, too, if the queue of a class could exceed its room.

        Raises:
            ScenarioError: the network does not compile with them.
        """
        declaration = network_of(plan).declaration
        there = [stream.declaration() for stream in streams]
        self._plan = plan
        text, options = json.dumps({**declaration, "streams": there}), json.dumps({"check_buffers": check_buffers})
        try:
            self._state = _core.Admission(text, options)
        except ValueError as error:
            raise self._error(error, "flows") from None

    def add(self, stream: Stream) -> Decision:
        """Lets a stream join if every stream with a deadline keeps it and no port is overloaded; else nothing changes.

        Raises:
            ScenarioError: it is none that this network can carry, or its name is taken.
        """
        return self._decision(stream, lambda text: self._state.add(text))

    def decide(self, stream: Stream) -> Decision:
        """The answer of `add`, often long before the new bounds are known: those are worked out by `settle`, or as soon as somebody asks
        for one. An answer has none of them (`bounds_ns` and `touched` say nothing). Raises as `add`.
        """
        answer = json.loads(self._answer(stream, lambda text: self._state.decide(text)))
        return Decision(True, {}, 0) if answer["admitted"] else _refused(answer)

    def settle(self) -> None:
        """Works out the bounds that `decide` and `remove` left for later, and makes ready what the next `decide` reads."""
        self._state.settle()

    @property
    def is_settled(self) -> bool:
        """Are all bounds worked out?"""
        return self._state.is_settled()

    def ask(self, stream: Stream) -> Decision:
        """What `add` would answer; nobody joins. Raises as `add`."""
        return self._decision(stream, lambda text: self._state.add(text, only_ask=True))

    def change(self, name: str, stream: Stream) -> Decision:
        """Puts a stream in the place of the one named so, if that may be; else nothing changes. Raises as `add`.

        Raises:
            KeyError: there is none of this name.
        """
        return self._decision(stream, lambda text: self._state.change(name, text))

    def remove(self, name: str) -> None:
        """Takes a stream out.

        Raises:
            KeyError: there is none of this name.
        """
        self._state.remove(name)

    def alternatives(self, stream: Stream, replaced: str | None = None) -> Alternatives:
        """What would still be admitted in the place of `stream`, and of the one named `replaced` (else of its own name). Nothing changes.

        Raises:
            ScenarioError: the stream is none that this network can carry.
            KeyError: there is none named `replaced`.
        """
        return Alternatives(**_told(self._answer(stream, lambda text: self._state.alternatives(text, replaced))))

    def uncovered(self) -> list[str]:
        """The ports (`a->b`) for which a prediction has bounds and a state has none: with deficit round robin, of a half-duplex medium, with slots."""
        return self._state.uncovered()

    def names(self) -> list[str]:
        """The streams that are there, sorted."""
        return self._state.names()

    def bounds_ns(self, name: str) -> dict[str, int | None]:
        """Receiver -> bound of a stream from the nominal release.

        Raises:
            KeyError: there is none of this name.
        """
        return _bounds(json.loads(self._state.result(name)))

    def _decision(self, stream: Stream, ask: Any) -> Decision:
        answer = json.loads(self._answer(stream, ask))
        if answer["admitted"]:
            return Decision(True, _bounds(answer["result"]), answer["touched"])
        return _refused(answer)

    def _answer(self, stream: Stream, ask: Any) -> str:
        try:
            return str(ask(json.dumps(stream.declaration())))
        except ValueError as error:
            raise self._error(error, self._plan.origins.get(stream.name, "flows")) from None

    def _error(self, error: ValueError, origin: str) -> ScenarioError:
        try:
            found = json.loads(str(error))
        except json.JSONDecodeError:
            # A value of another type or range than the core takes, which no scenario gives it.
            found = [{"message": str(error), "hint": "see `StreamDecl` of crates/model for what a stream may be"}]
        return ScenarioError(
            [problem_at(self._plan.scenario, origin, problem["message"], problem["hint"]) for problem in found]
        )


def _refused(answer: dict[str, Any]) -> Decision:
    return Decision(False, {}, 0, tuple(answer["breaches"]), tuple(answer["texts"]), answer["total"])


def _bounds(result: dict[str, Any]) -> dict[str, int | None]:
    return {leaf["receiver"]: leaf["outcome"].get("from_nominal_ns") for leaf in result["leaves"]}


def _told(text: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text)
    return answer
