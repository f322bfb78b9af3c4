"""Why streams have no bound: the first causes, not what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from timebound.engine.orders import Orders
from timebound.engine.outcome import Outcome
from timebound.stacks import Stream


@dataclass(slots=True)
class Causes:
    """Why there is no bound, as it was found first: answers that promise nothing any more are only its consequence."""

    orders: Orders
    streams: dict[str, Stream]
    first: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    broken: dict[str, Outcome] = field(default_factory=dict)
    """Stream that follows one without a bound -> the outcome of that one."""

    def __post_init__(self) -> None:
        for name, stream in self.streams.items():
            if (reason := self.orders.upset(stream)) is not None:
                self.broken[name] = Outcome("no-finite-bound", reason=reason)

    def cut(self, outcomes: dict[tuple[str, str], Outcome]) -> dict[tuple[str, str], Outcome]:
        """The outcomes, without those that orders to hosts take away."""
        if not self.orders:
            return outcomes
        reasons = {
            (name, receiver): self.orders.cut(self.streams[name].source, [receiver]) for name, receiver in outcomes
        }
        return {
            key: outcome if (reason := reasons[key]) is None else Outcome("no-finite-bound", reason=reason)
            for key, outcome in outcomes.items()
        }

    def note(self, outcomes: dict[tuple[str, str], Outcome]) -> None:
        """Keeps the first outcome without a bound of every stream and receiver."""
        for key, outcome in outcomes.items():
            if outcome.reason is not None and key not in self.first:
                self.first[key] = self._root(outcome)

    def of(self, key: tuple[str, str], outcome: Outcome) -> Outcome:
        """The outcome with its first cause."""
        if outcome.reason is None:
            return outcome
        return self.first.get(key) or self._root(outcome)

    def _root(self, outcome: Outcome) -> Outcome:
        named = re.search(r'stream "([^"]+)" has no declared arrival', outcome.reason or "")
        return outcome if named is None else self.broken.get(named.group(1), outcome)
