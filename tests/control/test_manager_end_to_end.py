"""`timebound manager` as a process before a real mosquitto, with stock clients; tests play the controller.

mosquitto_pub and mosquitto_sub know nothing of Timebound: they send user properties, and read reason codes.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from srt_helpers import CONTROLLER, READER, Open, OvsdbServer, wait_for

from tests.tools import find, needs
from timebound.control.srt.rows import ControllerRow, Offer, Outcome, RequestRow, VerdictRow
from timebound.control.srt.store import Change, Put, Store

MOSQUITTO = find("mosquitto")
pytestmark = needs("mosquitto", "mosquitto_pub", "mosquitto_sub")
ASKS = (
    "-D",
    "publish",
    "user-property",
    "rt-deadline",
    "20 ms",
    "-D",
    "publish",
    "user-property",
    "rt-period",
    "100 ms",
)
STRICT = ("-D", "publish", "user-property", "rt-strict", "yes")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Site:
    """A broker with a manager before it, in a folder."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.broker_port, self.port, self.http = free_port(), free_port(), free_port()
        (folder / "mosquitto.conf").write_text(
            f"listener {self.broker_port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        )
        self.configuration = folder / "manager.yaml"
        self.configuration.write_text(
            f"name: m1\nlisten: 127.0.0.1:{self.port}\nbroker: 127.0.0.1:{self.broker_port}\nstore: '{store}'\nhttp: 127.0.0.1:{self.http}\n"
            "hold: 400 ms\naudit: audit.jsonl\npolicy: {rules: [{name: no-bulk, topic: bulk/#, allow: false}]}\n"
        )
        assert MOSQUITTO is not None
        self._processes: list[subprocess.Popen[Any]] = [
            subprocess.Popen(
                [MOSQUITTO, "-c", folder / "mosquitto.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        ]
        wait_for(lambda: self._answers(self.broker_port))
        self.manager = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Starts the manager, and waits until it serves."""
        code = "from timebound.cli import main; main()"
        self.log = self.folder / f"manager-{len(self._processes)}.log"
        with self.log.open("w") as log:
            manager = subprocess.Popen(
                [sys.executable, "-c", code, "manager", self.configuration], stderr=log, text=True
            )
        self._processes.append(manager)
        wait_for(lambda: '"serving"' in self.log.read_text(), 60)
        return manager

    @staticmethod
    def _answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def publish(
        self, topic: str, *options: str, qos: int = 1, text: str = "on"
    ) -> tuple[float, subprocess.CompletedProcess[str]]:
        """How long mosquitto_pub took, and what it said."""
        command = [
            "mosquitto_pub",
            "-V",
            "5",
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-q",
            str(qos),
            "-t",
            topic,
            "-m",
            text,
            *options,
        ]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return time.monotonic() - began, done

    def subscribe(self, topic: str, *options: str, port: int | None = None, count: int = 1) -> subprocess.Popen[str]:
        command = [
            "mosquitto_sub",
            "-p",
            str(port or self.port),
            "-h",
            "127.0.0.1",
            "-t",
            topic,
            "-C",
            str(count),
            "-W",
            "30",
            *options,
        ]
        found = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._processes.append(found)
        return found

    def state(self) -> dict[str, Any]:
        """The retained message about the manager, as the broker has it."""
        said = self.subscribe("$timebound/manager/m1/state", port=self.broker_port).communicate(timeout=40)[0]
        found: dict[str, Any] = json.loads(said)
        return found

    def ready(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as answer:
            found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
            assert found is not None, name
            return float(found[1])

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def site(tmp_path: Path, server: OvsdbServer) -> Iterator[Site]:
    """A manager whose table is in an ovsdb-server."""
    folder = tmp_path / "site"
    folder.mkdir()
    found = Site(folder, server.url)
    yield found
    found.close()


class Answering:
    """A controller: its beat, and verdicts by topic: `full/...` is refused, `slow/...` never answered, all else granted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        for row in store.watch(self._changed).requests.values():
            self._answer(row)

    def _beat(self) -> None:
        while not self._ended.wait(0.5):
            self._store.transact([Put(ControllerRow(id="c1", version="1", beat_ns=time.time_ns()))])

    def _changed(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if isinstance(change, Put) and isinstance(change.row, RequestRow):
                self._answer(change.row)

    def _answer(self, row: RequestRow) -> None:
        if row.topic.startswith("slow/"):
            return
        full = row.topic.startswith("full/")
        verdict = VerdictRow(
            id=row.id, revision=row.revision, outcome=Outcome.REFUSED if full else Outcome.GRANTED, reason="s1->s2 is full" if full else "",
            priority=0 if full else 5, bound_ns=None if full else 12_500_000, offer=Offer(period_ns=250_000_000) if full else Offer(),
        )  # fmt: skip
        self._store.transact([Put(verdict)])

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def controller(site: Site, open_for: Open) -> Iterator[Answering]:
    found = Answering(open_for(site.store, CONTROLLER, adopt=True))
    wait_for(lambda: site.ready()["guaranteed"])
    yield found
    found.end()


def test_a_stock_client_gets_a_channel(site: Site, controller: Answering, open_for: Open) -> None:
    table = open_for(site.store, READER)
    seen: list[RequestRow] = []
    table.watch(
        lambda changes: seen.extend(c.row for c in changes if isinstance(c, Put) and isinstance(c.row, RequestRow))
    )
    receiver = site.subscribe("plant/#", "-v")
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
    took, done = site.publish("plant/alarm", *ASKS, "-i", "press-7")
    assert (done.returncode, done.stderr) == (0, "")
    assert receiver.communicate(timeout=10)[0] == "plant/alarm on\n"
    (row,) = seen
    assert (row.topic, row.requirements.deadline_ns, row.requirements.period_ns, row.requirements.size_bytes) == (
        "plant/alarm", 20_000_000, 100_000_000, 2,
    )  # fmt: skip
    assert took < 5.0
    assert site.metric('timebound_manager_verdicts_total{outcome="granted"}') == 1
    wait_for(lambda: not table.snapshot().requests and not table.snapshot().connections)
    events = [(entry["event"], entry.get("outcome")) for entry in site.audited()]
    assert events == [("asked", None), ("answered", "granted"), ("withdrawn", None)]
    assert site.audited()[0]["client_id"] == "press-7"


def test_who_is_refused_is_carried_as_best_effort(site: Site, controller: Answering) -> None:
    receiver = site.subscribe("full/#")
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
    _, done = site.publish("full/1", *ASKS)
    assert (done.returncode, done.stderr) == (0, "")
    assert receiver.communicate(timeout=10)[0] == "on\n"


@pytest.mark.parametrize("topic", ["full/1", "bulk/1"])
def test_who_is_strict_is_told_by_the_standards_reason_code(site: Site, controller: Answering, topic: str) -> None:
    """Refused by the controller, or by a rule of the site."""
    receiver = site.subscribe("#")
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
    _, done = site.publish(topic, *ASKS, *STRICT)
    assert "Quota exceeded" in done.stderr
    site.publish("plant/after", text="the first that comes")
    assert receiver.communicate(timeout=10)[0] == "the first that comes\n", "what was refused is not delivered"
    assert site.metric('timebound_manager_refusals_total{packet="publish"}') == 1


def test_without_a_controller_messages_go_on_at_once(site: Site, open_for: Open) -> None:
    table = open_for(site.store, READER)
    for qos in (0, 1, 2):
        receiver = site.subscribe("plant/alarm", "-q", "2")
        wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
        _, done = site.publish("plant/alarm", *ASKS, qos=qos, text=f"with {qos}")
        assert (done.returncode, done.stderr) == (0, "")
        assert receiver.communicate(timeout=10)[0] == f"with {qos}\n"
        wait_for(lambda: site.metric("timebound_manager_connections_now") == 0)
    assert site.metric('timebound_manager_holds_ended_total{by="timeout"}') == 0, "nothing waits for nobody"
    assert site.ready() == {
        "ready": True, "reason": "", "guaranteed": False, "why": "no controller is alive", "store": "connected",
    }  # fmt: skip
    wait_for(lambda: not table.snapshot().requests)


def test_an_answer_that_does_not_come_costs_the_hold_time_and_no_more(site: Site, controller: Answering) -> None:
    receiver = site.subscribe("slow/#")
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
    quick = min(site.publish("plant/x", *ASKS)[0] for _ in range(3))
    took, done = site.publish("slow/1", *ASKS)
    assert (done.returncode, done.stderr) == (0, "")
    assert receiver.communicate(timeout=10)[0] == "on\n"
    assert took - quick > 0.3, "it was held for the answer (0.4 s)"
    assert site.metric('timebound_manager_holds_ended_total{by="timeout"}') == 1
    assert site.metric('timebound_manager_hold_seconds_bucket{le="0.2"}') >= 3


def test_the_table_may_be_killed_and_come_back(site: Site, controller: Answering, server: OvsdbServer) -> None:
    client = paho(site.port)
    assert granted(client, "plant/alarm") == "yes"
    server.kill()
    wait_for(lambda: not site.ready()["guaranteed"])
    assert granted(client, "plant/alarm") == "yes", "the channel is in the switches still"
    assert granted(client, "plant/second") == "no"
    receiver = site.subscribe("plant/third")
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 2)
    site.publish("plant/third", *ASKS)
    assert receiver.communicate(timeout=10)[0] == "on\n"
    server.start()
    began = time.monotonic()
    wait_for(lambda: site.ready()["guaranteed"], 20)
    assert time.monotonic() - began < 5.0
    wait_for(lambda: granted(client, "plant/second") == "yes")
    client.disconnect()
    client.loop_stop()


def test_a_manager_that_is_killed_and_comes_back_clears_up(site: Site, controller: Answering, open_for: Open) -> None:
    table = open_for(site.store, READER)
    client = paho(site.port)
    assert granted(client, "plant/alarm") == "yes"
    topic = "$timebound/manager/m1/channels/#"

    def channel() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(site.subscribe(topic, port=site.broker_port).communicate(timeout=40)[0])
        return found

    wait_for(lambda: channel()["state"] == "granted")
    said = channel()
    assert (said["topic"], said["state"], said["priority"], said["bound_ns"]) == (
        "plant/alarm",
        "granted",
        5,
        12_500_000,
    )
    (old,) = table.snapshot().requests
    site.manager.kill()
    site.manager.wait()
    client.loop_stop()
    wait_for(lambda: site.state() == {"state": "gone"}, 30)
    assert list(table.snapshot().requests) == [old]
    site.manager = site.start()
    wait_for(lambda: not table.snapshot().requests)
    wait_for(lambda: site.subscribe(topic, "-W", "1", port=site.broker_port).communicate(timeout=10)[0] == "", 20)
    assert site.publish("plant/alarm", *ASKS)[1].returncode == 0


def test_it_leaves_in_order(site: Site, controller: Answering, open_for: Open) -> None:
    table = open_for(site.store, READER)
    client = paho(site.port)
    assert granted(client, "plant/alarm") == "yes"
    site.manager.send_signal(signal.SIGTERM)
    assert site.manager.wait(10) == 0
    client.loop_stop()
    wait_for(lambda: not table.snapshot().managers and not table.snapshot().requests)
    assert site.state() == {"state": "stopped"}
    lines = [json.loads(line) for line in site.log.read_text().splitlines()]
    assert [line["event"] for line in lines][-1] == "leaving"
    assert all({"event", "level", "timestamp", "logger"} <= line.keys() for line in lines)


def test_clients_of_311_notice_nothing(site: Site, controller: Answering) -> None:
    receiver = site.subscribe("plant/#", "-V", "311", "-q", "2", count=3)
    wait_for(lambda: site.metric("timebound_manager_connections_now") == 1)
    for qos in (0, 1, 2):
        command = [
            "mosquitto_pub",
            "-V",
            "311",
            "-p",
            str(site.port),
            "-h",
            "127.0.0.1",
            "-q",
            str(qos),
            "-t",
            "plant/x",
            "-m",
            str(qos),
        ]
        assert subprocess.run(command, timeout=20).returncode == 0
    assert receiver.communicate(timeout=10)[0] == "0\n1\n2\n"
    assert site.metric("timebound_manager_requests_total") == 0


def test_a_configuration_is_checked_and_nothing_started(tmp_path: Path) -> None:
    file = tmp_path / "manager.yaml"
    file.write_text("name: m1\nlisten: 127.0.0.1:1\nbroker: 127.0.0.1:2\nstore: file:x\n")

    def check() -> subprocess.CompletedProcess[str]:
        code = "from timebound.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, "manager", "--check-config", file], capture_output=True, text=True, timeout=60
        )

    assert check().returncode == 0
    file.write_text(file.read_text().replace("listen:", "lisen:"))
    done = check()
    assert done.returncode == 2
    assert f"{file}:2:1" in done.stderr and "did you mean 'listen'?" in done.stderr


@pytest.mark.parametrize(("place", "code"), [("manager.configuration.load", 0), ("controller.configuration.read", 130)])
def test_a_signal_in_a_place_where_its_interrupt_is_lost_ends_it_all_the_same(
    tmp_path: Path, place: str, code: int
) -> None:
    """As it happened within a library: the interrupt was printed as ignored, and the manager served on."""
    module, name = place.rsplit(".", 1)
    program = f"""
import os, signal
from timebound.cli import main
import timebound.control.{module} as files
class Deaf:
    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)
kept = files.{name}
def {name}(*arguments):
    Deaf()
    return kept(*arguments)
files.{name} = {name}
main()
"""
    verb = module.partition(".")[0]
    files = {
        "manager": f"name: m1\nlisten: 127.0.0.1:{free_port()}\nbroker: 127.0.0.1:1\nstore: file:x\nhttp: 127.0.0.1:{free_port()}\n",
        "controller": f"name: c1\nstore: {{url: 'file:{tmp_path}/x'}}\nopenflow: {{listen: 127.0.0.1, port: {free_port()}}}\n",
    }
    (tmp_path / "service.yaml").write_text(files[verb])
    command = [sys.executable, "-c", program, verb, str(tmp_path / "service.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Exception ignored in" in done.stderr
    assert done.returncode == code, done.stderr


def paho(port: int) -> Client:
    """A stock client that is connected."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait_for(client.is_connected)
    return client


def granted(client: Client, topic: str) -> str | None:
    """What the acknowledgement says about the channel."""
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("rt-deadline", "20 ms"), ("rt-period", "100 ms")]
    answers: list[Any] = []
    client.on_publish = lambda client, userdata, mid, reason, properties: answers.append(properties)
    client.publish(topic, "on", qos=1, properties=properties)
    wait_for(lambda: answers)
    return dict(getattr(answers[0], "UserProperty", [])).get("rt-granted")
