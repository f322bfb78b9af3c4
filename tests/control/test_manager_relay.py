"""Three `timebound manager` processes, each before a real mosquitto, over one table, and nobody who decides: everything is best effort, and arrives."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from srt_helpers import CONTROLLER, Open, OvsdbServer, wait_for
from test_manager_peers import Network, free_port

from tests.certificates import certificate
from tests.tools import needs

pytestmark = needs("mosquitto", "mosquitto_pub", "mosquitto_sub")


@pytest.fixture
def networks(tmp_path: Path, server: OvsdbServer) -> Iterator[list[Network]]:
    """The third one has bridges of its own."""
    peer_port, found = free_port(), []
    try:
        for number in (1, 2, 3):
            more = ", relay: false" if number == 3 else ""
            found.append(Network(tmp_path / f"hall-{number}", number, peer_port, server.url, more))
        yield found
    finally:
        for network in found:
            network.close()


def subscribe(network: Network, *filters: str, version: str = "5") -> subprocess.Popen[str]:
    """By way of the manager, as any client does."""
    topics = [part for each in filters for part in ("-t", each)]
    return network.run(
        [
            "mosquitto_sub", "-V", version, "-h", "127.0.0.1", "-p", str(network.port), "-q", "2", *topics, "-F", "%t %q %r %p", "-W", "100",
        ]
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> list[str]:
    """What a subscriber has found until it is ended."""
    process.terminate()
    return process.communicate(timeout=30)[0].splitlines()


def relayed(network: Network, to: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{network.http}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(f'timebound_manager_peers_relayed_total{{peer="{to}"}}')]
    return float(found[0].split()[-1]) if found else 0.0


def relay_state(network: Network, to: str) -> tuple[str, list[str], list[str]]:
    """Of the relay to a manager, as the audit log has it last: state, who is missing, who is lost."""
    entries = [json.loads(line) for line in (network.folder / "audit.jsonl").read_text().splitlines()]
    last = [each for each in entries if each["event"] == "group" and each["id"] == f"relay-{to}"][-1]
    return last["state"], last["missing"], last["lost"]


def test_without_a_controller_each_message_reaches_the_other_network_once_and_the_loss_of_the_table_changes_nothing(
    networks: list[Network], server: OvsdbServer, open_for: Open
) -> None:
    first, second, third = networks
    table = open_for(server.url, CONTROLLER)
    remote, old, own, bridged = (
        subscribe(second, "plant/#"),
        subscribe(second, "hall/+", version="311"),
        subscribe(first, "plant/#"),
        subscribe(third, "plant/#"),
    )
    wait_for(lambda: table.snapshot().managers["m2"].interests == ("hall/+", "plant/#"))
    wait_for(lambda: table.snapshot().managers["m1"].interests == ("plant/#",))
    assert table.snapshot().managers["m3"].interests == ()
    wait_for(lambda: first.metric("connections_now") == 1 and second.metric("connections_now") == 1)
    for qos in (0, 1, 2):
        assert first.publish("plant/a", f"of {qos}", qos).returncode == 0
    wait_for(lambda: second.metric("injected_total") == 3)
    # Clients of 3.1.1 as well, and the other way round.
    for network, topic in [(first, "hall/1"), (second, "plant/b"), (third, "plant/c"), (first, "elsewhere")]:
        command = [
            "mosquitto_pub",
            "-V",
            "311",
            "-h",
            "127.0.0.1",
            "-p",
            str(network.port),
            "-q",
            "1",
            "-t",
            topic,
            "-m",
            "old",
        ]
        subprocess.run([*command, "-r"] if topic == "hall/1" else command, check=True, timeout=30)
    wait_for(lambda: second.metric("injected_total") == 4 and first.metric("injected_total") == 1)
    # What the table said last goes on.
    server.kill()
    time.sleep(1)
    for qos in (0, 1, 2):
        assert first.publish("plant/a", f"later {qos}", qos).returncode == 0
    wait_for(lambda: second.metric("injected_total") == 7)
    assert (relayed(first, "m2"), relayed(second, "m1"), relayed(first, "m3")) == (7, 1, 0)
    assert first.metric("undelivered_total") == 0
    time.sleep(1)
    theirs = [f"plant/a {qos} 0 {word} {qos}" for word in ("of", "later") for qos in (0, 1, 2)]
    assert said(remote) == [*theirs[:3], "plant/b 1 0 old", *theirs[3:]]
    assert said(old) == ["hall/1 1 0 old"]
    assert said(own) == [*theirs[:3], "plant/b 1 0 old", *theirs[3:]]
    assert said(bridged) == ["plant/c 1 0 old"]
    # It stays at the other broker, too.
    kept = subprocess.run(
        ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(second.broker_port), "-t", "hall/1", "-F", "%r %p", "-C", "1", "-W", "20"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert kept.stdout == "1 old\n"
    states = json.loads(f"[{','.join((first.folder / 'audit.jsonl').read_text().splitlines())}]")
    relays = [each for each in states if each["event"] == "group"]
    assert {each["id"] for each in relays} == {"relay-m2"} and relays[-1]["state"] == "open"


def test_a_network_that_is_gone_holds_publishers_for_its_silence_and_comes_back(
    networks: list[Network], open_for: Open, server: OvsdbServer
) -> None:
    first, second, _ = networks
    table = open_for(server.url, CONTROLLER)
    client = [
        "mosquitto_sub",
        "-V",
        "5",
        "-h",
        "127.0.0.1",
        "-p",
        str(second.port),
        "-q",
        "1",
        "-t",
        "plant/a",
        "-i",
        "kept",
        "-c",
        "-x",
        "3600",
    ]
    subprocess.run([*client, "-E"], check=True, timeout=30)
    # It is gone, its session is not: what is for it waits at its broker.
    wait_for(lambda: first.metric("connections_now") == 1)
    assert table.snapshot().managers["m2"].interests == ("plant/a",)
    assert first.publish("plant/a", "early", 1).returncode == 0
    second.manager.kill()
    second.manager.wait()
    began = time.monotonic()
    assert first.publish("plant/a", "lost", 1).returncode == 0
    assert 10 < time.monotonic() - began < 40
    began = time.monotonic()
    assert first.publish("plant/a", "lost", 1).returncode == 0
    assert time.monotonic() - began < 10, "it is known to be lost"
    assert first.metric("undelivered_total") == 2
    second.start()
    found = subprocess.run(
        [*client, "-C", "1", "-W", "30", "-F", "%p"], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "early\n"
    # Whoever comes back to a session that this process has not seen begin may want anything.
    wait_for(lambda: table.snapshot().managers["m2"].interests == ("#",))
    # A network that was lost gets what is sent from its return on.
    wait_for(lambda: relay_state(first, "m2") == ("open", [], []))
    late = first.publish("plant/a", "after", 1)
    assert late.returncode == 0
    found = subprocess.run(
        [*client, "-C", "1", "-W", "30", "-F", "%p"], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "after\n"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_manager_that_is_killed_and_started_again_at_once_loses_nothing_of_sessions_that_outlive_it(
    networks: list[Network], open_for: Open, server: OvsdbServer, qos: int
) -> None:
    """It said for a moment that nobody there wants anything, so what came meanwhile was acknowledged and given to nobody."""
    first, second, _ = networks
    table = open_for(server.url, CONTROLLER)
    count = 600
    # By way of the manager, so that it knows; what its broker has got is what counts, and who asks there sees that.
    kept = ["mosquitto_sub", "-V", "5", "-h", "127.0.0.1", "-q", str(qos), "-t", "plant/a", "-F", "%p", "-W", "100"]
    through = second.run([*kept, "-p", str(second.port), "-i", "kept", "-c", "-x", "3600"])
    at_broker = second.run([*kept, "-p", str(second.broker_port)])
    wait_for(lambda: table.snapshot().managers["m2"].interests == ("plant/a",))
    wait_for(lambda: first.metric("connections_now") == 1)
    publisher = subprocess.Popen(
        ["mosquitto_pub", "-V", "5", "-h", "127.0.0.1", "-p", str(first.port), "-q", str(qos), "-t", "plant/a", "-l"],
        stdin=subprocess.PIPE,
        text=True,
    )
    assert publisher.stdin is not None
    said_to_want = set()
    for number in range(count):
        publisher.stdin.write(f"{number}\n")
        publisher.stdin.flush()
        time.sleep(0.01)
        if number == 200:
            second.manager.kill()
            second.manager.wait()
            second.start()
        said_to_want.add(table.snapshot().managers["m2"].interests)
    publisher.stdin.close()
    assert publisher.wait(60) == 0
    time.sleep(2)
    found = [int(line) for line in said(at_broker)]
    assert found == list(range(count)) if qos == 2 else set(found) == set(range(count))
    assert said(through), "the session's own client"
    assert first.metric("undelivered_total") == 0
    assert () not in said_to_want


def certificates(folder: Path, *addresses: str) -> list[str]:
    """An authority of managers, and what each of them says of its certificate in its file (docs/manager.md)."""
    certificate(folder, "ca", subject="managers")
    found = []
    for address in addresses:
        name = f"peer-{address}"
        certificate(folder, name, "ca", address=address)
        files = {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "ca.pem"}
        said = ", ".join(f"{kind}: '{folder / file}'" for kind, file in files.items())
        found.append(f", tls: {{{said}}}")
    return found


def test_with_tls_between_managers_messages_arrive_and_a_manager_without_it_gets_none(
    tmp_path: Path, server: OvsdbServer, open_for: Open
) -> None:
    table, peer_port = open_for(server.url, CONTROLLER), free_port()
    tls = [*certificates(tmp_path, "127.2.0.1", "127.2.0.2"), ""]
    found: list[Network] = []
    try:
        for number, more in enumerate(tls, 1):
            found.append(Network(tmp_path / f"hall-{number}", number, peer_port, server.url, more))
        first, second, third = found
        wait_for(lambda: len(table.snapshot().managers) == 3)
        assert [row.peer_sealed for _, row in sorted(table.snapshot().managers.items())] == [True, True, False]
        remote = subscribe(second, "plant/#")
        wait_for(lambda: table.snapshot().managers["m2"].interests == ("plant/#",))
        wait_for(lambda: first.metric("connections_now") == 1)
        for qos in (0, 1, 2):
            assert first.publish("plant/a", f"of {qos}", qos).returncode == 0
        wait_for(lambda: second.metric("injected_total") == 3)
        time.sleep(1)
        assert said(remote) == [f"plant/a {qos} 0 of {qos}" for qos in (0, 1, 2)]
        clear = subscribe(third, "plant/#")
        wait_for(lambda: table.snapshot().managers["m3"].interests == ("plant/#",))
        assert first.publish("plant/a", "secret", 0).returncode == 0
        time.sleep(2)
        assert said(clear) == [] and third.metric("injected_total") == 0
        log = next(first.folder.glob("manager-*.log")).read_text()
        assert "all managers of a site have peer.tls, or none" in log
    finally:
        for network in found:
            network.close()
