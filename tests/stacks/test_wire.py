"""Sizes on the wire, against the figures of the standards and of captures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.stacks.wire import mqtt_publish, tcp_frames, udp_frame, varint_bytes, wire_bytes


def test_a_full_packet_is_1538_bytes_on_the_wire() -> None:
    assert wire_bytes(1500) == 1538


def test_small_frames_are_padded() -> None:
    assert wire_bytes(28) == 84


def test_1429_bytes_of_payload_fill_one_frame_with_mqtt5_over_tcp() -> None:
    size, offset = mqtt_publish("plant/alpha", 1429, 1, version5=True)
    assert (size, offset) == (1448, 19)
    assert tcp_frames(size) == [1538]
    assert tcp_frames(size + 1) == [1538, 91]


def test_udp_payload_of_1472_fills_one_frame() -> None:
    assert udp_frame(1472) == 1538


@pytest.mark.parametrize(("value", "length"), [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (268_435_455, 4)])
def test_variable_byte_integers(value: int, length: int) -> None:
    """The limits of MQTT 5.0, table 1-1."""
    assert varint_bytes(value) == length


@given(st.integers(1, 1_000_000), st.integers(127, 1500))
def test_segments_carry_the_whole_message_and_fit_the_mtu(message: int, mtu: int) -> None:
    frames = tcp_frames(message, mtu)
    payloads = [frame - 24 - 14 - 20 - 32 for frame in frames]
    assert sum(payloads) == message
    assert all(0 < payload <= mtu - 52 for payload in payloads)
