"""The frames that find links: LLDP (IEEE 802.1AB) that says, signed, which port of which switch it left. Pure.

Without the signature a host could invent links; with it it could only replay frames that it was sent, which `learned` notices as a port that is
both a link's and another's.
"""

from __future__ import annotations

import hmac
import struct

from timebound.control.openflow.frames import ETH_LLDP, mac_bytes
from timebound.control.topology import PortId

NEAREST_BRIDGE = "01:80:c2:00:00:0e"
_HEADER = struct.Struct("!6s6sH")
_END, _CHASSIS, _PORT, _TTL, _ORGANISATION = 0, 1, 2, 3, 127
_LOCALLY_ASSIGNED = 7
_SIGNATURE_OWNER = bytes.fromhex("067462") + b"\x01"
"""A locally administered organisation identifier, and our subtype."""
_SIGNATURE_SIZE = 16


def frame(port: PortId, source_mac: str, key: bytes, ttl_s: int) -> bytes:
    """What is sent out of a port."""
    body = b"".join(
        (
            _tlv(_CHASSIS, bytes([_LOCALLY_ASSIGNED]) + f"dpid:{port.switch:016x}".encode()),
            _tlv(_PORT, bytes([_LOCALLY_ASSIGNED]) + str(port.number).encode()),
            _tlv(_TTL, struct.pack("!H", ttl_s)),
            _tlv(_ORGANISATION, _SIGNATURE_OWNER + _sign(port, key)),
            _tlv(_END, b""),
        )
    )
    return _HEADER.pack(mac_bytes(NEAREST_BRIDGE), mac_bytes(source_mac), ETH_LLDP) + body


def sender(data: bytes, key: bytes) -> PortId | None:
    """The port that a frame left; `None`: not ours, or not as we sent it."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[2] != ETH_LLDP:
        return None
    values: dict[int, bytes] = {}
    offset = _HEADER.size
    while offset + 2 <= len(data):
        (head,) = struct.unpack_from("!H", data, offset)
        kind, size = head >> 9, head & 0x1FF
        offset += 2
        if kind == _END or offset + size > len(data):
            break
        values.setdefault(kind, data[offset : offset + size])
        offset += size
    return _port(values, key)


def _port(values: dict[int, bytes], key: bytes) -> PortId | None:
    chassis, number = values.get(_CHASSIS, b""), values.get(_PORT, b"")
    signature = values.get(_ORGANISATION, b"")
    if not (chassis.startswith(b"\x07dpid:") and number[:1] == b"\x07" and signature.startswith(_SIGNATURE_OWNER)):
        return None
    digits, port_digits = chassis[6:], number[1:]
    if len(digits) != 16 or not port_digits.isdigit() or len(port_digits) > 10:
        return None
    try:
        port = PortId(int(digits, 16), int(port_digits))
    except ValueError:
        return None
    return port if hmac.compare_digest(signature[len(_SIGNATURE_OWNER) :], _sign(port, key)) else None


def _sign(port: PortId, key: bytes) -> bytes:
    return hmac.digest(key, b"lldp" + struct.pack("!QQ", port.switch, port.number), "sha256")[:_SIGNATURE_SIZE]


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value
