"""Multicast groups over a network of switches: orders, and hosts that send and hear."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.control.ovs_lab import Lab, in_namespace, until
from timebound.control.enforcer import GroupOrder
from timebound.control.srt.rows import (
    ChannelState,
    ConnectionRow,
    GroupRow,
    ManagerRow,
    RequestRow,
    Requirements,
    Row,
    Side,
)
from timebound.control.srt.store import Put, Role, Store, Writer, open_store

MS = 1_000_000
ADDRESS, PORT = "239.194.7.7", 1884


def order(name: str, links: str, **changes: object) -> GroupOrder:
    """From host 1, in class 5, 20 Mbit/s; `links` as `h1->s1 s1->s2 s2->h2`."""
    row: dict[str, object] = {
        "id": name, "origin": "m1", "request": "r", "topic": "t", "priority": 5, "address": ADDRESS, "members": ("m2",),
        "rate_bps": 20_000_000, "bound_ns": 1, "links": tree(links), "state": ChannelState.PLANNED,
    }  # fmt: skip
    burst = int(str(changes.pop("burst_bytes", 100_000)))
    return GroupOrder(
        row=GroupRow(**{**row, **changes}),  # type: ignore[arg-type]
        source_address=Lab.address(1),
        port=PORT,
        burst_bytes=burst,
    )


def tree(links: str) -> tuple[str, ...]:
    """Links by short names as the topology names them."""
    named = [link.split("->") for link in links.split()]
    return tuple("->".join(Lab.address(int(end[1:])) if end[0] == "h" else end for end in ends) for ends in named)


@dataclass
class Listener:
    """A host that has joined a group by IGMP, and everything that it heard."""

    lab: Lab
    number: int
    address: str = ADDRESS
    heard: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, number, DSCP."""
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            made.bind((self.address, PORT))
            interface = socket.inet_aton(Lab.address(self.number))
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(self.address) + interface)
            return made

        self._socket = in_namespace(self.lab.host(self.number), make)
        self._socket.settimeout(0.05)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                data, ancillary, _flags, _from = self._socket.recvmsg(2048, 64)
            except TimeoutError:
                continue
            tos = next((value[0] for _level, kind, value in ancillary if kind == socket.IP_TOS), 0)
            self.heard.append((time.monotonic(), struct.unpack("!Q", data[:8])[0], tos >> 2))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def numbers(self) -> Counter[int]:
        """How often each datagram came."""
        return Counter(number for _at, number, _mark in self.heard)

    def marks(self) -> set[int]:
        return {mark for _at, _number, mark in self.heard}


class Source:
    """Host 1, which sends numbered datagrams to a group."""

    def __init__(self, lab: Lab, address: str = ADDRESS) -> None:
        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(Lab.address(1)))
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
            made.bind((Lab.address(1), PORT))
            return made

        self._socket, self._address = in_namespace(lab.host(1), make), address
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.sent = 0

    def send(self, count: int, period_s: float = 0.002) -> range:
        """So many datagrams; their numbers."""
        first = self.sent
        for _ in range(count):
            self._one()
            time.sleep(period_s)
        return range(first, self.sent)

    def begin(self, period_s: float = 0.002) -> None:
        """Sends until it is closed."""

        def run() -> None:
            while not self._over.wait(period_s):
                self._one()

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def _one(self) -> None:
        self._socket.sendto(struct.pack("!Q", self.sent) + bytes(92), (self._address, PORT))
        self.sent += 1

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._socket.close()


# Managers of three networks, on hosts 1 to 3, with a client each on hosts 4 to 6 ------------------------------------------------------


@contextmanager
def beating(folder: Path) -> Iterator[dict[int, Store]]:
    """The table as each network's manager writes it, alive."""
    stores = {n: open_store(f"file:{folder / 'srt.db'}", Writer(Role.MANAGER, f"m{n}")) for n in (1, 2, 3)}
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            for number, store in stores.items():
                row = ManagerRow(
                    id=f"m{number}", addresses=(Lab.address(number),), ports=(1883,), broker_address="127.0.0.1", broker_port=1885,
                    version="1", beat_ns=time.time_ns(), network=str(number), peer_address=Lab.address(number), peer_port=PORT,
                )  # fmt: skip
                store.transact([Put(row)])
            over.wait(0.5)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        until(lambda: len(stores[1].snapshot().managers) == 3, 10, "the managers' rows")
        yield stores
    finally:
        over.set()
        thread.join()
        for store in stores.values():
            store.close()


def asked(network: int, side: Side, topic: str, period_ns: int = 200 * MS, qos: int = 1) -> list[Row]:
    """A request of the client in a network."""
    connection = ConnectionRow(
        id=f"k{network}", manager=f"m{network}", client_id=f"client{network}", user=None, client_address=Lab.address(network + 3),
        client_port=20_000 + network, manager_address=Lab.address(network), manager_port=1883,
    )  # fmt: skip
    wanted = Requirements(deadline_ns=200 * MS, period_ns=period_ns, size_bytes=200, qos=qos)
    request = RequestRow(
        id=f"q{network}", connection=connection.id, side=side, topic=topic,
        requirements=wanted if side is Side.PUBLISH else Requirements(qos=qos), revision=1, asked_ns=time.time_ns(),
    )  # fmt: skip
    return [connection, request]
