"""A controller over a network of switches, what it said, and traffic of hosts."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.control.ovs_lab import Lab, in_namespace, until
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.openflow.settings import QueueMode, Settings, SwitchSettings, Times
from timebound.control.srt.rows import ChannelRow, ChannelState
from timebound.control.topology import Topology

MS = 1_000_000
QUICK = Times(lldp_period_ns=300 * MS, lldp_lost_after_ns=1000 * MS, settle_ns=1500 * MS, poll_ns=200 * MS)


@dataclass
class Controller:
    """An enforcer and what it reported."""

    enforcer: OpenFlowEnforcer
    states: list[tuple[float, str, ChannelState, str]] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)

    def of(self, channel: str) -> list[tuple[ChannelState, str]]:
        """Reports of one channel."""
        return [(state, reason) for _at, name, state, reason in self.states if name == channel]

    def settled(self, channel: str, within_s: float = 5.0, *, after: int = 0) -> tuple[ChannelState, str]:
        """Waits until a channel is proven or broken, leaving the first `after` reports aside."""
        ends = (ChannelState.PROVEN, ChannelState.BROKEN)
        until(
            lambda: any(s in ends for s, _reason in self.of(channel)[after:]), within_s, f"{channel} proven or broken"
        )
        return next(report for report in self.of(channel)[after:] if report[0] in ends)

    def links_up(self) -> int:
        """Links between switches, each direction."""
        return sum(link.up for link in self.enforcer.topology().links.values() if link.out and link.into)


def site(lab: Lab, **changes: object) -> Settings:
    """Switches by name; everything else by default."""
    switches = tuple(SwitchSettings(name=f"s{n}", datapath=n) for n in range(1, lab.switches + 1))
    return Settings(**{"port": 0, "switches": switches, "times": QUICK, **changes})  # type: ignore[arg-type]


def queued_site(lab: Lab) -> Settings:
    """With queues of the switches' own."""
    switches = tuple(
        SwitchSettings(name=f"s{n}", datapath=n, queues=QueueMode.OVSDB, ovsdb=lab.database)
        for n in range(1, lab.switches + 1)
    )
    return site(lab, switches=switches)


@contextlib.contextmanager
def controller(lab: Lab, settings: Settings, *, connect: str | None = "tcp:127.0.0.1:{port}") -> Iterator[Controller]:
    """Runs beside the switches, and finds them."""
    made = Controller(in_namespace(lab.inside, lambda: OpenFlowEnforcer(settings)))
    try:
        made.enforcer.watch(made.topologies.append, lambda *report: made.states.append((time.monotonic(), *report)))
        if connect is not None:
            lab.connect(connect.format(port=made.enforcer.port))
            until(lambda: made.links_up() == 2 * len(lab.links), 15, "all links")
        yield made
    finally:
        made.enforcer.close()


def introduce(lab: Lab, made: Controller) -> None:
    """All hosts are heard of, because the first one asks for them."""
    for number in range(2, len(lab.hosts) + 1):
        until(lambda number=number: lab.ping(1, number), 10, f"h1 reaches h{number}")
    until(lambda: len(made.enforcer.topology().hosts) == len(lab.hosts), 5, "all hosts")


def way(lab: Lab, *nodes: str) -> tuple[str, ...]:
    """Names of links along `h1`, `s1`, ..., `h2`; hosts are named by their addresses."""
    names = [Lab.address(int(node[1:])) if node[0] == "h" else node for node in nodes]
    return tuple(f"{a}->{b}" for a, b in itertools.pairwise(names))


def channel(lab: Lab, name: str, nodes: str, **changes: object) -> ChannelRow:
    """From port 5000 of the first host to port 6000 of the last one, in class 5, 2 Mbit/s. The burst is generous: a switch in user space that had to
    wait for the processor sees frames at once that came one after the other."""
    steps = nodes.split()
    values: dict[str, object] = {
        "id": name,
        "connection": "k1",
        "requests": (),
        "protocol": "udp",
        "source_address": Lab.address(int(steps[0][1:])),
        "source_port": 5000,
        "destination_address": Lab.address(int(steps[-1][1:])),
        "destination_port": 6000,
        "priority": 5,
        "rate_bps": 2_000_000,
        "burst_bytes": 100_000,
        "links": way(lab, *steps),
        "bound_ns": 1,
        "state": ChannelState.PLANNED,
    }
    return ChannelRow(**{**values, **changes})  # type: ignore[arg-type]


@dataclass
class Stream:
    """Numbered datagrams at a steady rate, and when they arrived with which mark."""

    sender: socket.socket
    receiver: socket.socket
    to: tuple[str, int]
    period_s: float = 0.001
    size: int = 100
    mark: int = 0
    """DSCP that the sender writes."""
    sent: int = 0
    arrived: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Time of arrival and DSCP, by number."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Stream:
        self.sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.mark << 2)
        self.receiver.settimeout(0.1)
        self._threads = [threading.Thread(target=work) for work in (self._receive, self._send)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends sending, lets what is under way arrive."""
        if not self._ended.is_set():
            self._ended.set()
            for thread in self._threads:
                thread.join()
            self.sender.close()
            self.receiver.close()

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            self.sender.sendto(struct.pack("!Q", self.sent) + bytes(self.size - 8), self.to)
            self.sent += 1
            # Nothing is made up for after a stall: that would be a burst, which a channel's first switch may drop.
            due = max(due + self.period_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        quiet = 0
        while quiet < 3:
            try:
                data, ancillary, _flags, _from = self.receiver.recvmsg(2048, 64)
            except TimeoutError:
                quiet += self._ended.is_set()
                continue
            tos = next(
                (int.from_bytes(value[:1], "little") for _level, kind, value in ancillary if kind == socket.IP_TOS), 0
            )
            self.arrived[struct.unpack("!Q", data[:8])[0]] = (time.monotonic(), tos >> 2)

    @property
    def lost(self) -> list[int]:
        """Numbers that never arrived."""
        return [number for number in range(self.sent) if number not in self.arrived]

    def longest_gap_s(self) -> float:
        """Between two arrivals that follow each other."""
        times = sorted(at for at, _mark in self.arrived.values())
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)

    def marks(self, since: int = 0) -> set[int]:
        """DSCP of what arrived."""
        return {mark for number, (_at, mark) in self.arrived.items() if number >= since}


def stream(
    lab: Lab, source: int = 1, target: int = 2, *, ports: tuple[int, int] = (5000, 6000), **more: object
) -> Stream:
    """From host to host; by default the frames of `channel`, of which no switch has cached what it did with others before."""
    lab.forget_flows()
    sockets = lab.udp(source, ports[0]), lab.udp(target, ports[1])
    return Stream(*sockets, (Lab.address(target), ports[1]), **more)  # type: ignore[arg-type]
