"""Hardware in the loop in the resolved scenario: real interfaces and virtual machines as nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A real network interface of the host that emulates."""

    name: str
    use: Literal["device", "card"] = "device"
    """`device`: the end of an emulated link, the node is what lies behind the cable; `card`: a second card of the node."""
    addresses: tuple[str, ...] = ()
    """Of a card in its node, `192.0.2.7/24`; none: those that it has on the host."""
    learn_ns: int = 5_000_000_000
    """How long a device may take to answer ARP where its MAC address is not stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine; paths are relative to the scenario's folder."""

    image: str | None = None
    kernel: str | None = None
    initrd: str | None = None
    append: str = ""
    memory_bytes: int = 134_217_728
    cpus: int = 1
    accel: Literal["auto", "tcg", "kvm"] = "auto"
    card: Literal["virtio", "e1000"] = "virtio"
    ready_port: int | None = None
    boot_ns: int = 120_000_000_000
    shutdown_ns: int = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Computer:
    """One of the two machines that emulate a network together."""

    name: str
    address: str
    """IPv4 address on the network between the two."""
    nodes: tuple[str, ...]
