"""What made messages late, and which of it was the machine's doing."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.engine.disturbed import by_machine, exceeded_words, named, notes, reasons
from timebound.engine.late import FOREVER, LATE_BY, MACHINE, Late, Repeats, Waits, _waits, late_by, late_words
from timebound.engine.records import COPY, DROPPED, HAS_SEQUENCE, NO_PAYLOAD, RETRANSMISSION

MS = 1_000_000


def late(
    network: int | None,
    bound: int | None = None,
    repeated: int = 0,
    cpu: dict[str, int] | None = None,
    held: int = 0,
    **waits: int,
) -> str:
    """The cause for a deadline of 100."""
    all_waits = {"release": 0, "window": 0, "broker": 0, "endpoints": 0, "emulator": 0, **waits}
    over = (network or 0) + sum(all_waits.values()) - 100
    return Late(
        deadline_ns=100,
        over_ns=over,
        network_ns=network,
        bound_ns=bound,
        waits=all_waits,
        repeated_ns=repeated,
        cpu_ns=cpu or {},
        held_ns=held,
    ).cause()


def test_the_network_is_named_where_it_alone_took_too_long() -> None:
    assert late(101, broker=500) == "network"
    # It can take that long with what is declared; beyond that somebody sent more.
    assert late(101, bound=101) == "network"
    assert late(101, bound=100) == "arrivals"


@pytest.mark.parametrize("cause", ["release", "window", "broker", "endpoints", "emulator"])
def test_the_longest_wait_outside_the_network_is_named(cause: str) -> None:
    assert late(3, **{cause: 150, "broker": 20} if cause != "broker" else {"broker": 150}) == cause


def test_a_release_by_our_own_publisher_is_not_the_networks_nor_the_endpoints_fault() -> None:
    row = {
        "released_ns": 0,
        "sent_ns": 28 * MS,
        "held": False,
        "network_ns": 1 * MS,
        "broker_ns": 0,
        "entered_ns": 28 * MS,
    }
    row |= {"spread_ns": 0, "left_ns": 29 * MS, "received_ns": 29 * MS, "emulator_ns": 0}
    waits = _waits(row, 1 * MS, False)
    assert waits["release"] == 27 * MS and waits["window"] == waits["endpoints"] == 0
    # The connection had no room for it: that is no machine's fault.
    assert _waits({**row, "held": True}, 1 * MS, False)["window"] == 27 * MS
    # The scenario itself stops its publisher, or gives it little of a CPU.
    assert _waits(row, 1 * MS, True)["endpoints"] == 27 * MS


def test_tcp_that_waits_for_its_window_is_told_from_a_slow_subscriber() -> None:
    row = {"released_ns": 0, "sent_ns": 0, "held": False, "network_ns": 20 * MS, "broker_ns": 0, "emulator_ns": 0}
    row |= {"entered_ns": 40 * MS, "spread_ns": 5 * MS, "left_ns": 65 * MS, "received_ns": 66 * MS}
    waits = _waits(row, 0, False)
    assert max(waits, key=lambda name: waits[name]) == "window" and waits["window"] == 45 * MS


def test_who_waited_for_a_cpu_is_told_from_who_computed() -> None:
    assert late(3, broker=150) == "broker"
    assert late(3, broker=150, cpu={"broker": 80}) == "cpu"
    assert late(3, broker=150, cpu={"broker": 10, "endpoints": 900}) == "broker"


def test_what_waited_behind_a_lost_frame_is_nobodys_fault() -> None:
    assert late(3, endpoints=150, repeated=140) == "retransmission"
    assert late(None, unknown=150, repeated=140) == "retransmission"
    assert late(None, unknown=150) == "unknown"


def test_a_broker_that_its_subscriber_keeps_waiting_is_not_slow() -> None:
    assert late(3, broker=150, held=74) == "broker"
    assert late(3, broker=150, held=75) == late(None, unknown=150, held=75) == "endpoints"
    # It says nothing of what waited before the broker.
    assert late(3, window=150, broker=20, held=75) == "window"


def test_a_wait_that_alone_makes_nothing_late_is_not_named() -> None:
    assert late(99, endpoints=1, broker=1) == "endpoints" or late(99, endpoints=1, broker=1) == "broker"
    assert late(99, endpoints=2, broker=2, window=2) == "network"


@given(
    st.none() | st.integers(0, 300),
    st.dictionaries(st.sampled_from(["release", "window", "broker", "endpoints", "emulator"]), st.integers(0, 300)),
    st.integers(0, 300),
    st.dictionaries(st.sampled_from(["window", "broker", "endpoints"]), st.integers(0, 300)),
)
def test_every_late_message_has_one_cause(
    network: int | None, waits: dict[str, int], again: int, cpu: dict[str, int]
) -> None:
    assert late(network, None, again, cpu, **waits) in LATE_BY


def test_late_messages_are_counted_by_cause() -> None:
    table = pl.DataFrame({"cause": ["cpu", None, "broker", "cpu"]}, schema={"cause": pl.String})
    found = late_by(table)
    assert tuple(found) == LATE_BY and found["cpu"] == 2 and found["broker"] == 1 and sum(found.values()) == 3
    assert late_words(found).startswith("1 by the time in brokers, 2 by programs and endpoints that waited for a CPU")
    assert late_words({}) == late_words(dict.fromkeys(LATE_BY, 0)) == ""


FRAMES = {"name": pl.String, "flags": pl.Int64, "ingress_ns": pl.Int64, "delivered_ns": pl.Int64}


def test_frames_are_missing_from_a_loss_until_what_is_sent_again_arrives() -> None:
    rows = [
        ("s", HAS_SEQUENCE, 0, 5),
        ("s", DROPPED | HAS_SEQUENCE, 10, None),
        ("s", HAS_SEQUENCE, 20, 25),
        ("s", DROPPED | RETRANSMISSION, 30, None),
        ("s", RETRANSMISSION, 200, 205),
        # Not lost, so nobody waited for it.
        ("s", RETRANSMISSION, 300, 305),
        ("other", DROPPED, 0, None),
        ("acks", DROPPED | NO_PAYLOAD, 0, None),
        ("copies", DROPPED | COPY, 0, None),
    ]
    found = Repeats(pl.DataFrame(rows, schema=FRAMES, orient="row"))
    assert found.during(["s"], 0, 1000) == 195
    assert found.during(["s"], 100, 150) == 50
    assert found.during(["s", "other"], 0, 1000) == 1000 < FOREVER
    assert found.during(["s"], 206, 1000) == found.during(["acks", "copies", "none"], 0, 1000) == 0


def test_what_a_limit_kept_from_running_did_not_wait_for_the_machine() -> None:
    nodes = pl.DataFrame(
        {
            "node": ["b"] * 3 + ["slow"] * 3,
            "t_ns": [0, 500, 1000] * 2,
            "wait_ns": [0, 300, 310, 0, 400, 800],
            "client_wait_ns": [0, 0, 7, 0, 0, 0],
            "throttled_ns": [None, None, None, 0, 380, 800],
        }
    )
    waits = Waits(nodes)
    assert waits.of("b", "wait_ns", 100, 200) == 300
    assert waits.of("b", "wait_ns", 500, 900) == 10
    assert waits.of("b", "client_wait_ns", -50, 5000) == 7
    assert waits.of("slow", "wait_ns", 0, 1000) == 0
    assert waits.of("absent", "wait_ns", 0, 1000) == Waits(None).of("b", "wait_ns", 0, 1) == 0


def entry(count: int, exceeded: bool = False, **causes: int) -> dict[str, Any]:
    counted = {**dict.fromkeys(LATE_BY, 0), **causes}
    exceeded_by = [{"released_late": exceeded}] if causes.get("arrivals") else []
    return {
        "flow": "f",
        "receiver": "r",
        "late": count,
        "late_by": counted,
        "late_reason": "x",
        "exceeded_by": exceeded_by,
    }


def test_a_run_is_disturbed_where_the_machine_made_messages_late() -> None:
    assert (
        reasons([entry(3, release=1, cpu=1, emulator=1)], []) and by_machine(entry(3, **dict.fromkeys(MACHINE, 1))) == 3
    )
    nodes = [
        {"node": "h2", "wait_s": {"programs": 3.0, "clients": 0.5}},
        {"node": "h1", "wait_s": {"programs": 0.0, "clients": 0.5}},
    ]
    (first, waited) = reasons([entry(10, cpu=5, broker=5)], nodes)
    assert first.startswith("5 of 10 late messages were late by this machine, first f at r")
    assert waited == "waited for a CPU: programs of h2 3.00 s, clients of h2 0.50 s"


def test_one_hiccup_among_many_late_messages_excuses_nobody() -> None:
    assert reasons([entry(30, release=1, broker=29)], []) == reasons([entry(5, broker=5)], []) == reasons([], []) == []


def test_who_sent_more_than_declared_is_named_and_a_stopped_sender_of_ours_is_the_machines() -> None:
    assert by_machine(entry(4, True, arrivals=4)) == 4 and by_machine(entry(4, False, arrivals=4)) == 0
    streams = [
        {"stream": name, "source": "h1", "declared_jitter_us": 400.0, "observed_jitter_us": seen, "released_late": True}
        for name, seen in (("a", 500.0), ("b", 2_000_000.0))
    ]
    found = named({"h1->s": streams, "s->h2": streams[:1]}, ["s->h2", "h1->s"])
    assert exceeded_words(found[:1]) == "b of h1 came with 2 s of jitter where 400 us are declared"
    assert named({}, ["x"]) == []


def test_who_sent_more_is_noted_where_nothing_was_late_by_it() -> None:
    frame = {"declared": 112, "observed": 698}
    entry: dict[str, Any] = {
        "stream": "t",
        "source": "h1",
        "declared_jitter_us": 0.0,
        "observed_jitter_us": 2000.0,
        "frame_bytes": frame,
        "released_late": False,
    }
    (said,) = notes(
        [{"late_by": None, "exceeded_by": [entry]}, {"late_by": {"cpu": 1}, "exceeded_by": [entry]}],
        by_machine=entry["released_late"],
    )
    assert (
        "t of h1 came with 2 ms of jitter where 0 us are declared and in frames of 698 B where 112 B are declared."
        in said
    )
    # A rate that was exceeded is no jitter.
    entry["count"] = {"observed": 845, "allowed": 171, "span_us": 3_400_000.0}
    (said,) = notes([{"late_by": None, "exceeded_by": [entry]}], by_machine=entry["released_late"])
    assert "t of h1 came 845 times in 3.4 s where period and jitter allow 171 and in frames of" in said
    # Late messages name theirs themselves.
    assert notes([{"late_by": {"arrivals": 1}, "exceeded_by": [entry]}], by_machine=entry["released_late"]) == []
    assert notes([{"late_by": None, "exceeded_by": [entry]}], by_machine=not entry["released_late"]) == []
