"""Sums -> the figures of `summary.json` (key `packets`) and the rows of `packets.parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebound.engine.packets.counts import NODE_KEY, Counts
from timebound.engine.packets.frames import CATEGORIES, CLASSES, FLAGS, MEASURES, MQTT_TYPES, TCP_FLAGS
from timebound.engine.packets.sources import Source

if TYPE_CHECKING:
    import polars as pl

MOST_POINTS = 240
"""Points of a series in the summary; the table has every interval."""
LAYERS = {
    "frame": "bytes of the frame as captured: Ethernet header, no FCS; what Wireshark's packet-lengths statistic counts",
    "ip": "bytes of the IP packet (of the Ethernet payload where it is not IP)",
    "wire": "bytes that occupy the line: the frame padded to 60, FCS 4, preamble 8, inter-frame gap 12; of a run, with the framing of its network",
    "transport payload": "bytes behind the TCP or UDP header",
    "application payload": "the payload of PUBLISH packets, each counted once, where it is complete; of UDP and of TCP "
    "that is not MQTT, the transport payload",
}


def totals(rows: pl.DataFrame, duration_ns: int | None) -> dict[str, Any]:
    """The figures of some rows. `duration_ns` is what rates refer to: from the first to the last frame of the capture."""
    sums = {name: int(rows[name].sum()) for name in MEASURES}
    payload, wire, frame = sums["payload_bytes"], sums["wire_bytes"], sums["frame_bytes"]
    frames = sums["frames"]
    by_category = dict.fromkeys(CATEGORIES, (0, 0, 0))
    if rows.height:
        grouped = rows.group_by("category").agg(*(_total(name) for name in ("frames", "frame_bytes", "wire_bytes")))
        by_category |= {row[0]: row[1:] for row in grouped.iter_rows()}
    silent = frames - by_category["publish"][0] - by_category["udp"][0] - by_category["tcp-data"][0]
    return {
        **{name: sums[name] for name in ("frames", "frame_bytes", "captured_bytes", "ip_bytes", "wire_bytes")},
        "transport_payload_bytes": sums["transport_bytes"],
        "payload_bytes": payload,
        "goodput_bytes_per_s": round(payload * 1e9 / duration_ns, 3) if duration_ns else None,
        "overhead": {
            "wire_bytes": wire - payload,
            "wire_share": _share(wire - payload, wire),
            "frame_bytes": frame - payload,
            "frame_share": _share(frame - payload, frame),
        },
        "without_transport_payload": {
            "frames": sums["without_transport_payload"],
            "share": _share(sums["without_transport_payload"], frames),
        },
        "without_application_payload": {"frames": silent, "share": _share(silent, frames)},
        "categories": {
            name: {"frames": f, "share": _share(f, frames), "frame_bytes": b, "wire_bytes": w}
            for name, (f, b, w) in by_category.items()
        },
        "tcp": {name: sums[name] for name in (*FLAGS, *TCP_FLAGS)},
        "mqtt": {
            "packets": sums["mqtt_packets"],
            "packets_over_several_segments": sums["mqtt_reassembled"],
            "frames_with_several_packets": sums["frames_several_mqtt"],
            "frames_with_publish_and_control": sums["frames_mixed_mqtt"],
        },
    }


def _total(name: str) -> pl.Expr:
    import polars as pl

    return pl.col(name).sum()


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def size_classes(ports: pl.DataFrame) -> dict[str, Any]:
    """Frames per size class, by both layers, and what the frames of each class are (by bytes of the frame)."""
    import polars as pl

    found: dict[str, Any] = {}
    for layer in ("frame", "ip"):
        counts = dict.fromkeys(CLASSES, 0)
        for index, frames in ports.group_by(f"{layer}_class").agg(pl.col("frames").sum()).iter_rows():
            counts[CLASSES[index]] = frames
        found[layer] = counts
    kinds: dict[str, dict[str, int]] = {name: {} for name in CLASSES}
    grouped = ports.group_by("frame_class", "category").agg(pl.col("frames").sum()).sort("frame_class", "category")
    for index, category, frames in grouped.iter_rows():
        kinds[CLASSES[index]][category] = frames
    return {**found, "categories_of_frame_classes": kinds}


def capture(source: Source, counts: Counts, problem: str | None) -> dict[str, Any]:
    """The entry of one capture."""
    import polars as pl

    duration = counts.last_ns - counts.first_ns if counts.first_ns is not None and counts.last_ns is not None else None
    entry: dict[str, Any] = {
        "capture": source.name,
        "files": [file.name for file in source.files],
        "both_directions": source.both_directions,
        "interval_ns": counts.interval_ns,
        "first_unix_ns": counts.first_ns,
        "duration_s": None if duration is None else duration / 1e9,
        "frames_cut": counts.cut,
        "problem": problem,
        "notes": _notes(source, counts),
    }
    if counts.ports is None or counts.nodes is None:
        empty = pl.DataFrame(schema={"category": pl.String, **dict.fromkeys(MEASURES, pl.Int64)})
        return {
            **entry,
            "totals": totals(empty, None),
            "sizes": None,
            "mqtt_packets": {},
            "ports": [],
            "nodes": [],
            "series": None,
        }
    ports = []
    for key, rows in counts.ports.partition_by("port", as_dict=True, maintain_order=True).items():
        ports.append(
            {
                "port": key[0],
                "totals": totals(rows, duration),
                "sizes": size_classes(rows),
                "mqtt_packets": _types(counts, str(key[0])),
            }
        )
    nodes = []
    for key, rows in counts.nodes.partition_by("node", "direction", as_dict=True, maintain_order=True).items():
        nodes.append({"node": key[0], "direction": key[1], "totals": totals(rows, duration)})
    return {
        **entry,
        "totals": totals(counts.ports, duration),
        "sizes": size_classes(counts.ports),
        "mqtt_packets": _types(counts, None),
        "ports": ports,
        "nodes": nodes,
        "series": series(counts),
    }


def _types(counts: Counts, port: str | None) -> dict[str, int]:
    """MQTT packets by type, in the order of the standard."""
    import polars as pl

    if counts.packets is None:
        return {}
    rows = counts.packets if port is None else counts.packets.filter(pl.col("port") == port)
    found: dict[str, int] = dict(rows.group_by("type").agg(pl.col("packets").sum()).iter_rows())
    known = {name: found[str(number)] for number, name in MQTT_TYPES.items() if str(number) in found}
    return known | {
        f"type {kind}": n for kind, n in sorted(found.items()) if not (kind.isdigit() and int(kind) in MQTT_TYPES)
    }


def _notes(source: Source, counts: Counts) -> list[str]:
    notes = []
    if source.both_directions is False:
        notes.append(
            "One direction only was captured: tshark cannot tell spurious retransmissions, and sees duplicate "
            "acknowledgements only in the direction that they go."
        )
    if counts.cut:
        notes.append(
            f"{counts.cut} frames were cut when captured: MQTT packets in them may be missing from the counts."
        )
    return notes


def series(counts: Counts) -> dict[str, Any]:
    """Per step of time: frames, bytes and payload per second, retransmissions, shares."""
    import polars as pl

    assert counts.ports is not None
    starts = counts.ports["start_ns"]
    low, high = int(starts.min()), int(starts.max())  # type: ignore[arg-type]
    step = counts.interval_ns
    while (high - low) // step + 1 > MOST_POINTS:
        step *= 2
    stepped = counts.ports.with_columns(step=pl.col("start_ns") // step - low // step)
    steps = high // step - low // step + 1
    control = pl.col("category") == "tcp-control"
    table = stepped.group_by("step").agg(
        pl.col("frames", "wire_bytes", "payload_bytes", "retransmissions", "duplicate_acks").sum(),
        silent=pl.col("without_transport_payload").sum(),
        control=pl.col("frames").filter(control).sum(),
    )
    by_step = {row["step"]: row for row in table.iter_rows(named=True)}
    columns = ("frames", "wire_bytes", "payload_bytes", "retransmissions", "duplicate_acks", "silent", "control")
    found: dict[str, Any] = {name: [by_step[i][name] if i in by_step else 0 for i in range(steps)] for name in columns}
    return {"step_ns": step, "time_s": [(low // step + i) * step / 1e9 for i in range(steps)], **found}


def table(entries: list[tuple[Source, Counts]]) -> pl.DataFrame:
    """The rows of packets.parquet: scope `port` with size classes, scope `node` with direction; other columns are null."""
    import polars as pl

    text = dict.fromkeys(
        ("scope", "capture", "port", "node", "direction", "category", "frame_class", "ip_class"), pl.String
    )
    whole = {"start_ns": pl.Int64, "interval_ns": pl.Int64, **dict.fromkeys(MEASURES, pl.Int64)}
    parts = [pl.DataFrame(schema={**text, **whole})]
    names = dict(enumerate(CLASSES))
    for source, counts in entries:
        if counts.ports is None or counts.nodes is None:
            continue
        common = {"capture": pl.lit(source.name), "interval_ns": pl.lit(counts.interval_ns, pl.Int64)}
        classes = [pl.col(f"{layer}_class").replace_strict(names, return_dtype=pl.String) for layer in ("frame", "ip")]
        parts.append(counts.ports.with_columns(*classes, scope=pl.lit("port"), **common))
        parts.append(counts.nodes.select(*NODE_KEY, *MEASURES).with_columns(scope=pl.lit("node"), **common))
    return pl.concat(parts, how="diagonal").select(*text, *whole)
