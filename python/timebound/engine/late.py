"""What made messages late: the network, brokers, or publishers and subscribers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

LATE_BY = ("network", "broker", "endpoints", "unknown")


def late_by(messages: pl.DataFrame, deadline_ns: int | None) -> dict[str, int]:
    """What made late messages late: the `network` share alone is longer than the deadline; it and the `broker` share are; or neither, and so
    the `endpoints` did: programs that were slow, or had to wait for a CPU. `unknown`: the shares are."""
    import polars as pl

    crossed = pl.col("network_ns")
    what = (
        pl.when(crossed.is_null() | pl.col("broker_ns").is_null())
        .then(pl.lit("unknown"))
        .when(crossed > deadline_ns)
        .then(pl.lit("network"))
        .when(crossed + pl.col("broker_ns") > deadline_ns)
        .then(pl.lit("broker"))
        .otherwise(pl.lit("endpoints"))
    )
    found = Counter(messages.filter(pl.col("outcome") == "late").select(what.alias("by"))["by"].to_list())
    return {name: found[name] for name in LATE_BY}


def late_words(late: Mapping[str, Any], *, again: bool = False) -> str:
    """What `late_by` found, in one clause; empty where it found nothing. `again`: segments of these messages were sent again, and the shares hold
    the network's time of the last attempt alone."""
    words = {
        "network": "by the network alone",
        "broker": "by the time in brokers",
        "endpoints": "by publishers and subscribers (slow, or without a CPU), not by network or brokers",
        "unknown": "of unknown shares",
    }
    said = ", ".join(f"{late[name]} {text}" for name, text in words.items() if late.get(name))
    if said and again:
        said += "; TCP sent segments again, and what that took counts as the time of whoever waited for it"
    return said
