"""A network of Open vSwitches in user space: own database, own vswitchd, own network namespaces, all gone at the end. Needs root."""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.live.wires import ping
from tests.tools import OVS, need

T = TypeVar("T")
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def require_ovs() -> None:
    """Skips where the tests of switches cannot run."""
    if os.geteuid() != 0:
        pytest.skip("namespaces and switches need root")
    need(*OVS, "ip")


def in_namespace(name: str, work: Callable[[], T]) -> T:
    """Runs `work` in a thread that is in a network namespace; sockets and threads that it makes stay there."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with Path(f"/run/netns/{name}").open() as handle:
                if _LIBC.setns(handle.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def run(*command: str, check: bool = True) -> str:
    """A command that must succeed."""
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def checksums_in_software(device: str) -> None:
    """A packet socket sees frames without checksums otherwise, and the other end drops them (`ethtool -K DEVICE tx off`)."""
    order = array.array("B", struct.pack("II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP16x", device.encode(), order.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


@dataclass
class Lab:
    """Switches `s1` to `sN`, links between them, hosts at them."""

    switches: int
    links: Sequence[tuple[int, int]]
    hosts: Sequence[int]
    """The switch of each host: `h1` is at the first one."""
    remotes: Sequence[str] = ()
    """Further arguments of `ovsdb-server`; `{folder}` is the network's folder."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tb-ovs-")))
    prefix: str = field(default_factory=lambda: f"tb{secrets.token_hex(2)}")
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def inside(self) -> str:
        """The namespace of switches and controller."""
        return f"{self.prefix}-sw"

    def host(self, number: int) -> str:
        """A host's namespace."""
        return f"{self.prefix}-h{number}"

    @staticmethod
    def address(number: int) -> str:
        """A host's address."""
        return f"10.77.0.{number}"

    @property
    def database(self) -> str:
        """For `ovs-vsctl --db` and `queues: ovsdb`."""
        return f"unix:{self.folder}/db.sock"

    # Life --------------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything but a controller."""
        run("ip", "netns", "add", self.inside)
        run("ip", "-n", self.inside, "link", "set", "lo", "up")
        self._no_ipv6(self.inside)
        for a, b in self.links:
            run("ip", "-n", self.inside, "link", "add", f"s{a}-s{b}", "type", "veth", "peer", "name", f"s{b}-s{a}")
            for name in (f"s{a}-s{b}", f"s{b}-s{a}"):
                run("ip", "-n", self.inside, "link", "set", name, "up")
        for number, switch in enumerate(self.hosts, 1):
            self._add_host(number, switch)
        run("ovsdb-tool", "create", f"{self.folder}/conf.db", str(SCHEMA))
        self.start_database()
        run("ovs-vsctl", f"--db={self.database}", "--no-wait", "init")
        self.start_vswitchd()
        for switch in range(1, self.switches + 1):
            self.add_switch(switch)

    def _add_host(self, number: int, switch: int) -> None:
        name, port = self.host(number), f"s{switch}-h{number}"
        run("ip", "netns", "add", name)
        self._no_ipv6(name)
        run("ip", "-n", self.inside, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", self.inside, "link", "set", port, "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        in_namespace(name, lambda: checksums_in_software("eth0"))

    def _no_ipv6(self, namespace: str) -> None:
        for key in ("all", "default"):
            setting = f"echo 1 > /proc/sys/net/ipv6/conf/{key}/disable_ipv6"
            run("ip", "netns", "exec", namespace, "sh", "-c", setting, check=False)

    def ports_of(self, switch: int) -> list[str]:
        """Names of a switch's ports."""
        ends = [(a, b) for link in self.links for a, b in (link, link[::-1]) if a == switch]
        hosts = [f"s{switch}-h{number}" for number, at in enumerate(self.hosts, 1) if at == switch]
        return [f"s{a}-s{b}" for a, b in ends] + hosts

    def add_switch(self, switch: int) -> None:
        """A bridge with its ports."""
        name = f"s{switch}"
        command = ["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "protocols=OpenFlow13"]
        command += ["fail_mode=secure", f"other-config:datapath-id={switch:016x}", "other-config:disable-in-band=true"]
        for port in self.ports_of(switch):
            command += ["--", "add-port", name, port]
        self.vsctl(*command)

    def vsctl(self, *arguments: str) -> str:
        """`ovs-vsctl` on this network."""
        return run("ovs-vsctl", "--timeout=10", f"--db={self.database}", *arguments)

    def ofctl(self, command: str, switch: int, *arguments: str) -> str:
        """`ovs-ofctl` on one switch."""
        return run("ovs-ofctl", "-O", "OpenFlow13", command, f"unix:{self.folder}/s{switch}.mgmt", *arguments)

    def forget_flows(self) -> None:
        """Empties the switches' caches of forwarding decisions, which follow new rules only after a while."""
        run("ovs-appctl", "-t", f"{self.folder}/vs.ctl", "revalidator/purge")

    def connect(self, target: str, switches: Sequence[int] = ()) -> None:
        """Tells switches (all) where their controller is; they try again quickly."""
        for switch in switches or range(1, self.switches + 1):
            name = f"s{switch}"
            options = ("max_backoff=1000", "inactivity_probe=2000")
            self.vsctl("set-controller", name, target, "--", "set", "controller", name, *options)

    def start_database(self) -> None:
        """Starts `ovsdb-server`."""
        files = [f"{self.folder}/conf.db", f"--remote=punix:{self.folder}/db.sock"]
        extra = [remote.format(folder=self.folder) for remote in self.remotes]
        logs = [f"--unixctl={self.folder}/db.ctl", f"--log-file={self.folder}/db.log"]
        self._spawn("ovsdb-server", *files, *extra, *logs)
        self._wait_for(self.folder / "db.sock")

    def start_vswitchd(self) -> None:
        """Starts `ovs-vswitchd`."""
        control = self.folder / "vs.ctl"
        control.unlink(missing_ok=True)
        self._spawn("ovs-vswitchd", self.database, f"--unixctl={control}", f"--log-file={self.folder}/vs.log")
        self._wait_for(control)

    def kill_vswitchd(self) -> None:
        """As a crash would."""
        process = self._processes.pop("ovs-vswitchd")
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _spawn(self, program: str, *arguments: str) -> None:
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        environment = {**os.environ, "PATH": PATH, **dict.fromkeys(names, str(self.folder))}
        # `ip netns exec` becomes the program, so the process is the switch's own.
        command = ["ip", "netns", "exec", self.inside, program, *arguments, "-vconsole:off"]
        silent = subprocess.DEVNULL
        self._processes[program] = subprocess.Popen(command, env=environment, stdout=silent, stderr=silent)

    @staticmethod
    def _wait_for(path: Path) -> None:
        deadline = time.monotonic() + 10
        while not path.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{path.name} did not appear")
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends processes and takes out namespaces."""
        for program in ("ovs-vswitchd", "ovsdb-server"):
            process = self._processes.pop(program, None)
            if process is not None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                process.wait()
        for name in [self.inside, *(self.host(number) for number in range(1, len(self.hosts) + 1))]:
            run("ip", "netns", "del", name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # Hosts -------------------------------------------------------------------------------------------------------------------

    def udp(self, number: int, port: int) -> socket.socket:
        """A UDP socket of a host, which hears marks."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            made.bind((self.address(number), port))
            return made

        return in_namespace(self.host(number), make)

    def ping(self, source: int, target: int, count: int = 1) -> bool:
        """Does an echo come back?"""
        command = ("ip", "netns", "exec", self.host(source), *ping(self.address(target), count, 0.05), "-W", "1")
        done = subprocess.run(command, capture_output=True, env={**os.environ, "PATH": PATH}, timeout=30)
        return done.returncode == 0


@contextlib.contextmanager
def lab(
    switches: int, links: Sequence[tuple[int, int]], hosts: Sequence[int], remotes: Sequence[str] = ()
) -> Iterator[Lab]:
    """A network that is gone afterwards."""
    require_ovs()
    made = Lab(switches, links, hosts, remotes)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def until(condition: Callable[[], object], within_s: float = 5.0, what: str = "") -> float:
    """Waits until something holds, and returns how long it took, in seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within_s:
            raise AssertionError(f"not within {within_s:g} s: {what or 'a condition'}")
        time.sleep(0.002)
    return time.monotonic() - began
