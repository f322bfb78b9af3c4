"""What a manager is told of other networks, from the table; the service that tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manager_helpers import HandCore
from srt_helpers import CONTROLLER, Open, wait_for

from timebound.control.configuration import ConfigurationError
from timebound.control.manager.configuration import load
from timebound.control.manager.desk import WORKS_AGAIN, Desk
from timebound.control.manager.groups import wanted
from timebound.control.manager.policy import Policy, default_rule
from timebound.control.manager.service import Service
from timebound.control.srt.rows import ChannelState, GroupRow, ManagerRow, Tables
from timebound.control.srt.store import Delete, Put, Role, Writer


def manager(name: str, network: str, address: str | None = None) -> ManagerRow:
    return ManagerRow(
        id=name, addresses=("127.0.0.1",), ports=(1883,), broker_address="127.0.0.1", broker_port=1, version="1", beat_ns=1,
        network=network, peer_address=address, peer_port=None if address is None else 1884,
    )  # fmt: skip


def group(id: str, origin: str, *members: str, state: ChannelState = ChannelState.PROVEN) -> GroupRow:
    return GroupRow(
        id=id, origin=origin, request=f"{origin}-1-7.1", topic="plant/+", priority=5, address="239.192.1.7", members=members,
        rate_bps=1_000_000, burst_bytes=4_000, bound_ns=None, links=(), state=state,
    )  # fmt: skip


MANAGERS = {
    "m1": manager("m1", "A", "10.0.1.5"),
    "m2": manager("m2", "B", "10.0.2.5"),
    "m3": manager("m3", "C", "10.0.3.5"),
    "m4": manager("m4", "A", "10.0.1.6"),
    "m5": manager("m5", ""),
}
PEER_1 = {"name": "m1", "address": "10.0.1.5", "port": 1884}
PEER_2 = {"name": "m2", "address": "10.0.2.5", "port": 1884}


def tables(*groups: GroupRow) -> Tables:
    return Tables(managers=dict(MANAGERS), groups={each.id: each for each in groups})


def test_the_origin_sends_and_members_receive() -> None:
    found = tables(group("g1", "m1", "m2", "m3"))
    assert wanted(found, "m1") == {
        "peers": [PEER_2, {"name": "m3", "address": "10.0.3.5", "port": 1884}],
        "sends": [
            {
                "id": "g1", "topic": "plant/+", "priority": 5, "address": "239.192.1.7", "members": ["m2", "m3"], "request": "m1-1-7.1",
                "reservation": {"rate_bps": 1_000_000, "burst_bytes": 4_000},
            }
        ],
        "receives": [],
    }  # fmt: skip
    assert wanted(found, "m2") == {
        "peers": [PEER_1],
        "sends": [],
        "receives": [{"id": "g1", "origin": "m1", "topic": "plant/+", "priority": 5, "address": "239.192.1.7"}],
    }
    assert wanted(found, "m4") == {"peers": [], "sends": [], "receives": []}


@pytest.mark.parametrize("state", ChannelState)
def test_only_groups_that_are_in_the_switches_are_used(state: ChannelState) -> None:
    found = wanted(tables(group("g1", "m1", "m2", state=state)), "m1")
    assert bool(found["sends"]) == (state in (ChannelState.INSTALLED, ChannelState.PROVEN))


@pytest.mark.parametrize(("rate", "burst"), [(1_000_000, 0), (1_000_000, 1_537), (0, 4_000)])
def test_a_row_that_says_too_little_paces_nothing(rate: int, burst: int) -> None:
    found = wanted(tables(replace(group("g1", "m1", "m2"), rate_bps=rate, burst_bytes=burst)), "m1")
    assert found["sends"][0]["reservation"] is None


def test_managers_of_the_same_network_or_of_none_exchange_nothing() -> None:
    found = tables(group("g1", "m1", "m2", "m4", "m5"), group("g2", "m5", "m1"), group("g3", "m4", "m1"))
    assert wanted(found, "m1")["sends"][0]["members"] == ["m2"]
    assert wanted(found, "m1")["receives"] == []
    assert wanted(found, "m4")["receives"] == []
    assert wanted(found, "m5")["sends"][0]["members"] == []


def test_a_member_that_nobody_knows_stays_one_so_that_its_loss_is_told() -> None:
    found = tables(group("g1", "m1", "m2", "m9"))
    assert wanted(found, "m1")["sends"][0]["members"] == ["m2", "m9"]
    assert wanted(found, "m1")["peers"] == [PEER_2]


def interested(**filters: tuple[str, ...]) -> Tables:
    """The managers, some with interests."""
    rows = {id: replace(row, interests=filters.get(id, ())) for id, row in MANAGERS.items()}
    return Tables(managers=rows, groups={"g1": group("g1", "m1", "m2")})


def test_a_relay_leads_to_every_other_network_that_wants_something() -> None:
    found = wanted(interested(m1=("x",), m3=("plant/#", "hall/1"), m4=("y",), m5=("z",)), "m1", relay=True)
    assert [each["id"] for each in found["sends"]] == ["g1", "relay-m3"]
    assert found["sends"][1] == {
        "id": "relay-m3", "topic": "#", "priority": 0, "address": "10.0.3.5", "members": ["m3"], "interests": ["plant/#", "hall/1"],
    }  # fmt: skip
    # Whoever may send is heard, whatever is wanted here at this moment.
    assert found["receives"] == [
        {"id": f"relay-{each}", "topic": "#", "priority": 0, "address": "10.0.1.5", "origin": each, "relay": True}
        for each in ("m2", "m3")
    ]
    assert [each["name"] for each in found["peers"]] == ["m2", "m3"]
    assert wanted(interested(m3=("x",)), "m1")["sends"] == wanted(interested(), "m1")["sends"]


def test_a_member_of_a_group_has_a_relay_too_for_what_the_group_does_not_carry() -> None:
    found = wanted(interested(m2=("#",)), "m1", relay=True)
    assert [each["id"] for each in found["sends"]] == ["g1", "relay-m2"]


def test_managers_without_an_address_or_network_have_no_relay() -> None:
    rows = interested(m1=("x",), m2=("x",))
    assert wanted(rows, "m5", relay=True) == {"peers": [], "sends": [], "receives": []}
    assert wanted(rows, "m9", relay=True) == {"peers": [], "sends": [], "receives": []}
    silent = replace(rows, managers={**rows.managers, "m1": manager("m1", "A")})
    assert wanted(replace(silent, groups={}), "m1", relay=True) == {"peers": [], "sends": [], "receives": []}


def test_of_two_rows_with_one_address_the_one_that_lives_is_meant_unless_a_group_says_otherwise() -> None:
    rows = interested(m3=("x",))
    old = replace(manager("m0", "C", "10.0.3.5"), interests=("y",), beat_ns=5)
    own = replace(manager("m8", "D", "10.0.1.5"), interests=("y",), beat_ns=5)
    for beat, expected in [(9, "m3"), (4, "m0")]:
        living = replace(rows.managers["m3"], beat_ns=beat)
        several = replace(rows, managers={**rows.managers, "m3": living, "m0": old, "m8": own})
        found = wanted(several, "m1", relay=True)
        assert [each["name"] for each in found["peers"]] == sorted(["m2", expected])
        assert [each["id"] for each in found["sends"]] == ["g1", f"relay-{expected}"]
        in_group = replace(several, groups={"g1": group("g1", "m1", "m3")})
        assert [each["name"] for each in wanted(in_group, "m1", relay=True)["peers"]] == ["m2", "m3"]


def write(folder: Path, url: str = "file:/tmp/t.db", more: str = "network: A\npeer: 127.0.0.1:1884\n") -> Path:
    file = folder / "manager.yaml"
    file.write_text(
        f"name: m1\nlisten: 127.0.0.1:1883\nbroker: 127.0.0.1:1\nstore: '{url}'\nhttp: 127.0.0.1:0\nannounce:\n{more}"
    )
    return file


def test_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    more = "network: A\npeer: {address: 10.0.1.5, port: 1884, ttl: 4, state: m1.state, user: t, password-file: password, silence: 5 s}\n"
    said, warnings = load(write(tmp_path, more=more))
    assert said.core["network"] == "A"
    assert said.core["peer"] == {
        "address": "10.0.1.5", "port": 1884, "interface_address": None, "ttl": 4, "state": str(tmp_path / "m1.state"),
        "user": "t", "password": "geheim", "relay": True, "tls": None, "join_ms": 2_000, "silence_ms": 5_000,
    }  # fmt: skip
    assert "geheim" not in repr(said)
    assert any("in clear" in each.message for each in warnings if each.hint and "add tls" in each.hint)
    assert load(write(tmp_path, more=""))[0].core["peer"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("peer: 127.0.0.1:1884\n", "this one is in none"),
        ("network: A\npeer: localhost:1884\n", "no IPv4 address"),
        ("network: A\npeer: 239.1.1.1:1884\n", "no IPv4 address"),
        ("network: A\npeer: {address: 127.0.0.1, port: 1884, interface: eth0}\n", "no IPv4 address"),
        ("network: A\npeer: {address: 127.0.0.1, port: 1884, silence: 1 ms}\n", "100 ms to 10 min"),
        ("network: A\npeer: {address: 127.0.0.1, port: 1884, join: 1 us}\n", "1 ms to 1 min"),
        ("network: A\npeer: {address: 127.0.0.1, port: 1884, state: no/where}\n", "does not exist"),
        ("network: A\npeer: {address: 127.0.0.1, port: 1884, password-file: p}\n", "without a user"),
    ],
)
def test_mistakes_have_their_place(tmp_path: Path, more: str, message: str) -> None:
    (tmp_path / "p").write_text("x")
    with pytest.raises(ConfigurationError) as error:
        load(write(tmp_path, more=more))
    assert any(message in each.message and each.line and each.hint for each in error.value.problems)


def test_what_the_intermediary_tells_of_groups_is_logged_kept_and_announced() -> None:
    desk = Desk(Policy((), default_rule(allow=True)))
    waiting = {"kind": "group", "id": "g1", "state": "waiting", "missing": ["m3"], "lost": ["m2"]}
    doing = desk.event(json.dumps(waiting), 1)
    assert doing.groups == {"g1": {"state": "waiting", "missing": ["m3"], "lost": ["m2"]}}
    lost = {"kind": "undelivered", "group": "g1", "member": "m2", "messages": 3, "reason": "the member is lost"}
    trouble = {"kind": "peering", "about": "m2", "problem": "10.0.2.5:1884: connection refused"}
    for event in (lost, trouble):
        doing = desk.event(json.dumps(event), 1)
        assert doing.audit[0]["event"] == event["kind"] and len(doing.log) == 1 and not doing.groups
    assert doing.log[0][1] == {"about": "m2", "problem": "10.0.2.5:1884: connection refused"}
    # That nothing is wrong had been a warning without a reason, at the end of every relay.
    for about, words in (("m3", []), ("m2", [(WORKS_AGAIN, {"about": "m2"})]), ("m2", [])):
        doing = desk.event(json.dumps({"kind": "peering", "about": about, "problem": ""}), 1)
        assert doing.log == words
        assert [(entry["event"], entry["about"], entry["problem"]) for entry in doing.audit] == [("peering", about, "")]


@pytest.fixture
def run(tmp_path: Path, open_for: Open) -> Iterator[Callable[[str], tuple[Service, HandCore]]]:
    import threading

    running: list[tuple[Service, threading.Thread]] = []

    def start(url: str) -> tuple[Service, HandCore]:
        core = HandCore()
        store = open_for(url, Writer(Role.MANAGER, "m1"), wait=False)
        service = Service(load(write(tmp_path, url))[0], core, store)
        running.append((service, threading.Thread(target=service.run, daemon=True)))
        running[-1][1].start()
        return service, core

    yield start
    for service, thread in running:
        service.stop()
        thread.join(10)


def test_the_service_says_where_it_is_and_follows_the_table(
    url: str, open_for: Open, run: Callable[[str], tuple[Service, HandCore]]
) -> None:
    _, core = run(url)
    controller, other = open_for(url, CONTROLLER), open_for(url, Writer(Role.MANAGER, "m2"))
    wait_for(lambda: "m1" in controller.snapshot().managers)
    row = controller.snapshot().managers["m1"]
    assert (row.network, row.peer_address, row.peer_port) == ("A", "127.0.0.1", 1884)
    other.transact([Put(MANAGERS["m2"])])
    controller.transact([Put(group("g1", "m1", "m2"))])

    def last() -> dict[str, Any]:
        return core.wanted[-1] if core.wanted else {}

    wait_for(lambda: bool(last().get("sends")) and last()["peers"] == [PEER_2])
    told = len(core.wanted)
    # A beat of another manager is no news.
    other.transact([Put(replace(MANAGERS["m2"], beat_ns=2))])
    controller.transact([Put(replace(group("g1", "m1", "m2"), members=("m2", "m3")))])
    wait_for(lambda: last()["sends"][0]["members"] == ["m2", "m3"])
    assert len(core.wanted) == told + 1
    controller.transact([Delete("groups", "g1")])
    relay = {"id": "relay-m2", "topic": "#", "priority": 0, "address": "127.0.0.1"}
    heard = {**relay, "origin": "m2", "relay": True}
    wait_for(lambda: last() == {"peers": [PEER_2], "sends": [], "receives": [heard]})
    # What clients are subscribed to is told to all, and what others tell is used.
    core.events.put(json.dumps({"kind": "interests", "filters": ["hall/1", "plant/#"]}))
    wait_for(lambda: controller.snapshot().managers["m1"].interests == ("hall/1", "plant/#"))
    other.transact([Put(replace(MANAGERS["m2"], interests=("plant/a",)))])
    wait_for(lambda: [each["id"] for each in last()["sends"]] == ["relay-m2"])
    assert last()["sends"] == [{**relay, "address": "10.0.2.5", "members": ["m2"], "interests": ["plant/a"]}]
    core.events.put(json.dumps({"kind": "interests", "filters": []}))
    wait_for(lambda: controller.snapshot().managers["m1"].interests == ())
