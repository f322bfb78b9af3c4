"""What an emulated run measured: one row per message and receiver, with the shares of its latency."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timebound.engine import observed, own, records, short
from timebound.engine.answers import answers
from timebound.engine.emulate import SETTLE_NS
from timebound.engine.late import with_causes
from timebound.engine.observed import Arrivals
from timebound.engine.predict import Prediction
from timebound.stacks import Plan
from timebound.stacks.hardware import external_nodes

if TYPE_CHECKING:
    import polars as pl


CUMULATIVE = ("frames", "wire_bytes", "dropped_buffer", "dropped_link")
"""Columns of `ports.csv` that count from time zero."""


@dataclass(slots=True)
class Measured:
    """Records of one run, joined. Times count from the end of the warm-up."""

    messages: pl.DataFrame
    frames: pl.DataFrame
    arrivals: dict[str, Arrivals]
    worst_ns: dict[tuple[str, str], int]
    """(stream, receiver) -> greatest network latency of any of its frames, warm-up included."""
    live: dict[str, Any]
    segments: dict[tuple[str, str], pl.DataFrame]
    """(stream, receiver) -> frames with a sequence number that were delivered in the measured part."""
    undeclared: list[dict[str, Any]]
    nodes: pl.DataFrame | None
    links: pl.DataFrame | None
    precision: pl.DataFrame | None
    """The emulator's own error over time: `lateness.csv` (crates/live/src/history.rs)."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """Of the controller, to the clients of flows (`engine.answers`)."""
    guesses: short.Guesses = field(default_factory=dict)
    """What is not certain of messages without room for a number, or of programs."""
    unseen: list[str] = field(default_factory=list)
    """Which messages of programs were not seen, and what of them is not as declared."""
    unread: dict[tuple[str, str], str] = field(default_factory=dict)
    """(flow, receiver) -> why not all of its messages could be read."""

    def unsent(self, plan: Plan) -> Counter[str]:
        """Messages of each flow that were released while their client had no connection to send them on. A publisher that was told to stop, or to
        start again, owes none."""
        senders = (self.live.get("endpoints") or {}).get("senders") or []
        told = {order["node"] for order in self.live.get("lifecycle") or []}
        found: Counter[str] = Counter()
        for sender in senders:
            if sender["dropped"] and sender["node"] not in told and sender["flow"] < len(plan.legs):
                found[plan.legs[sender["flow"]].flow] += sender["dropped"]
        return found

    def port_figures(self) -> dict[int, dict[str, Any]]:
        """Port index -> utilisation, drops and largest queue of the measured run."""
        span = self.live["measured_ns"]
        found = {}
        for port in self.live["ports"]:
            found[port["index"]] = {
                "wire_bytes": port["wire_bytes"],
                "span_ns": span,
                "dropped": port["dropped_buffer"] + port["dropped_link"],
                "largest_queue_bytes": port["largest_queue_bytes"],
            }
        return found


def measure(prediction: Prediction, folder: Path, live: dict[str, Any]) -> Measured:
    """Reads the records of a run folder and joins them to messages."""
    import polars as pl

    plan = prediction.plan
    warm_up = plan.scenario.run.warm_up_ns
    frames = observed.name_streams(plan, records.read_frames(folder / "frames.bin"))
    endpoints = records.read_messages(folder / "endpoints.bin")
    frames, endpoints, guesses = short.resolve(plan, frames, endpoints)
    arrivals = observed.arrivals(plan, prediction.streams, frames)
    worst = observed.worst_latencies(frames)
    seen = own.complete(plan, frames, endpoints, live)
    frames, endpoints = seen.frames, seen.endpoints
    delivered = pl.when(pl.col("delivered_ns") < 0).then(None).otherwise(pl.col("delivered_ns") - warm_up)
    frames = frames.with_columns(pl.col("ingress_ns") - warm_up, delivered.alias("delivered_ns"))
    endpoints = endpoints.with_columns(pl.col("nominal_ns") - warm_up, pl.col("time_ns") - warm_up)
    nodes = _nodes(folder / "nodes.csv", warm_up)
    told = {order["node"] for order in live.get("lifecycle") or []}
    messages = arrived_by(live, warm_up, own.owed(_messages(prediction, frames, endpoints), seen))
    return Measured(
        messages=with_causes(prediction, messages, frames, nodes, told, seen.held.since(warm_up)),
        frames=frames,
        arrivals=arrivals,
        worst_ns=worst,
        live=live,
        segments=_segments(frames, _unnumbered(plan)),
        undeclared=[
            *live["undeclared"],
            *observed.undeclared_control(plan, frames),
            *observed.larger_than_declared(prediction.streams, arrivals),
        ],
        nodes=nodes,
        links=_links(folder / "ports.csv", warm_up),
        precision=_precision(folder / "lateness.csv", warm_up),
        guesses={**guesses, **seen.guesses},
        unseen=seen.notes,
        unread=seen.unread,
        answers=answers(folder, {flow.topic: flow.name for flow in plan.scenario.flows if flow.asks}, warm_up, live),
    )


def arrived_by(live: dict[str, Any], warm_up: int, messages: pl.DataFrame) -> pl.DataFrame:
    """The messages of a run; of one that was ended early without those that were still under way: after its last release a whole run waits for
    `SETTLE_NS`, and what has not come by then is lost."""
    import polars as pl

    if live.get("failure") is None:
        return messages
    since = live["measured_ns"] - SETTLE_NS - warm_up
    return messages.filter((pl.col("outcome") != "lost") | (pl.col("released_ns") <= since))


def _unnumbered(plan: Plan) -> list[str]:
    """Streams of messages that bear no number of ours: those that a device or a virtual machine sends."""
    external = {node.name for node in plan.scenario.hosts if node.is_external}
    return [stream.name for stream in plan.streams if stream.source in external and stream.role == "data"]


def _segments(frames: pl.DataFrame, unnumbered: list[str]) -> dict[tuple[str, str], pl.DataFrame]:
    import polars as pl

    counts = (pl.col("flags") & records.HAS_SEQUENCE > 0) | pl.col("name").is_in(unnumbered)
    whole = counts & pl.col("delivered_ns").is_not_null()
    pairs = frames.filter(whole & (pl.col("ingress_ns") >= 0)).partition_by("name", "receiver", as_dict=True)
    return {(str(key[0]), str(key[1])): table for key, table in pairs.items()}


def _nodes(path: Path, warm_up: int) -> pl.DataFrame | None:
    """`nodes.csv` with the share of one CPU in each interval."""
    import polars as pl

    if not path.exists():
        return None
    table = _read_csv(path, "node", pl.String)
    busy, elapsed = pl.col("cpu_ns").diff().over("node"), pl.col("t_ns").diff().over("node")
    return table.with_columns(cpu_share=pl.when(elapsed > 0).then(busy / elapsed)).with_columns(
        pl.col("t_ns") - warm_up
    )


def _links(path: Path, warm_up: int) -> pl.DataFrame | None:
    """`ports.csv` as what happened in each interval."""
    import polars as pl

    if not path.exists():
        return None
    table = _read_csv(path, "port", pl.Int64)
    counters = [pl.col(name).diff().over("port").fill_null(pl.col(name)) for name in CUMULATIVE]
    start = pl.col("t_ns").shift(1).over("port").fill_null(0)
    return table.with_columns(*counters, start.alias("start_ns"), (pl.col("t_ns") - start).alias("length_ns")).select(
        pl.col("port").cast(pl.UInt32).alias("index"),
        pl.col("start_ns") - warm_up,
        "length_ns",
        *CUMULATIVE,
        "queue_max_bytes",
    )


def _precision(path: Path, warm_up: int) -> pl.DataFrame | None:
    """`lateness.csv` with the share of stolen CPU time; `overrun_ns` is the longest, `overruns_ns` the sum of all."""
    import polars as pl

    if not path.exists():
        return None
    table = _read_csv(path, "thread", pl.Int64)
    end = pl.col("gap_end_ns")
    return table.select(
        pl.col("start_ns") - warm_up,
        pl.col("end_ns") - warm_up,
        pl.col("thread").cast(pl.UInt32),
        "frames",
        *(pl.col(f"{name}_ns").alias(f"lateness_{name}_ns") for name in ("p50", "p99", "max")),
        *("late", "early", "ring_lost", "refused", "clock_steps", "overruns"),
        pl.col("overrun_ns").alias("overruns_ns"),
        pl.col("gap_ns").alias("overrun_ns"),
        pl.when(pl.col("gap_ns") > 0).then(end - pl.col("gap_ns") - warm_up).alias("overrun_start_ns"),
        "cpu_ns",
        pl.col("wait_ns").alias("run_queue_ns"),
        pl.when(pl.col("jiffies") > 0).then(pl.col("steal") / pl.col("jiffies")).alias("steal"),
    )


OF_LIMITED_NODES = ("throttled_ns", "memory_peak_bytes")
"""Columns of `nodes.csv` that are empty for nodes without limits."""


def _read_csv(path: Path, key: str, kind: Any) -> pl.DataFrame:
    """A table of integers but for its key; a last line that was cut off is left out."""
    import polars as pl

    data = path.read_bytes()
    header = data.decode("utf-8", "replace").partition("\n")[0].split(",")
    schema = {name: kind if name == key else pl.Int64 for name in header}
    whole = data[: data.rfind(b"\n") + 1]
    table = pl.read_csv(whole, schema=schema, truncate_ragged_lines=True, ignore_errors=True)
    return table.drop_nulls([name for name in header if name not in OF_LIMITED_NODES])


def _messages(prediction: Prediction, frames: pl.DataFrame, endpoints: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    plan = prediction.plan
    deadlines = {flow.name: flow.deadline_ns for flow in plan.scenario.flows}
    external = external_nodes(plan)
    duration, hosts = plan.scenario.run.duration_ns, plan.host_numbers()
    in_time = (pl.col("nominal_ns") >= 0) & (pl.col("nominal_ns") < duration)
    sent = (
        endpoints.filter((pl.col("kind") == records.SENT) & in_time)
        .group_by("flow", "sequence", maintain_order=True)
        .agg(
            pl.col("nominal_ns").min().alias("released_ns"),
            pl.col("time_ns").min().alias("sent_ns"),
            pl.col("size").first(),
            (pl.col("flags") & records.HELD > 0).first().alias("held"),
        )
    )
    pairs = pl.DataFrame(
        [
            (number, receiver, hosts[receiver], leg.flow, deadlines[leg.flow])
            for number, leg in enumerate(plan.legs)
            for receiver in leg.receivers
            if receiver not in external
        ],
        schema={
            "flow": pl.UInt32,
            "to": pl.String,
            "receiver": pl.UInt32,
            "name": pl.String,
            "deadline": pl.Int64,
        },
        orient="row",
    )
    received = _received(endpoints)
    messages = (
        sent.join(pairs, on="flow", how="inner")
        .join(received, on=["flow", "receiver", "sequence"], how="left")
        .join(_network(prediction, frames), on=["name", "to", "sequence"], how="left")
        .with_columns(broker_ns=pl.col("broker_ns").clip(0))
        .with_columns(
            host_ns=pl.col("received_ns") - pl.col("sent_ns") - pl.col("network_ns") - pl.col("broker_ns"),
        )
        .with_columns(
            outcome=pl.when(pl.col("received_ns").is_null())
            .then(pl.lit("lost"))
            .when(pl.col("received_ns") - pl.col("released_ns") > pl.col("deadline"))
            .then(pl.lit("late"))
            .when(pl.col("copies") > 1)
            .then(pl.lit("duplicate"))
            .when(pl.col("overtaken"))
            .then(pl.lit("reordered"))
            .otherwise(pl.lit("on-time"))
        )
    )
    return messages.select(
        pl.col("name").alias("flow"),
        pl.col("to").alias("receiver"),
        "sequence",
        "released_ns",
        "sent_ns",
        "received_ns",
        "size",
        "outcome",
        "network_ns",
        "broker_ns",
        "host_ns",
        "stages_ns",
        pl.col("copies").fill_null(0).cast(pl.UInt32),
        pl.col("overtaken").fill_null(False),
        "held",
        "entered_ns",
        "spread_ns",
        "left_ns",
        "emulator_ns",
    ).sort("flow", "receiver", "sequence")


def _received(endpoints: pl.DataFrame) -> pl.DataFrame:
    """First reception of each message, how many copies came, and whether a later message had come before it."""
    import polars as pl

    key = ["flow", "receiver", "sequence"]
    return (
        endpoints.filter(pl.col("kind") == records.RECEIVED)
        .sort("time_ns", maintain_order=True)
        .group_by(key, maintain_order=True)
        .agg(pl.col("time_ns").first().alias("received_ns"), pl.len().alias("copies"))
        .with_columns(overtaken=pl.col("sequence") < pl.col("sequence").cum_max().over("flow", "receiver"))
    )


def crossings(plan: Plan, frames: pl.DataFrame) -> pl.DataFrame:
    """One row for each message and receiver of each stream: `began_ns` and `ended_ns` (first and last of its frames at the first port),
    `delivered_ns`, `crossing_ns` and `lateness_ns` of the frame that completes it."""
    import polars as pl

    wanted = records.HAS_SEQUENCE | records.DROPPED | records.COPY
    good = (pl.col("flags") & wanted == records.HAS_SEQUENCE) & pl.col("delivered_ns").is_not_null()
    # A segment may carry the end of one message and the start of others: it counts for all of them. Its number is that of
    # the first message that begins in it, or of the one that it continues when none begins.
    begun = pl.col("messages").cast(pl.Int64)
    before = (pl.col("flags") & records.CONTINUED > 0) & (begun > 0)
    # Where messages of several flows share a connection, only the first of a segment is known by its number.
    alone = pl.col("name").is_in(sorted(plan.shared))
    carried = pl.int_ranges(
        pl.when(before & ~alone).then(-1).otherwise(0), pl.when(alone).then(1).otherwise(begun.clip(1)), dtype=pl.Int64
    )
    return (
        frames.filter(good)
        .select(
            pl.col("name").alias("stream"),
            "receiver",
            "flow",
            "sequence",
            "ingress_ns",
            "delivered_ns",
            "lateness_ns",
            carried.alias("more"),
        )
        .explode("more")
        .with_columns((pl.col("sequence").cast(pl.Int64) + pl.col("more")).alias("sequence"))
        .filter(pl.col("sequence") >= 0)
        .with_columns(pl.col("sequence").cast(pl.UInt32))
        .sort("delivered_ns", maintain_order=True)
        .group_by("stream", "receiver", "flow", "sequence", maintain_order=True)
        .agg(
            pl.col("ingress_ns").min().alias("began_ns"),
            pl.col("ingress_ns").max().alias("ended_ns"),
            # The frame that completes the message. What a sender waits between two segments of it (for a window to open)
            # is the host's time, not the network's.
            (pl.col("delivered_ns") - pl.col("ingress_ns")).last().alias("crossing_ns"),
            pl.col("delivered_ns").last(),
            pl.col("lateness_ns").last(),
        )
    )


def _network(prediction: Prediction, frames: pl.DataFrame) -> pl.DataFrame:
    """Network and broker share of each message: the times of its frames on each segment."""
    import polars as pl

    plan = prediction.plan
    schema = {"stream": pl.String, "receiver": pl.String, "flow": pl.UInt32, "name": pl.String, "to": pl.String}
    schema["part"] = pl.UInt8
    numbers = {(leg.flow, receiver): number for number, leg in enumerate(plan.legs) for receiver in leg.receivers}
    parts = pl.DataFrame(
        [
            (segment.stream, segment.destination, numbers[flow, receiver], flow, receiver, index)
            for (flow, receiver), segments in plan.segments.items()
            for index, segment in enumerate(segments)
        ],
        schema=schema,
        orient="row",
    )
    counts = pl.DataFrame(
        [(flow, receiver, len(segments)) for (flow, receiver), segments in plan.segments.items()],
        schema={"name": pl.String, "to": pl.String, "expected": pl.UInt32},
        orient="row",
    )
    crossed = (
        crossings(plan, frames)
        .join(parts, on=["stream", "receiver", "flow"], how="inner")
        .sort("part", maintain_order=True)
        .group_by("name", "to", "sequence", maintain_order=True)
        .agg(
            pl.col("crossing_ns").sum().alias("network_ns"),
            # One time for each broker: from the last frame in to the first frame out, and to the last frame out.
            _between("began_ns").sum().alias("between"),
            _between("ended_ns").alias("stages_ns"),
            pl.len().alias("parts"),
            # What its senders waited before and between its frames, and when it was through.
            pl.col("ended_ns").first().alias("entered_ns"),
            (pl.col("ended_ns") - pl.col("began_ns")).tail(pl.len() - 1).sum().alias("spread_ns"),
            (pl.col("delivered_ns") + pl.col("lateness_ns")).last().alias("left_ns"),
            pl.col("lateness_ns").cast(pl.Int64).sum().alias("emulator_ns"),
        )
        .join(counts, on=["name", "to"], how="left")
        .filter(pl.col("parts") == pl.col("expected"))
    )
    return crossed.select(
        "name",
        "to",
        "sequence",
        "network_ns",
        pl.when(pl.col("parts") > 1).then(pl.col("between")).otherwise(0).alias("broker_ns"),
        "stages_ns",
        "entered_ns",
        "spread_ns",
        "left_ns",
        "emulator_ns",
    )


def _between(out: str) -> pl.Expr:
    """From the last frame of a message on one segment to the time `out` of its frames on the next, for all segments but the last."""
    import polars as pl

    return (pl.col(out).shift(-1) - pl.col("delivered_ns") - pl.col("lateness_ns")).head(pl.len() - 1)
