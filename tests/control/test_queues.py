"""Queues by OVSDB: the server's messages, what is changed and what is left alone; counters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.control.openflow.counters import Window, summary
from timebound.control.openflow.marks import ruleset
from timebound.control.openflow.ovsdb import Messages, OvsdbError, RemoteError, parse_remote
from timebound.control.openflow.queues import QueuePlan, changes, lookups
from timebound.control.topology import PortId

S = 1_000_000_000
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=5)


@given(messages, st.data())
def test_messages_are_found_wherever_the_stream_is_cut(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    separators = data.draw(st.lists(st.sampled_from(["", " ", "\n"]), min_size=len(sent), max_size=len(sent)))
    stream = "".join(json.dumps(m) + space for m, space in zip(sent, separators, strict=True)).encode()
    parser, found = Messages(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += list(parser.feed(stream[:size]))
        stream = stream[size:]
    assert found == sent


@given(st.binary(max_size=300))
def test_no_stream_is_too_strange(data: bytes) -> None:
    parser = Messages(most=100)
    try:
        for message in parser.feed(data):
            assert isinstance(message, dict | list)
    except OvsdbError as error:
        assert "the server sent" in str(error)


def test_a_message_without_an_end_is_not_kept_for_ever() -> None:
    parser = Messages(most=100)
    with pytest.raises(OvsdbError, match="without an end"):
        list(parser.feed(b'{"a": "' + b"x" * 200))


@pytest.mark.parametrize("remote", ["", "tcp:", "tcp:host", "tcp:host:0", "tcp:host:99999", "unix:", "http:a:1"])
def test_an_address_that_is_none_is_refused_with_what_was_expected(remote: str) -> None:
    with pytest.raises(RemoteError, match="write tcp:ADDRESS:PORT"):
        parse_remote(remote)


def test_addresses_as_open_vswitch_writes_them() -> None:
    assert parse_remote("tcp:127.0.0.1:6640") == ("tcp", ("127.0.0.1", 6640))
    assert parse_remote("ssl:[::1]:6640") == ("ssl", ("::1", 6640))
    assert parse_remote("unix:/run/db.sock") == ("unix", "/run/db.sock")


class Database:
    """The rows that `lookups` reads, and what operations make of them; enough of RFC 7047 for that."""

    def __init__(self, ports: list[str]) -> None:
        self.tables: dict[str, dict[str, dict[str, Any]]] = {
            "Port": {f"p-{name}": {"name": name, "qos": ["set", []], "external_ids": ["map", []]} for name in ports},
            "QoS": {},
            "Queue": {},
        }
        self.counter = 0

    def run(self, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        named: dict[str, list[str]] = {}
        results: list[dict[str, Any]] = []
        for operation in operations:
            table = self.tables[operation["table"]]
            if operation["op"] == "insert":
                self.counter += 1
                uuid = f"{operation['table']}-{self.counter}"
                named[operation["uuid-name"]] = ["uuid", uuid]
                table[uuid] = self.resolve(operation["row"], named)
                results.append({"uuid": ["uuid", uuid]})
                continue
            chosen = [uuid for uuid, row in table.items() if self.fits(uuid, row, operation["where"])]
            if operation["op"] == "select":
                rows = [{"_uuid": ["uuid", uuid], **table[uuid]} for uuid in chosen]
                results.append({"rows": [{column: row[column] for column in operation["columns"]} for row in rows]})
                continue
            for uuid in chosen:
                if operation["op"] == "delete":
                    del table[uuid]
                else:
                    table[uuid] |= self.resolve(operation["row"], named)
            results.append({"count": len(chosen)})
        return results

    @staticmethod
    def fits(uuid: str, row: dict[str, Any], where: list[Any]) -> bool:
        for column, function, value in where:
            if column == "_uuid":
                if value != ["uuid", uuid]:
                    return False
            elif function == "includes":
                if not all(pair in row[column][1] for pair in value[1]):
                    return False
            elif row[column] != value:
                return False
        return True

    def resolve(self, value: Any, named: dict[str, list[str]]) -> Any:
        if isinstance(value, list) and value[:1] == ["named-uuid"]:
            return named[value[1]]
        if isinstance(value, list):
            return [self.resolve(item, named) for item in value]
        return {k: self.resolve(v, named) for k, v in value.items()} if isinstance(value, dict) else value

    def apply(self, plan: QueuePlan) -> list[dict[str, Any]]:
        operations = changes(plan, self.run(lookups(plan)))
        self.run(operations)
        return operations


def test_queues_are_made_once_changed_in_place_and_made_anew_when_somebody_took_them() -> None:
    database = Database(["a", "b"])
    plan = QueuePlan("a", 10_000_000)
    assert database.apply(plan)
    (qos,) = database.tables["QoS"].values()
    assert database.tables["Port"]["p-a"]["qos"][0] == "uuid"
    assert database.tables["Port"]["p-b"]["qos"] == ["set", []]
    queues = {number: database.tables["Queue"][uuid[1]] for number, uuid in qos["queues"][1]}
    assert {number: (row["dscp"], dict(row["other_config"][1])["priority"]) for number, row in queues.items()} == {
        c: (8 * c, str(7 - c)) for c in range(8)
    }
    assert database.apply(plan) == []
    operations = database.apply(QueuePlan("a", 20_000_000))
    assert {operation["op"] for operation in operations} == {"update"}
    assert all(dict(row["other_config"][1])["max-rate"] == "20000000" for row in database.tables["Queue"].values())
    database.tables["Port"]["p-a"]["qos"] = ["set", []]
    assert any(operation["op"] == "insert" for operation in database.apply(QueuePlan("a", 20_000_000)))
    assert (len(database.tables["QoS"]), len(database.tables["Queue"])) == (1, 8)
    assert database.apply(QueuePlan("b", 20_000_000))
    assert (len(database.tables["QoS"]), len(database.tables["Queue"])) == (2, 16)


def test_a_port_that_the_database_does_not_have_is_named() -> None:
    with pytest.raises(OvsdbError, match="no port 'z'"):
        Database(["a"]).apply(QueuePlan("z", 1))


def test_marks_are_told_to_the_kernel_by_port_and_class() -> None:
    rules = ruleset(["s1-eth1", "s1-eth2"])
    assert 'devices = { "s1-eth1", "s1-eth2" }' in rules
    assert "ip dscp 40 meta priority set 1:6" in rules
    with pytest.raises(ValueError, match="no name of a port"):
        ruleset(['a"; drop'])


# Counters -------------------------------------------------------------------------------------------------------------------


def test_rates_are_taken_over_the_window() -> None:
    window = Window(5 * S)
    for second in range(20):
        rate = 1000 if second < 10 else 3000
        before = window.latest(("port", 1, 2)) or (0,) * 6
        window.add(("port", 1, 2), second * S, (before[0] + rate, 0, 0, 0, 4, 0))
    loads = summary(window, 20 * S)
    assert loads.ports[PortId(1, 2)].receive_bps == 24_000
    assert loads.ports[PortId(1, 2)].dropped == 4


def test_a_counter_that_falls_begins_anew() -> None:
    window = Window(5 * S)
    window.add(("queue", 1, 2, 5), 0, (900, 9, 0))
    window.add(("queue", 1, 2, 5), S, (10, 1, 0))
    assert window.rates(("queue", 1, 2, 5)) is None
    window.add(("queue", 1, 2, 5), 2 * S, (20, 2, 0))
    assert summary(window, 2 * S).queues[PortId(1, 2), 5].send_bps == 80


@given(st.lists(st.tuples(st.integers(1, 3 * S), st.integers(0, 10**6)), min_size=2, max_size=30))
def test_rates_are_never_negative_and_never_above_what_was_seen(steps: list[tuple[int, int]]) -> None:
    window, now, value = Window(5 * S), 0, 0
    window.add(("channel", "c"), 0, (0, 0, 0))
    most = 0.0
    for wait, more in steps:
        now, value = now + wait, value + more
        most = max(most, more / (wait / S))
        window.add(("channel", "c"), now, (value, 0, 0))
        rates = window.rates(("channel", "c"))
        assert rates is not None and 0 <= rates[0] <= most * (1 + 1e-9)


def test_what_is_not_read_any_more_is_forgotten() -> None:
    window = Window(5 * S)
    window.add(("channel", "c"), 0, (0, 0, 0))
    window.add(("channel", "c"), S, (8, 1, 0))
    assert summary(window, S).channels["c"].bps == 64
    window.forget_older(2 * S)
    assert not summary(window, 3 * S).channels
