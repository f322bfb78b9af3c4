"""tshark's lines -> one row per frame: where it belongs, what it is, how many bytes of what it has.

Everything is worked out on whole pieces of the stream at once; nothing is kept of a frame but what `counts` adds up, and the
segments of MQTT packets that are not complete yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from timebound.engine.packets.sources import Source
from timebound.engine.packets.tshark import FIELDS, CaptureError
from timebound.scenario.framing import Framing

if TYPE_CHECKING:
    import polars as pl

CATEGORIES = (
    "publish",
    "mqtt-control",
    "tcp-control",
    "retransmission",
    "mqtt-unfinished",
    "tcp-data",
    "udp",
    "arp",
    "icmp",
    "other",
)
"""What a frame is, each exactly one. `publish`: holds a PUBLISH packet or a part of one; `mqtt-control`: only other MQTT
packets; `tcp-control`: a segment without payload (SYN, FIN, RST, pure ACK); `retransmission`: MQTT bytes seen before;
`mqtt-unfinished`: a part of an MQTT packet whose end is not in the capture; `tcp-data`: TCP that is not MQTT."""

MQTT_TYPES = {
    1: "CONNECT",
    2: "CONNACK",
    3: "PUBLISH",
    4: "PUBACK",
    5: "PUBREC",
    6: "PUBREL",
    7: "PUBCOMP",
    8: "SUBSCRIBE",
    9: "SUBACK",
    10: "UNSUBSCRIBE",
    11: "UNSUBACK",
    12: "PINGREQ",
    13: "PINGRESP",
    14: "DISCONNECT",
    15: "AUTH",
}
"""MQTT 5.0, section 2.1.2."""

CLASS_EDGES = (40, 80, 160, 320, 640, 1280)
CLASSES = ("<40", "40-79", "80-159", "160-319", "320-639", "640-1279", ">=1280")
"""Packet sizes in bytes, Wireshark's (its packet-lengths statistic counts the bytes of the frame) and so the vNET paper's."""

FLAGS = {
    "retransmissions": "tcp.analysis.retransmission",
    "fast_retransmissions": "tcp.analysis.fast_retransmission",
    "spurious_retransmissions": "tcp.analysis.spurious_retransmission",
    "duplicate_acks": "tcp.analysis.duplicate_ack",
    "out_of_order": "tcp.analysis.out_of_order",
    "lost_segments": "tcp.analysis.lost_segment",
    "acks_of_lost_segments": "tcp.analysis.ack_lost_segment",
    "zero_windows": "tcp.analysis.zero_window",
    "keep_alives": "tcp.analysis.keep_alive",
}
"""Our names for what tshark's analysis of TCP says of a segment."""
TCP_FLAGS = {"fin": 0x01, "syn": 0x02, "rst": 0x04}
MEASURES = (
    "frames",
    "frame_bytes",
    "captured_bytes",
    "ip_bytes",
    "wire_bytes",
    "transport_bytes",
    "payload_bytes",
    "without_transport_payload",
    "mqtt_packets",
    "mqtt_reassembled",
    "frames_several_mqtt",
    "frames_mixed_mqtt",
    *FLAGS,
    *TCP_FLAGS,
)
"""What is added up per frame; docs/results.md explains each."""

ETHERNET_ENCAPSULATION = 1
MOST_PENDING = 200_000
"""Segments that wait for the end of their MQTT packet; beyond, the oldest count as unfinished."""


@dataclass(slots=True)
class Reader:
    """Turns pieces of tshark's answer into rows; keeps the segments of unfinished MQTT packets between pieces."""

    source: Source
    pending: pl.DataFrame | None = None
    read: int = 0
    """Frames so far."""

    def rows(self, piece: bytes) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows that are final, and the MQTT packets of each frame: (`port`, `source`, `target`, `type`, `packets`)."""
        import polars as pl

        frames = self._frames(_table(piece, self.source))
        self.read += frames.height
        waiting = frames.filter(pl.col("category") == "waiting")
        pending = waiting if self.pending is None else pl.concat([self.pending, waiting])
        done = frames.filter(pl.col("category") != "waiting")
        resolved, self.pending = _resolve(pending, frames)
        if self.pending.height > MOST_PENDING:
            surplus = self.pending.height - MOST_PENDING
            resolved = pl.concat([resolved, _unfinished(self.pending.head(surplus))])
            self.pending = self.pending.slice(surplus)
        return pl.concat([done, resolved]).drop("segments"), _mqtt_packets(frames)

    def rest(self) -> pl.DataFrame | None:
        """The segments whose MQTT packet never became complete."""
        return None if self.pending is None else _unfinished(self.pending).drop("segments")

    def _frames(self, table: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        names = {"ip.src": "ip.dst", "ipv6.src": "ipv6.dst"}
        source = pl.coalesce(*(_first(name) for name in names), _first("arp.src.proto_ipv4"), _first("eth.src"))
        target = pl.coalesce(*(_first(name) for name in names.values()), _first("eth.dst"))
        seconds, nanos = (pl.col("frame.time_epoch").str.split(".").list.get(i, null_on_oob=True) for i in (0, 1))
        ports = [str(port) for port in self.source.mqtt_ports]
        kinds = pl.lit(",") + pl.col("mqtt.msgtype") + ","
        frame = table.with_columns(
            number=_number("frame.number"),
            port=pl.col("frame.interface_name").fill_null(""),
            time_ns=seconds.cast(pl.Int64, strict=False) * 1_000_000_000
            + nanos.fill_null("").str.pad_end(9, "0").cast(pl.Int64, strict=False),
            source=source.fill_null("").replace(dict(self.source.names)),
            target=target.fill_null("").replace(dict(self.source.names)),
            frame_bytes=_number("frame.len"),
            captured_bytes=_number("frame.cap_len"),
            ethernet=_number("frame.encap_type") == ETHERNET_ENCAPSULATION,
            # The first of them is the frame's own: an ICMP error carries a second header, a tunnel a whole packet.
            l4=pl.col("frame.protocols").str.extract(r":(arp|icmpv6|icmp|igmp|tcp|udp)(?::|$)", 1),
            protocol=_number("ip.proto"),
            tcp_bytes=_number("tcp.len"),
            udp_bytes=(_number("udp.length") - 8).clip(0),
            ip_bytes=pl.coalesce(_number("ip.len"), _number("ipv6.plen") + 40),
            tcp_flags=_first("tcp.flags").str.strip_prefix("0x").str.to_integer(base=16, strict=False),
            on_mqtt=_first("tcp.srcport").is_in(ports) | _first("tcp.dstport").is_in(ports),
            has_publish=kinds.str.contains(",3,", literal=True).fill_null(False),
            has_control=pl.col("mqtt.msgtype").str.contains(r"(?:^|,)(?:[^3]|\d\d)(?:,|$)").fill_null(False),
            mqtt_packets=(pl.col("mqtt.msgtype").str.count_matches(",", literal=True) + 1).fill_null(0).cast(pl.Int64),
            mqtt_reassembled=(pl.col("tcp.segment.count").str.count_matches(",", literal=True) + 1).fill_null(0),
            # Hexadecimal, two digits to a byte.
            publish_bytes=(
                pl.col("mqtt.msg").str.len_bytes().cast(pl.Int64)
                - pl.col("mqtt.msg").str.count_matches(",", literal=True).cast(pl.Int64)
            )
            // 2,
            segments=pl.col("tcp.segment").str.split(",").cast(pl.List(pl.Int64), strict=False),
        )
        return _measured(frame, self.source.framing)


def _first(name: str) -> pl.Expr:
    """The first of a field's values: that of the frame itself, where it carries another packet's headers."""
    import polars as pl

    return pl.col(name).str.split(",").list.first()


def _number(name: str) -> pl.Expr:
    import polars as pl

    return _first(name).cast(pl.Int64, strict=False)


def _table(piece: bytes, source: Source) -> pl.DataFrame:
    """The lines as text columns named like tshark's fields; what is empty is null."""
    import polars as pl

    expected = len(FIELDS) - 1
    table = pl.DataFrame({"line": piece.decode("utf-8", errors="replace").removesuffix("\n").split("\n")})
    broken = table.filter(pl.col("line").str.count_matches("\t", literal=True) != expected)
    if broken.height:
        raise CaptureError(
            f"tshark's answer to {', '.join(map(str, source.files))} has a line of another form: {broken['line'][0][:80]!r}",
            "is this a version of tshark that the documentation names?",
        )
    parts = pl.col("line").str.split_exact("\t", expected).struct.rename_fields(list(FIELDS)).alias("fields")
    text = table.select(parts).unnest("fields")
    return text.with_columns(pl.when(pl.all() != "").then(pl.all()))


def _category() -> pl.Expr:
    import polars as pl

    tcp = pl.col("l4") == "tcp"
    seen_before = pl.col("tcp.analysis.retransmission").is_not_null()
    return (
        pl.when(pl.col("l4") == "arp")
        .then(pl.lit("arp"))
        .when(pl.col("l4").is_in(["icmp", "icmpv6"]))
        .then(pl.lit("icmp"))
        .when(tcp & (pl.col("tcp_bytes") == 0))
        .then(pl.lit("tcp-control"))
        .when(tcp & pl.col("has_publish"))
        .then(pl.lit("publish"))
        .when(tcp & pl.col("has_control"))
        .then(pl.lit("mqtt-control"))
        .when(tcp & pl.col("tcp_bytes").is_not_null() & pl.col("on_mqtt"))
        .then(pl.lit("waiting"))
        .when(tcp & seen_before)
        .then(pl.lit("retransmission"))
        .when(tcp & pl.col("tcp_bytes").is_not_null())
        .then(pl.lit("tcp-data"))
        # A fragment shows the protocol of its packet only in the header of IP (RFC 791: 17 is UDP).
        .when((pl.col("l4") == "udp") | (pl.col("l4").is_null() & (pl.col("protocol") == 17)))
        .then(pl.lit("udp"))
        .otherwise(pl.lit("other"))
        .alias("category")
    )


def _measured(frame: pl.DataFrame, framing: Framing) -> pl.DataFrame:
    """Adds the measures and keeps what is counted."""
    import polars as pl

    frame = frame.with_columns(_category())
    tcp, udp, category = pl.col("l4") == "tcp", pl.col("l4") == "udp", pl.col("category")
    transport = pl.when(tcp).then("tcp_bytes").when(udp).then("udp_bytes").otherwise(0).fill_null(0)
    size = pl.col("frame_bytes")
    payload = (
        pl.when(category == "publish")
        .then("publish_bytes")
        .when(category == "tcp-data")
        .then("tcp_bytes")
        .when(udp)
        .then("udp_bytes")
        .otherwise(0)
    )
    ip_bytes = pl.coalesce("ip_bytes", pl.when("ethernet").then((size - 14).clip(0)).otherwise(size))
    # Of a fragmented datagram only the last fragment shows the length; the others carry payload all the same.
    fragment = (category == "udp") & pl.col("l4").is_null()
    # Captures on the sending side lack the padding of short frames.
    padded = pl.when("ethernet").then((size + framing.unseen_bytes).clip(framing.least)).otherwise(size)
    counted = frame.with_columns(
        frames=pl.lit(1, pl.Int64),
        ip_bytes=ip_bytes,
        wire_bytes=padded,
        transport_bytes=transport,
        payload_bytes=payload.fill_null(0),
        without_transport_payload=((transport == 0) & ~fragment).fill_null(True).cast(pl.Int64),
        mqtt_packets=pl.when(tcp).then("mqtt_packets").otherwise(0),
        mqtt_reassembled=pl.when(tcp & (pl.col("mqtt_packets") > 0))
        .then("mqtt_reassembled")
        .otherwise(0)
        .cast(pl.Int64),
        frames_several_mqtt=(tcp & (pl.col("mqtt_packets") > 1)).fill_null(False).cast(pl.Int64),
        frames_mixed_mqtt=(tcp & pl.col("has_publish") & pl.col("has_control")).fill_null(False).cast(pl.Int64),
        **{name: pl.col(field).is_not_null().cast(pl.Int64) for name, field in FLAGS.items()},
        **{
            name: (tcp & (pl.col("tcp_flags") & bit > 0)).fill_null(False).cast(pl.Int64)
            for name, bit in TCP_FLAGS.items()
        },
        frame_class=_size_class(size),
        ip_class=_size_class(ip_bytes),
    )
    kept = ("number", "port", "time_ns", "source", "target", "category", "has_publish", "segments", "mqtt.msgtype")
    return counted.select(*kept, "frame_class", "ip_class", *MEASURES)


def _size_class(size: pl.Expr) -> pl.Expr:
    import polars as pl

    found = pl.lit(0, pl.Int8)
    for index, edge in enumerate(CLASS_EDGES, start=1):
        found = pl.when(size >= edge).then(pl.lit(index, pl.Int8)).otherwise(found)
    return found


def _resolve(pending: pl.DataFrame, frames: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(segments whose MQTT packet is complete, with its category; segments that still wait)."""
    import polars as pl

    parts = (
        frames.filter(pl.col("segments").is_not_null() & pl.col("category").is_in(["publish", "mqtt-control"]))
        .select("segments", "category")
        .explode("segments")
        .drop_nulls()
        .group_by("segments")
        # "publish" comes after "mqtt-control" in the alphabet: a segment with parts of both belongs to the PUBLISH.
        .agg(whole=pl.col("category").max())
    )
    joined = pending.join(parts, left_on="number", right_on="segments", how="left")
    resolved = joined.filter(pl.col("whole").is_not_null()).with_columns(category=pl.col("whole")).drop("whole")
    return resolved, joined.filter(pl.col("whole").is_null()).drop("whole")


def _unfinished(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    before = (pl.col("retransmissions") > 0) | (pl.col("out_of_order") > 0)
    return rows.with_columns(
        category=pl.when(before).then(pl.lit("retransmission")).otherwise(pl.lit("mqtt-unfinished"))
    )


def _mqtt_packets(frames: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return (
        frames.filter(pl.col("mqtt.msgtype").is_not_null())
        .select("port", "source", "target", type=pl.col("mqtt.msgtype").str.split(","))
        .explode("type")
        .group_by("port", "source", "target", "type")
        .agg(packets=pl.len().cast(pl.Int64))
    )
