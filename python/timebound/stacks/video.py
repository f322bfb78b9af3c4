"""A video of a constant rate for programs that stream one: MPEG-2 (ISO/IEC 13818-2), as an elementary stream. Pure.

Every picture is a small grey one, coded on its own; user data (clause 6.3.4.1), which decoders skip, makes it as large as a picture of a real video
at that rate: the first of each group of twelve has four times the bytes of the others.
"""

from __future__ import annotations

from collections.abc import Iterator

PICTURES_PER_S = 25
GROUP, FIRST_TO_OTHERS = 12, 4
WIDTH, HEIGHT = 64, 48
_BLOCK = 16
_INTRA = 1
_NO_LIMIT = 0xFFFF


class _Bits:
    def __init__(self) -> None:
        self._value, self._length = 0, 0

    def put(self, value: int, width: int) -> _Bits:
        self._value, self._length = self._value << width | value, self._length + width
        return self

    def bytes(self) -> bytes:
        """Filled up with zeros to a whole number of bytes."""
        padding = -self._length % 8
        return (self._value << padding).to_bytes((self._length + padding) // 8, "big")


def _unit(code: int, content: bytes) -> bytes:
    return b"\0\0\1" + bytes([code]) + content


def _sequence() -> bytes:
    header = _Bits().put(WIDTH, 12).put(HEIGHT, 12)
    # Square samples, 25 pictures a second, bit rate not stated (all ones), marker, buffer size, default matrices.
    header.put(1, 4).put(3, 4).put((1 << 18) - 1, 18).put(1, 1).put(20, 10).put(0, 3)
    # Main profile at main level, progressive, 4:2:0.
    extension = _Bits().put(1, 4).put(0x48, 8).put(1, 1).put(1, 2).put(0, 16).put(1, 1).put(0, 16)
    # Group of pictures: time code 0 with its marker, closed.
    group = _Bits().put(0, 12).put(1, 1).put(0, 12).put(1, 1).put(0, 1)
    return _unit(0xB3, header.bytes()) + _unit(0xB5, extension.bytes()) + _unit(0xB8, group.bytes())


def _picture_header(number: int) -> bytes:
    header = _Bits().put(number, 10).put(_INTRA, 3).put(_NO_LIMIT, 16).put(0, 1)
    # No motion, 8-bit DC, a frame, predicted as such, 4:2:0, progressive.
    extension = _Bits().put(8, 4).put(0xFFFF, 16).put(0, 2).put(3, 2).put(0, 1).put(1, 1).put(0, 4).put(0, 1).put(3, 2)
    return _unit(0, header.bytes()) + _unit(0xB5, extension.put(0, 1).bytes())


def _slices() -> bytes:
    found = b""
    for row in range(HEIGHT // _BLOCK):
        bits = _Bits().put(4, 5).put(0, 1)
        for _column in range(WIDTH // _BLOCK):
            # The next macroblock, intra; six blocks whose DC does not change (tables B.12 and B.13), and nothing else.
            bits.put(1, 1).put(1, 1)
            for size, width in [(0b100, 3)] * 4 + [(0, 2)] * 2:
                bits.put(size, width).put(0b10, 2)
        found += _unit(row + 1, bits.bytes())
    return found


def pictures(rate_bps: int, seconds: float) -> Iterator[bytes]:
    """The video picture by picture. A rate too small for its headers gives the least that there is, some 25 kbit/s."""
    group_bytes = rate_bps / 8 * GROUP / PICTURES_PER_S
    small = int(group_bytes / (FIRST_TO_OTHERS + GROUP - 1))
    first = round(group_bytes) - small * (GROUP - 1)
    slices = _slices()
    for index in range(round(seconds * PICTURES_PER_S)):
        number = index % GROUP
        head = (_sequence() if number == 0 else b"") + _picture_header(number)
        missing = (first if number == 0 else small) - len(head) - len(slices) - 4
        yield head + (_unit(0xB2, b"\xa5" * missing) if missing >= 0 else b"") + slices
