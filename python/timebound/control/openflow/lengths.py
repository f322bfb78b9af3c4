"""Are the lengths inside a switch's answer possible? Pure.

os-ken walks through lists by the lengths that the message states, and never ends where one of them is zero. So they are looked at before it sees
them (OpenFlow 1.3.5, sections 7.2.2 to 7.2.4 and 7.3.5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from os_ken.ofproto import ofproto_v1_3 as ofp

_BODY = 16
_ACTIONS = (ofp.OFPIT_WRITE_ACTIONS, ofp.OFPIT_APPLY_ACTIONS, ofp.OFPIT_CLEAR_ACTIONS)
_FIXED = {
    ofp.OFPMP_PORT_STATS: ofp.OFP_PORT_STATS_SIZE,
    ofp.OFPMP_QUEUE: ofp.OFP_QUEUE_STATS_SIZE,
    ofp.OFPMP_PORT_DESC: ofp.OFP_PORT_SIZE,
}


class LengthError(ValueError):
    """A length that cannot be."""


def check_answer(data: bytes) -> None:
    """Raises `LengthError` for a multipart reply that is none, or that nobody here asks for."""
    if len(data) < _BODY:
        raise LengthError("an answer without a body")
    (kind,) = struct.unpack_from("!H", data, 8)
    if kind in _FIXED:
        if (len(data) - _BODY) % _FIXED[kind]:
            raise LengthError("an answer that is no whole number of entries")
    elif kind == ofp.OFPMP_FLOW:
        for start, end in _entries(data, _BODY, len(data), 0, 56):
            _check_flow(data, start, end)
    elif kind == ofp.OFPMP_GROUP_DESC:
        for start, end in _entries(data, _BODY, len(data), 0, 8):
            for bucket, bucket_end in _entries(data, start + 8, end, 0, 16):
                _drain(_entries(data, bucket + 16, bucket_end, 2, 8))
    elif kind == ofp.OFPMP_METER_CONFIG:
        for start, end in _entries(data, _BODY, len(data), 0, 8):
            _drain(_entries(data, start + 8, end, 2, 12))
    elif kind == ofp.OFPMP_METER:
        _drain(_entries(data, _BODY, len(data), 4, 40))
    else:
        raise LengthError(f"an answer of kind {kind} that nobody asked for")


def _check_flow(data: bytes, start: int, end: int) -> None:
    match = start + 48
    (size,) = struct.unpack_from("!H", data, match + 2)
    if size < 4 or match + _padded(size) > end:
        raise LengthError(f"a match of {size} bytes")
    for step, step_end in _entries(data, match + _padded(size), end, 2, 8):
        if struct.unpack_from("!H", data, step)[0] in _ACTIONS:
            _drain(_entries(data, step + 8, step_end, 2, 8))


def _entries(data: bytes, offset: int, end: int, at: int, least: int) -> Iterator[tuple[int, int]]:
    """Entries one after the other, each with its length `at` its beginning."""
    while offset < end:
        if offset + least > end:
            raise LengthError("an entry that does not fit")
        (size,) = struct.unpack_from("!H", data, offset + at)
        if size < least or offset + size > end:
            raise LengthError(f"an entry of {size} bytes")
        yield offset, offset + size
        offset += size


def _drain(entries: Iterator[tuple[int, int]]) -> None:
    for _entry in entries:
        pass


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8
