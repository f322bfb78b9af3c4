"""What the controller's service needs of a network: its topology, and channels put into it and taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from timebound.control.srt.rows import ChannelRow, ChannelState, GroupRow
from timebound.control.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """A multicast tree that is wanted, with what switches must know beside its row."""

    row: GroupRow
    """With all members that are to be reached."""
    source_address: str
    """From which its origin sends."""
    port: int
    """UDP, of all members."""
    burst_bytes: int
    """Of the meter at the first switch."""


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

    def install_group(self, order: GroupOrder) -> None:
        """Puts a multicast tree into the network, or in the place of the one with the same id: new branches are complete before anything is sent
        into them. `state` tells by the row's id when all members are reached (proven)."""

    def adopted(self) -> None:
        """After a start: everything that is wanted was installed, so other channels and groups that are found in the network are nobody's."""

    def remove(self, channel: str) -> None:
        """Takes a channel or group out; unknown ids are none of its business."""

    def close(self) -> None:
        """Gives back threads and sockets. Channels stay in the switches: a controller that restarts finds them there."""
