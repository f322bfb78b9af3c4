"""Switches behind `control.enforcer.Enforcer`: an event loop in a thread of its own, and calls into it from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from timebound.control.enforcer import GroupOrder
from timebound.control.openflow.counters import Counters
from timebound.control.openflow.monitor import Monitor
from timebound.control.openflow.multicast import Trees
from timebound.control.openflow.network import Network
from timebound.control.openflow.queues import Queues
from timebound.control.openflow.reservations import Reservations
from timebound.control.openflow.settings import Settings
from timebound.control.srt.rows import ChannelRow, ChannelState
from timebound.control.topology import Topology

log = logging.getLogger(__name__)

TopologyWatcher = Callable[[Topology], None]
StateWatcher = Callable[[str, ChannelState, str], None]


class OpenFlowEnforcer:
    """`Enforcer` over OpenFlow 1.3. It listens as soon as it is made; callbacks come on its own thread."""

    def __init__(self, settings: Settings, unreadable: Callable[[], None] = lambda: None) -> None:
        """`unreadable` is called, on its own thread, for each message of a switch that is malformed.

        Raises `OSError` where it cannot listen, `ValueError` where settings contradict each other or would be insecure."""
        self._settings = settings
        self._unreadable = unreadable
        self._topology = Topology({}, {}, {}, {})
        self._watchers: list[tuple[TopologyWatcher, StateWatcher]] = []
        self._closed = False
        self._begun: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self.port = 0
        """TCP port at which switches are expected."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="openflow", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    # Enforcer ----------------------------------------------------------------------------------------------------------------

    def topology(self) -> Topology:
        """The network as it is known now."""
        return self._topology

    def watch(self, changed: TopologyWatcher, state: StateWatcher) -> None:
        """See `Enforcer.watch`."""
        self._call(self._watchers.append, (changed, state))

    def install(self, channel: ChannelRow, backup: tuple[str, ...] = ()) -> None:
        """See `Enforcer.install`. After a failure the channel is reported broken, and what is in switches stays until it is removed or installed again."""
        self._call(self._reservations.install, channel, backup)

    def install_group(self, order: GroupOrder) -> None:
        """See `Enforcer.install_group`."""
        self._call(self._trees.install, order)

    def remove(self, channel: str) -> None:
        """See `Enforcer.remove`."""
        self._call(self._remove, channel)

    def close(self) -> None:
        """See `Enforcer.close`."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    # Beyond it ---------------------------------------------------------------------------------------------------------------

    def adopted(self) -> None:
        """See `Enforcer.adopted`; otherwise they go when `adopt_ns` is over."""
        self._call(self._reservations.adopted)

    def counters(self) -> Counters:
        """Loads of ports, queues and channels, as they were read last."""
        return self._monitor.latest

    # Thread ------------------------------------------------------------------------------------------------------------------

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # closed at this moment
                self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:  # it is raised again where the enforcer was made
            self._failure = error
            if self._begun.is_set():
                log.exception("openflow: the controller has ended")
        finally:
            self._begun.set()
            self._loop.close()

    async def _live(self) -> None:
        self._ended = asyncio.Event()
        self._queues = Queues(self._settings)
        self._reservations = Reservations(self._state, self._changed, self._queues.forget)
        self._trees = Trees(self._reservations, self._state)
        network = Network(self._settings, self._trees, self._trees.keep, self._unreadable)
        self._monitor = Monitor(network, self._trees.names)
        try:
            self._reservations.attach(network, self._queues.queued, self._queues.ready)
            self._trees.attach(network, self._queues.queued, self._queues.ready)
            self.port = await network.start()
            network.spawn(self._monitor.run())
            self._begun.set()
            await self._ended.wait()
        finally:
            await network.stop()
            await self._queues.close()

    def _changed(self, topology: Topology) -> None:
        self._topology = topology
        self._queues.changed(topology)
        for changed, _state in self._watchers:
            self._told(changed, topology)

    def _remove(self, id: str) -> None:
        if not self._trees.remove(id):
            self._reservations.remove(id)

    def _state(self, channel: str, state: ChannelState, reason: str) -> None:
        log.info("openflow: channel %s is %s%s", channel, state, f": {reason}" if reason else "")
        for _changed, watcher in self._watchers:
            self._told(watcher, channel, state, reason)

    @staticmethod
    def _told(watcher: Callable[..., None], *arguments: object) -> None:
        try:
            watcher(*arguments)
        except Exception:  # somebody else's mistake must not stop the switches' service
            log.exception("openflow: a watcher failed")
