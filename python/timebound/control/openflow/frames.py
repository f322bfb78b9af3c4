"""Ethernet frames as bytes: what a controller must read of a host's first frames, ARP answers, and probes. Pure.

Whatever a host sends may arrive here, so nothing is believed before it was measured; `None` is what cannot be read.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import struct
from dataclasses import dataclass

BROADCAST = "ff:ff:ff:ff:ff:ff"
ETH_IPV4, ETH_ARP, ETH_VLAN, ETH_IPV6, ETH_LLDP = 0x0800, 0x0806, 0x8100, 0x86DD, 0x88CC
IGMP, TCP, UDP = 2, 6, 17
ARP_REQUEST, ARP_REPLY = 1, 2

_ETHERNET = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")


@dataclass(frozen=True, slots=True)
class Arp:
    """RFC 826, for IPv4 over Ethernet."""

    operation: int
    sender_mac: str
    sender: str
    target: str


@dataclass(frozen=True, slots=True)
class Ipv4:
    """What is read of an IPv4 header (RFC 791, RFC 2474)."""

    source: str
    destination: str
    dscp: int
    protocol: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """An Ethernet frame, a VLAN tag looked through."""

    source: str
    destination: str
    kind: int
    arp: Arp | None = None
    ipv4: Ipv4 | None = None

    @property
    def is_group(self) -> bool:
        """Is it addressed to many?"""
        return bool(int(self.destination[:2], 16) & 1)

    @property
    def sender(self) -> str | None:
        """The IPv4 address that its sender claims; `None`: none that is a host's."""
        claimed = self.arp.sender if self.arp else self.ipv4.source if self.ipv4 else None
        return claimed if claimed is not None and is_host_address(claimed) else None


def is_host_address(address: str) -> bool:
    """May a single host have this IPv4 address?"""
    value = ipaddress.IPv4Address(address)
    return not (
        value.is_multicast or value.is_unspecified or value.is_loopback or value == ipaddress.IPv4Address(-1 % 2**32)
    )


def is_host_mac(mac: str) -> bool:
    """May a single card have this address? Neither a group's, nor zero."""
    return not int(mac[:2], 16) & 1 and mac != "00:00:00:00:00:00"


def read(data: bytes) -> Frame | None:
    """Reads a frame; `None`: too short, or lengths that cannot be."""
    if len(data) < _ETHERNET.size:
        return None
    destination, source, kind = _ETHERNET.unpack_from(data)
    offset = _ETHERNET.size
    while kind == ETH_VLAN:
        if len(data) < offset + 4:
            return None
        kind = struct.unpack_from("!2xH", data, offset)[0]
        offset += 4
    ends = mac_text(source), mac_text(destination)
    if kind == ETH_ARP:
        arp = _read_arp(data[offset:])
        return None if arp is None else Frame(*ends, kind, arp=arp)
    if kind == ETH_IPV4:
        ipv4 = _read_ipv4(data[offset:])
        return None if ipv4 is None else Frame(*ends, kind, ipv4=ipv4)
    return Frame(*ends, kind)


def _read_arp(data: bytes) -> Arp | None:
    if len(data) < _ARP.size:
        return None
    hardware, protocol, hardware_size, protocol_size, operation, mac, sender, _target_mac, target = _ARP.unpack_from(
        data
    )
    if (hardware, protocol, hardware_size, protocol_size) != (1, ETH_IPV4, 6, 4):
        return None
    return Arp(operation, mac_text(mac), address_text(sender), address_text(target))


def _read_ipv4(data: bytes) -> Ipv4 | None:
    if len(data) < _IPV4.size:
        return None
    first, service, total, _id, _fragment, _ttl, protocol, _sum, source, destination = _IPV4.unpack_from(data)
    header = (first & 0xF) * 4
    if first >> 4 != 4 or header < _IPV4.size or not header <= total <= len(data):
        return None
    return Ipv4(address_text(source), address_text(destination), service >> 2, protocol, data[header:total])


def mac_text(mac: bytes) -> str:
    """Six bytes as text."""
    return mac.hex(":")


def mac_bytes(mac: str) -> bytes:
    """Text as six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


def address_text(address: bytes) -> str:
    """Four bytes as an IPv4 address."""
    return str(ipaddress.IPv4Address(address))


def address_bytes(address: str) -> bytes:
    """An IPv4 address as four bytes."""
    return ipaddress.IPv4Address(address).packed


def arp_reply(mac: str, address: str, to_mac: str, to_address: str) -> bytes:
    """`address` is at `mac`, said to who asked."""
    return _ETHERNET.pack(mac_bytes(to_mac), mac_bytes(mac), ETH_ARP) + _ARP.pack(
        1,
        ETH_IPV4,
        6,
        4,
        ARP_REPLY,
        mac_bytes(mac),
        address_bytes(address),
        mac_bytes(to_mac),
        address_bytes(to_address),
    )


# Probes ------------------------------------------------------------------------------------------------------------------------

_PROBE_PREFIX = 0x02
"""Locally administered (IEEE 802, section 8.4): no card is sold with it."""
SINK_MAC = "06:74:62:00:00:01"
"""Where probes are addressed to: no card takes it, so a probe that leaves the last port is ignored by whoever is there."""
_PROBE_MAGIC = b"TBPR"
_PROBE = struct.Struct("!4sQ16s")


def probe_mac(datapath: int) -> str:
    """The source address of probes that the switch with this datapath id catches: 40 bits of a hash of the id."""
    digest = hashlib.blake2b(struct.pack("!Q", datapath), digest_size=5, person=b"tb probe").digest()
    return mac_text(bytes([_PROBE_PREFIX]) + digest)


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """What tells the frames of a channel apart. A port of 0: any."""

    protocol: int
    source: str
    source_port: int
    destination: str
    destination_port: int


def probe(flow: FiveTuple, catcher: int, number: int, key: bytes) -> bytes:
    """A frame of the flow that the switch `catcher` hands to the controller. `number` says which probe it is, `key` that it is ours."""
    payload = _PROBE.pack(_PROBE_MAGIC, number, _signature(number, key))
    ends = struct.pack("!HH", flow.source_port, flow.destination_port)
    source, destination = address_bytes(flow.source), address_bytes(flow.destination)
    if flow.protocol == UDP:
        segment = ends + struct.pack("!HH", 8 + len(payload), 0) + payload
    else:
        # No flag at all: a stack that saw it would drop it (RFC 9293, section 3.10.7).
        segment = ends + struct.pack("!IIBBHHH", 0, 0, 5 << 4, 0, 0, 0, 0) + payload
        segment = segment[:16] + struct.pack("!H", _tcp_checksum(source, destination, segment)) + segment[18:]
    header = _IPV4.pack(0x45, 0, 20 + len(segment), 0, 0x4000, 64, flow.protocol, 0, source, destination)
    header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
    return _ETHERNET.pack(mac_bytes(SINK_MAC), mac_bytes(probe_mac(catcher)), ETH_IPV4) + header + segment


def probe_number(frame: Frame, key: bytes) -> int | None:
    """Which of our probes this frame is; `None`: none of them."""
    if frame.ipv4 is None:
        return None
    header = {UDP: 8, TCP: 20}.get(frame.ipv4.protocol)
    if header is None or len(frame.ipv4.payload) < header + _PROBE.size:
        return None
    magic, number, signature = _PROBE.unpack_from(frame.ipv4.payload, header)
    if magic != _PROBE_MAGIC or not hmac.compare_digest(signature, _signature(number, key)):
        return None
    return int(number)


def _signature(number: int, key: bytes) -> bytes:
    return hmac.digest(key, _PROBE_MAGIC + struct.pack("!Q", number), "sha256")[:16]


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def _tcp_checksum(source: bytes, destination: bytes, segment: bytes) -> int:
    return _checksum(source + destination + struct.pack("!HH", TCP, len(segment)) + segment)
