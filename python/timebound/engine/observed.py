"""What was seen on the wire, held against what was declared.

For every stream: the jitter of its arrivals at the first port, and whether any frame took longer than its bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timebound.engine.records import CONTINUED, COPY, DROPPED, HAS_SEQUENCE, RETRANSMISSION
from timebound.scenario.model_media import TokenBucket
from timebound.stacks import Plan, Stream
from timebound.stacks.joined import Joined

if TYPE_CHECKING:
    import polars as pl


LONGEST_CONTROL = 16
"""Payload bytes: MQTT control packets between messages (PUBREL, PINGREQ, DISCONNECT) are at most this long."""


@dataclass(frozen=True, slots=True)
class Release:
    """What a message took on the wire at most, all of its frames together."""

    frames: int
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One stream at its first port. `jitter_ns` is the least jitter with which its period explains what was seen; None where it has no period, or where none
    of its frames begins or ends a release (a broker's retained message is one of before)."""

    frames: int
    jitter_ns: int | None
    largest_wire: int
    larger: int
    """Frames larger than any declared one (of messages none: see `Prediction.observed`)."""
    retransmissions: int
    bucket: TokenBucket | None = None
    """It holds all that was seen, whatever was declared: its rate is the mean one. None without a period."""
    least_wire: int = 0
    beyond: Release | None = None
    """Of a program's messages: the largest one, if any took more bytes or frames than are declared."""
    releases: int = 0
    span_ns: int = 0
    """From the first frame to the last."""


def name_streams(plan: Plan, frames: pl.DataFrame) -> pl.DataFrame:
    """Adds `name` (stream) and `receiver` columns; control packets in a data direction go to their own stream."""
    import polars as pl

    declared = list(plan.streams)
    markers = {marker.data: marker for marker in plan.markers if marker.data is not None and marker.header is not None}
    names = pl.Series([stream.name for stream in declared], dtype=pl.String)
    has_messages = pl.Series([stream.name in markers for stream in declared], dtype=pl.Boolean)
    controls = [markers[stream.name].control if stream.name in markers else None for stream in declared]
    leaves = pl.DataFrame(
        [(i, j, node) for i, stream in enumerate(declared) for j, node in enumerate(stream.destinations)],
        schema={"stream": pl.UInt32, "leaf": pl.UInt16, "receiver": pl.String},
        orient="row",
    )
    lookup = pl.DataFrame(
        {
            "stream": pl.Series(range(len(declared)), dtype=pl.UInt32),
            "name": names,
            "has_messages": has_messages,
            "control": pl.Series(controls, dtype=pl.String),
        }
    )
    joins = pl.DataFrame(
        [
            (index, *marker.join)
            for index, stream in enumerate(declared)
            for marker in plan.markers_of(stream.name)
            if marker.join is not None
        ],
        schema={"stream": pl.UInt32, "connection": pl.String, "join": pl.String},
        orient="row",
    )
    # A long frame without number is a piece of messages whose header was cut by a segment's border.
    no_message = pl.col("flags") & (HAS_SEQUENCE | CONTINUED | DROPPED | RETRANSMISSION) == 0
    is_control = no_message & pl.col("has_messages") & (pl.col("payload") <= LONGEST_CONTROL)
    is_message = pl.col("flags") & HAS_SEQUENCE > 0
    first = pl.col("ingress_ns").filter(is_message).min().over("connection")
    is_join = pl.col("join").is_not_null() & ~is_message & (first.is_null() | (pl.col("ingress_ns") < first))
    return (
        frames.join(lookup, on="stream", how="left", maintain_order="left")
        .join(leaves, on=["stream", "leaf"], how="left", maintain_order="left")
        .join(joins, on="stream", how="left", maintain_order="left")
        .with_columns(
            name=pl.when(is_join)
            .then(pl.col("join"))
            .when(is_control)
            .then(pl.col("control"))
            .otherwise(pl.col("name"))
        )
        .drop("control", "has_messages", "connection", "join")
    )


def larger_than_declared(streams: dict[str, Stream], arrivals: dict[str, Arrivals]) -> list[dict[str, Any]]:
    """Streams of which frames were seen that are larger than any declared one."""
    return [
        {
            "source": stream.source,
            "destination": stream.destinations[0],
            "protocol": f"larger than the {stream.largest_frame} bytes declared for {stream.name}",
            "frames": arrivals[stream.name].larger,
            "bytes": arrivals[stream.name].larger * arrivals[stream.name].largest_wire,
            "largest": arrivals[stream.name].largest_wire,
        }
        for stream in streams.values()
        if stream.name in arrivals and arrivals[stream.name].larger
    ]


def beyond_declared(streams: dict[str, Stream], arrivals: dict[str, Arrivals]) -> dict[str, Joined]:
    """Streams that sent more bytes than their jitter explains, as the token buckets that hold what was seen: programs with larger messages, and TCP
    with larger segments, in which anything may lie.
    """
    found = {}
    for name, seen in arrivals.items():
        stream = streams[name]
        is_larger = seen.largest_wire > stream.largest_frame and (stream.tcp is not None or seen.beyond is not None)
        if seen.bucket is None or not (is_larger or seen.beyond is not None):
            continue
        declared = min(stream.frames_bytes) if stream.smallest_frame is None else stream.smallest_frame
        found[name] = Joined(
            packets=1 if stream.joined is None else stream.joined.packets,
            frame_bytes=seen.largest_wire,
            smallest_frame=min(declared, seen.least_wire),
            rate_bps=seen.bucket.rate_bps,
            burst_bytes=max(seen.bucket.burst_bytes, seen.largest_wire),
            whole_bytes=sum(stream.frames_bytes),
        )
    return found


def undeclared_control(plan: Plan, frames: pl.DataFrame) -> list[dict[str, Any]]:
    """Frames with payload on a message's connection that are neither messages nor declared (DISCONNECT, for one)."""
    import polars as pl

    streams = dict(enumerate(plan.streams))
    rows = (
        frames.filter(pl.col("name").is_null())
        .group_by("stream", maintain_order=True)
        .agg(pl.len().alias("frames"), pl.col("wire").sum().alias("bytes"), pl.col("wire").max().alias("largest"))
    )
    return [
        {
            "source": streams[row["stream"]].source,
            "destination": streams[row["stream"]].destinations[0],
            "protocol": f"control packets beside {streams[row['stream']].name}",
            **{key: row[key] for key in ("frames", "bytes", "largest")},
        }
        for row in rows.iter_rows(named=True)
    ]


def arrivals(plan: Plan, streams: dict[str, Stream], frames: pl.DataFrame) -> dict[str, Arrivals]:
    """The arrivals of every stream that was seen, from named frames.

    The model takes each frame of a release as a stream of its own with the same period and jitter, so the jitter is taken
    of the frames that start releases and of those that end them. With t the time of a frame, a its first and z its last
    release, the least jitter for which every window of length d holds at most floor((d + J) / T) + 1 of them is the maximum
    over all pairs of frames i <= k of (z_k T - t_k) - (a_i T - t_i). Messages are told apart by their bytes (a TCP segment
    may carry several, or the end of one and the start of the next); where there are none, n frames are one release.
    """
    import polars as pl

    if frames.is_empty():
        return {}
    # An empty datagram has no bytes to count by: each is a release. Programs' messages are of any size: those that begin are counted.
    marked = [m for m in plan.markers if m.data is not None and m.header is not None]
    sizes = {marker.data: marker.header[1] for marker in marked if marker.header and marker.own is None}
    own = {marker.data for marker in marked if marker.own is not None}
    rows = [
        (
            stream.name,
            stream.period_ns or 0,
            len(stream.frames_bytes),
            len(stream.destinations),
            stream.largest_frame,
            sizes.get(stream.name) or None,
            stream.name in own,
            sum(stream.frames_bytes),
        )
        for stream in streams.values()
    ]
    schema = {"name": pl.String, "period": pl.Int64, "burst": pl.Int64, "destinations": pl.UInt32}
    schema |= {"largest": pl.UInt32, "message": pl.Int64, "own": pl.Boolean, "whole": pl.Int64}
    declared = pl.DataFrame(rows, schema=schema, orient="row")
    dropped = pl.col("flags") & DROPPED > 0
    # Answers after the last release belong to the end of a connection (FIN), not to the declared traffic.
    end = plan.scenario.run.warm_up_ns + plan.scenario.run.duration_ns
    during = (pl.col("flags") & HAS_SEQUENCE > 0) | (pl.col("ingress_ns") < end)
    # Each frame once: a multicast frame has a record for every receiver, a doubled one for every copy.
    once = (pl.col("leaf") == 0) | (dropped & (pl.col("destinations") == 1))
    by_bytes = pl.col("message").is_not_null()
    share = pl.when(by_bytes).then(pl.col("payload").cast(pl.Int64)).when("own").then(pl.col("begun")).otherwise(1)
    unit = pl.when(by_bytes).then(pl.col("message")).when("own").then(1).otherwise(pl.col("burst"))
    found = (
        frames.filter(pl.col("flags") & COPY == 0)
        .join(declared, on="name", how="inner", maintain_order="left")
        .filter(once & during)
        .sort("name", "ingress_ns", maintain_order=True)
        .with_columns(begun=_begun())
        .with_columns(nth=pl.col("begun").cum_sum().over("name"))
        .with_columns(*_releases())
        .with_columns(share=share, unit=unit)
        .with_columns(sum=pl.col("share").cum_sum().over("name"))
        .with_columns(before=pl.col("sum") - pl.col("share"))
        .with_columns(
            # The first release that starts (ends) in the frame, and the last one; none where the last is below the first.
            jitter=pl.max_horizontal(
                _jitter(-(-pl.col("before") // pl.col("unit")), -(-pl.col("sum") // pl.col("unit")) - 1),
                _jitter(*_ended()),
            )
        )
        .with_columns(rate=_mean_rate())
        .with_columns(burst_bytes=_burst())
        .group_by("name", maintain_order=True)
        .agg(
            pl.len().alias("frames"),
            pl.col("jitter").max(),
            pl.col("rate", "is_beyond", "of_release", "frames_of_release", "burst_bytes").max(),
            pl.col("wire").max(),
            pl.col("wire").min().alias("least"),
            pl.col("period").first(),
            (pl.col("sum").last() // pl.col("unit").last()).alias("releases"),
            (pl.col("ingress_ns").last() - pl.col("ingress_ns").first()).alias("span"),
            (pl.col("message").is_null() & (pl.col("wire") > pl.col("largest"))).sum().alias("larger"),
            ((pl.col("flags") & RETRANSMISSION) > 0).sum().alias("retransmissions"),
        )
    )
    return {
        row["name"]: Arrivals(
            frames=row["frames"],
            jitter_ns=int(row["jitter"]) if row["period"] and row["jitter"] is not None else None,
            largest_wire=row["wire"],
            larger=row["larger"],
            retransmissions=row["retransmissions"],
            bucket=TokenBucket(rate_bps=int(row["rate"]), burst_bytes=int(row["burst_bytes"]))
            if row["period"]
            else None,
            least_wire=row["least"],
            releases=row["releases"] or 0,
            span_ns=row["span"],
            beyond=Release(row["frames_of_release"], row["of_release"]) if row["is_beyond"] else None,
        )
        for row in found.iter_rows(named=True)
    }


def _jitter(first: pl.Expr, last: pl.Expr) -> pl.Expr:
    """Jitter up to each frame that holds the releases `first` to `last`; null where it holds none."""
    import polars as pl

    any_here = last >= first
    late = pl.when(any_here).then(last * pl.col("period") - pl.col("ingress_ns"))
    early = pl.when(any_here).then(first * pl.col("period") - pl.col("ingress_ns"))
    return late - early.cum_min().over("name")


def _begun() -> pl.Expr:
    """Messages of a program that begin in each frame."""
    import polars as pl

    # A dropped frame has no count (a port stands in its place).
    is_first = (pl.col("flags") & (HAS_SEQUENCE | CONTINUED) == HAS_SEQUENCE).cast(pl.Int64)
    return pl.when(pl.col("flags") & DROPPED > 0).then(is_first).otherwise(pl.col("messages").cast(pl.Int64))


def _releases() -> list[pl.Expr]:
    """What a program's messages take on the wire, each with all of its frames (those that begin in one frame share it), against what is declared."""
    import polars as pl

    of_message = ("name", "nth")
    releases = pl.col("begun").sum().over(*of_message).clip(1)
    taken = -(-pl.col("wire").cast(pl.Int64).sum().over(*of_message) // releases)
    frames = -(-pl.len().cast(pl.Int64).over(*of_message) // releases)
    is_beyond = pl.col("own") & ((taken > pl.col("whole")) | (frames > pl.col("burst")))
    return [taken.alias("of_release"), frames.alias("frames_of_release"), is_beyond.alias("is_beyond")]


def _mean_rate() -> pl.Expr:
    """Bit/s of what was seen of a stream, its last release for a whole period; rounded up."""
    import polars as pl

    span = (pl.col("ingress_ns").max() - pl.col("ingress_ns").min()).over("name") + pl.col("period").clip(1)
    return (pl.col("wire").cast(pl.Float64).sum().over("name") * 8e9 / span).ceil() + 1


def _burst() -> pl.Expr:
    """Bytes up to each frame beyond what the mean rate brings: the most over all frames is the burst of a bucket that holds everything."""
    import polars as pl

    wire = pl.col("wire").cast(pl.Float64)
    brought = pl.col("rate") * (pl.col("ingress_ns") - pl.col("ingress_ns").min().over("name")) / 8e9
    level = wire.cum_sum().over("name") - brought
    return (level - (level - wire).cum_min().over("name")).ceil() + 1


def _ended() -> tuple[pl.Expr, pl.Expr]:
    """The first and the last release that end in each frame; none where the last is below the first."""
    import polars as pl

    by_unit = pl.col("before") // pl.col("unit"), pl.col("sum") // pl.col("unit") - 1
    goes_on = pl.col("share").shift(-1).over("name") == 0
    was_begun = (pl.col("flags") & CONTINUED > 0) & (pl.col("before") > 0)
    by_message = (
        pl.col("before") - was_begun.cast(pl.Int64),
        pl.col("sum") - 1 - goes_on.fill_null(False).cast(pl.Int64),
    )
    first, last = (pl.when("own").then(own).otherwise(others) for own, others in zip(by_message, by_unit, strict=True))
    return first, last


def worst_latencies(frames: pl.DataFrame) -> dict[tuple[str, str], int]:
    """(stream, receiver) -> greatest network latency of any delivered frame, ns."""
    import polars as pl

    if frames.is_empty():
        return {}
    worst = (
        frames.filter((pl.col("flags") & DROPPED) == 0)
        .group_by("name", "receiver", maintain_order=True)
        .agg((pl.col("delivered_ns") - pl.col("ingress_ns")).max().alias("latency"))
    )
    return {(row[0], row[1]): int(row[2]) for row in worst.iter_rows()}
