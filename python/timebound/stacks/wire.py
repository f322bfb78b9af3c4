"""Sizes on the wire: how many bytes of Ethernet a message becomes.

A frame's size counts the whole wire: preamble and start delimiter (8), header (14), payload, FCS (4), inter-frame gap
(12), IEEE 802.3 clause 4; frames below the Ethernet minimum are padded to 60 bytes before the FCS.
"""

from __future__ import annotations

MEASUREMENT_HEADER_BYTES = 24
"""Sequence number, send time and flow inside the payload of every measured message."""
ETHERNET_HEADER = 14
FCS = 4
PREAMBLE_AND_GAP = 20
MINIMUM_WITHOUT_FCS = 60
IPV4_HEADER = 20
UDP_HEADER = 8
TCP_HEADER = 32
"""TCP header with the timestamp option (RFC 7323), which Linux negotiates unless it is turned off."""

TCP_ACK_WIRE = 90
"""A TCP segment without payload: 14 + 20 + 32 + 4 + 20 bytes."""
TCP_HANDSHAKE_WIRE = 98
"""The largest segment without payload, SYN with options: 14 + 20 + 40 + 4 + 20 bytes."""
DELAYED_ACK_NS = 40_000_000
"""Least delayed-ACK time of Linux (TCP_DELACK_MIN); longer ones need a round trip of that length."""


TCP_LEAST_HEADER = 20
"""Without options: what somebody else's TCP may send."""


def wire_bytes(ip_packet: int) -> int:
    """Bytes on the wire of an IP packet of `ip_packet` bytes."""
    return max(ETHERNET_HEADER + ip_packet, MINIMUM_WITHOUT_FCS) + FCS + PREAMBLE_AND_GAP


def tcp_frames(message: int, mtu: int = 1500) -> list[int]:
    """Wire sizes of the segments that carry `message` bytes written at once (segmentation offload is off in every node)."""
    largest = mtu - IPV4_HEADER - TCP_HEADER
    whole, rest = divmod(message, largest)
    return [wire_bytes(mtu)] * whole + ([wire_bytes(rest + IPV4_HEADER + TCP_HEADER)] if rest else [])


def least_segment(payload: int, *, known: bool) -> int:
    """The least wire size of a segment with so much payload; of TCP that is not `known` it need have no timestamps."""
    return wire_bytes(payload + IPV4_HEADER + (TCP_HEADER if known else TCP_LEAST_HEADER))


def least_of_message(least: int, largest: int, mtu: int, *, known: bool) -> int:
    """The least wire size of a segment of a message, or of several packets written together, of `least` to `largest` bytes: where they need
    several segments, the last one may hold a byte."""
    return least_segment(least if largest <= mtu - IPV4_HEADER - TCP_HEADER else min(least, 1), known=known)


def udp_frame(payload: int) -> int:
    """Wire size of the frame that carries one unfragmented datagram."""
    return wire_bytes(payload + UDP_HEADER + IPV4_HEADER)


LARGEST_DATAGRAM = 65_507
"""UDP payload of the largest IP packet (RFC 768: 65535 bytes less both headers)."""
LEAST_TCP_MTU = 88
"""Linux keeps room for 48 bytes of options and data in a segment, however small the MTU (net.ipv4.tcp_min_snd_mss)."""


def udp_frames(payload: int, mtu: int) -> list[int]:
    """Wire sizes of the fragments of a datagram in the order in which they are sent (RFC 791, section 3.2: all but the last carry
    a multiple of 8 bytes)."""
    rest, most = payload + UDP_HEADER, (mtu - IPV4_HEADER) // 8 * 8
    if rest + IPV4_HEADER <= mtu:
        return [udp_frame(payload)]
    frames = []
    while rest + IPV4_HEADER > mtu:
        frames.append(wire_bytes(most + IPV4_HEADER))
        rest -= most
    return [*frames, wire_bytes(rest + IPV4_HEADER)] if rest else frames


def least_datagram(least: int, mtu: int, frames: tuple[int, ...]) -> int:
    """The least wire size of a frame of datagrams with a payload of `least` bytes to as many as `frames` carry: of fragments the last may hold a byte."""
    return udp_frames(least, mtu)[-1] if len(frames) == 1 else min(wire_bytes(IPV4_HEADER + 1), *frames)


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
