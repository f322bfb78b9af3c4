"""Sizes on the wire: how many bytes of Ethernet a message becomes. What a frame is, `timebound.scenario.framing` knows."""

from __future__ import annotations

from dataclasses import dataclass

from timebound.scenario.framing import ETHERNET as PLAIN
from timebound.scenario.framing import Framing

MEASUREMENT_HEADER_BYTES = 24
"""Sequence number, send time and flow inside the payload of every measured message."""
IPV4_HEADER = 20
UDP_HEADER = 8
TCP_HEADER = 32
"""TCP header with the timestamp option (RFC 7323), which Linux negotiates unless it is turned off."""
TCP_LEAST_HEADER = 20
"""Without options: what somebody else's TCP may send."""
TCP_HANDSHAKE_HEADER = 40
"""The longest header of a segment without payload, SYN with options."""
DELAYED_ACK_NS = 40_000_000
"""Least delayed-ACK time of Linux (TCP_DELACK_MIN); longer ones need a round trip of that length."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Packets as frames of one network. All sizes that it returns are bytes on the wire."""

    framing: Framing = PLAIN

    def packet(self, ip_packet: int) -> int:
        """The frame of an IP packet of `ip_packet` bytes."""
        return self.framing.wire(ip_packet)

    def segment(self, payload: int) -> int:
        """The frame of a TCP segment with `payload` bytes."""
        return self.packet(payload + IPV4_HEADER + TCP_HEADER)

    def segment_payload(self, wire: int) -> int:
        """The most payload that a TCP segment has whose frame is so long."""
        return max(0, self.framing.packet(wire) - IPV4_HEADER - TCP_HEADER)

    @property
    def ack(self) -> int:
        """A TCP segment without payload: 14 + 20 + 32 + 4 + 20 bytes, and the framing."""
        return self.segment(0)

    @property
    def handshake(self) -> int:
        """The largest segment without payload."""
        return self.packet(IPV4_HEADER + TCP_HANDSHAKE_HEADER)

    def tcp(self, message: int, mtu: int = 1500) -> list[int]:
        """The segments that carry `message` bytes written at once (segmentation offload is off in every node)."""
        largest = mtu - IPV4_HEADER - TCP_HEADER
        whole, rest = divmod(message, largest)
        return [self.packet(mtu)] * whole + ([self.segment(rest)] if rest else [])

    def least_segment(self, payload: int, *, known: bool) -> int:
        """The least segment with so much payload; of TCP that is not `known` it need have no timestamps."""
        return self.packet(payload + IPV4_HEADER + (TCP_HEADER if known else TCP_LEAST_HEADER))

    def least_of_message(self, least: int, largest: int, mtu: int, *, known: bool) -> int:
        """The least segment of a message, or of several packets written together, of `least` to `largest` bytes: where they need several segments,
        the last one may hold a byte."""
        return self.least_segment(least if largest <= mtu - IPV4_HEADER - TCP_HEADER else min(least, 1), known=known)

    def datagram(self, payload: int) -> int:
        """The frame that carries one unfragmented datagram."""
        return self.packet(payload + UDP_HEADER + IPV4_HEADER)

    def udp(self, payload: int, mtu: int) -> list[int]:
        """The fragments of a datagram in the order in which they are sent (RFC 791, section 3.2: all but the last carry a multiple of 8 bytes)."""
        rest, most = payload + UDP_HEADER, (mtu - IPV4_HEADER) // 8 * 8
        if rest + IPV4_HEADER <= mtu:
            return [self.datagram(payload)]
        frames = []
        while rest + IPV4_HEADER > mtu:
            frames.append(self.packet(most + IPV4_HEADER))
            rest -= most
        return [*frames, self.packet(rest + IPV4_HEADER)] if rest else frames

    def least_datagram(self, least: int, mtu: int, frames: tuple[int, ...]) -> int:
        """The least frame of datagrams with a payload of `least` bytes to as many as `frames` carry: of fragments the last may hold a byte."""
        return self.udp(least, mtu)[-1] if len(frames) == 1 else min(self.packet(IPV4_HEADER + 1), *frames)


ETHERNET = Wire()

LARGEST_DATAGRAM = 65_507
"""UDP payload of the largest IP packet (RFC 768: 65535 bytes less both headers)."""
LEAST_TCP_MTU = 88
"""Linux keeps room for 48 bytes of options and data in a segment, however small the MTU (net.ipv4.tcp_min_snd_mss)."""


def varint_bytes(value: int) -> int:
    """Length of an MQTT variable byte integer (MQTT 5.0, section 1.5.5)."""
    length = 1
    while value > 127:
        value >>= 7
        length += 1
    return length


def mqtt_publish(topic: str, payload: int, qos: int, version5: bool) -> tuple[int, int]:
    """Size of a PUBLISH packet without properties, and where its payload starts (MQTT 5.0, section 3.3; MQTT 3.1.1, 3.3)."""
    variable = 2 + len(topic.encode()) + (2 if qos > 0 else 0) + (1 if version5 else 0)
    header = 1 + varint_bytes(variable + payload) + variable
    return header + payload, header


MQTT_ACKNOWLEDGEMENT = 6
"""The longest PUBACK, PUBREC, PUBREL or PUBCOMP that brokers send: 4 bytes, with reason code and no properties 6."""
MQTT_LEAST_ACKNOWLEDGEMENT = 4
MQTT_PING = 2
