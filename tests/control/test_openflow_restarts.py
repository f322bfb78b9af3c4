"""Whatever is killed and comes back: switches, the controller; and what is encrypted; and queues of the switches' own."""

from __future__ import annotations

import dataclasses
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import certificate
from tests.control.ovs_lab import PATH, Lab, in_namespace, lab, run, until
from tests.control.switch_helpers import QUICK, channel, controller, introduce, queued_site, site, stream, way
from tests.tools import need
from timebound.control.openflow.enforcer import OpenFlowEnforcer
from timebound.control.openflow.settings import Settings, Times, Tls
from timebound.control.srt.rows import ChannelState

LINE = [(n, n + 1) for n in range(1, 8)]
WAY = "h1 s1 s2 s3 s4 s5 s6 s7 s8 h2"


@pytest.fixture(scope="module")
def line() -> Iterator[Lab]:
    with lab(8, LINE, [1, 8]) as made:
        yield made


def test_killed_switches_get_everything_back(line: Lab) -> None:
    with controller(line, site(line)) as held:
        introduce(line, held)
        held.enforcer.install(channel(line, "kill", WAY))
        assert held.settled("kill")[0] is ChannelState.PROVEN
        seen = len(held.of("kill"))
        line.kill_vswitchd()
        state, reason = held.settled("kill", 5, after=seen)
        assert state is ChannelState.BROKEN and "is gone" in reason
        seen = len(held.of("kill"))
        line.start_vswitchd()
        until(lambda: any(s is ChannelState.PROVEN for s, _ in held.of("kill")[seen:]), 15, "proven again")
        assert all("tp_dst=6000" in line.ofctl("dump-flows", n) for n in range(1, 9))
        with stream(line) as sent:
            time.sleep(0.2)
            sent.end()
        assert sent.lost == [] and sent.marks() == {40}


def test_a_controller_that_restarts_finds_its_channels_and_loses_none(line: Lab) -> None:
    mine, stale = channel(line, "mine", WAY), channel(line, "stale", WAY, source_port=5001, destination_port=6001)
    with controller(line, site(line)) as before:
        introduce(line, before)
        port = before.enforcer.port
        for row in (mine, stale):
            before.enforcer.install(row)
            assert before.settled(row.id)[0] is ChannelState.PROVEN
    meters = line.ofctl("dump-meters", 1)
    with stream(line) as sent:
        time.sleep(0.3)
        # Switches try again after up to a second, and their ports are known for hosts' half a second later: QUICK would settle in the midst of that.
        usual = dataclasses.replace(QUICK, settle_ns=Times().settle_ns)
        with controller(line, site(line, port=port, times=usual), connect=None) as after:
            # At once, as a controller does that has its channels from its table: switches and links are found meanwhile.
            after.enforcer.install(mine)
            assert after.settled("mine", 10)[0] is ChannelState.PROVEN, after.of("mine")
            assert after.enforcer.topology().host_of(line.address(2)) is not None
            assert all("tp_dst=6001" in line.ofctl("dump-flows", n) for n in range(1, 9))
            after.enforcer.adopted()
            until(
                lambda: all("tp_dst=6001" not in line.ofctl("dump-flows", n) for n in range(1, 9)), 5, "no stale rules"
            )
            assert all("tp_dst=6000" in line.ofctl("dump-flows", n) for n in range(1, 9))
            time.sleep(1.0)
        sent.end()
    assert sent.lost == [] and sent.marks() == {40}
    assert "rate=2000" in meters and line.ofctl("dump-meters", 1).count("rate=2000") == 1


@pytest.mark.parametrize("late", [(1, 2, 3), (8,), (4, 5)], ids=["the first ones", "the last one", "in the middle"])
def test_switches_that_come_back_one_after_the_other_are_no_hosts_place(line: Lab, late: tuple[int, ...]) -> None:
    mine = channel(line, "mine", WAY)
    with controller(line, site(line)) as before:
        introduce(line, before)
        port = before.enforcer.port
        before.enforcer.install(mine)
        assert before.settled("mine")[0] is ChannelState.PROVEN
    # Where nobody listens; without any controller a switch would forget its rules.
    line.connect("tcp:127.0.0.1:1", late)
    target = f"tcp:127.0.0.1:{port}"
    usual = dataclasses.replace(QUICK, settle_ns=Times().settle_ns)
    with stream(line) as sent, controller(line, site(line, port=port, times=usual), connect=None) as after:
        after.enforcer.install(mine)
        early = 8 - len(late)
        until(
            lambda: sum(switch.connected for switch in after.enforcer.topology().switches.values()) == early,
            5,
            "those that come first",
        )
        # Longer than it takes until a port counts as a host's.
        time.sleep(2 * usual.edge_after_ns / 1e9)
        line.connect(target, late)
        assert after.settled("mine", 10)[0] is ChannelState.PROVEN, after.of("mine")
        places = {host.at.switch for topology in after.topologies for host in topology.hosts.values()}
        assert places == {1, 8}
        time.sleep(0.2)
        sent.end()
    assert sent.lost == [] and sent.marks() == {40}


def test_traffic_goes_on_without_a_controller(line: Lab) -> None:
    with controller(line, site(line)) as held:
        introduce(line, held)
        held.enforcer.install(channel(line, "alone", WAY))
        assert held.settled("alone")[0] is ChannelState.PROVEN
    with stream(line) as mine, stream(line, ports=(5100, 6100), mark=46) as other:
        time.sleep(0.5)
        mine.end()
        other.end()
    assert mine.lost == [] and mine.marks() == {40}
    assert other.lost == [] and other.marks() == {0}


def test_a_switch_on_the_way_is_gone_and_comes_back() -> None:
    with lab(4, [(1, 2), (2, 3), (3, 4), (4, 1)], [1, 3]) as made, controller(made, site(made)) as held:
        introduce(made, held)
        held.enforcer.install(channel(made, "spare", "h1 s1 s2 s3 h2"), way(made, *["h1", "s1", "s4", "s3", "h2"]))
        held.enforcer.install(channel(made, "single", "h1 s1 s2 s3 h2", source_port=5001))
        assert held.settled("spare")[0] is held.settled("single")[0] is ChannelState.PROVEN
        seen = {name: len(held.of(name)) for name in ("spare", "single")}
        with stream(made) as sent:
            time.sleep(0.2)
            # Its ports stay up, so nobody but the controller can notice.
            made.vsctl("del-br", "s2")
            state, reason = held.settled("spare", after=seen["spare"])
            time.sleep(0.2)
            sent.end()
        assert state is ChannelState.PROVEN and reason == "on its backup way: switch s2 is gone"
        assert len(sent.lost) < 250 and sent.marks() == {40}
        state, reason = held.settled("single", after=seen["single"])
        assert (state, reason) == (ChannelState.BROKEN, "switch s2 is gone, and no other way is installed")
        seen["single"] = len(held.of("single"))
        made.add_switch(2)
        made.connect(f"tcp:127.0.0.1:{held.enforcer.port}")
        # Whatever numbers its ports have now.
        until(lambda: held.of("single")[-1][0] is ChannelState.PROVEN, 10, "proven again")
        held.enforcer.install(channel(made, "spare", "h1 s1 s2 s3 h2"))
        until(lambda: held.of("spare")[-1] == (ChannelState.PROVEN, ""), 5, "back on its way")


# Strangers ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes([4, 0, 0, 3, 0, 0, 0, 1]),
        bytes([4, 0, 0, 8, 0, 0, 0, 1]) + bytes([4, 6, 0, 9, 0, 0, 0, 2, 1]),
        bytes([4, 0, 0, 8, 0, 0, 0, 1]) + bytes([4, 10, 0, 12, 0, 0, 0, 2]) + b"\xff" * 4,
        bytes([1, 0, 0, 8, 0, 0, 0, 1]),
    ],
    ids=["another protocol", "a short length", "a short answer", "a short frame", "an old version"],
)
def test_who_is_no_switch_is_turned_away(said: bytes) -> None:
    enforcer = OpenFlowEnforcer(Settings(port=0))
    try:
        with socket.create_connection(("127.0.0.1", enforcer.port), 2) as stranger:
            stranger.sendall(said)
            stranger.settimeout(3)
            heard = b""
            while data := receive(stranger):
                heard += data
            assert heard[:2] == bytes([4, 0])
        assert not enforcer.topology().switches
    finally:
        enforcer.close()


def receive(stranger: socket.socket) -> bytes:
    try:
        return stranger.recv(4096)
    except ConnectionResetError:
        return b""


def test_nobody_listens_to_the_world_in_plain_text_by_accident() -> None:
    with pytest.raises(ValueError, match="without TLS"):
        OpenFlowEnforcer(Settings(host="0.0.0.0", port=0))


# TLS ------------------------------------------------------------------------------------------------------------------------


def tls(folder: Path, name: str, authority: str | None) -> Tls:
    """A key and a certificate, signed by `authority`, or by itself."""
    certificate(folder, name, authority)
    return Tls(
        key=folder / f"{name}.key",
        certificate=folder / f"{name}.pem",
        authority=folder / f"{authority or name}.pem",
    )


def test_switches_and_queues_over_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    certificate(tmp_path, "authority")
    mine, theirs = tls(tmp_path, "controller", "authority"), tls(tmp_path, "switches", "authority")
    certificate(tmp_path, "stranger")
    files = (f"--private-key={theirs.key}", f"--certificate={theirs.certificate}", f"--ca-cert={theirs.authority}")
    with lab(2, [(1, 2)], [1, 2], remotes=("--remote=pssl:6640:127.0.0.1", *files)) as made:
        made.vsctl("set-ssl", str(theirs.key), str(theirs.certificate), str(theirs.authority))
        queued = tuple(dataclasses.replace(s, ovsdb="ssl:127.0.0.1:6640") for s in queued_site(made).switches)
        with controller(made, site(made, tls=mine, switches=queued), connect="ssl:127.0.0.1:{port}") as held:
            introduce(made, held)
            load_marks(made)
            held.enforcer.install(channel(made, "tls", "h1 s1 s2 h2"))
            assert held.settled("tls", 10)[0] is ChannelState.PROVEN
            in_namespace(made.inside, lambda: refused(held.enforcer.port, tmp_path / "authority.pem"))


def refused(port: int, authority: Path) -> None:
    """Who has no certificate, or one that somebody else has signed, hears nothing."""
    for own in (None, authority.with_name("stranger.pem")):
        context = ssl.create_default_context(cafile=str(authority))
        context.check_hostname = False
        if own is not None:
            context.load_cert_chain(own, own.with_suffix(".key"))
        plain = socket.create_connection(("127.0.0.1", port), 3)
        with plain, pytest.raises(OSError), context.wrap_socket(plain) as stranger:
            if not stranger.recv(8):
                raise ConnectionResetError("closed")


# Queues ---------------------------------------------------------------------------------------------------------------------


def load_marks(made: Lab) -> None:
    """As docs/controller.md tells the switch's administrator to."""
    ports = [port for n in range(1, made.switches + 1) for port in made.ports_of(n)]
    command = [sys.executable, "-m", "timebound.control.openflow.marks", *ports]
    rules = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    subprocess.run(
        ["ip", "netns", "exec", made.inside, "nft", "-f", "-"],
        input=rules,
        text=True,
        check=True,
        env={**os.environ, "PATH": PATH},
    )


def test_queues_are_set_up_and_only_what_passes_them_is_proven() -> None:
    need("nft", "tc")
    with lab(3, [(1, 2), (2, 3)], [1, 3]) as made, controller(made, queued_site(made)) as held:
        introduce(made, held)
        held.enforcer.install(channel(made, "queued", "h1 s1 s2 s3 h2"))
        # The userspace datapath does not hand the chosen queue to the kernel, and the proof notices.
        state, reason = held.settled("queued", 10)
        assert state is ChannelState.BROKEN and "queue 5 of port" in reason and "did not move" in reason
        classes = run("ip", "netns", "exec", made.inside, "tc", "class", "show", "dev", "s1-s2")
        assert classes.count("class htb") == 9 and "class htb 1:6 parent 1:fffe prio 2" in classes
        load_marks(made)
        seen = len(held.of("queued"))
        held.enforcer.install(channel(made, "queued", "h1 s1 s2 s3 h2"))
        assert held.settled("queued", 10, after=seen)[0] is ChannelState.PROVEN
        with stream(made) as sent:
            time.sleep(0.5)
            sent.end()
        assert sent.lost == [] and sent.marks() == {40}
        out = held.enforcer.topology().links["s2->s3"].out
        assert out is not None
        until(lambda: (out, 5) in held.enforcer.counters().queues, 3, "counters of the queue")
