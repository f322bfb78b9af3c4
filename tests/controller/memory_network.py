"""A network in memory that behaves like one: channels take time to be installed and proven, fail when told to, and break with their links."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from timebound.control.enforcer import GroupOrder
from timebound.control.srt.rows import ChannelRow, ChannelState, GroupRow
from timebound.control.topology import Topology


@dataclass
class MemoryNetwork:
    """An `Enforcer`. Channels survive the controller, as they do in switches."""

    known: Topology
    delay_s: float = 0.002
    channels: dict[str, ChannelRow | GroupRow] = field(default_factory=dict)
    backups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)
    """Channels that are not proven."""
    silent: set[str] = field(default_factory=set)
    """Channels of which nothing is heard."""
    orders: list[tuple[str, str]] = field(default_factory=list)
    _watchers: list[tuple[Callable[[Topology], None], Callable[[str, ChannelState, str], None]]] = field(
        default_factory=list
    )
    _work: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def topology(self) -> Topology:
        return self.known

    def watch(self, changed: Callable[[Topology], None], state: Callable[[str, ChannelState, str], None]) -> None:
        self._watchers = [(changed, state)]

    def install(self, channel: ChannelRow, backup: tuple[str, ...] = ()) -> None:
        self.orders.append(("install", channel.id))
        self._work.put(lambda: self._install(channel, backup))

    def install_group(self, order: GroupOrder) -> None:
        self.orders.append(("install", order.row.id))
        self._work.put(lambda: self._install(order.row, ()))

    def adopted(self) -> None:
        self.orders.append(("adopted", ""))

    def remove(self, channel: str) -> None:
        self.orders.append(("remove", channel))
        self._work.put(lambda: self._remove(channel))

    def close(self) -> None:
        self._watchers = []

    def change(self, topology: Topology) -> None:
        """The network is another now: channels over links that are gone break, unless they have a way left."""
        self.known = topology
        for changed, _ in self._watchers:
            changed(topology)
        up = {link.name for link in topology.links.values() if link.up}
        for name, row in list(self.channels.items()):
            if not set(row.links) <= up and not (self.backups.get(name) and set(self.backups[name]) <= up):
                self._tell(name, ChannelState.BROKEN, "a link is gone")

    def _install(self, channel: ChannelRow | GroupRow, backup: tuple[str, ...]) -> None:
        if channel.id in self.silent:
            return
        up = {link.name for link in self.known.links.values() if link.up}
        if not set(channel.links) <= up:
            self._tell(channel.id, ChannelState.BROKEN, "no such link")
            return
        self.channels[channel.id], self.backups[channel.id] = channel, backup
        self._tell(channel.id, ChannelState.INSTALLED, "")
        time.sleep(self.delay_s)
        if channel.id in self.refusing:
            self._tell(channel.id, ChannelState.BROKEN, "no probe came through")
        else:
            self._tell(channel.id, ChannelState.PROVEN, "")

    def _remove(self, channel: str) -> None:
        self.channels.pop(channel, None)
        self.backups.pop(channel, None)

    def _tell(self, channel: str, state: ChannelState, reason: str) -> None:
        for _, told in self._watchers:
            told(channel, state, reason)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
