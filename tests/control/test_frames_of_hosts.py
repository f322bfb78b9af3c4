"""What hosts may send to the controller, links' frames and probes: anything is survived, and only what we signed is believed."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from timebound.control.openflow import frames, lldp
from timebound.control.openflow.frames import ARP_REPLY, TCP, UDP, FiveTuple
from timebound.control.openflow.probes import marked
from timebound.control.topology import PortId

KEY = b"k" * 32
ports = st.integers(0, 65535)
addresses = st.ip_addresses(v=4).map(str)
flows = st.builds(FiveTuple, st.sampled_from([TCP, UDP]), addresses, ports, addresses, ports)
port_ids = st.builds(PortId, st.integers(1, 2**64 - 1), st.integers(1, 2**32 - 1))


@given(st.binary(max_size=200))
def test_no_frame_is_too_strange_to_be_read(data: bytes) -> None:
    frame = frames.read(data)
    assert frame is None or len(data) >= 14
    assert lldp.sender(data, KEY) is None


@given(st.sampled_from([0x0800, 0x0806, 0x8100, 0x88CC]), st.binary(max_size=120))
def test_no_header_is_too_strange_to_be_read(kind: int, rest: bytes) -> None:
    data = bytes(12) + struct.pack("!H", kind) + rest
    frame = frames.read(data)
    if frame is not None and frame.ipv4 is not None:
        assert len(frame.ipv4.payload) <= len(rest)
    assert lldp.sender(data, KEY) is None


@given(flows, st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1), st.sampled_from(range(0, 64, 8)))
def test_a_probe_is_a_frame_of_its_flow_and_is_known_again(
    flow: FiveTuple, switch: int, number: int, mark: int
) -> None:
    data = marked(frames.probe(flow, switch, number, KEY), mark)
    frame = frames.read(data)
    assert frame is not None and frame.ipv4 is not None
    assert (frame.ipv4.source, frame.ipv4.destination, frame.ipv4.dscp) == (flow.source, flow.destination, mark)
    assert struct.unpack("!HH", frame.ipv4.payload[:4]) == (flow.source_port, flow.destination_port)
    assert frame.source == frames.probe_mac(switch) and frame.destination == frames.SINK_MAC
    assert frames.probe_number(frame, KEY) == number
    assert frames.probe_number(frame, b"another") is None
    assert frames._checksum(data[14:34]) == 0
    if flow.protocol == TCP:
        source, destination = (frames.address_bytes(address) for address in (flow.source, flow.destination))
        assert frames._tcp_checksum(source, destination, data[34:]) == 0


@given(flows, st.integers(0, 2**32), st.data())
def test_a_probe_that_was_changed_is_none(flow: FiveTuple, number: int, data: st.DataObject) -> None:
    probe = bytearray(frames.probe(flow, 7, number, KEY))
    at = data.draw(st.integers(len(probe) - 28, len(probe) - 1))
    probe[at] ^= data.draw(st.integers(1, 255))
    frame = frames.read(bytes(probe))
    assert frame is None or frames.probe_number(frame, KEY) is None


@given(port_ids, st.integers(1, 65535))
def test_a_link_frame_says_its_port_to_who_has_the_key(port: PortId, ttl: int) -> None:
    data = lldp.frame(port, "06:74:62:00:00:02", KEY, ttl)
    assert lldp.sender(data, KEY) == port
    assert lldp.sender(data + bytes(20), KEY) == port
    assert lldp.sender(data, b"another") is None


@given(port_ids, st.data())
def test_a_link_frame_that_was_changed_says_nothing(port: PortId, data: st.DataObject) -> None:
    frame = bytearray(lldp.frame(port, "06:74:62:00:00:02", KEY, 4))
    at = data.draw(st.integers(14, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    assert lldp.sender(bytes(frame), KEY) in (None, port)
    assert lldp.sender(bytes(frame[:at]), KEY) in (None, port)


def test_an_arp_reply_can_be_read_again() -> None:
    data = frames.arp_reply("0a:00:00:00:00:01", "10.0.0.1", "0a:00:00:00:00:02", "10.0.0.2")
    frame = frames.read(data)
    assert frame is not None and frame.arp is not None
    assert (frame.arp.operation, frame.arp.sender, frame.arp.target) == (ARP_REPLY, "10.0.0.1", "10.0.0.2")
    assert (frame.source, frame.destination, frame.sender) == ("0a:00:00:00:00:01", "0a:00:00:00:00:02", "10.0.0.1")


def test_addresses_that_no_host_has_are_not_learned() -> None:
    for address in ("0.0.0.0", "224.0.0.5", "255.255.255.255", "127.0.0.1"):
        assert not frames.is_host_address(address)
    assert frames.is_host_address("192.168.1.1")
    assert not frames.is_host_mac("01:00:5e:00:00:01") and not frames.is_host_mac("00:00:00:00:00:00")


def test_a_tag_is_looked_through() -> None:
    plain = frames.arp_reply("0a:00:00:00:00:01", "10.0.0.1", "0a:00:00:00:00:02", "10.0.0.2")
    tagged = plain[:12] + struct.pack("!HH", 0x8100, 5) + plain[12:]
    frame = frames.read(tagged)
    assert frame is not None and frame.arp is not None and frame.arp.sender == "10.0.0.1"
