"""Frames and capture files written byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

MACS = bytes.fromhex("020000000002020000000001")
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def pcap(path: Path, frames: list[bytes], *, snap: int = 65_535, step_ns: int = 1_000_000) -> Path:
    """A classic capture with nanosecond stamps, one frame every `step_ns`."""
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, 1)]
    for index, frame in enumerate(frames):
        seconds, nanos = divmod(index * step_ns, 1_000_000_000)
        out.append(struct.pack("<IIII", 1_000 + seconds, nanos, len(frame), len(frame)) + frame)
    path.write_bytes(b"".join(out))
    return path


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(protocol: int, payload: bytes, source: int = 1, target: int = 2, *, fragment: int = 0) -> bytes:
    """An Ethernet frame with an IPv4 packet from 10.0.0.`source` to 10.0.0.`target`."""
    header = struct.pack(
        ">BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(payload),
        7,
        fragment,
        64,
        protocol,
        0,
        bytes([10, 0, 0, source]),
        bytes([10, 0, 0, target]),
    )
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return MACS + b"\x08\x00" + header + payload


def tcp(
    payload: bytes = b"",
    *,
    flags: int = ACK,
    seq: int = 1,
    ack: int = 1,
    ports: tuple[int, int] = (20_000, 1883),
    back: bool = False,
) -> bytes:
    """A segment from .1 to .2, or `back`."""
    sport, dport = reversed(ports) if back else ports
    header = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 65_000, 0, 0)
    return ip(6, header + payload, *((2, 1) if back else (1, 2)))


def udp(payload: bytes) -> bytes:
    return ip(17, struct.pack(">HHHH", 5_000, 5_001, 8 + len(payload), 0) + payload)


def arp() -> bytes:
    body = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + MACS[6:] + bytes([10, 0, 0, 1]) + bytes(6) + bytes([10, 0, 0, 2])
    return b"\xff" * 6 + MACS[6:] + b"\x08\x06" + body


def unreachable(frame: bytes) -> bytes:
    """ICMP port unreachable, which carries the beginning of the frame's packet."""
    body = b"\x03\x03\0\0\0\0\0\0" + frame[14:70]
    return ip(1, body[:2] + struct.pack(">H", checksum(body)) + body[4:], 2, 1)


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def connect() -> bytes:
    body = b"\0\4MQTT\4\2\0\x3c\0\2t1"
    return b"\x10" + varint(len(body)) + body


def publish(payload: bytes, qos: int = 1) -> bytes:
    body = b"\0\1t" + (b"\0\7" if qos else b"") + payload
    return bytes([0x30 | qos << 1]) + varint(len(body)) + body


PUBACK = b"\x40\x02\0\x07"
PINGREQ = b"\xc0\0"
