"""Brokers that forward to brokers: what they are told, what crosses the network, and when nothing is measured yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.engine.runs import plan_of
from timebound.node import connected, wait_for_bridges
from timebound.scenario import ScenarioError, load
from timebound.stacks import Plan

TEXT = """
name: bridges
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b1: host, b2: host, b3: host, c: host, s: switch}
  links: [[a, s], [b1, s], [b2, s], [b3, s], [c, s]]
flows:
  - {name: alpha, from: a, to: c, topic: t/alpha, size: 100 B, period: 10 ms, qos: QOS, via: [b1, b2, b3]}
  - {name: beta, from: c, to: a, topic: t/beta, size: 200 B, period: 20 ms, via: [b2, b1]}
stack: {mqtt: {broker: [{node: b1, program: mosquitto}, {node: b2, program: mosquitto}, {node: b3, program: mosquitto}]}}
run: {duration: 1 s}
"""


def plan(qos: int = 1) -> Plan:
    return plan_of(load(TEXT.replace("QOS", str(qos))))


def test_messages_cross_from_broker_to_broker_in_order() -> None:
    segments = plan().segments["alpha", "c"]
    assert [(part.name, part.source, part.destination) for part in segments] == [
        ("publish", "a", "b1"),
        ("bridge", "b1", "b2"),
        ("bridge", "b2", "b3"),
        ("deliver", "b3", "c"),
    ]


def test_every_bridge_has_a_listener_of_its_own_by_which_its_frames_are_known() -> None:
    found = plan()
    bridges = [marker for marker in found.markers if None in (marker.source_port, marker.destination_port)]
    assert len(bridges) == 2 * 3
    listeners = {marker.destination_port for marker in bridges if marker.source_port is None}
    assert len(listeners) == 3
    for port in listeners:
        there = next(marker for marker in bridges if marker.destination_port == port)
        back = next(marker for marker in bridges if marker.source_port == port)
        assert (there.source, there.destination) == (back.destination, back.source)
        node = next(name for name, address in found.addresses.items() if address == there.destination)
        assert f"listener {port} 0.0.0.0" in found.files[f"broker-{node}.conf"]


def test_a_bridge_forwards_its_flow_and_nothing_else() -> None:
    found = plan(qos=2)
    lines = found.files["broker-b1.conf"].splitlines()
    assert [line for line in lines if line.startswith("topic ")] == ["topic t/alpha out 2"]
    assert [line for line in lines if line.startswith("address ")] == [f"address {found.addresses['b2']}:10000"]
    assert "notifications false" in lines and "try_private false" in lines
    assert "connection" not in found.files["broker-b3.conf"]


def test_bridges_speak_mqtt_3_and_send_a_byte_less() -> None:
    streams = {stream.name: stream for stream in plan().streams}
    first, bridged = streams["alpha/publish"], streams["alpha/bridge>b2"]
    assert first.tcp is not None and bridged.tcp is not None
    assert first.tcp.size_bytes - bridged.tcp.size_bytes == 1
    # What a bridge holds back leaves with the PINGREQ behind it (Nagle's algorithm).
    assert bridged.frames_bytes[0] - first.frames_bytes[0] == -1 + 2
    assert streams["alpha/deliver>c"].frames_bytes == streams["alpha/publish"].frames_bytes


def test_nothing_is_measured_before_the_bridges_stand() -> None:
    programs = {program["name"]: program for program in plan().programs}
    waiting = programs["broker-b2-bridges"]
    assert waiting["node"] == "b2" and waiting["ready"]["file"] in waiting["argv"]
    assert sum(word == "--to" for word in waiting["argv"]) == 2
    assert "broker-b3-bridges" not in programs


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0200000A:A1B2 0300000A:2710 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0200000A:A1B3 0300000A:2711 STATE 00000000:00000000 00:00000000 00000000     0        0 3 1
"""


def test_only_established_connections_count(tmp_path: Path) -> None:
    assert connected(TABLE.replace("STATE", "02")) == {"0300000A:2710"}
    table, ready = tmp_path / "tcp", tmp_path / "ready"
    table.write_text(TABLE.replace("STATE", "02"))
    assert wait_for_bridges(["10.0.0.3:10000", "10.0.0.3:10001"], ready, table, timeout_s=0.2) == 1
    assert not ready.exists()
    table.write_text(TABLE.replace("STATE", "01"))
    assert wait_for_bridges(["10.0.0.3:10000", "10.0.0.3:10001"], ready, table, timeout_s=5) == 0
    assert ready.exists()


@pytest.mark.parametrize("topic", ["t/two words", 't/"quoted"'])
def test_a_topic_that_the_configuration_cannot_name_is_refused_with_its_place(topic: str) -> None:
    text = TEXT.replace("QOS", "0").replace("topic: t/alpha", f"topic: '{topic}'")
    with pytest.raises(ScenarioError, match="a bridge of mosquitto cannot be told of the topic") as caught:
        plan_of(load(text))
    assert caught.value.problems[0].line == 8
