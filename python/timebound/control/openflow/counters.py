"""Counters of switches, and what they say of load: rates over a window. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from timebound.control.topology import PortId

Key = tuple[str | int, ...]


class Window:
    """Counters by key over the last while. A counter that falls (the switch was restarted, a rule replaced) begins anew."""

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._samples: dict[Key, deque[tuple[int, tuple[int, ...]]]] = {}

    def add(self, key: Key, now_ns: int, values: tuple[int, ...]) -> None:
        """What was read now."""
        samples = self._samples.setdefault(key, deque())
        if samples and any(value < before for value, before in zip(values, samples[-1][1], strict=True)):
            samples.clear()
        samples.append((now_ns, values))
        # The last one that is older than the window stays: rates are taken over the whole of it.
        while len(samples) > 2 and samples[1][0] <= now_ns - self._length_ns:
            samples.popleft()

    def rates(self, key: Key) -> tuple[float, ...] | None:
        """Per second, between the oldest and the newest sample; `None`: not two yet."""
        samples = self._samples.get(key)
        if not samples or len(samples) < 2 or samples[-1][0] == samples[0][0]:
            return None
        seconds = (samples[-1][0] - samples[0][0]) / 1e9
        return tuple((new - old) / seconds for old, new in zip(samples[0][1], samples[-1][1], strict=True))

    def latest(self, key: Key) -> tuple[int, ...] | None:
        """As it was read last."""
        samples = self._samples.get(key)
        return samples[-1][1] if samples else None

    def forget_older(self, than_ns: int) -> None:
        """Drops what was not read since."""
        for key in [key for key, samples in self._samples.items() if samples[-1][0] < than_ns]:
            del self._samples[key]

    def known(self) -> list[Key]:
        """In order."""
        return sorted(self._samples, key=lambda key: tuple(map(str, key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLoad:
    """Bytes are as the switch counts them (Ethernet frames without preamble, check sequence and gap)."""

    port: PortId
    receive_bps: float
    send_bps: float
    receive_packets_per_s: float
    send_packets_per_s: float
    dropped: int
    """Frames, both directions, since the port began to count."""
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """A queue of a port."""

    port: PortId
    queue: int
    send_bps: float
    send_packets_per_s: float
    dropped: int
    """Frames for which there was no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLoad:
    """A channel at its first switch."""

    channel: str
    bps: float
    packets_per_s: float
    packets: int
    policed: int
    """Frames that its meter dropped."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Everything at one moment."""

    at_ns: int = 0
    """The controller's steady clock."""
    ports: Mapping[PortId, PortLoad] = field(default_factory=dict)
    queues: Mapping[tuple[PortId, int], QueueLoad] = field(default_factory=dict)
    channels: Mapping[str, ChannelLoad] = field(default_factory=dict)


def summary(window: Window, now_ns: int) -> Counters:
    """Loads of whatever was read at least twice."""
    ports: dict[PortId, PortLoad] = {}
    queues: dict[tuple[PortId, int], QueueLoad] = {}
    channels: dict[str, ChannelLoad] = {}
    for key in window.known():
        rates, latest = window.rates(key), window.latest(key)
        if rates is None or latest is None:
            continue
        match key:
            case ("port", int(switch), int(number)):
                port = PortId(switch, number)
                ports[port] = PortLoad(
                    port=port,
                    receive_bps=rates[0] * 8,
                    send_bps=rates[1] * 8,
                    receive_packets_per_s=rates[2],
                    send_packets_per_s=rates[3],
                    dropped=latest[4],
                    errors=latest[5],
                )
            case ("queue", int(switch), int(number), int(queue)):
                port = PortId(switch, number)
                queues[port, queue] = QueueLoad(
                    port=port,
                    queue=queue,
                    send_bps=rates[0] * 8,
                    send_packets_per_s=rates[1],
                    dropped=latest[2],
                )
            case ("channel", str(channel)):
                channels[channel] = ChannelLoad(
                    channel=channel,
                    bps=rates[0] * 8,
                    packets_per_s=rates[1],
                    packets=latest[1],
                    policed=latest[2],
                )
    return Counters(now_ns, ports, queues, channels)
