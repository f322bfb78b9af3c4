"""What the wire tells of programs' messages: numbers, times, arrivals, and what is a guess."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.engine import own, records
from timebound.engine.disturbed import exceeders
from timebound.engine.observed import Arrivals, Release, arrivals, beyond_declared, name_streams
from timebound.engine.predict import predict
from timebound.engine.records import CONTINUED, HAS_SEQUENCE
from timebound.engine.summary import Results
from timebound.scenario import load
from timebound.stacks import Plan, build_plan

TEXT = """
name: own
network: {nodes: {a: {kind: host, run: [[app]]}, b: host, c: {kind: host, run: [[app]]}, s: switch}, links: [[a, s], [b, s], [c, s]]}
flows: [{name: f, from: a, to: c, size: 100 B, period: 10 ms, deadline: 5 ms, programs: PROGRAMS}]
stack: {mqtt: {broker: b}}
"""
MS = 1_000_000
Rows = list[tuple[str, int, int]]
"""(stream, sequence, time at its first port)"""


def plan(programs: str = "[a, c]") -> Plan:
    return build_plan(load(TEXT.replace("PROGRAMS", programs)))


def frames(laid: Plan, rows: Rows, *, flags: int = HAS_SEQUENCE, messages: int = 1, wire: int = 180) -> pl.DataFrame:
    numbers = {stream.name: number for number, stream in enumerate(laid.streams)}
    count = len(rows)
    table = {
        "stream": [numbers[row[0]] for row in rows],
        "leaf": [0] * count,
        "flags": [flags] * count,
        "flow": [0] * count,
        "sequence": [row[1] for row in rows],
        "wire": [wire] * count,
        "payload": [100] * count,
        "ingress_ns": [row[2] for row in rows],
        "delivered_ns": [row[2] + 20_000 for row in rows],
        "lateness_ns": [0] * count,
        "messages": [messages] * count,
    }
    types = {"stream": pl.UInt32, "leaf": pl.UInt16, "flags": pl.UInt16, "flow": pl.UInt32, "sequence": pl.UInt32}
    types |= {"wire": pl.UInt32, "payload": pl.UInt32, "lateness_ns": pl.UInt32, "messages": pl.UInt32}
    return pl.DataFrame(table, schema_overrides=types)


def way(numbers: list[int], *, delivered: list[int] | None = None) -> Rows:
    """Messages every 10 ms, with the broker's share of 1 ms."""
    published = [("f/publish", number, number * 10 * MS) for number in numbers]
    there = numbers if delivered is None else delivered
    return [*published, *(("f/deliver>c", number, number * 10 * MS + MS) for number in there)]


def nothing() -> pl.DataFrame:
    names = records.MESSAGE.names or ()
    types = {"u1": pl.UInt8, "<u2": pl.UInt16, "<u4": pl.UInt32, "<i8": pl.Int64}
    kinds = {name: types[str(records.MESSAGE[name].str).replace("|", "")] for name in names}
    return pl.DataFrame(schema=kinds)


def complete(laid: Plan, table: pl.DataFrame, endpoints: pl.DataFrame | None = None, **told: Any) -> own.Seen:
    live = {"own": {"flows": {"0": told}, "joined": told.pop("joined", [])}}
    return own.complete(laid, name_streams(laid, table), nothing() if endpoints is None else endpoints, live)


def stamps(seen: own.Seen, kind: int) -> list[tuple[int, int]]:
    rows = seen.endpoints.filter(pl.col("kind") == kind).sort("sequence")
    return list(zip(rows["sequence"].to_list(), rows["time_ns"].to_list(), strict=True))


def test_messages_between_programs_have_the_times_of_their_frames() -> None:
    laid = plan()
    seen = complete(laid, frames(laid, way([3, 4, 5])))
    assert stamps(seen, records.SENT) == [(3, 30 * MS), (4, 40 * MS), (5, 50 * MS)]
    assert stamps(seen, records.RECEIVED) == [(n, n * 10 * MS + MS + 20_000) for n in (3, 4, 5)]
    assert (seen.guesses, seen.notes) == ({}, [])


def test_a_built_in_subscriber_gives_the_time_of_its_callback() -> None:
    laid = plan("a")
    rows = [(records.RECEIVED, 0, 0, 0, 2, n, 100, 0, at, at) for n, at in enumerate((32 * MS, 42 * MS))]
    counted = pl.DataFrame(rows, schema=nothing().schema, orient="row")
    seen = complete(laid, frames(laid, way([3, 4])), counted)
    assert stamps(seen, records.RECEIVED) == [(3, 32 * MS), (4, 42 * MS)]
    assert seen.guesses == {}
    # One callback less than came: which one is missing nobody knows.
    assert ("f", "c") in complete(laid, frames(laid, way([3, 4])), counted.head(1)).guesses


def test_a_subscriber_that_left_is_named_with_what_it_missed() -> None:
    laid = plan()
    warm_up = laid.scenario.run.warm_up_ns
    begins = warm_up // (10 * MS)
    table = frames(laid, way(list(range(begins, begins + 6)), delivered=[begins, begins + 1, begins + 2]))
    number = next(n for n, leg in enumerate(laid.legs) if leg.flow == "f")

    def notes(at_ns: int, **other: Any) -> list[str]:
        left = {"source": laid.addresses["c"], "flows": [number], "how": "unsubscribed", "at_ns": at_ns, **other}
        live = {"own": {"flows": {"0": {}}, "joined": [], "left": [left]}}
        said = own.complete(laid, name_streams(laid, table), nothing(), live).notes
        return [note for note in said if "did not reach it" in note]

    then = warm_up + 25 * MS
    (note,) = notes(then)
    assert "on c unsubscribed at 0.025 s: 3 messages of 'f'" in note
    assert notes(then, source=laid.addresses["a"]) == notes(then, flows=[]) == notes(warm_up + 10**12) == []


def test_who_keeps_its_broker_waiting_is_named_and_for_how_long() -> None:
    laid = plan()
    warm_up, address = laid.scenario.run.warm_up_ns, laid.addresses["c"]
    begins = warm_up // (10 * MS)
    table = frames(laid, way(list(range(begins, begins + 4))))
    number = next(n for n, leg in enumerate(laid.legs) if leg.flow == "f")

    def hold(why: str, number_: int | None, start: int, end: int, is_over: bool = True, **other: Any) -> dict[str, Any]:
        times = {"from_ns": warm_up + start * MS, "until_ns": warm_up + end * MS, "is_over": is_over}
        return {"source": address, "flows": [number], "why": why, "number": number_, **times, **other}

    def complete_(*held: dict[str, Any]) -> tuple[own.own_held.Held, list[str]]:
        live = {"own": {"flows": {"0": {}}, "joined": [], "held": list(held)}}
        seen = own.complete(laid, name_streams(laid, table), nothing(), live)
        return seen.held.since(warm_up), [note for note in seen.notes if "of 'f'" in note]

    came = stamps(
        own.complete(laid, name_streams(laid, table), nothing(), {"own": {"flows": {"0": {}}}}), records.RECEIVED
    )
    there = dict(came)[begins + 1] - warm_up
    # It counts from when the message was there, and times that overlap once.
    held, notes = complete_(hold("acknowledgement", begins + 1, 1, 215), hold("acknowledgement", None, 200, 400))
    assert held.during("c", 0, 10**12) == 400 * MS - there and held.during("c", 0, 210 * MS) == 210 * MS - there
    assert held.during("c", 500 * MS, 600 * MS) == held.during("a", 0, 10**12) == 0
    (note,) = notes
    assert "on c took up to 0.2" in note and "acknowledge 2 messages of 'f'" in note
    _, (note,) = complete_(hold("acknowledgement", begins, 1, 900, is_over=False))
    assert "on c did not acknowledge 1 messages of 'f'" in note
    _, (note,) = complete_(hold("window", None, 100, 300), hold("window", None, 500, 800, is_over=False))
    assert "did not read for 0.500 s" in note and "first at 0.100 s" in note
    # Short ones, others' and those after the end are not told of.
    others = [hold("window", None, 100, 150), hold("window", None, 100, 900, source=laid.addresses["a"])]
    assert complete_(*others, hold("window", None, 10**6, 10**6 + 900))[1] == []


def test_datagrams_that_no_program_took_are_told_of() -> None:
    text = TEXT.replace("PROGRAMS", "[a, c]").replace("stack: {mqtt: {broker: b}}", "stack: udp")
    laid = build_plan(load(text))
    table = frames(laid, [("f/direct", number, number * 10 * MS) for number in range(3)])

    def notes(source: str, destination: str, count: int) -> list[str]:
        entry = {"source": source, "destination": destination, "protocol": "icmp", "frames": count}
        live = {"own": {"flows": {"0": {}}, "joined": []}, "undeclared": [entry]}
        return [note for note in own.complete(laid, name_streams(laid, table), nothing(), live).notes if "ICMP" in note]

    (note,) = notes("c", "a", 8)
    assert "8 ICMP messages went from c back to a: at times no program may have listened on c, port 40000." in note
    assert notes("c", "a", 1) == notes("a", "c", 8) == notes("b", "a", 8) == []


def test_datagrams_to_a_program_that_has_ended_are_lost() -> None:
    text = TEXT.replace("PROGRAMS", "[a, c]").replace("stack: {mqtt: {broker: b}}", "stack: udp")
    laid = build_plan(load(text))
    warm_up = laid.scenario.run.warm_up_ns
    table = frames(laid, [("f/direct", number, warm_up + number * 10 * MS) for number in range(5)])

    def received(*programs: dict[str, Any], icmp: int = 3) -> tuple[list[int], str]:
        entry = {"source": "c", "destination": "a", "protocol": "icmp", "frames": icmp}
        live = {"own": {"flows": {"0": {}}, "joined": []}, "undeclared": [entry], "programs": list(programs)}
        seen = own.complete(laid, name_streams(laid, table), nothing(), live)
        return [number for number, _ in stamps(seen, records.RECEIVED)], "\n".join(seen.notes)

    ended = {"node": "c", "ended_ns": warm_up + 25 * MS, "stopped": False}
    numbers, said = received(ended)
    assert (
        numbers == [0, 1, 2] and "on c ended" in said and "2 datagrams of 'f'" in said and "ICMP messages" not in said
    )
    # Somebody else may listen: another program, one that was started again, or a child of it as far as its host knows.
    for others in ([ended, {**ended, "stopped": True}], [{**ended, "node": "a"}], [{**ended, "ended_ns": None}]):
        assert received(*others)[0] == [0, 1, 2, 3, 4]
    assert received(ended, icmp=1) == received(icmp=1)
    assert received(ended, {**ended, "ended_ns": warm_up + 35 * MS})[0] == [0, 1, 2, 3]


def test_empty_datagrams_of_a_program_are_received_once() -> None:
    text = TEXT.replace("PROGRAMS", "a").replace("stack: {mqtt: {broker: b}}", "stack: udp").replace("100 B", "0 B")
    laid = build_plan(load(text))
    rows = [("f/direct", number, number * 10 * MS) for number in range(3)]
    counted = [(records.RECEIVED, 0, 0, 0, 2, n, 0, 0, n * 10 * MS, n * 10 * MS + 1) for n in range(3)]
    endpoints = pl.DataFrame(counted, schema=nothing().schema, orient="row")
    seen = complete(laid, frames(laid, rows), endpoints)
    assert [number for number, _ in stamps(seen, records.RECEIVED)] == [0, 1, 2]


def test_alike_messages_of_which_some_are_lost_are_a_guess_and_different_ones_are_not() -> None:
    laid = plan()
    lost = frames(laid, way([0, 1, 2], delivered=[0, 2]))
    assert complete(laid, lost).guesses == {}
    assert "guess" in complete(laid, lost, ambiguous=1).guesses["f", "c"]
    assert complete(laid, frames(laid, way([0, 1, 2])), ambiguous=1).guesses == {}


def test_what_was_not_seen_is_said_and_who_subscribes_late_is_owed_nothing_before() -> None:
    laid = plan()
    seen = complete(laid, frames(laid, way([0, 1, 2], delivered=[])), encrypted=1)
    (note,) = seen.notes
    assert "none came to the program on c on the topic 'f'" in note and "1 connections were encrypted" in note
    pairs = pl.DataFrame({"flow": ["f"] * 3, "receiver": ["c"] * 3, "sequence": [0, 1, 2]})
    assert own.owed(pairs, seen).is_empty()
    late = complete(laid, frames(laid, way([0, 1, 2], delivered=[1, 2])))
    assert own.owed(pairs, late)["sequence"].to_list() == [1, 2]


def jitter(table: pl.DataFrame) -> int | None:
    laid = plan()
    streams = {stream.name: stream for stream in laid.streams}
    return arrivals(laid, streams, name_streams(laid, table))["f/publish"].jitter_ns


def test_messages_of_a_program_count_whatever_their_size() -> None:
    laid = plan()
    regular: Rows = [("f/publish", n, n * 10 * MS) for n in range(4)]
    assert jitter(frames(laid, regular)) == 0
    assert jitter(frames(laid, [*regular, ("f/publish", 4, 30 * MS)])) == 10 * MS
    # Two in one segment come at once.
    assert jitter(frames(laid, regular, messages=2)) > 0  # type: ignore[operator]


def test_who_gets_a_retained_message_alone_is_unmeasured_and_the_others_are_measured() -> None:
    text = (
        TEXT.replace("PROGRAMS", "[a, c, d]")
        .replace("to: c", "to: [c, d]")
        .replace("s: switch", "d: {kind: host, run: [[app]]}, s: switch")
    )
    laid = build_plan(load(text.replace("[c, s]]", "[c, s], [d, s]]")))
    kept = frames(laid, [("f/deliver>d", 0, 5 * MS)], flags=0, messages=0)
    table = pl.concat([frames(laid, way([0, 1, 2])), kept]).sort("ingress_ns")
    streams = {stream.name: stream for stream in laid.streams}
    named = name_streams(laid, table)
    seen = arrivals(laid, streams, named)
    assert seen["f/deliver>d"].jitter_ns is None and seen["f/deliver>c"].jitter_ns == 0
    whole = own.complete(laid, named, nothing(), {"own": {"flows": {"0": {}}}})
    (note,) = whole.notes
    assert "none came to the program on d on the topic 'f'" in note
    pairs = pl.DataFrame({"flow": ["f"] * 6, "receiver": ["c", "d"] * 3, "sequence": [0, 0, 1, 1, 2, 2]})
    assert own.owed(pairs, whole)["receiver"].to_list() == ["c"] * 3


def seen_of(laid: Plan, table: pl.DataFrame) -> Arrivals:
    return arrivals(laid, {stream.name: stream for stream in laid.streams}, name_streams(laid, table))["f/publish"]


def larger(laid: Plan, count: int = 20) -> pl.DataFrame:
    """A message every 10 ms as declared, but of 21 full frames, which come 10 us apart."""
    begun = frames(laid, [("f/publish", n, n * 10 * MS) for n in range(count)], wire=1538)
    rest = [("f/publish", n, n * 10 * MS + piece * 10_000) for n in range(count) for piece in range(1, 21)]
    more = frames(laid, rest, flags=HAS_SEQUENCE | CONTINUED, messages=0, wire=1538)
    return pl.concat([begun, more]).sort("ingress_ns")


def test_a_larger_message_is_no_jitter_but_more_bytes() -> None:
    laid = plan()
    seen = seen_of(laid, larger(laid))
    assert seen.jitter_ns == 0 and seen.beyond == Release(21, 21 * 1538)
    assert seen_of(laid, frames(laid, way([0, 1, 2]), wire=150)).beyond is None
    # No larger frame than declared, but two where one is: a header by itself and what follows it.
    begun = frames(laid, [("f/publish", n, n * 10 * MS) for n in range(2)], wire=100)
    rest = frames(
        laid,
        [("f/publish", n, n * 10 * MS + 1) for n in range(2)],
        flags=HAS_SEQUENCE | CONTINUED,
        messages=0,
        wire=100,
    )
    assert seen_of(laid, pl.concat([begun, rest]).sort("ingress_ns")).beyond == Release(2, 200)


@given(
    rows=st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(84, 1538)), min_size=1, max_size=30),
)
def test_the_bucket_of_what_was_seen_holds_every_window(rows: list[tuple[int, int]]) -> None:
    laid = plan()
    table = pl.concat([frames(laid, [("f/publish", n, at)], wire=wire) for n, (at, wire) in enumerate(sorted(rows))])
    bucket = seen_of(laid, table).bucket
    assert bucket is not None
    ordered = sorted(rows)
    for first in range(len(ordered)):
        for last in range(first, len(ordered)):
            span = ordered[last][0] - ordered[first][0]
            taken = sum(wire for _, wire in ordered[first : last + 1])
            assert taken * 8e9 <= bucket.burst_bytes * 8e9 + bucket.rate_bps * span


def test_the_bound_for_the_arrivals_seen_covers_larger_messages() -> None:
    laid = plan()
    found = predict(laid)
    table = larger(laid)
    seen = {"f/publish": seen_of(laid, table)}
    beyond = beyond_declared(found.streams, seen)
    bound = found.observed({}, {}, beyond)["f/publish", "b"].actual_ns
    # 21 frames at once, and one of them once more over the second link (100 Mbit/s); 20 us of them come while the first are sent.
    assert bound is not None and bound >= 21 * 123_040 + 123_040 - 20 * 10_000
    assert bound < 2 * (21 * 123_040 + 123_040)
    # Without what was seen, the same frames were taken for several messages in one segment.
    assert found.observed({}, {"f/publish": 1538})["f/publish", "b"].actual_ns < bound  # type: ignore[operator]


def test_a_frame_with_messages_of_two_flows_counts_for_both() -> None:
    text = TEXT.replace("PROGRAMS", "a").replace(
        "}]\n", "}, {name: g, from: a, to: c, size: 9 B, period: 10 ms, programs: a}]\n"
    )
    laid = build_plan(load(text))
    numbers = {stream.name: number for number, stream in enumerate(laid.streams)}
    joined = {"stream": numbers["g/publish"], "flow": 1, "sequence": 7, "in_stream": numbers["f/publish"]}
    joined |= {"in_flow": 0, "in_sequence": 3}
    seen = complete(laid, frames(laid, way([3])), joined=[joined])
    both = [(name, n) for name, n in seen.frames.select("name", "sequence").iter_rows() if "publish" in name]
    assert both == [("f/publish", 3), ("g/publish", 7)]


def told_of(laid: Plan, table: pl.DataFrame, **own_part: Any) -> own.Seen:
    live = {"own": {"flows": {"0": {}}, **own_part}, "measured_ns": 10**12}
    return own.complete(laid, name_streams(laid, table), nothing(), live)


def end(laid: Plan, source: str, destination: str, qos: tuple[int, int, int], retained: int = 0) -> dict[str, Any]:
    addresses = laid.addresses
    ends = {"source": addresses[source], "destination": addresses[destination]}
    return {"flow": 0, **ends, "qos": list(qos), "retained": retained}


WHOLE = list(range(100, 1100))
"""Numbers of a message every 10 ms from the end of the warm-up (1 s) on, for the 10 s of the run."""


def unread(laid: Plan, at_ns: int, flows: list[int], source: str = "a", destination: str = "b") -> list[dict[str, Any]]:
    ends = {"source": laid.addresses[source], "destination": laid.addresses[destination]}
    times = {"first_ns": at_ns, "last_ns": at_ns}
    return [{**ends, "source_port": 5555, "destination_port": 1883, "flows": flows, "bytes": 40, **times}]


def test_a_connection_that_could_not_be_read_makes_its_flows_unmeasured_and_is_named() -> None:
    laid = plan()
    table = frames(laid, way(WHOLE))
    seen = told_of(laid, table, unread=unread(laid, 5_250 * MS, [0]))
    (note,) = seen.notes
    assert "Messages of 'f' to 'c' are not all measured: 40 bytes from a to b could not be read as MQTT" in note
    assert "the first at 4.250 s (connection of program 'app' on a, 10.0.0.1:5555 to 10.0.0.2:1883)" in note
    assert list(seen.unread) == [("f", "c")]
    # On the way to a program that receives: for that one.
    assert list(told_of(laid, table, unread=unread(laid, 5_250 * MS, [0], "b", "c")).unread) == [("f", "c")]
    # What answers messages: told, and they are measured.
    for ends in (("c", "b"), ("b", "a")):
        answers = told_of(laid, table, unread=unread(laid, 5_250 * MS, [0], *ends))
        assert answers.unread == {} and "messages of the other direction, which are measured" in answers.notes[0]
    # Of nothing that it carried: told, and what came is measured. Before the measured time: told. After it: nobody's loss.
    other = told_of(laid, table, unread=unread(laid, 5_250 * MS, []))
    assert other.unread == {} and "none of its messages are measured" in other.notes[0]
    early = told_of(laid, table, unread=unread(laid, 1, [0]))
    assert early.unread == {} and "before the measured time" in early.notes[0]
    assert told_of(laid, table, unread=unread(laid, 11_000 * MS, [0])).notes == []
    many = told_of(laid, table, unread=unread(laid, 5_250 * MS, [0]) + 9 * unread(laid, 6_000 * MS, [0])).notes
    assert len(many) == 1 and "and 360 bytes of 9 more such connections." in many[0]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (WHOLE, None),
        # Its clock is a little slow.
        (WHOLE[:950], None),
        (WHOLE[:400], "published 400 of the 1,000 messages of 'f' that its period allows in the measured time, none after 3.990 s"),
        (WHOLE[600:], "published 400 of the 1,000 messages of 'f' that its period allows in the measured time, the first one at 6.000 s"),
        (WHOLE[:100] + WHOLE[800:], "published 300 of the 1,000 messages of 'f' that its period allows in the measured time, none after 0.990 s until 8.000 s"),
        (WHOLE[::2], "published 500 of the 1,000 messages of 'f' that its period allows in the measured time, with up to 0.020 s between two."),
        ([0, 1], "published 0 of the 1,000 messages of 'f' that its period allows in the measured time."),
    ],
)  # fmt: skip
def test_a_program_that_sends_less_than_its_period_allows_is_told(numbers: list[int], said: str | None) -> None:
    laid = plan()
    seen = told_of(laid, frames(laid, way(numbers)))
    assert seen.notes == [] if said is None else f"The program 'app' on a {said}" in seen.notes[0]
    assert seen.unread == {}


@pytest.mark.parametrize("pattern", ["poisson", "sporadic"])
def test_who_has_no_period_has_no_number_of_messages_to_send(pattern: str) -> None:
    laid = build_plan(load(TEXT.replace("PROGRAMS", f"[a, c], pattern: {pattern}")))
    assert told_of(laid, frames(laid, way(WHOLE[:10]))).notes == []


def test_who_subscribes_late_is_told_to_be_owed_less() -> None:
    laid = plan()
    (note,) = told_of(laid, frames(laid, way(WHOLE, delivered=WHOLE[300:]))).notes
    assert (
        "The program 'app' on c got its first message of 'f' when 300 of the 1,000 of the measured time had been"
        in note
    )


@pytest.mark.parametrize(
    ("published", "delivered", "said"),
    [
        ((0, 9, 0), (0, 9, 0), []),
        ((9, 0, 0), (9, 0, 0), ["a publishes messages of 'f' at QoS 0 where the flow declares QoS 1"]),
        ((0, 0, 9), (0, 9, 0), ["a publishes messages of 'f' at QoS 2 where"]),
        ((4, 5, 0), (4, 5, 0), ["a publishes messages of 'f' at QoS 0 (4 of 9) where"]),
        (
            (0, 9, 0),
            (9, 0, 0),
            [
                "c gets messages of 'f' at QoS 0 by its subscription to 'f' (or a filter that has it) where the flow declares QoS 1"
            ],
        ),
        ((0, 0, 9), (0, 0, 9), ["a publishes messages of 'f' at QoS 2 where", "c gets messages of 'f' at QoS 2 by"]),
    ],
)
def test_another_qos_than_declared_is_told_of_who_chose_it(
    published: tuple[int, int, int], delivered: tuple[int, int, int], said: list[str]
) -> None:
    laid = build_plan(load(TEXT.replace("PROGRAMS", "[a, c], qos: 1")))
    ends = [end(laid, "b", "c", delivered), end(laid, "a", "b", published)]
    notes = told_of(laid, frames(laid, way(WHOLE)), ends=ends).notes
    assert len(notes) == len(said)
    assert all(any(words in note for note in notes) for words in said), notes


def test_retained_messages_alone_are_called_so() -> None:
    laid = plan()
    ends = [end(laid, "b", "c", (1, 0, 0), retained=1)]
    (note,) = told_of(laid, frames(laid, way(WHOLE, delivered=[])), ends=ends).notes
    assert "only 1 retained came to the program on c" in note


def test_messages_of_others_beside_retained_ones_are_not_called_retained_alone() -> None:
    laid = plan()
    for retained, more in ((0, ""), (1, ", 1 of them retained")):
        ends = [end(laid, "b", "c", (4, 0, 0), retained=retained)]
        (note,) = told_of(laid, frames(laid, way(WHOLE, delivered=[])), ends=ends).notes
        assert f"4 came, none of which its publisher was seen to send{more}, to the program on c on the topic" in note


def test_messages_that_were_sent_again_are_not_said_to_be_of_other_programs() -> None:
    laid = plan()
    why = complete(laid, frames(laid, way([0, 1, 2])), unmatched=3).guesses["f", "c"]
    assert (
        "were joined by 3 that cannot be told to be one of its publisher's: sent again on the way (MQTT's DUP)" in why
    )


@pytest.mark.parametrize("programs", ["[a, c]", "a", "c"])
def test_no_datagram_of_a_program_is_said_with_its_port(programs: str) -> None:
    text = TEXT.replace("PROGRAMS", programs).replace("stack: {mqtt: {broker: b}}", "stack: udp")
    laid = build_plan(load(text))
    notes = complete(laid, frames(laid, [])).notes
    assert notes and all("in datagrams to port 40000" in note for note in notes)


def test_a_higher_rate_is_counted_and_one_message_too_early_is_jitter() -> None:
    prediction = predict(plan())
    streams = prediction.streams

    def counted(times: list[int]) -> dict[str, Any] | None:
        table = name_streams(
            prediction.plan, frames(prediction.plan, [("f/publish", n, at) for n, at in enumerate(times)])
        )
        measured: Any = SimpleNamespace(
            arrivals=arrivals(prediction.plan, streams, table), live={}, messages=pl.DataFrame()
        )
        found = exceeders(Results(prediction, None, measured), {"f/publish": {"b": ["a->s"]}})
        return found["a->s"][0]["count"] if found else None

    assert counted([n * 10 * MS for n in range(100)]) is None
    assert counted([0, *(n * 10 * MS - 5 * MS for n in range(1, 100))]) is None
    assert counted([n * 2 * MS for n in range(101)]) == {"observed": 101, "allowed": 21, "span_us": 200_000.0}
