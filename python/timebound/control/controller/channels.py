"""The life of a reservation in the network, as the controller sees it.

| from | event | to |
|---|---|---|
| any | `install`: it was ordered, as new or in the place of what it was | planned |
| planned, broken | `installed`: all switches confirmed | installed |
| proven | `installed`: it is proven anew | installed |
| planned, installed, broken | `proven`: a probe passed | proven |
| planned, installed, proven | `broken`: a switch refused, a probe was lost, a link is gone | broken |

An event that is not in the table changes nothing: news of an older order may come late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timebound.control.srt.rows import ChannelRow, ChannelState

P, N, V, B = ChannelState.PLANNED, ChannelState.INSTALLED, ChannelState.PROVEN, ChannelState.BROKEN

TRANSITIONS: dict[tuple[ChannelState, ChannelState], ChannelState] = {
    (P, N): N, (V, N): N, (B, N): N,
    (P, V): V, (N, V): V, (B, V): V,
    (P, B): B, (N, B): B, (V, B): B,
}  # fmt: skip
"""(state, what the network tells) -> state."""

FIRST_RETRY_NS = 1_000_000_000
LONGEST_RETRY_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation that is wanted; `row.state` is its state."""

    row: ChannelRow
    backup: tuple[str, ...] = ()
    reason: str = ""
    """Why it is broken."""
    failures: int = 0
    """How often it broke since it was proven last."""
    retry_ns: int | None = None
    """When it is ordered again."""

    @property
    def state(self) -> ChannelState:
        """Its state."""
        return self.row.state

    def ordered(self, row: ChannelRow, backup: tuple[str, ...], now_ns: int) -> Held:
        """Installed, or installed again."""
        row = replace(row, state=ChannelState.PLANNED, changed_ns=now_ns)
        return replace(self, row=row, backup=backup, reason="", retry_ns=None)

    def told(self, state: ChannelState, reason: str, now_ns: int) -> Held:
        """After news from the network."""
        after = TRANSITIONS.get((self.state, state))
        if after is None:
            return self
        row = replace(self.row, state=after, changed_ns=now_ns)
        if after is not ChannelState.BROKEN:
            return replace(
                self, row=row, reason="", retry_ns=None, failures=0 if after is ChannelState.PROVEN else self.failures
            )
        wait = min(FIRST_RETRY_NS << min(self.failures, 10), LONGEST_RETRY_NS)
        return replace(
            self, row=row, reason=reason or "no reason given", failures=self.failures + 1, retry_ns=now_ns + wait
        )

    def is_for(self, row: ChannelRow, backup: tuple[str, ...]) -> bool:
        """Is this what the network has, or is about to have?"""
        bare = replace(row, state=self.row.state, changed_ns=self.row.changed_ns)
        # Who needs it, and what is promised over it, is nothing that switches know.
        return self.backup == backup and bare == replace(self.row, requests=row.requests, bound_ns=row.bound_ns)

    def renamed(self, row: ChannelRow) -> Held:
        """The same reservation, with what has changed for people alone."""
        return replace(self, row=replace(self.row, requests=row.requests, bound_ns=row.bound_ns))
