"""What made messages late."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from timebound.engine.late import LATE_BY, late_by, late_words

SCHEMA = {"outcome": pl.String, "network_ns": pl.Int64, "broker_ns": pl.Int64}


def test_a_share_that_is_too_long_alone_is_told_from_the_others() -> None:
    rows = [
        ("late", 101, 5),
        ("late", 100, 1),
        ("late", 100, 0),
        ("late", 3, 20),
        ("late", None, None),
        ("on-time", 3, 20),
        ("lost", None, None),
    ]
    found = late_by(pl.DataFrame(rows, schema=SCHEMA, orient="row"), 100)
    assert found == {"network": 1, "broker": 1, "endpoints": 2, "unknown": 1}
    assert late_words(found).startswith(
        "1 by the network alone, 1 by the time in brokers, 2 by publishers and subscribers"
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["late", "on-time", "lost"]),
            st.none() | st.integers(0, 300),
            st.none() | st.integers(0, 300),
        )
    ),
    st.integers(1, 400),
)
def test_every_late_message_counts_once(rows: list[tuple[str, int | None, int | None]], deadline_ns: int) -> None:
    found = late_by(pl.DataFrame(rows, schema=SCHEMA, orient="row"), deadline_ns)
    assert tuple(found) == LATE_BY
    assert sum(found.values()) == sum(outcome == "late" for outcome, *_ in rows)


def test_what_tcp_sent_again_is_nobodys_fault() -> None:
    assert late_words({"broker": 3}, again=True).startswith("3 by the time in brokers; TCP sent segments again")


def test_nothing_is_said_where_nothing_is_late() -> None:
    assert late_words({}, again=True) == late_words({}) == late_words(dict.fromkeys(LATE_BY, 0)) == ""
