"""Sizes on the wire, against the figures of the standards and of captures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.stacks.wire import ETHERNET, mqtt_publish, varint_bytes


def test_a_full_packet_is_1538_bytes_on_the_wire() -> None:
    assert ETHERNET.packet(1500) == 1538


def test_small_frames_are_padded() -> None:
    assert ETHERNET.packet(28) == 84


def test_1429_bytes_of_payload_fill_one_frame_with_mqtt5_over_tcp() -> None:
    size, offset = mqtt_publish("plant/alpha", 1429, 1, version5=True)
    assert (size, offset) == (1448, 19)
    assert ETHERNET.tcp(size) == [1538]
    assert ETHERNET.tcp(size + 1) == [1538, 91]


def test_udp_payload_of_1472_fills_one_frame() -> None:
    assert ETHERNET.datagram(1472) == 1538


@pytest.mark.parametrize(("value", "length"), [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (268_435_455, 4)])
def test_variable_byte_integers(value: int, length: int) -> None:
    """The limits of MQTT 5.0, table 1-1."""
    assert varint_bytes(value) == length


@given(st.integers(1, 1_000_000), st.integers(127, 1500))
def test_segments_carry_the_whole_message_and_fit_the_mtu(message: int, mtu: int) -> None:
    frames = ETHERNET.tcp(message, mtu)
    payloads = [frame - 24 - 14 - 20 - 32 for frame in frames]
    assert sum(payloads) == message
    assert all(0 < payload <= mtu - 52 for payload in payloads)


@given(st.integers(0, 65_507), st.integers(68, 9000))
def test_fragments_carry_the_whole_datagram_in_multiples_of_eight(payload: int, mtu: int) -> None:
    """RFC 791, section 3.2."""
    frames = ETHERNET.udp(payload, mtu)
    packets = [frame - 38 for frame in frames]
    assert all(packet <= mtu for packet in packets)
    assert all((packet - 20) % 8 == 0 for packet in packets[:-1])
    if payload + 28 > 46:  # below that Ethernet pads
        head, last = packets[:-1], payload + 8 + 20 * len(packets) - sum(packets[:-1])
        assert last in (packets[-1], packets[-1] - (46 - last)) and last <= mtu and all(head)


def test_500_bytes_over_an_mtu_of_127() -> None:
    assert ETHERNET.udp(500, 127) == [ETHERNET.packet(124)] * 4 + [ETHERNET.packet(508 - 4 * 104 + 20)]
