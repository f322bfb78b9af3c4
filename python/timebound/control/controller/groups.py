"""The life of a multicast group in the network, as the controller sees it, and what the table shows of it.

States and what leads from one to another are those of `channels`. What managers read is the *shown* row, which differs from the wanted one while
something changes: whoever is new is named when everything is proven, so that its branch is there before anything is sent to it; whoever
leaves is named no longer at once.

| wanted | what the table shows |
|---|---|
| new | the wanted row: planned, then installed, then proven |
| changed (members, tree, rate) | the old row with the members that stay and the lesser rate and burst, in its state; with the proof the wanted one |
| broken | the old row without those that have left, broken |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timebound.control.controller.channels import FIRST_RETRY_NS, LONGEST_RETRY_NS, TRANSITIONS
from timebound.control.enforcer import GroupOrder
from timebound.control.srt.rows import ChannelState, GroupRow

USABLE = (ChannelState.INSTALLED, ChannelState.PROVEN)
"""States in which managers send to a group."""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group that is wanted; `order.row.state` is its state."""

    order: GroupOrder
    shown: GroupRow | None = None
    """As the table has it; `None`: not yet."""
    reason: str = ""
    """Why it is broken."""
    failures: int = 0
    """How often it broke since it was proven last."""
    retry_ns: int | None = None
    """When it is ordered again."""

    @property
    def row(self) -> GroupRow:
        """As it is wanted."""
        return self.order.row

    @property
    def state(self) -> ChannelState:
        """Its state."""
        return self.row.state

    def ordered(self, order: GroupOrder, now_ns: int) -> HeldGroup:
        """Installed, or installed again."""
        row = replace(order.row, state=ChannelState.PLANNED, changed_ns=now_ns)
        shown = self.shown
        if shown is None or shown.state not in USABLE or shown.address != row.address or shown.priority != row.priority:
            shown = row
        else:
            staying = tuple(name for name in shown.members if name in row.members)
            # The meter is changed at once: nobody may rely on more than either of the two reservations has.
            rate, burst = min(shown.rate_bps, row.rate_bps), min(shown.burst_bytes, row.burst_bytes)
            kept = replace(shown, members=staying, request=row.request, changed_ns=now_ns)
            shown = replace(kept, rate_bps=rate, burst_bytes=burst) if staying else row
        return replace(self, order=replace(order, row=row), shown=shown, reason="", retry_ns=None)

    def told(self, state: ChannelState, reason: str, now_ns: int) -> HeldGroup:
        """After news from the network."""
        after = TRANSITIONS.get((self.state, state))
        if after is None:
            return self
        row = replace(self.row, state=after, changed_ns=now_ns)
        found = replace(self, order=replace(self.order, row=row), shown=self._shown(row))
        if after is not ChannelState.BROKEN:
            return replace(
                found, reason="", retry_ns=None, failures=0 if after is ChannelState.PROVEN else self.failures
            )
        wait = min(FIRST_RETRY_NS << min(self.failures, 10), LONGEST_RETRY_NS)
        return replace(found, reason=reason or "no reason given", failures=self.failures + 1, retry_ns=now_ns + wait)

    def _shown(self, row: GroupRow) -> GroupRow:
        before = self.shown
        if before is None or row.state is ChannelState.PROVEN:
            return row
        if row.state is ChannelState.BROKEN:
            return replace(before, state=ChannelState.BROKEN, changed_ns=row.changed_ns)
        # Installed: what is in use stays in use, and what was not may be used from now on.
        return before if before.state in USABLE else row

    def is_for(self, order: GroupOrder) -> bool:
        """Is this what the network has, or is about to have?"""
        row = replace(order.row, state=self.row.state, changed_ns=self.row.changed_ns)
        # Whose request it is, and what is promised over it, is nothing that switches know.
        return replace(order, row=row) == replace(
            self.order, row=replace(self.row, request=row.request, bound_ns=row.bound_ns)
        )

    def renamed(self, order: GroupOrder) -> HeldGroup:
        """The same reservation, with what has changed for people alone."""
        row = replace(self.row, request=order.row.request, bound_ns=order.row.bound_ns)
        shown = self.shown
        if shown is not None and shown.members == row.members:
            shown = replace(shown, request=row.request, bound_ns=row.bound_ns)
        return replace(self, order=replace(self.order, row=row), shown=shown)
