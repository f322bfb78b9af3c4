"""What is stated of TCP in a host: how much it may have under way without an acknowledgement, and how it sends that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNKNOWN_WINDOW = 10
"""Segments that anybody's TCP may be taken to send before the first acknowledgement, and again after idle time (RFC 6928, section 2; RFC 5681,
section 4.1), and that receivers are asked to have room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """`None`: as the emulation sets it, which is enough for all that can be under way."""

    known: bool = True
    """`False`: somebody else's, of which nothing is known."""
    initial_window: int | None = None
    """Segments. The congestion window never falls below it while nothing is lost."""
    slow_start_after_idle: bool = False
    congestion_control: Literal["cubic", "reno", "bbr"] | None = None
    """`None`: cubic, or reno where the kernel allows nodes no cubic."""
    pacing: bool = False
    """Does it wait between segments although its window is open? bbr does."""
    receive_window: int | None = None
    """Bytes that it lets others send without an acknowledgement, at least."""
    send_buffer: int | None = None
    """Bytes under way or waiting that it has room for, at least."""

    @property
    def is_paced(self) -> bool:
        return self.pacing or self.congestion_control == "bbr"


OURS = Tcp()
SOMEBODYS = Tcp(known=False)
