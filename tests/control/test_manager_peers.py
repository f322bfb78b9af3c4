"""Two `timebound manager` processes, each before a real mosquitto, over one table; tests play the controller. Addresses are on loopback."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from srt_helpers import CONTROLLER, Open, OvsdbServer, wait_for

from tests.tools import find, needs
from timebound.control.srt.rows import ChannelState, GroupRow
from timebound.control.srt.store import Delete, Put

MOSQUITTO = find("mosquitto")
pytestmark = needs("mosquitto", "mosquitto_pub", "mosquitto_sub")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Network:
    """An edge network: a broker with a manager before it."""

    def __init__(self, folder: Path, number: int, peer_port: int, store: str, peer: str = "") -> None:
        self.folder = folder
        self.folder.mkdir()
        self.broker_port, self.port, self.http = free_port(), free_port(), free_port()
        (folder / "mosquitto.conf").write_text(
            f"listener {self.broker_port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        )
        (folder / "manager.yaml").write_text(
            f"name: m{number}\nlisten: 127.0.0.1:{self.port}\nbroker: 127.0.0.1:{self.broker_port}\nstore: '{store}'\n"
            f"http: 127.0.0.1:{self.http}\naudit: audit.jsonl\nnetwork: hall-{number}\n"
            f"peer: {{address: 127.2.0.{number}, port: {peer_port}, state: peers.state, silence: 20 s{peer}}}\n"
        )
        assert MOSQUITTO is not None
        self._processes: list[subprocess.Popen[Any]] = []
        self.run([MOSQUITTO, "-c", str(folder / "mosquitto.conf")])
        self.start()

    def run(self, command: list[str]) -> subprocess.Popen[str]:
        found = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._processes.append(found)
        return found

    def start(self) -> None:
        """Starts the manager, and waits until it serves."""
        log = self.folder / f"manager-{len(self._processes)}.log"
        code = "from timebound.cli import main; main()"
        with log.open("w") as file:
            self.manager = subprocess.Popen(
                [sys.executable, "-c", code, "manager", self.folder / "manager.yaml"], stderr=file, text=True
            )
        self._processes.append(self.manager)
        wait_for(lambda: '"serving"' in log.read_text(), 60)

    def publish(self, topic: str, text: str, qos: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "mosquitto_pub",
                "-V",
                "5",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-q",
                str(qos),
                "-t",
                topic,
                "-m",
                text,
                "-D",
                "publish",
                "user-property",
                "colour",
                "red",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as answer:
            found = re.search(rf"^timebound_manager_peers_{name} (\S+)$", answer.read().decode(), re.MULTILINE)
            assert found is not None, name
            return float(found[1])

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def networks(tmp_path: Path, server: OvsdbServer) -> Iterator[tuple[Network, Network]]:
    peer_port, found = free_port(), []
    try:
        for number in (1, 2):
            found.append(Network(tmp_path / f"hall-{number}", number, peer_port, server.url))
        yield found[0], found[1]
    finally:
        for network in found:
            network.close()


def test_messages_reach_another_network_over_the_death_of_its_manager(
    networks: tuple[Network, Network], server: OvsdbServer, open_for: Open
) -> None:
    first, second = networks
    controller = open_for(server.url, CONTROLLER)
    group = GroupRow(
        id="g1", origin="m1", request="elsewhere", topic="plant/+", priority=5, address="239.192.7.9", members=("m2",),
        rate_bps=1_000_000, bound_ns=None, links=(), state=ChannelState.PLANNED,
    )  # fmt: skip
    controller.transact([Put(group)])
    subscriber = second.run(
        [
            "mosquitto_sub",
            "-V",
            "5",
            "-h",
            "127.0.0.1",
            "-p",
            str(second.broker_port),
            "-q",
            "2",
            "-t",
            "plant/#",
            "-F",
            "%t %q %p %P",
            "-C",
            "6",
            "-W",
            "120",
        ]
    )
    # A group that is only planned is none.
    assert first.publish("plant/a", "early", 1).returncode == 0
    controller.transact([Put(replace(group, state=ChannelState.PROVEN))])
    wait_for(lambda: first.metric("connections_now") == 1)
    for qos in (0, 1, 2):
        assert first.publish("plant/a", f"of {qos}", qos).returncode == 0
    wait_for(lambda: second.metric("injected_total") == 3)
    second.manager.send_signal(signal.SIGKILL)
    second.manager.wait()
    waiting = first.run(
        [
            "mosquitto_pub",
            "-V",
            "5",
            "-h",
            "127.0.0.1",
            "-p",
            str(first.port),
            "-q",
            "2",
            "-t",
            "plant/b",
            "-m",
            "kept",
            "-D",
            "publish",
            "user-property",
            "colour",
            "red",
        ]
    )
    wait_for(lambda: first.metric("sent_total") == 4)
    assert waiting.poll() is None, "it is answered when the other broker has it, and not before"
    second.start()
    assert waiting.wait(60) == 0
    assert first.publish("plant/b", "after", 1).returncode == 0
    assert first.metric("undelivered_total") == 0
    # What is for no group, or for one that is no more, stays.
    controller.transact([Delete("groups", "g1")])
    wait_for(lambda: first.metric("connections_now") == 0)
    assert first.publish("plant/a", "late", 1).returncode == 0
    subprocess.run(
        ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(second.broker_port), "-t", "plant/c", "-m", "end"], check=True
    )
    said = subscriber.communicate(timeout=120)[0].splitlines()
    assert said == [
        "plant/a 0 of 0 colour:red",
        "plant/a 1 of 1 colour:red",
        "plant/a 2 of 2 colour:red",
        "plant/b 2 kept colour:red",
        "plant/b 1 after colour:red",
        "plant/c 0 end ",
    ]
    assert '"event": "group"' in (first.folder / "audit.jsonl").read_text()
