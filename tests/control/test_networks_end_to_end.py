"""Three edge networks as a plant has them: a mosquitto and `timebound manager` in each, the controller's service, real Open vSwitches between them, MQTT clients that
know nothing of it all but user properties."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.control.ovs_lab import PATH, Lab, in_namespace, lab, run, until
from tests.control.switch_helpers import Controller, controller, introduce, site
from tests.control.test_controller_over_switches import serving
from tests.tools import find, needs
from timebound.control.srt.rows import ChannelState, GroupRow
from timebound.control.srt.store import Role, Store, Writer, open_store

MOSQUITTO = find("mosquitto")
pytestmark = needs("mosquitto")
PORT, PEER_PORT, BROKER_PORT = 1883, 1884, 1885
GROUP = "group:m1:plant/a"
PERIOD_S = 0.1


@pytest.fixture(scope="module")
def net() -> Iterator[Lab]:
    # Managers and brokers on h1, h2, h3, a client in each network on h4, h5, h6.
    with lab(3, [(1, 2), (2, 3), (1, 3)], [1, 2, 3, 1, 2, 3]) as made:
        for number in (1, 2, 3):
            run("ip", "-n", made.host(number), "link", "set", "lo", "up")
        yield made


@pytest.fixture
def held(net: Lab) -> Iterator[Controller]:
    with controller(net, site(net)) as made:
        introduce(net, made)
        yield made


@pytest.fixture
def plant(net: Lab, tmp_path: Path) -> Iterator[Path]:
    """The folder of a plant whose brokers and managers serve."""
    with contextlib.ExitStack() as ends:
        for number in (1, 2, 3):
            configuration = tmp_path / f"mosquitto-{number}.conf"
            configuration.write_text(f"listener {BROKER_PORT} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
            start(ends, net, number, tmp_path / f"mosquitto-{number}.log", str(MOSQUITTO), "-c", str(configuration))
        time.sleep(0.3)
        code = "from timebound.cli import main; main()"
        logs = []
        for number in (1, 2, 3):
            file = tmp_path / f"manager-{number}.yaml"
            address = Lab.address(number)
            file.write_text(
                f"name: m{number}\nlisten: {address}:{PORT}\nbroker: 127.0.0.1:{BROKER_PORT}\nstore: 'file:{tmp_path}/srt.db'\n"
                f"network: hall-{number}\npeer: {{address: {address}, port: {PEER_PORT}, state: '{tmp_path}/peers-{number}.state'}}\n"
            )
            logs.append(tmp_path / f"manager-{number}.log")
            start(ends, net, number, logs[-1], sys.executable, "-c", code, "manager", str(file))
        for log in logs:
            until(lambda log=log: "serving" in log.read_text(), 60, log.read_text())
        yield tmp_path


def start(ends: contextlib.ExitStack, net: Lab, host: int, log: Path, *command: str) -> None:
    """A program on a host, which is gone at the end."""
    stream = ends.enter_context(log.open("w"))
    inside = ["ip", "netns", "exec", net.host(host), *command]
    process = subprocess.Popen(inside, stdout=stream, stderr=stream, env={**os.environ, "PATH": PATH})

    def end() -> None:
        process.kill()
        process.wait()

    ends.callback(end)


class Person:
    """A client on a host, connected to the manager of its network."""

    def __init__(self, net: Lab, name: str, host: int, manager: int, qos: int) -> None:
        self.qos = qos
        self.heard: Counter[str] = Counter()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self.heard.update([message.payload.decode()])
        in_namespace(net.host(host), lambda: self.client.connect(Lab.address(manager), PORT))
        self.client.loop_start()
        until(self.client.is_connected, 10, "connected")

    def subscribe(self, topic: str) -> None:
        self.client.subscribe(
            topic, options=SubscribeOptions(qos=self.qos), properties=asking(PacketTypes.SUBSCRIBE, "2 s")
        )

    def publish(self, texts: list[str]) -> None:
        """One message each period; all of them are acknowledged in the end."""
        waiting: list[Any] = []
        for text in texts:
            waiting.append(
                self.client.publish("plant/a", text, self.qos, properties=asking(PacketTypes.PUBLISH, "1 s", "100 ms"))
            )
            time.sleep(PERIOD_S)
        for message in waiting:
            message.wait_for_publish(30)
            assert message.is_published()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def asking(packet: int, deadline: str, period: str | None = None) -> Properties:
    """User properties that ask for a guarantee."""
    found = Properties(packet)
    found.UserProperty = [("rt-deadline", deadline), *([("rt-period", period), ("rt-size", "64 B")] if period else [])]
    return found


def proven(store: Store, members: tuple[str, ...]) -> GroupRow | None:
    row = store.snapshot().groups.get(GROUP)
    return row if row is not None and (row.members, row.state) == (members, ChannelState.PROVEN) else None


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_published_in_one_network_is_delivered_once_in_all_others_also_while_a_link_fails(
    net: Lab, held: Controller, plant: Path, qos: int
) -> None:
    reader = open_store(f"file:{plant / 'srt.db'}", Writer(Role.READER, "reader"))
    people: list[Person] = []
    try:
        with serving(plant, held):
            until(lambda: reader.snapshot().controllers and len(reader.snapshot().managers) == 3, 20, "everybody")
            people = [Person(net, f"p{number}", number + 3, number, qos) for number in (1, 2, 3)]
            machine, *others = people
            for person in others:
                person.subscribe("plant/#")
            time.sleep(0.5)
            machine.publish(["first"])
            until(lambda: proven(reader, ("m2", "m3")), 30, "a group with both members")
            row = proven(reader, ("m2", "m3"))
            assert row is not None
            # Both managers have joined when the origin's acknowledgements wait for them: said in its log.
            time.sleep(1.0)
            texts = [f"{number}" for number in range(30)]
            machine.publish(texts)
            for person in others:
                until(lambda person=person: set(texts) <= person.heard.keys(), 10, "all messages")
                assert all(person.heard[text] == 1 for text in texts)
            counted = net.ofctl("dump-flows", 1, f"udp,nw_dst={row.address}")
            packets = sum(
                int(word[len("n_packets=") : -1]) for word in counted.split() if word.startswith("n_packets=")
            )
            assert packets >= len(texts), "they went once over the tree"
            # A link of the tree fails in the middle.
            used = next(name for name in row.links if name.startswith("s1->s"))
            more = [f"{number}" for number in range(100, 140)]
            run("ip", "-n", net.inside, "link", "set", used.replace("->", "-"), "down")
            try:
                machine.publish(more)
                for person in others:
                    until(lambda person=person: set(more) <= person.heard.keys(), 20, "all messages after the failure")
                    assert all(person.heard[text] == 1 for text in more)
                moved = proven(reader, ("m2", "m3"))
                assert moved is not None and used not in moved.links
            finally:
                run("ip", "-n", net.inside, "link", "set", used.replace("->", "-"), "up")
            machine.close()
            until(lambda: GROUP not in reader.snapshot().groups, 10, "no group without its publisher")
    finally:
        for person in people:
            person.close()
        reader.close()
