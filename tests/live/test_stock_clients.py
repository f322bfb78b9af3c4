"""Clients that nobody changed (mosquitto's and paho's), over eight real switches that are overloaded: a channel for those who ask for one.

What they publish is judged by the network's own captures, in virtual time: at the port of the publisher's host and at that to the subscriber's.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from tests.live.test_rt_mqtt import audit, pytestmark
from tests.live.test_switches import emulate
from tests.tools import need

__all__ = ["pytestmark"]

MESSAGES, SIZE, PERIOD_S, DEADLINE_S = 40, 200, 0.25, 0.25
ON_THE_CHANNEL = 12
"""Messages that are judged at least."""
PUBLISHERS_S, DURATION = 4, "22 s"
ASKED_WITHIN_S = 5.0
"""Connections are made, and the first message is published, through the overload as best effort: a SYN that is lost is sent again after 1 s, and after
2 s more; each loss of a segment doubles the wait, too. A run in which TCP needed longer than this leaves too little to judge."""
ASKS = {
    "rt-deadline": "250 ms",
    "rt-period": "250 ms",
    "rt-jitter": "20 ms",
    "rt-size": "200 B",
    "rt-priority": "5",
    "rt-qos": "1",
}
PAHO = """import sys, threading, time
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

asks = Properties(PacketTypes.PUBLISH)
asks.UserProperty = [tuple(pair.split("=")) for pair in sys.argv[2:]]
client = Client(CallbackAPIVersion.VERSION2, "paho", protocol=MQTTProtocolVersion.MQTTv5)
there = threading.Event()
client.on_connect = lambda *_: there.set()
client.connect_async("broker")
client.loop_start()
assert there.wait(20)
begin = time.monotonic()
for number in range(COUNT):
    time.sleep(max(0.0, begin + PERIOD * number - time.monotonic()))
    # What is asked for is said once, and holds for the topic from then on.
    told = client.publish(sys.argv[1], f"{number:06d}" + "x" * (SIZE - 6), qos=1, properties=asks if number == 0 else None)
told.wait_for_publish(20)
client.disconnect()
"""


def with_clients(folder: Path) -> Path:
    """The built-in scenario with stock clients beside its own."""
    asks = [f"{key}={value}" for key, value in ASKS.items()]
    on_connect = " ".join(f"-D connect user-property {key} '{value}'" for key, value in ASKS.items())
    on_subscribe = " ".join(f"-D subscribe user-property {key} '{ASKS[key]}'" for key in ("rt-deadline", "rt-priority"))
    lines = f"for n in $(seq 0 {MESSAGES - 1}); do printf '%06d%0{SIZE - 6}d\\n' $n 0; sleep {PERIOD_S}; done"
    publish = "mosquitto_pub -V 5 -h broker -q 1 -l -t plant"
    subscribe = f"mosquitto_sub -V 5 -h broker -q 1 -C {MESSAGES} -W 30 -F %p -t plant"

    publishers = f"{PUBLISHERS_S} s"

    def program(name: str, *command: str, start: str) -> dict[str, object]:
        return {"name": name, "command": list(command), "start": start, "essential": False}

    paho = PAHO.replace("COUNT", str(MESSAGES)).replace("PERIOD", str(PERIOD_S)).replace("SIZE", str(SIZE))
    (folder / "publisher.py").write_text(paho)
    nodes = {
        "pub": [
            program(
                "asks",
                "sh",
                "-c",
                f"{lines} | {publish}/stock -D connect user-property rt-topic plant/stock {on_connect}",
                start=publishers,
            ),
            program("plain", "sh", "-c", f"{lines} | {publish}/plain", start=publishers),
            program("paho", sys.executable, str(folder / "publisher.py"), "plant/paho", *asks, start=publishers),
        ],
        "sub": [
            program("stock", "sh", "-c", f"{subscribe}/stock {on_subscribe}", start="0 ms"),
            program("plain-sub", "sh", "-c", f"{subscribe}/plain", start="0 ms"),
            program("paho-sub", "sh", "-c", f"{subscribe}/paho {on_subscribe}", start="0 ms"),
        ],
    }
    text = (files("timebound") / "_scenarios" / "rt-mqtt" / "scenario.yaml").read_text()
    for node, programs in nodes.items():
        assert f"    {node}: host\n" in text
        text = text.replace(f"    {node}: host\n", f"    {node}: {{kind: host, run: {json.dumps(programs)}}}\n")
    text = text.replace("{broker: broker}", "{broker: {node: broker, program: mosquitto}}")
    text = text.replace("  seed: 1\n", "  seed: 1\n  captures: [pub->s1, s8->sub]\n")
    file = folder / "stock.yaml"
    file.write_text(text)
    return file


def stamps(capture: Path, topic: str) -> dict[int, float]:
    """Number of each message of a topic -> when it was first seen whole, s (virtual time)."""
    fields = [word for name in ("frame.time_epoch", "mqtt.topic", "mqtt.msg") for word in ("-e", name)]
    # The controller's proofs are frames of the connection as well, which tshark would take for its sequence.
    plain = ["-o", "tcp.analyze_sequence_numbers:FALSE"]
    command = ["tshark", "-n", *plain, "-r", str(capture), "-Y", "mqtt.msgtype == 3", "-T", "fields", *fields]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[int, float] = {}
    for line in printed.splitlines():
        when, topics, payloads = line.split("\t")
        for name, payload in zip(topics.split(","), payloads.split(","), strict=True):
            if name == topic:
                # tshark did not see the CONNECT in this direction, and takes the properties of MQTT 5 for the payload's beginning.
                found.setdefault(int(bytes.fromhex(payload.replace(":", ""))[-SIZE:][:6]), float(when))
    return found


def asked(folder: Path) -> dict[str, float]:
    """Topics for which publishers asked for a channel -> when the manager read it, s after they were started (virtual time)."""
    began_ns = json.loads((folder / "live.json").read_text())["epoch_unix_ns"] + PUBLISHERS_S * 10**9
    found: dict[str, float] = {}
    for line in (folder / "logs" / "manager-broker-audit.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "asked" and entry["side"] == "publish":
            found.setdefault(entry["topic"], (entry["at_ns"] - began_ns) / 1e9)
    return found


def on_the_channel(begin: dict[int, float], end: dict[int, float], since: float) -> list[int]:
    """Messages that the channel has carried alone: published when it was there, and nothing from before it was still under way.

    What was lost before the channel was there is sent again by TCP when its timer runs out, and what follows on the connection waits for it.
    """
    clear = max([since, *(end[number] for number, when in begin.items() if when < since)])
    return [number for number, when in begin.items() if when >= clear]


def test_unchanged_clients_get_a_channel_and_keep_the_deadline(tmp_path: Path) -> None:
    need("mosquitto_pub", "mosquitto_sub", "tshark")
    file = with_clients(tmp_path)
    reached: list[dict[str, float]] = []
    disturbed = 0
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        _, summary = emulate(folder, "--set", f"run.duration={DURATION}", scenario=str(file))
        reached.append(asked(folder))
        if any(reached[-1].get(topic, math.inf) > ASKED_WITHIN_S for topic in ("plant/stock", "plant/paho")):
            continue
        granted: dict[tuple[str, str], float] = {}
        for entry in audit(folder):
            if entry["what"] == "verdict" and entry["outcome"] == "granted":
                # The first: what is granted is said again whenever others come or go.
                told = datetime.fromisoformat(entry["time"]).timestamp()
                granted.setdefault((entry["side"], entry["topic"]), told)
        latencies, judged = {}, {}
        for topic in ("plant/stock", "plant/paho", "plant/plain"):
            begin = stamps(folder / "captures" / "pub-s1.pcapng", topic)
            end = stamps(folder / "captures" / "s8-sub.pcapng", topic)
            latencies[topic] = {number: end[number] - when for number, when in begin.items() if number in end}
            if topic != "plant/plain":
                assert {(side, topic) for side in ("publish", "subscribe")} <= set(granted), granted
                assert sorted(end) == list(range(MESSAGES)), "lost"
                # The subscriber was there before: with the publisher's grant, the channels of both are proven.
                judged[topic] = on_the_channel(begin, end, granted["publish", topic])
        for topic, log in (("plant/stock", "stock"), ("plant/paho", "paho-sub")):
            got = [int(line[:6]) for line in (folder / "logs" / f"{log}.log").read_text().split()]
            assert got == list(range(MESSAGES)), topic

        if summary["precision"]["verdict"] == "good":
            for topic, numbers in judged.items():
                assert len(numbers) >= ON_THE_CHANNEL, f"{topic}: the channel came late"
                assert max(latencies[topic][number] for number in numbers) <= DEADLINE_S, topic
            late = [number for number, span in latencies["plant/plain"].items() if span > DEADLINE_S]
            assert late or len(latencies["plant/plain"]) < MESSAGES, "without asking nothing was late"
            return
        disturbed += 1
    assert disturbed, f"what publishers asked for never reached the manager within {ASKED_WITHIN_S} s: {reached}"
    warnings.warn("the machine disturbed every run: deadlines and bounds were not judged", stacklevel=1)
