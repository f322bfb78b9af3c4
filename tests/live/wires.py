"""Namespaces that stand for other computers, and veth pairs that stand for cables. Everything goes with its holder process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pytest

from tests.tools import need

OFFLOADS_OFF = """import fcntl, socket, struct, sys
s = socket.socket()
for command in (0x1f, 0x17):
    value = bytearray(struct.pack("II", command, 0))
    import ctypes
    buffer = (ctypes.c_char * 8).from_buffer(value)
    request = struct.pack("16sP16x", sys.argv[1].encode(), ctypes.addressof(buffer))
    fcntl.ioctl(s, 0x8946, request)
"""
"""A device's own card computes checksums; a veth leaves them to a card that does not exist (SIOCETHTOOL, STSO and STXCSUM)."""


PING = Path(__file__).with_name("ping.py")


def ping(address: str, count: int = 1, gap_s: float = 0.1, program: str | Path = PING) -> list[str]:
    """The words that send echo requests, on machines without `ping` too."""
    return [sys.executable, str(program), "-c", str(count), "-i", str(gap_s), address]


def yaml_ping(address: str, count: int, gap_s: float = 0.1) -> str:
    """The same as a list of a scenario file."""
    return json.dumps(ping(address, count, gap_s))


class Computer:
    """A network namespace of the test's own; `run` and `start` work in it."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("moving interfaces between namespaces needs root")
        need("unshare", "nsenter", "ip")
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 900"], stdout=subprocess.PIPE, text=True
        )
        assert self.holder.stdout is not None and self.holder.stdout.readline() == "ready\n"
        self.run("ip", "link", "set", "lo", "up")

    def __enter__(self) -> Computer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.holder.kill()
        self.holder.communicate()

    def command(self, *words: str) -> list[str]:
        """The words that run something here."""
        return ["nsenter", "-t", str(self.holder.pid), "-n", "--", *words]

    def run(self, *words: str, timeout: float = 60) -> str:
        """Runs something to its end; its output."""
        return subprocess.run(self.command(*words), check=True, capture_output=True, text=True, timeout=timeout).stdout

    def start(self, *words: str, **more: object) -> subprocess.Popen[str]:
        """Starts something; whoever starts it ends it."""
        return subprocess.Popen(self.command(*words), text=True, **more)  # type: ignore[call-overload,no-any-return]

    def cable(self, name: str, other: Computer, other_name: str) -> None:
        """A cable from a card here to one there, whose side computes checksums as a real card does."""
        holder = str(other.holder.pid)
        self.run("ip", "link", "add", name, "type", "veth", "peer", "name", other_name, "netns", holder)
        other.run(sys.executable, "-c", OFFLOADS_OFF, other_name)
        self.run("ip", "link", "set", name, "up")
        other.run("ip", "link", "set", other_name, "up")

    def interface(self, name: str) -> str:
        """Flags, addresses and routes of an interface, without what changes by itself; empty where it is not."""
        done = subprocess.run(
            self.command("ip", "-o", "-4", "address", "show", "dev", name), capture_output=True, text=True, timeout=20
        )
        if done.returncode != 0:
            return ""
        link = self.run("ip", "-o", "link", "show", "dev", name).split()
        routes = self.run("ip", "route", "show", "dev", name)
        return "\n".join([" ".join(link[:5]), done.stdout.split("valid_lft")[0], routes])
