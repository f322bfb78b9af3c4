"""What a frame is on the wire: the one place that knows how many bytes Ethernet, and what is put around it, adds to an IP packet.

Without more, a frame is a header of 14 bytes, the packet, and a check sequence of 4, padded to 64 (IEEE 802.3, clauses 3.1.1 and 4.4.2); the line is taken
as well by preamble and start delimiter (8) and the gap to the next frame (12). Kinds add to that:

- `vlan`: the tag of 4 bytes (IEEE 802.1Q, clause 9; IEEE 802.3, clause 3.2.7). A bridge puts it into a frame that was padded to 64, so the shortest is 68, which
  the standards let a sender keep to as well so that nobody need pad where the tag is taken out (IEEE 802.1Q, annex G; IEC 62439-3:2012, 4.1.10.3.4, note).
- `double-vlan`: a service tag before it (IEEE 802.1ad, now in IEEE 802.1Q): twice 4.
- `prp`: the redundancy control trailer of 6 bytes (IEC 62439-3, clause 4), which is appended to the padded frame: Linux does so (net/hsr/hsr_forward.c,
  prp_fill_rct).
- `hsr`: the tag of 6 bytes (IEC 62439-3, clause 5); Linux pads to 60 and the tag without check sequence (hsr_fill_tag in the same file).
- `afdx`: the sequence number of 1 byte, the last of the frame's payload (ARINC 664 part 7, the end system's frames), and so padded with it: the shortest frame stays 64, and the
  longest 1518, which leaves 1499 bytes to the IP packet.

Where standards let two lengths be (a tagged frame of 64 or 68 bytes) the longer counts, and the shorter one for the earliest arrivals: bounds only grow with both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["ethernet", "vlan", "double-vlan", "prp", "hsr", "afdx"]
KINDS: tuple[Kind, ...] = get_args(Kind)

PREAMBLE_AND_GAP = 20
"""Preamble and start delimiter 8, interpacket gap 12 (IEEE 802.3, clauses 3.1.1 and 4.4.2)."""
HEADER = 14
FCS = 4
LEAST_FRAME = 64
"""From the destination address to the check sequence (IEEE 802.3, clause 4.4.2: minFrameSize)."""
MOST_OVERHEAD = 256
FULL_PACKET = 1500
"""The longest payload of a basic frame (IEEE 802.3, clause 3.2.7)."""

_OUTSIDE: dict[Kind, int] = {"ethernet": 0, "vlan": 4, "double-vlan": 8, "prp": 6, "hsr": 6, "afdx": 0}
"""Bytes that a kind adds to a padded frame."""
_INSIDE: dict[Kind, int] = {"afdx": 1}
"""Bytes of the frame's own payload that it takes."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How long frames are. Everywhere in a network the same; `kinds` and `stated` are what the scenario says."""

    kinds: tuple[Kind, ...] = ()
    stated_overhead_bytes: int = 0
    """What is added beside the kinds."""
    stated_least_bytes: int | None = None
    """The shortest frame with all of it, check sequence included; `None`: everything is added to padded frames."""

    @property
    def inside_bytes(self) -> int:
        """What of the payload of a frame is none of the IP packet's."""
        return sum(_INSIDE.get(kind, 0) for kind in self.kinds)

    @property
    def overhead_bytes(self) -> int:
        """By how much more a long frame has than one of plain Ethernet."""
        return sum(_OUTSIDE[kind] for kind in self.kinds) + self.inside_bytes + self.stated_overhead_bytes

    @property
    def least_frame_bytes(self) -> int:
        """The shortest frame, from the destination address to the check sequence."""
        if self.stated_least_bytes is not None:
            return self.stated_least_bytes
        return LEAST_FRAME + self.overhead_bytes - self.inside_bytes

    @property
    def least(self) -> int:
        """The shortest frame, bytes on the wire."""
        return self.least_frame_bytes + PREAMBLE_AND_GAP

    @property
    def mtu(self) -> int:
        """The IP packet of a full frame: the MTU of hosts that state none."""
        return FULL_PACKET - self.inside_bytes

    @property
    def full(self) -> int:
        """A full frame on the wire."""
        return self.wire(self.mtu)

    @property
    def unseen_bytes(self) -> int:
        """What a frame takes of the wire beside what a capture shows of it, where it is not padded."""
        return FCS + self.overhead_bytes + PREAMBLE_AND_GAP

    def wire(self, ip_packet: int) -> int:
        """Bytes on the wire of an IP packet of `ip_packet` bytes."""
        return max(HEADER + ip_packet + self.unseen_bytes, self.least)

    def shortest(self, wire: int) -> int:
        """The least that a frame of `wire` bytes may really be: where it is padded, a sender may pad to 64 with all that the kinds add."""
        is_padded = self.stated_least_bytes is None and wire <= self.least
        return min(wire, LEAST_FRAME + PREAMBLE_AND_GAP) if is_padded else wire

    def packet(self, wire: int) -> int:
        """The largest IP packet that so many bytes on the wire carry; 0 or less: none."""
        return wire - HEADER - self.unseen_bytes

    def plain(self, wire: int) -> int:
        """What a frame of `wire` bytes takes in plain Ethernet: what meters of switches and whoever reserves count, who see nothing of the framing."""
        return max(wire - self.overhead_bytes, LEAST_FRAME + PREAMBLE_AND_GAP)

    def plan(self) -> dict[str, int]:
        """The JSON of `FramingPlan`."""
        return {"overhead_bytes": self.overhead_bytes, "least_frame_bytes": self.least_frame_bytes}

    def __str__(self) -> str:
        names: list[str] = list(self.kinds)
        if self.stated_overhead_bytes or self.stated_least_bytes is not None:
            names.append(f"{self.overhead_bytes} B more, {self.least_frame_bytes} B at least")
        return " and ".join(names) or "ethernet"


ETHERNET = Framing()


def twice(kinds: Iterable[Kind]) -> Kind | None:
    """A kind that is named more than once."""
    seen: set[Kind] = set()
    for kind in kinds:
        if kind in seen:
            return kind
        seen.add(kind)
    return None
