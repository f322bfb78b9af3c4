"""The running service between a store of each kind and an intermediary played by hand; tests play the controller."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import resource
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_helpers import HandCore, asked, closed
from srt_helpers import CONTROLLER, Open, OvsdbServer, wait_for

from timebound.control.manager import reach as reaching
from timebound.control.manager.configuration import load
from timebound.control.manager.host import OTHER_FILES, connections_that_fit
from timebound.control.manager.reach import Reach
from timebound.control.manager.service import CROWDED, Service
from timebound.control.manager.shape import Limits
from timebound.control.srt.rows import ControllerRow, ManagerRow, Outcome, VerdictRow
from timebound.control.srt.rules import Pulse
from timebound.control.srt.store import Put, Role, Store, Writer
from timebound.control.web import Web

POLICY = "policy: {rules: [{name: no-bulk, topic: bulk/#, allow: false}]}\n"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Running:
    """A service on a thread."""

    def __init__(self, service: Service, core: HandCore, store: Store, audit: Path, broker_port: int) -> None:
        self.service, self.core, self.store, self.audit, self.broker_port = service, core, store, audit, broker_port
        self.thread = threading.Thread(target=service.run, daemon=True)
        self.thread.start()

    def get(self, path: str) -> tuple[int, str]:
        return get(self.service.web_port, path)

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def end(self) -> None:
        self.service.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def run(tmp_path: Path, open_for: Open) -> Iterator[Callable[[str], Running]]:
    """`run(url)`: a manager named m1 on a store."""
    running: list[Running] = []
    broker = socket.create_server(("127.0.0.1", 0), backlog=64)

    def start(url: str) -> Running:
        file = tmp_path / "manager.yaml"
        file.write_text(
            f"name: m1\nlisten: 127.0.0.1:1883\nbroker: 127.0.0.1:{broker.getsockname()[1]}\nstore: '{url}'\nhttp: 127.0.0.1:0\naudit: audit.jsonl\nannounce:\n{POLICY}"
        )
        core = HandCore()
        store = open_for(url, Writer(Role.MANAGER, "m1"), wait=False)
        port = broker.getsockname()[1]
        running.append(Running(Service(load(file)[0], core, store), core, store, tmp_path / "audit.jsonl", port))
        return running[-1]

    yield start
    for each in running:
        each.end()
    broker.close()


def beat(store: Store) -> None:
    store.transact([Put(ControllerRow(id="c1", version="1", beat_ns=time.time_ns()))])


def grant(id: str, revision: int = 1) -> VerdictRow:
    return VerdictRow(
        id=id, revision=revision, outcome=Outcome.GRANTED, reason="", priority=5, bound_ns=7, shared_with=("b",)
    )


def test_requests_reach_the_controller_and_verdicts_the_client(
    url: str, open_for: Open, run: Callable[[str], Running]
) -> None:
    manager, controller = run(url), open_for(url, CONTROLLER)
    beat(controller)
    wait_for(lambda: manager.core.controls == [True])
    assert manager.get("/readyz")[0] == 200 and '"guaranteed": true' in manager.get("/readyz")[1]
    manager.core.events.put(asked("r1"))
    manager.core.events.put(asked("r2", topic="bulk/1"))
    wait_for(lambda: controller.snapshot().requests)
    assert [row.topic for row in controller.snapshot().requests.values()] == ["plant/alarm"]
    controller.transact([Put(grant("r1"))])
    wait_for(lambda: len(manager.core.verdicts) == 2)
    by_id = {verdict["id"]: verdict for verdict in manager.core.verdicts}
    assert by_id["r1"] == {
        "id": "r1", "revision": 1, "outcome": "granted", "reason": "", "priority": 5, "bound_ns": 7, "shared_with": ["b"],
        "offer": {"deadline_ns": None, "period_ns": None},
    }  # fmt: skip
    assert by_id["r2"]["outcome"] == "refused" and "no-bulk" in by_id["r2"]["reason"]
    manager.core.events.put(closed())
    wait_for(lambda: not controller.snapshot().connections)
    wait_for(lambda: len(manager.audited()) == 6)
    told = [(entry["event"], entry["id"]) for entry in manager.audited()]
    assert sorted(told) == [
        ("answered", "r1"),
        ("answered", "r2"),
        ("asked", "r1"),
        ("asked", "r2"),
        ("withdrawn", "r1"),
        ("withdrawn", "r2"),
    ]
    (entry,) = (entry for entry in manager.audited() if (entry["event"], entry["id"]) == ("asked", "r1"))
    assert (entry["client_id"], entry["address"], entry["rule"], entry["allowed"]) == (
        "press",
        "10.0.0.1",
        "default",
        True,
    )


def test_the_manager_says_that_it_is_alive_and_leaves_in_order(
    url: str, open_for: Open, run: Callable[[str], Running]
) -> None:
    manager, controller = run(url), open_for(url, CONTROLLER)
    wait_for(lambda: controller.snapshot().managers)
    row = controller.snapshot().managers["m1"]
    assert (row.addresses, row.ports, row.broker_port) == (("127.0.0.1",), (1883,), manager.broker_port)
    pulse = Pulse()
    pulse.observe({"m1": row.beat_ns}, time.time_ns(), time.monotonic_ns())
    wait_for(lambda: controller.snapshot().managers["m1"].beat_ns - row.beat_ns > 1.5e9)
    manager.core.events.put(asked("r1"))
    wait_for(lambda: controller.snapshot().requests)
    manager.end()
    assert manager.core.stopped
    wait_for(lambda: not controller.snapshot().managers and not controller.snapshot().requests)


def test_a_manager_that_is_asked_before_it_has_started_says_so(
    tmp_path: Path, open_for: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first question may come while the service is made: it had found no `_poller`."""
    file = tmp_path / "manager.yaml"
    file.write_text("name: m1\nlisten: 127.0.0.1:1883\nbroker: 127.0.0.1:1\nstore: 'file:t.db'\nhttp: 127.0.0.1:0\n")
    early: list[tuple[int, str]] = []

    class Asked(Web):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            early.extend([get(self.port, "/readyz"), get(self.port, "/healthz"), get(self.port, "/metrics")])

    monkeypatch.setattr("timebound.control.manager.service.Web", Asked)
    store = open_for(f"file:{tmp_path / 't.db'}", Writer(Role.MANAGER, "m1"), wait=False)
    service = Service(load(file)[0], HandCore(), store)
    late = get(service.web_port, "/readyz")
    for status, text in (early[0], late):
        assert (status, json.loads(text)["reason"]) == (503, "the manager has not started yet")
    assert [status for status, _ in early[1:]] == [200, 200]
    service.stop()
    service.run()


def test_a_manager_whose_broker_is_gone_is_not_ready(tmp_path: Path, open_for: Open) -> None:
    broker = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = broker.getsockname()[1]
    file = tmp_path / "manager.yaml"
    file.write_text(
        f"name: m1\nlisten: 127.0.0.1:1883\nbroker: 127.0.0.1:{port}\nstore: 'file:t.db'\nhttp: 127.0.0.1:0\n"
    )
    store = open_for(f"file:{tmp_path / 't.db'}", Writer(Role.MANAGER, "m1"), wait=False)
    core = HandCore()
    manager = Running(Service(load(file)[0], core, store), core, store, tmp_path / "audit.jsonl", port)
    wait_for(lambda: manager.get("/readyz")[0] == 200)
    broker.close()
    wait_for(lambda: manager.get("/readyz")[0] == 503)
    told = json.loads(manager.get("/readyz")[1])
    assert told["reason"] == f"the broker 127.0.0.1:{port} cannot be reached: Connection refused"
    assert manager.get("/healthz")[0] == 200, "to start the manager again would not help"
    broker = socket.create_server(("127.0.0.1", port), backlog=64)
    wait_for(lambda: manager.get("/readyz")[0] == 200)
    manager.end()
    broker.close()


def test_many_questions_cost_the_broker_one_connection() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as broker:
        reach = Reach("127.0.0.1", broker.getsockname()[1])
        asking = [threading.Thread(target=reach.trouble) for _ in range(20)]
        for each in asking:
            each.start()
        for each in asking:
            each.join(10)
        broker.settimeout(0.2)
        broker.accept()[0].close()
        with pytest.raises(TimeoutError):
            broker.accept()


def test_a_question_about_a_broker_that_answers_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops, or a name server that is away: the answer comes all the same, and tries do not pile up."""
    hangs, tries = threading.Event(), []

    def connect(*arguments: Any, **options: Any) -> socket.socket:
        tries.append(arguments)
        hangs.wait(20)
        raise OSError("too late")

    monkeypatch.setattr(reaching, "TRY_S", 0.05)
    monkeypatch.setattr(reaching, "KEPT_S", 0.0)
    monkeypatch.setattr(socket, "create_connection", connect)
    reach = Reach("broker.plant.example", 8883)
    for _ in range(3):
        assert reach.trouble() == "the broker broker.plant.example:8883 cannot be reached: no answer within 0.05 s"
    assert len(tries) == 1
    hangs.set()


def test_without_a_controller_everything_is_answered_at_once(
    url: str, open_for: Open, run: Callable[[str], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timebound.control.manager.service.Pulse", lambda: Pulse(after_ns=1_500_000_000))
    manager, controller = run(url), open_for(url, CONTROLLER)
    wait_for(lambda: manager.store.connected)
    manager.core.events.put(asked("r1"))
    wait_for(lambda: manager.core.verdicts)
    assert manager.core.verdicts[0]["outcome"] == "unavailable"
    assert manager.core.verdicts[0]["reason"] in (
        "no controller is alive",
        "the store was not reached yet",
        "the table is out of reach",
    )
    wait_for(lambda: controller.snapshot().requests)
    beat(controller)
    wait_for(lambda: manager.core.controls[-1:] == [True])
    controller.transact([Put(grant("r1"))])
    wait_for(lambda: manager.core.verdicts[-1]["outcome"] == "granted")
    manager.core.events.put(asked("r2"))
    wait_for(lambda: "r2" in controller.snapshot().requests)
    assert len(manager.core.verdicts) == 2, "it waits for its answer"
    # The controller's beat stops.
    wait_for(lambda: manager.core.controls[-1:] == [False])
    wait_for(lambda: len(manager.core.verdicts) == 3)
    assert (manager.core.verdicts[2]["id"], manager.core.verdicts[2]["reason"]) == ("r2", "no controller is alive")
    status, text = manager.get("/readyz")
    assert (status, json.loads(text)["guaranteed"], json.loads(text)["why"]) == (200, False, "no controller is alive")
    assert "timebound_manager_control_lost_total 1.0" in manager.get("/metrics")[1]


def test_a_store_that_goes_and_comes_back(server: OvsdbServer, open_for: Open, run: Callable[[str], Running]) -> None:
    manager, controller = run(server.url), open_for(server.url, CONTROLLER)
    beat(controller)
    wait_for(lambda: manager.core.controls == [True])
    server.kill()
    wait_for(lambda: manager.core.controls == [True, False])
    manager.core.events.put(asked("r1"))
    wait_for(lambda: manager.core.verdicts)
    assert manager.core.verdicts[0]["reason"] == "the table is out of reach"
    assert manager.get("/healthz")[0] == 200 and manager.get("/readyz")[0] == 200, "MQTT is served all the same"
    assert "timebound_manager_store_connected 0.0" in manager.get("/metrics")[1]
    server.start()
    wait_for(lambda: controller.connected and "r1" in controller.snapshot().requests)
    beat(controller)
    wait_for(lambda: manager.core.controls[-1])
    controller.transact([Put(grant("r1"))])
    wait_for(lambda: manager.core.verdicts[-1]["outcome"] == "granted")


def test_a_table_that_is_damaged_under_a_manager_is_no_control(
    tmp_path: Path, open_for: Open, run: Callable[[str], Running], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "srt.db"
    manager, controller = run(f"file:{file}"), open_for(f"file:{file}", CONTROLLER)
    beat(controller)
    wait_for(lambda: manager.core.controls == [True])
    with contextlib.closing(sqlite3.connect(file)) as checkpoint:
        checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    subprocess.run(["truncate", "-s", "12288", file], check=True)
    wait_for(lambda: manager.core.controls == [True, False])
    # The intermediary is told first, and the log after it.
    wait_for(lambda: "best effort from now on" in caplog.text)
    wait_for(lambda: "no whole table" in manager.get("/readyz")[1])
    status, text = manager.get("/readyz")
    assert (status, json.loads(text)["why"]) == (200, "the table is out of reach"), "MQTT is served all the same"
    wait_for(lambda: "timebound_manager_store_connected 0.0" in manager.get("/metrics")[1])
    for each in tmp_path.glob("srt.db*"):
        each.unlink()
    wait_for(lambda: controller.connected and manager.store.connected)
    beat(controller)
    wait_for(lambda: manager.core.controls == [True, False, True])
    assert set(controller.snapshot().managers) == {"m1"}


def test_figures_are_metrics(url: str, run: Callable[[str], Running]) -> None:
    manager = run(url)
    status, text = manager.get("/metrics")
    assert status == 200
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert figures['timebound_manager_bytes_total{direction="up"}'] == "4.0"
    assert figures['timebound_manager_refusals_total{packet="subscribe"}'] == "4.0"
    assert figures['timebound_manager_hold_seconds_bucket{le="0.001"}'] == "1.0"
    assert (
        figures['timebound_manager_hold_seconds_bucket{le="+Inf"}']
        == figures["timebound_manager_hold_seconds_count"]
        == "3.0"
    )
    assert figures['timebound_manager_offences_total{reason="rate"}'] == "4.0"
    assert manager.get("/nowhere")[0] == 404
    assert manager.get("/healthz") == (200, '{"healthy": true}\n')


def test_another_manager_of_the_same_name_is_noticed(
    url: str, open_for: Open, run: Callable[[str], Running], caplog: pytest.LogCaptureFixture
) -> None:
    manager = run(url)
    wait_for(lambda: manager.store.snapshot().managers)
    twin = open_for(url, Writer(Role.MANAGER, "m1"))
    row: ManagerRow = (
        manager.store.snapshot().managers["m1"] if manager.store.snapshot().managers else manager.service._row
    )
    with caplog.at_level(logging.ERROR, "timebound.manager"):
        twin.transact([Put(ManagerRow(**{**{name: getattr(row, name) for name in row.__slots__}, "beat_ns": 77}))])
        wait_for(lambda: "another manager uses this name" in caplog.text)
    assert "is called m1, too" in json.loads(manager.get("/readyz")[1])["namesake"]
    assert "timebound_manager_namesakes_total 1.0" in manager.get("/metrics")[1]


def test_nonsense_from_the_intermediary_stops_nothing(url: str, open_for: Open, run: Callable[[str], Running]) -> None:
    manager, controller = run(url), open_for(url, CONTROLLER)
    for text in ("", "{}", '{"kind": "request"}', "[1]", asked("r0", client_address="nowhere")):
        manager.core.events.put(text)
    manager.core.events.put(asked("r\0", topic="a"))
    manager.core.events.put(asked("r1"))
    wait_for(lambda: "r1" in controller.snapshot().requests)
    assert [verdict["outcome"] for verdict in manager.core.verdicts if verdict["id"] == "r\0"][-1] == "unavailable"


def test_the_audit_log_may_be_moved_away(url: str, run: Callable[[str], Running]) -> None:
    manager = run(url)
    manager.core.events.put(asked("r1"))
    wait_for(lambda: manager.audit.read_text())
    assert manager.audit.stat().st_mode & 0o007 == 0
    manager.audit.rename(manager.audit.with_suffix(".1"))
    manager.service.reopen_audit()
    wait_for(manager.audit.exists)
    manager.core.events.put(asked("r2", topic="another"))
    wait_for(lambda: "r2" in manager.audit.read_text())


def test_a_handshake_that_failed_is_logged_with_its_client(
    tmp_path: Path, run: Callable[[str], Running], caplog: pytest.LogCaptureFixture
) -> None:
    """It had been counted, and nobody knew whose it was."""
    manager = run(f"file:{tmp_path / 'srt.db'}")
    what = {"client_address": "10.0.0.9", "client_port": 40_001, "reason": "peer sent no certificates"}
    manager.core.events.put(json.dumps({"kind": "handshake", **what}))
    wait_for(lambda: "a handshake of TLS or WebSocket failed" in caplog.text)
    (record,) = (record for record in caplog.records if "handshake" in record.getMessage())
    assert record.__dict__["about"] == what
    wait_for(lambda: [entry["event"] for entry in manager.audited()] == ["handshake"])


def test_strangers_that_are_kept_out_are_told_once_a_minute_with_how_many_they_were(
    tmp_path: Path, run: Callable[[str], Running], caplog: pytest.LogCaptureFixture
) -> None:
    manager = run(f"file:{tmp_path / 'srt.db'}")
    manager.core.figures["strangers"] |= {"refused": 7, "crowded_out": 5, "last": "10.0.0.9"}
    wait_for(lambda: [entry["event"] for entry in manager.audited()] == ["strangers"])
    manager.core.figures["strangers"] |= {"refused": 1_000}
    wait_for(lambda: "timebound_manager_strangers_refused_total 1000.0" in manager.get("/metrics")[1])
    time.sleep(2.5)
    (entry,) = manager.audited()
    assert (entry["refused"], entry["crowded_out"], entry["last"]) == (7, 5, "10.0.0.9")
    (record,) = [record.__dict__ for record in caplog.records if record.getMessage() == CROWDED]
    assert (record["times"], record["last"]) == (12, "10.0.0.9")


class Files:
    """A limit of open files; who may not raise the hard one asks for no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.limit = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.limit)
        monkeypatch.setattr(resource, "setrlimit", lambda _, limit: setattr(self, "limit", limit))


@pytest.mark.parametrize(
    ("soft", "hard", "fits"),
    (
        (1024, 65_536, 20_000),
        (400, 400, 136),
        (120, 120, 0),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 20_000),
    ),
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, fits: int
) -> None:
    files = Files(monkeypatch, soft, hard)
    assert connections_that_fit(20_000) == fits
    assert files.limit == (hard, hard)


@pytest.mark.parametrize(("limit", "room"), ((400, 136), (120, 0)))
def test_a_limit_of_open_files_below_the_connections_is_told(
    url: str,
    run: Callable[[str], Running],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: int,
    room: int,
) -> None:
    """Clients above it had been closed without a word, with a limit of 120 all of them, by a manager that called itself ready."""
    Files(monkeypatch, limit, limit)
    manager = run(url)
    wait_for(lambda: any("limit of open files" in record.getMessage() for record in caplog.records))
    (line,) = [record.__dict__ for record in caplog.records if "limit of open files" in record.getMessage()]
    assert (line["levelname"], line["room"], line["limit"]) == ("WARNING", room, 20_000)
    assert "LimitNOFILE=40128" in line["hint"]
    status, text = manager.get("/readyz")
    said = json.loads(text)
    if room:
        assert (status, said["ready"]) == (200, True)
    else:
        assert (status, said["ready"]) == (503, False)
        assert "room for 0 connections" in said["reason"] and "LimitNOFILE" in said["reason"]
    manager.end()
    caplog.clear()
    Files(monkeypatch, 1024, 65_536)
    another = run(url)
    wait_for(lambda: another.get("/readyz")[0] == 200)
    assert not any("limit of open files" in record.getMessage() for record in caplog.records)


def test_the_unit_leaves_room_for_the_connections_of_the_default() -> None:
    unit = Path(__file__).parents[2] / "packaging" / "systemd" / "timebound-manager@.service"
    (limit,) = re.findall(r"^LimitNOFILE=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(limit) >= 2 * Limits().connections + OTHER_FILES
