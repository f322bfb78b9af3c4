"""Reads counters of ports, queues, meters and rules of all switches, again and again. On the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from os_ken.ofproto import ofproto_v1_3_parser as parser

from timebound.control.openflow.counters import Counters, Window, summary
from timebound.control.openflow.network import Network
from timebound.control.openflow.rules import OWNER_MASK, Kind, cookie
from timebound.control.openflow.session import SwitchError
from timebound.control.openflow.switchbox import SwitchBox
from timebound.control.topology import PortId

log = logging.getLogger(__name__)

_UNKNOWN = 1 << 63
"""Counters that a switch does not keep are all ones."""


class Monitor:
    """Polls, and keeps the last window."""

    def __init__(self, network: Network, channels: Callable[[], dict[int, str]]) -> None:
        """`channels`: ids by the cookie of their rules."""
        self._network = network
        self._channels = channels
        self._window = Window(network.settings.times.window_ns)
        self.latest = Counters()

    async def run(self) -> None:
        """For ever."""
        times = self._network.settings.times
        while True:
            await asyncio.sleep(times.poll_ns / 1e9)
            boxes = [box for box in self._network.boxes.values() if box.ready.is_set()]
            await asyncio.gather(*(self._poll(box) for box in boxes))
            now = self._network.now_ns()
            self._window.forget_older(now - times.window_ns - 2 * times.poll_ns)
            self.latest = summary(self._window, now)

    async def _poll(self, box: SwitchBox) -> None:
        try:
            session = box.connected
            answers: list[Any] = await asyncio.gather(
                session.ask(parser.OFPPortStatsRequest(session.switch)),
                session.ask(parser.OFPQueueStatsRequest(session.switch)),
                session.ask(
                    parser.OFPFlowStatsRequest(
                        session.switch, cookie=cookie(Kind.CHANNEL, 0), cookie_mask=OWNER_MASK | 0xFF << 40
                    )
                ),
                session.ask(parser.OFPMeterStatsRequest(session.switch)),
                return_exceptions=True,
            )
        except SwitchError:
            return
        ports, queues, rules, meters = answers
        now = self._network.now_ns()
        self._take_ports(box, now, ports)
        self._take_queues(box, now, queues)
        self._take_channels(now, rules, meters)

    def _take_ports(self, box: SwitchBox, now: int, stats: Any) -> None:
        for port in _list(stats):
            values = (port.rx_bytes, port.tx_bytes, port.rx_packets, port.tx_packets)
            dropped, errors = (
                _known(port.rx_dropped) + _known(port.tx_dropped),
                _known(port.rx_errors) + _known(port.tx_errors),
            )
            key = ("port", box.datapath, int(port.port_no))
            before = self._window.latest(key)
            if before is not None and _known(port.rx_packets) > before[2]:
                self._network.learned.frames_came(PortId(box.datapath, int(port.port_no)), now)
            self._window.add(key, now, (*map(_known, values), dropped, errors))

    def _take_queues(self, box: SwitchBox, now: int, stats: Any) -> None:
        for queue in _list(stats):
            key = ("queue", box.datapath, int(queue.port_no), int(queue.queue_id))
            self._window.add(key, now, tuple(map(_known, (queue.tx_bytes, queue.tx_packets, queue.tx_errors))))

    def _take_channels(self, now: int, rules: Any, meters: Any) -> None:
        """The rule with a meter is the one at the first switch."""
        names = self._channels()
        policed = {int(m.meter_id): sum(_known(b.packet_band_count) for b in m.band_stats) for m in _list(meters)}
        for rule in _list(rules):
            used = [int(step.meter_id) for step in rule.instructions if hasattr(step, "meter_id")]
            name = names.get(int(rule.cookie))
            if used and name is not None:
                values = (_known(rule.byte_count), _known(rule.packet_count), policed.get(used[0], 0))
                self._window.add(("channel", name), now, values)


def _list(answer: Any) -> list[Any]:
    """A switch that does not know a kind of counters has none of them."""
    return answer if isinstance(answer, list) else []


def _known(counter: Any) -> int:
    return 0 if int(counter) >= _UNKNOWN else int(counter)
