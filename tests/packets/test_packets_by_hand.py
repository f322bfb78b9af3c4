"""Captures of known content, frame by frame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import frames_by_hand as by
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packet_helpers import needs_tshark

from timebound.engine.packets import CaptureError, analyse, of_files, of_run, summary_of_run
from timebound.engine.packets.counts import NODE_KEY, PORT_KEY, Counts
from timebound.engine.packets.frames import MEASURES, Reader
from timebound.engine.packets.sources import Source


def analysed(path: Path, **options: Any) -> dict[str, Any]:
    capture: dict[str, Any] = analyse(of_files([path], options.pop("mqtt_ports", ())), **options).summary["captures"][0]
    return capture


def kinds(capture: dict[str, Any]) -> dict[str, int]:
    return {name: entry["frames"] for name, entry in capture["totals"]["categories"].items() if entry["frames"]}


@needs_tshark
def test_every_kind_of_frame_is_called_what_it_is(tmp_path: Path) -> None:
    long = by.publish(b"x" * 3000)
    hello, first = by.connect(), by.publish(b"a" * 100)
    mixed = by.publish(b"b" * 50) + by.publish(b"c" * 70) + by.PUBACK
    segments: list[bytes] = []
    at = 1
    for part in (hello, first, mixed, long[:1400], long[1400:2800], long[2800:], by.PINGREQ):
        segments.append(by.tcp(part, flags=by.ACK | by.PSH, seq=at))
        at += len(part)
    frames = [
        by.arp(),
        by.tcp(flags=by.SYN, seq=0),
        by.tcp(flags=by.SYN | by.ACK, seq=0, back=True),
        by.tcp(),
        *segments,
        by.tcp(seq=1, ack=at, back=True),
        by.tcp(flags=by.FIN | by.ACK, seq=at),
        by.tcp(flags=by.RST, seq=1, back=True),
        by.udp(b"u" * 40),
        by.unreachable(by.udp(b"u" * 40)),
        by.tcp(b"s" * 500, ports=(30_000, 9_999)),
    ]
    capture = analysed(by.pcap(tmp_path / "all.pcap", frames))
    assert kinds(capture) == {
        "arp": 1,
        "tcp-control": 6,
        "mqtt-control": 2,
        "publish": 5,
        "udp": 1,
        "icmp": 1,
        "tcp-data": 1,
    }
    totals = capture["totals"]
    assert totals["payload_bytes"] == 100 + 50 + 70 + 3000 + 40 + 500
    assert totals["mqtt"] == {
        "packets": 7,
        "packets_over_several_segments": 1,
        "frames_with_several_packets": 1,
        "frames_with_publish_and_control": 1,
    }
    assert capture["mqtt_packets"] == {"CONNECT": 1, "PUBLISH": 4, "PUBACK": 1, "PINGREQ": 1}
    assert {name: totals["tcp"][name] for name in ("syn", "fin", "rst", "retransmissions")} == {
        "syn": 2,
        "fin": 1,
        "rst": 1,
        "retransmissions": 0,
    }
    assert totals["frames"] == len(frames) and totals["frame_bytes"] == sum(map(len, frames))
    assert totals["wire_bytes"] == sum(max(len(frame), 60) + 24 for frame in frames)
    assert totals["without_transport_payload"]["frames"] == 8  # ARP, ICMP, six segments without payload
    assert totals["without_application_payload"]["frames"] == 10  # and the two with MQTT control only
    sent = next(n for n in capture["nodes"] if n["node"] == "10.0.0.1" and n["direction"] == "sent")
    assert sent["totals"]["frames"] == len(frames) - 4


@needs_tshark
def test_size_classes_have_their_edges_where_wireshark_has_them(tmp_path: Path) -> None:
    sizes = [42, 79, 80, 159, 160, 319, 320, 639, 640, 1279, 1280, 1514]
    capture = analysed(by.pcap(tmp_path / "sizes.pcap", [by.udp(b"x" * (size - 42)) for size in sizes]))
    expected = {"<40": 0, "40-79": 2, "80-159": 2, "160-319": 2, "320-639": 2, "640-1279": 2, ">=1280": 2}
    assert capture["sizes"]["frame"] == expected
    by_ip = {**expected, "<40": 1, "40-79": 2, "80-159": 2, "1280": 0}
    del by_ip["1280"]
    by_ip[">=1280"] = 1
    assert capture["sizes"]["ip"] == by_ip


@needs_tshark
def test_a_retransmission_is_no_second_message(tmp_path: Path) -> None:
    message = by.publish(b"m" * 200)
    hello = by.connect()
    seq = 1 + len(hello)
    first = by.tcp(message, seq=seq)
    frames = [by.tcp(flags=by.SYN, seq=0), by.tcp(flags=by.SYN | by.ACK, seq=0, back=True), by.tcp(hello), first]
    # The broker's acknowledgement was seen: sending it again is spurious.
    frames += [by.tcp(seq=1, ack=seq + len(message), back=True), first]
    capture = analysed(by.pcap(tmp_path / "again.pcap", frames))
    assert kinds(capture)["retransmission"] == 1 and kinds(capture)["publish"] == 1
    assert capture["totals"]["payload_bytes"] == 200
    assert capture["totals"]["tcp"]["spurious_retransmissions"] == 1


@needs_tshark
def test_a_message_behind_a_gap_is_counted_when_the_gap_is_filled(tmp_path: Path) -> None:
    messages = [by.publish(bytes([65 + i]) * 300) for i in range(3)]
    starts = [1 + sum(map(len, messages[:i])) for i in range(3)]
    segments = [by.tcp(message, seq=seq) for message, seq in zip(messages, starts, strict=True)]
    frames = [by.tcp(flags=by.SYN, seq=0), segments[0], segments[2], segments[1]]
    capture = analysed(by.pcap(tmp_path / "gap.pcap", frames, step_ns=100_000))
    assert capture["totals"]["payload_bytes"] == 900 and capture["mqtt_packets"] == {"PUBLISH": 3}
    assert kinds(capture)["publish"] == 3


@needs_tshark
def test_a_broker_on_another_port_is_mqtt_when_it_is_named(tmp_path: Path) -> None:
    frames = [by.tcp(by.connect() + by.publish(b"m" * 10), ports=(20_000, 7_777))]
    path = by.pcap(tmp_path / "port.pcap", frames)
    assert kinds(analysed(path)) == {"tcp-data": 1}
    assert kinds(analysed(path, mqtt_ports=(7_777,))) == {"publish": 1}


@needs_tshark
def test_an_unfinished_message_carries_nothing(tmp_path: Path) -> None:
    capture = analysed(by.pcap(tmp_path / "half.pcap", [by.tcp(by.publish(b"m" * 3000)[:1000])]))
    assert kinds(capture) == {"mqtt-unfinished": 1} and capture["totals"]["payload_bytes"] == 0


@needs_tshark
def test_fragments_carry_one_datagram(tmp_path: Path) -> None:
    datagram = by.udp(b"d" * 2000)[34:]
    frames = [by.ip(17, datagram[:1480], fragment=0x2000), by.ip(17, datagram[1480:], fragment=1480 // 8)]
    capture = analysed(by.pcap(tmp_path / "fragments.pcap", frames))
    assert kinds(capture) == {"udp": 2} and capture["totals"]["payload_bytes"] == 2000
    assert capture["totals"]["without_transport_payload"]["frames"] == 0


@needs_tshark
def test_what_is_cut_at_capture_is_said(tmp_path: Path) -> None:
    path = by.pcap(tmp_path / "cut.pcap", [by.tcp(by.publish(b"m" * 500))])
    data = bytearray(path.read_bytes())
    data[32:36] = (96).to_bytes(4, "little")
    path.write_bytes(bytes(data[: 40 + 96]))
    capture = analysed(path)
    assert capture["frames_cut"] == 1 and "cut when captured" in capture["notes"][0]
    assert capture["totals"]["frame_bytes"] > capture["totals"]["captured_bytes"] == 96


def tb(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = None if path is None else {"PATH": path, "HOME": "/nonexistent"}
    command = [sys.executable, "-c", "from timebound.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


@needs_tshark
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"this is no capture at all, whatever its name says", "is no capture file"),
        (b"\xd4\xc3\xb2\xa1", "cut short"),
        (None, "does not exist"),
    ],
)
def test_files_that_are_no_captures_are_refused_in_words(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "bad.pcap"
    if content is not None:
        path.write_bytes(content)
    done = tb("packets", str(path))
    assert done.returncode == 2 and words in done.stderr and "hint" in done.stderr and done.stdout == ""


@needs_tshark
def test_a_file_that_is_cut_short_is_refused_or_counted_up_to_there(tmp_path: Path) -> None:
    path = by.pcap(tmp_path / "short.pcap", [by.udp(b"x" * 100)] * 5)
    path.write_bytes(path.read_bytes()[:-20])
    done = tb("packets", str(path))
    assert done.returncode == 2 and "cut short" in done.stderr and "--partial" in done.stderr
    done = tb("packets", str(path), "--partial", "--json")
    summary = json.loads(done.stdout)
    assert done.returncode == 0 and summary["status"] == "partial"
    assert summary["captures"][0]["totals"]["frames"] == 4 and "cut short" in summary["captures"][0]["problem"]


@needs_tshark
@pytest.mark.parametrize("snap", [0, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_strange_snap_length_does_no_harm(tmp_path: Path, snap: int) -> None:
    assert analysed(by.pcap(tmp_path / "snap.pcap", [by.arp()], snap=snap))["totals"]["frames"] == 1


@needs_tshark
def test_a_capture_without_packets_is_no_error(tmp_path: Path) -> None:
    capture = analysed(by.pcap(tmp_path / "none.pcap", []))
    assert capture["totals"]["frames"] == 0 and capture["duration_s"] is None and capture["series"] is None


def test_without_tshark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = by.pcap(tmp_path / "a.pcap", [by.arp()])
    done = tb("packets", str(path), path="/nonexistent")
    assert done.returncode == 3 and "sudo apt-get install tshark" in done.stderr
    (tmp_path / "run" / "captures").mkdir(parents=True)
    path.rename(tmp_path / "run" / "captures" / "a.pcap")
    monkeypatch.setenv("PATH", "/nonexistent")
    found = summary_of_run(tmp_path / "run")
    assert found is not None and found["status"] == "missing" and "apt-get install tshark" in found["reason"]


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    path = by.pcap(tmp_path / "a.pcap", [by.arp()])
    for arguments, words in (
        ([str(path), "--interval", "0 s"], "interval"),
        ([str(path), "--interval", "often"], "--interval"),
        ([str(path), "--mqtt-port", "70000"], "port"),
        ([str(tmp_path)], "no run folder"),
        ([str(path), str(tmp_path)], "on its own"),
    ):
        done = tb("packets", *arguments)
        assert done.returncode == 2 and words in done.stderr, (arguments, done.stderr)


@needs_tshark
def test_a_name_of_an_interface_cannot_break_the_table(tmp_path: Path) -> None:
    """pcapng with an interface named by an attacker."""
    import struct

    def block(kind: int, body: bytes) -> bytes:
        body += b"\0" * (-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    name = b"a\tb\nc,d\x1b[31m<script>"
    option = struct.pack("<HH", 2, len(name)) + name + b"\0" * (-len(name) % 4) + struct.pack("<HH", 0, 0)
    frame = by.arp()
    packet = struct.pack("<IIIII", 0, 0, 1, len(frame), len(frame)) + frame
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack("<HHI", 1, 0, 0) + option) + block(6, packet)
    path = tmp_path / "nasty.pcapng"
    path.write_bytes(data)
    capture = analysed(path)
    assert capture["totals"]["frames"] == 1 and len(capture["ports"]) == 1


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_answer_of_tshark_is_read_or_refused(piece: bytes) -> None:
    reader = Reader(Source("x", (Path("x"),)))
    try:
        rows, _ = reader.rows(piece)
    except CaptureError as error:
        assert "another form" in str(error)
    else:
        assert rows.height <= piece.count(b"\n") + 1


FIELD = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.lists(FIELD, min_size=35, max_size=35), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_fields_of_any_content_are_counted(lines: list[list[str]]) -> None:
    from timebound.engine.packets.tshark import FIELDS

    assert len(FIELDS) == 35
    reader = Reader(Source("x", (Path("x"),)))
    counts = Counts(1_000_000_000, None)
    rows, packets = reader.rows("\n".join("\t".join(line) for line in lines).encode() + b"\n")
    counts.add(rows, packets)
    assert rows.height == len(lines)


def _rows(count: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "port": ["p"] * count,
            "time_ns": [i * 10_000_000 for i in range(count)],
            "source": [f"n{i % 50}" for i in range(count)],
            "target": ["broker"] * count,
            "category": ["udp"] * count,
            "frame_class": pl.Series([3] * count, dtype=pl.Int8),
            "ip_class": pl.Series([2] * count, dtype=pl.Int8),
            **dict.fromkeys(MEASURES, [1] * count),
        }
    )


def test_long_captures_get_coarser_intervals_and_lose_nothing() -> None:
    counts = Counts(1_000_000, 0, most_rows=500)
    for _ in range(3):
        counts.add(_rows(4_000))
    assert counts.ports is not None and counts.nodes is not None
    assert max(counts.ports.height, counts.nodes.height) <= 500 and counts.interval_ns > 1_000_000
    assert counts.interval_ns % 1_000_000 == 0 and (counts.ports["start_ns"] % counts.interval_ns == 0).all()
    assert counts.ports["frames"].sum() == 12_000 and counts.nodes["frames"].sum() == 24_000
    assert not counts.ports.select(PORT_KEY).is_duplicated().any()
    assert not counts.nodes.select(NODE_KEY).is_duplicated().any()


def test_files_of_the_same_name_keep_apart(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(by.pcap(tmp_path / name / "x.pcap", [by.arp()]))
    assert len({source.name for source in of_files(paths)}) == 2


def test_files_of_a_link_are_joined_and_others_taken_apart(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "captures").mkdir(parents=True)
    names = ("a-s.pcapng", "s-a.pcapng", "both.pcapng", "stray.pcap")
    for name in names:
        by.pcap(run / "captures" / name, [by.arp()])

    def port(a: str, b: str) -> dict[str, str]:
        return {"from": a, "to": b}

    plan = {
        "captures": [
            {"file": "a-s.pcapng", "ports": [port("a", "s")]},
            {"file": "s-a.pcapng", "ports": [port("s", "a")]},
            {"file": "both.pcapng", "ports": [port("b", "s"), port("s", "c")]},
            {"file": "never-written.pcapng", "ports": [port("x", "y")]},
        ],
        "hosts": [{"node": "a", "address": "10.0.0.1"}],
        "endpoints": {"clients": [{"port": 8883, "protocol": 5}], "warmup_ns": 5},
    }
    (run / "emulation.json").write_text(json.dumps(plan))
    (run / "live.json").write_text(json.dumps({"epoch_unix_ns": 100}))
    sources = {source.name: source for source in of_run(run)}
    assert list(sources) == ["a-s", "b-s", "c-s", "stray.pcap"]
    assert sources["a-s"].both_directions is True and not sources["a-s"].select and len(sources["a-s"].files) == 2
    assert sources["b-s"].select and sources["b-s"].both_directions is False
    assert sources["a-s"].mqtt_ports == (1883, 8883) and sources["a-s"].version == 5
    assert sources["a-s"].origin_unix_ns == 105 and sources["a-s"].names == {"10.0.0.1": "a"}
