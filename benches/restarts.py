"""Each part of a plant killed and started again, alone and together, under guaranteed QoS 1 traffic: what is lost, and how long until the guarantee is back.

    python benches/restarts.py [ROUNDS [EVENT...]]

Four real Open vSwitches in a ring, publisher, broker and subscriber on hosts of their own; an OVSDB server with the table, `timebound controller`, `timebound
manager` before mosquitto (which saves each change, as it must if nothing is to be lost with it), paho clients with sessions that outlive their connections.
A message is published every 20 ms. Each event (default: all; by the first word of its name) happens ROUNDS times (default 3): SIGKILL, 0.3 s of absence, start; a link goes down and up.

Printed for each: messages that the publisher got acknowledged and the subscriber never got (aim: none), those that came more than once (QoS 1 allows it), the
longest time without a message at the subscriber, and the time from the start until both requests are granted by proven channels again (aim: 2 s). Where
clients lost their connections, they must ask again first: paho waits a second before it tries, and where the switches were gone as well TCP's
retransmissions back off meanwhile; so the time from the last request on is printed beside. Exit code 1 where a message was lost or the median of a
restoration misses its aim. Needs root.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "control"))

from srt_helpers import OvsdbServer
from tests.control.ovs_lab import PATH, Lab, lab, run, until

from timebound.control.srt.rows import ChannelState, Outcome
from timebound.control.srt.store import Role, Store, Writer, open_store

RESTORED_AIM_S = 2.0
PERIOD_S = 0.02
ABSENT_S = 0.3
TOPIC = "plant/press"
PUBLISHER, BROKER, SUBSCRIBER = 1, 2, 3
ENTRY = "from timebound.cli import main; main()"
CLIENT = """import json, sys, threading, time
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

side, broker, topic, period = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
log = open(sys.argv[5], "a", buffering=1)
connecting = Properties(PacketTypes.CONNECT)
connecting.SessionExpiryInterval = 600
asks = {"rt-deadline": "200 ms", "rt-priority": "5"}
if side == "publish":
    asks |= {"rt-topic": topic, "rt-period": f"{period * 1000:g} ms", "rt-jitter": "10 ms", "rt-size": "100 B", "rt-qos": "1"}
    connecting.UserProperty = list(asks.items())
client = Client(CallbackAPIVersion.VERSION2, side, protocol=MQTTProtocolVersion.MQTTv5)
client.reconnect_delay_set(1, 1)
client.max_inflight_messages_set(1000)
ended = threading.Event()

def connected(client, userdata, flags, reason, properties):
    if side == "subscribe":
        filter_ = Properties(PacketTypes.SUBSCRIBE)
        filter_.UserProperty = list(asks.items())
        client.subscribe(topic, options=SubscribeOptions(qos=1), properties=filter_)

numbers = {}
client.on_connect = connected
client.on_publish = lambda c, u, mid, *more: log.write(f"{numbers.get(mid, -1)} {time.monotonic_ns()}\\n")
client.on_message = lambda c, u, message: log.write(f"{int(message.payload[:9])} {time.monotonic_ns()}\\n")
client.connect(broker, keepalive=5, clean_start=False, properties=connecting)
client.loop_start()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
number = 0
begin = time.monotonic()
while not ended.is_set():
    if side == "subscribe":
        ended.wait(1)
        continue
    told = client.publish(topic, f"{number:09d}" + "x" * 91, qos=1)
    numbers[told.mid] = number
    number += 1
    ended.wait(max(0.0, begin + number * period - time.monotonic()))
if side == "publish":
    end = time.monotonic() + 20
    while client._out_messages and time.monotonic() < end:
        time.sleep(0.05)
client.disconnect()
"""


@dataclass
class Plant:
    """Everything but the switches, which are the lab's."""

    net: Lab
    folder: Path
    table: OvsdbServer
    store: Store
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def launch(self, name: str, namespace: str, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """A program in a namespace; what it says is in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {**os.environ, "PATH": PATH}
            started = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                **more,
            )
        self.processes[name] = started
        return started

    def start(self, name: str) -> None:
        """One of the parts."""
        if name == "table":
            self.table.start()
        elif name == "switches":
            self.net.start_vswitchd()
        elif name == "controller":
            self.launch(name, self.net.inside, sys.executable, "-c", ENTRY, "controller", "controller.yaml")
        elif name == "manager":
            self.launch(name, self.net.host(BROKER), sys.executable, "-c", ENTRY, "manager", "manager.yaml")
        else:
            self.launch(name, self.net.host(BROKER), "mosquitto", "-c", "mosquitto.conf")

    def kill(self, name: str) -> None:
        """As a crash would."""
        if name == "table":
            self.table.kill()
        elif name == "switches":
            self.net.kill_vswitchd()
        else:
            self.processes[name].kill()
            self.processes[name].wait()

    def is_guaranteed(self, since_ns: int) -> bool:
        """Do both clients have grants, on channels that are proven, by parts that have beaten since then (wall clock)?"""
        if not self.store.connected:
            return False
        tables = self.store.snapshot()
        beats = [*tables.managers.values(), *tables.controllers.values()]
        if len(beats) != 2 or any(row.beat_ns <= since_ns for row in beats):
            return False
        granted = [
            request.side
            for request in tables.requests.values()
            if (verdict := tables.verdicts.get(request.id)) is not None
            and verdict.revision == request.revision
            and verdict.outcome is Outcome.GRANTED
        ]
        states = [channel.state for channel in tables.channels.values()]
        return len(granted) == 2 and len(states) == 4 and all(state is ChannelState.PROVEN for state in states)

    def close(self) -> None:
        """Ends what still runs."""
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.kill()
            process.wait()
        self.store.close()
        self.table.kill()


def configure(net: Lab, folder: Path, store: str) -> None:
    """Files of controller, manager and broker."""
    broker = net.address(BROKER)
    switches = [{"name": f"s{n}", "datapath": f"{n:016x}"} for n in range(1, net.switches + 1)]
    controller = {
        "name": "c1",
        "store": {"url": store},
        "openflow": {"port": 6653, "switches": switches, "only-listed": True},
        "planning": {"host-queue": "strict-priority", "meter-slack": "64 kB"},
        "defaults": {"switch-delay": "0 us..5 ms"},
        "http": {"port": 8321},
    }
    manager = {
        "name": "m1",
        "listen": [{"address": broker, "port": 1883}],
        "broker": "127.0.0.1:1884",
        "store": store,
        "http": "127.0.0.1:9464",
    }
    (folder / "controller.yaml").write_text(json.dumps(controller))
    (folder / "manager.yaml").write_text(json.dumps(manager))
    (folder / "mosquitto.conf").write_text(
        "listener 1884 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\npersistence true\n"
        f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\nuser root\n"
    )
    (folder / "client.py").write_text(CLIENT)


@contextlib.contextmanager
def plant(net: Lab) -> Iterator[Plant]:
    """All parts, started."""
    folder = Path(tempfile.mkdtemp(prefix="tb-plant-"))
    table = OvsdbServer(folder)
    table.start()
    configure(net, folder, table.url)
    made = Plant(net, folder, table, open_store(table.url, Writer(Role.READER, "bench")))
    try:
        for number in range(1, len(net.hosts) + 1):
            run("ip", "-n", net.host(number), "link", "set", "lo", "up")
        net.connect("tcp:127.0.0.1:6653")
        for name in ("broker", "controller", "manager"):
            made.start(name)
        yield made
    except BaseException:
        print(f"what the parts said is in {folder}", file=sys.stderr)
        made.close()
        raise
    made.close()
    shutil.rmtree(folder)


def numbers(file: Path) -> list[tuple[int, int]]:
    """(number of a message, when in ns) of a client's log."""
    return [(int(a), int(b)) for a, b in (line.split() for line in file.read_text().splitlines())]


def events() -> dict[str, tuple[str, ...]]:
    """What is killed together."""
    return {
        "controller": ("controller",),
        "table (ovsdb-server)": ("table",),
        "switches (vswitchd)": ("switches",),
        "manager": ("manager",),
        "broker (mosquitto)": ("broker",),
        "controller and table": ("controller", "table"),
        "manager and table": ("manager", "table"),
        "all of them": ("controller", "table", "switches", "manager", "broker"),
    }


def one(made: Plant, act: Callable[[], int]) -> tuple[tuple[float, float], tuple[int, int]]:
    """Seconds until the guarantee is back after the start and after both clients have asked since then, and the event's time and the end's
    (monotonic, ns)."""
    begin = time.monotonic_ns()
    started = act()
    until(lambda: made.is_guaranteed(started), 60, "the guarantee again")
    restored = time.time_ns()
    asked = max([started, *(row.asked_ns for row in made.store.snapshot().requests.values())])
    time.sleep(1.0)
    return ((restored - started) / 1e9, (restored - asked) / 1e9), (begin, time.monotonic_ns())


def killed(made: Plant, parts: tuple[str, ...]) -> int:
    """Kills and starts; the wall clock of the start, ns."""
    for part in parts:
        made.kill(part)
    time.sleep(ABSENT_S)
    started = time.time_ns()
    # At the same time, as a machine starts its services; some are waited for until they are there.
    with ThreadPoolExecutor(len(parts)) as at_once:
        for begun in [at_once.submit(made.start, part) for part in parts]:
            begun.result()
    return started


def link(made: Plant, change: str) -> int:
    """Takes the link of the way down, or up."""
    run("ip", "-n", made.net.inside, "link", "set", "s1-s2", change)
    return time.time_ns()


def main() -> int:
    """All figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = sys.argv[2:]
    for tool in ("mosquitto", "ovsdb-server"):
        if shutil.which(tool, path=PATH) is None:
            raise SystemExit(f"{tool} is not installed")
    missed = False
    ring = [(1, 2), (2, 3), (3, 4), (4, 1)]
    with lab(4, ring, [1, 2, 3]) as net, plant(net) as made:
        spans: dict[str, list[tuple[int, int]]] = {}
        restored: dict[str, list[tuple[float, float]]] = {}
        for number in range(1, 4):
            until(lambda number=number: net.ping(number, number % 3 + 1), 30, "hosts reach each other")
        until(lambda: bool(made.store.snapshot().managers), 30, "the manager is there")
        sides = (("subscribe", SUBSCRIBER), ("publish", PUBLISHER))
        for side, host in sides:
            arguments = (side, net.address(BROKER), TOPIC, str(PERIOD_S), f"{side}.txt")
            made.launch(side, net.host(host), sys.executable, "client.py", *arguments, stdin=subprocess.PIPE)
            time.sleep(1)
        until(lambda: made.is_guaranteed(0), 30, "the first guarantee")
        time.sleep(1)
        for name, parts in events().items():
            if chosen and name.split()[0] not in chosen:
                continue
            for _round in range(rounds):
                took, span = one(made, lambda parts=parts: killed(made, parts))
                restored.setdefault(name, []).append(took)
                spans.setdefault(name, []).append(span)
            print(f"  {name}: {rounds} times, last restored in {restored[name][-1][0]:.2f} s", flush=True)
        for _round in range(rounds if not chosen or "link" in chosen else 0):
            for change in ("down", "up"):
                name = f"link s1-s2 {change}"
                took, span = one(made, lambda change=change: link(made, change))
                restored.setdefault(name, []).append(took)
                spans.setdefault(name, []).append(span)
        for side, _host in reversed(sides):
            process = made.processes[side]
            assert process.stdin is not None
            process.stdin.close()
            process.wait(40)
            time.sleep(2)
        acknowledged = dict(numbers(made.folder / "publish.txt"))
        got = numbers(made.folder / "subscribe.txt")
        copies = Counter(number for number, _when in got)
        lost = sorted(set(acknowledged) - set(copies) - {-1})
        print(
            f"  {len(acknowledged)} messages acknowledged, {len(lost)} of them lost, {sum(n - 1 for n in copies.values())} came again"
        )
        for name, found in spans.items():
            gaps, gone, again = [], 0, 0
            for begin, end in found:
                times = [when for _number, when in got if begin - 1_000_000_000 <= when <= end]
                gaps.append(max((b - a for a, b in itertools.pairwise(times)), default=end - begin) / 1e9)
                gone += sum(begin <= acknowledged[number] <= end for number in lost)
                here = Counter(number for number, when in got if begin <= when <= end)
                again += sum(n - 1 for n in here.values())
            took = [whole for whole, _asked in restored[name]]
            asked = statistics.median(since for _whole, since in restored[name])
            print(
                f"  {name}: lost {gone}, again {again}, without a message {statistics.median(gaps):.3f} s (most {max(gaps):.3f}),"
                f" guaranteed again after {statistics.median(took):.2f} s (most {max(took):.2f}),"
                f" {asked:.2f} s after the clients had asked again"
            )
            missed |= bool(gone) or statistics.median(took) > RESTORED_AIM_S
        missed |= bool(lost)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
