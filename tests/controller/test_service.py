"""The controller's service between a real store and a network in memory: grants, refusals, withdrawals, failures, restarts."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from controller_site import site, start, until
from planner_worlds import MS, cut, line, ring
from structlog.testing import capture_logs

from timebound.control.controller.service import Service
from timebound.control.srt.rows import ChannelState, ControllerRow, Outcome, VerdictRow
from timebound.control.srt.store import Put, Role, Writer, open_store
from timebound.control.topology import Topology


def test_a_request_is_granted_reserved_and_given_back(tmp_path: Path) -> None:
    with site(tmp_path, line(), audit=tmp_path / "audit.jsonl") as plant:
        table = plant.table
        publisher = table.publish(table.connect("h1"), "a")
        subscriber = table.subscribe(table.connect("h2"), "a")
        plant.ask(publisher, subscriber)
        told = plant.verdict(publisher, Outcome.GRANTED)
        assert told.bound_ns is not None and told.bound_ns <= 20 * MS
        assert plant.verdict(subscriber, Outcome.GRANTED).bound_ns == told.bound_ns
        rows = plant.manager.snapshot().channels
        assert rows.keys() == plant.network.channels.keys() and len(rows) == 4
        assert {row.state for row in rows.values()} == {ChannelState.PROVEN}
        plant.drop(publisher, subscriber)
        until(lambda: not plant.network.channels and not plant.manager.snapshot().verdicts)
        until(lambda: not plant.manager.snapshot().channels)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()]
    granted = next(line for line in lines if line["what"] == "verdict" and line["id"] == publisher)
    assert granted["outcome"] == "granted" and granted["client_id"] == "client-1" and granted["topic"] == "a"
    assert {"withdrawn", "removed", "proven"} <= {line["outcome"] for line in lines}


@pytest.mark.parametrize(
    ("name", "told"),
    [("other", "another controller decides as well"), ("controller", "another controller uses this name")],
)
def test_a_second_controller_of_the_same_table_is_told(tmp_path: Path, name: str, told: str) -> None:
    with site(tmp_path, line()) as plant, capture_logs() as said:
        time.sleep(0.1)
        assert not [entry for entry in said if entry["log_level"] == "error"], "it is alone"
        other = open_store(f"file:{tmp_path / 'srt.db'}", Writer(Role.CONTROLLER, name))
        try:
            assert other.wait_connected(10)

            def is_told() -> bool:
                other.transact([Put(ControllerRow(id=name, version="1", beat_ns=time.time_ns()))])
                return any(entry["event"] == told for entry in said)

            until(is_told)
            assert plant.service.health()[0]
        finally:
            other.close()


def test_a_hundred_requests_at_once_are_all_answered(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        table = plant.table
        requests = [
            table.publish(
                table.connect("h1" if number % 2 else "h2"), f"t/{number}", period_ns=2000 * MS, deadline_ns=2000 * MS
            )
            for number in range(40)
        ]
        plant.ask(*requests)
        until(lambda: len(plant.manager.snapshot().verdicts) == len(requests))
        outcomes = {row.outcome for row in plant.manager.snapshot().verdicts.values()}
        assert outcomes == {Outcome.GRANTED}


def test_while_it_decides_for_long_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Managers who hear nothing for some seconds take it for dead, and their clients' messages for best effort."""
    module = importlib.import_module("timebound.control.planner.judge")
    lay_out, beats = module.lay_out, set()

    def slow(*arguments: Any) -> Any:
        beats.update(row.beat_ns for row in plant.manager.snapshot().controllers.values())
        time.sleep(0.05)
        return lay_out(*arguments)

    with site(tmp_path, line()) as plant:
        table = plant.table
        requests = [table.publish(table.connect("h1"), f"t/{number}", deadline_ns=MS) for number in range(4)]
        monkeypatch.setattr(module, "lay_out", slow)
        plant.ask(*requests)
        until(lambda: len(plant.manager.snapshot().verdicts) == len(requests), 60)
        assert {row.outcome for row in plant.manager.snapshot().verdicts.values()} == {Outcome.REFUSED}
    assert len(beats) >= 3, "one step decides them all"


def test_what_does_not_fit_is_refused_with_words_and_an_offer(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        request = plant.table.publish(plant.table.connect("h1"), "a", deadline_ns=MS)
        plant.ask(request)
        told = plant.verdict(request)
        assert told.outcome is Outcome.REFUSED and told.reason and told.offer.deadline_ns is not None
        row = plant.table.rows.requests[request]
        asked = replace(row.requirements, deadline_ns=told.offer.deadline_ns)
        plant.table.rows.requests[request] = replace(row, requirements=asked, revision=2)
        plant.ask(request)
        assert plant.verdict(request, Outcome.GRANTED).revision == 2


def test_with_many_streams_the_offer_comes_after_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = importlib.import_module("timebound.control.controller.desk")
    monkeypatch.setattr(desk, "MANY", -1)
    offer_for = desk.offer_for

    def slow(*arguments: Any) -> Any:
        # The table tells of the last change of a row alone: the first one needs the time to be seen.
        time.sleep(0.3)
        return offer_for(*arguments)

    monkeypatch.setattr(desk, "offer_for", slow)
    offers: list[Any] = []
    with site(tmp_path, line()) as plant:
        plant.manager.watch(
            lambda changes: offers.extend(
                change.row.offer for change in changes if isinstance(change, Put) and isinstance(change.row, VerdictRow)
            )
        )
        plant.ask(plant.table.publish(plant.table.connect("h1"), "a", deadline_ns=MS))
        until(lambda: offers and offers[-1].deadline_ns is not None)
        assert offers[0].deadline_ns is None


def test_a_channel_that_is_never_proven_is_unavailable_not_granted(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        plant.network.refusing = {"c1:up"}
        request = plant.table.publish(plant.table.connect("h1"), "a")
        plant.ask(request)
        assert "no probe came through" in plant.verdict(request, Outcome.UNAVAILABLE).reason
        plant.network.refusing = set()
        plant.verdict(request, Outcome.GRANTED)


def test_a_network_that_says_nothing_gives_no_verdict(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        plant.network.silent = {"c1:up"}
        request = plant.table.publish(plant.table.connect("h1"), "a")
        other = plant.table.publish(plant.table.connect("h2"), "b")
        plant.ask(request, other)
        plant.verdict(other, Outcome.GRANTED)
        assert request not in plant.manager.snapshot().verdicts


def test_a_link_that_fails_and_comes_back(tmp_path: Path) -> None:
    with site(tmp_path, ring()) as plant:
        request = plant.table.publish(plant.table.connect("h1"), "a")
        plant.ask(request)
        plant.verdict(request, Outcome.GRANTED)
        whole = plant.network.known
        way = plant.manager.snapshot().channels["c1:up"].links
        a, _, b = way[1].partition("->")
        plant.network.change(cut(whole, a, b))
        until(lambda: way[1] not in plant.network.channels["c1:up"].links)
        plant.verdict(request, Outcome.GRANTED)
        plant.network.change(cut(cut(whole, "s1", "s2"), "s1", "s4"))
        assert "no way" in plant.verdict(request, Outcome.UNAVAILABLE).reason
        plant.network.change(replace(whole, revision=whole.revision + 9))
        plant.verdict(request, Outcome.GRANTED)


def test_a_controller_that_restarts_leaves_channels_alone_and_grants_stand(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        request = plant.table.publish(plant.table.connect("h1"), "a")
        plant.ask(request)
        first = plant.verdict(request, Outcome.GRANTED)
        plant.service.close()
        plant.service.store.close()
        assert plant.network.channels
        until(lambda: "controller" not in plant.manager.snapshot().controllers)
        plant.network.orders.clear()
        plant.beat()
        plant.service, store = start(tmp_path, plant.network)
        try:
            until(lambda: plant.service.view["ready"] and plant.network.orders)
            until(lambda: all(entry["state"] == "proven" for entry in plant.service.view["channels"]))
            assert not [order for order in plant.network.orders if order[0] == "remove"]
            assert plant.verdict(request) == first
            until(lambda: "controller" in plant.manager.snapshot().controllers)
        finally:
            plant.service.close()
            store.close()


def test_a_controller_beats_and_its_health_says_so(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        first = until(lambda: plant.manager.snapshot().controllers.get("controller"))
        until(lambda: plant.manager.snapshot().controllers["controller"].beat_ns > first.beat_ns, 5)
        until(lambda: plant.service.health() == (True, {"deciding": True, "store": True, "network_known": True}))
        time.sleep(0.05)
        assert "timebound_controller_decisions" in plant.service.metrics.text().decode()


def test_without_any_switch_a_controller_is_not_ready(tmp_path: Path) -> None:
    with site(tmp_path, line()) as plant:
        until(lambda: plant.service.readiness()[0])
        plant.network.known = Topology({}, {}, {}, {})
        ready, parts = plant.service.readiness()
        assert not ready and parts["switches"] == 0


def test_the_time_to_a_verdict_counts_the_first_of_each_revision_alone(tmp_path: Path) -> None:
    """A verdict that was renewed had counted from its client's first question: minutes, of which nobody had waited one."""
    with site(tmp_path, line()) as plant:
        table = plant.table

        def counted(service: Service) -> float:
            value = service.metrics.registry.get_sample_value("timebound_controller_request_to_verdict_seconds_count")
            assert value is not None
            return value

        def written(service: Service) -> float:
            label = {"outcome": "granted"}
            value = service.metrics.registry.get_sample_value("timebound_controller_verdicts_total", label)
            return value or 0.0

        first = table.publish(table.connect("h1"), "a")
        plant.ask(first)
        plant.verdict(first, Outcome.GRANTED)
        until(lambda: counted(plant.service) == 1)
        bound_ns = plant.verdict(first).bound_ns
        plant.ask(table.subscribe(table.connect("h2"), "a"))
        until(lambda: plant.verdict(first).bound_ns != bound_ns)
        until(lambda: written(plant.service) == 3)
        assert counted(plant.service) == 2
        # A change of it is a question of its own.
        row = plant.request(first)
        plant.put(replace(row, revision=row.revision + 1, asked_ns=time.time_ns()))
        until(lambda: plant.verdict(first).revision == row.revision + 1)
        until(lambda: counted(plant.service) == 3)
        # Of what others have answered it renews what it has to, and counts nothing.
        plant.service.close()
        plant.service.store.close()
        plant.service, store = start(tmp_path, plant.network)
        until(lambda: plant.service.view["ready"])
        plant.ask(table.subscribe(table.connect("h2"), "a"))
        until(lambda: written(plant.service) >= 1)
        time.sleep(0.2)
        assert counted(plant.service) == 1
        store.close()
