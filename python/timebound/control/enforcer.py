"""What the controller's service needs of a network: its topology, and channels put into it and taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from timebound.control.srt.rows import ChannelRow, ChannelState
from timebound.control.topology import Topology


class Enforcer(Protocol):
    """A network that channels can be reserved in. Nothing here blocks; callbacks come on any thread, and must not block either."""

    def topology(self) -> Topology:
        """The network as it is known now."""

    def watch(self, changed: Callable[[Topology], None], state: Callable[[str, ChannelState, str], None]) -> None:
        """`changed` with every new topology; `state` with (channel id, new state, reason) whenever a channel's state changes."""

    def install(self, channel: ChannelRow, backup: tuple[str, ...] = ()) -> None:
        """Puts a channel into the network, or in the place of the one with the same id: without loss, the new way complete before the first
        switch uses it. `backup`: links of a disjoint way for fast failover; the caller has checked that it carries the channel, too.
        `state` tells when it is installed, proven, or broken (with the reason).
        """

    def remove(self, channel: str) -> None:
        """Takes a channel out; unknown ids are none of its business."""

    def close(self) -> None:
        """Gives back threads and sockets. Channels stay in the switches: a controller that restarts finds them there."""
