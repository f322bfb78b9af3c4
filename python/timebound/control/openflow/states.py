"""The states of a channel (`srt.rows.ChannelState`) and what leads from one to another. Pure.

| in | event | then |
|---|---|---|
| planned, installed, proven, broken | confirmed: every switch of the way has confirmed its rules | installed |
| installed | proved: a probe passed the whole way as promised | proven |
| planned, installed, proven, broken | failed: a switch refused, did not answer, a probe did not pass, a link or switch of the way is gone | broken |

Nothing but a proof that follows a confirmation leads to *proven*; so what is re-routed, re-installed or found again is proved anew.
"""

from __future__ import annotations

from enum import StrEnum

from timebound.control.srt.rows import ChannelState


class Event(StrEnum):
    """What happens to a channel."""

    CONFIRMED = "confirmed"
    PROVED = "proved"
    FAILED = "failed"


TRANSITIONS: dict[tuple[ChannelState, Event], ChannelState] = {
    (ChannelState.PLANNED, Event.CONFIRMED): ChannelState.INSTALLED,
    (ChannelState.INSTALLED, Event.CONFIRMED): ChannelState.INSTALLED,
    (ChannelState.PROVEN, Event.CONFIRMED): ChannelState.INSTALLED,
    (ChannelState.BROKEN, Event.CONFIRMED): ChannelState.INSTALLED,
    (ChannelState.INSTALLED, Event.PROVED): ChannelState.PROVEN,
    (ChannelState.PLANNED, Event.FAILED): ChannelState.BROKEN,
    (ChannelState.INSTALLED, Event.FAILED): ChannelState.BROKEN,
    (ChannelState.PROVEN, Event.FAILED): ChannelState.BROKEN,
    (ChannelState.BROKEN, Event.FAILED): ChannelState.BROKEN,
}


class NoTransitionError(Exception):
    """An event that cannot happen in a state: a defect of ours."""


def after(state: ChannelState, event: Event) -> ChannelState:
    """The state that follows. Raises `NoTransitionError`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise NoTransitionError(f"{event} while {state}") from None
