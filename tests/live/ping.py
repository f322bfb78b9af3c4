"""Echo requests as `ping` sends them (98 bytes a frame), for tests on machines without it: `ping.py [-c COUNT] [-i SECONDS] [-W SECONDS] ADDRESS`.

Prints a line with `time=... ms` for each answer, rounded down, and how many came; ends with 0 when there was one. Needs raw sockets (RFC 792).
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time

REQUEST, REPLY = 8, 0
PAYLOAD = 56
SO_TIMESTAMPNS = 35
"""The kernel says when a packet came: how long Python takes to wake up is no part of the round trip."""


def checksum(data: bytes) -> int:
    """Of the internet protocols (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def request(identity: int, sequence: int) -> bytes:
    payload = bytes(PAYLOAD)
    unsigned = struct.pack("!BBHHH", REQUEST, 0, 0, identity, sequence) + payload
    return struct.pack("!BBHHH", REQUEST, 0, checksum(unsigned), identity, sequence) + payload


def answer(link: socket.socket, identity: int, sent: dict[int, int], until_ns: int) -> tuple[int, int] | None:
    """Sequence and time of the next answer, ns; `None` when none comes until then."""
    while (left := until_ns - time.monotonic_ns()) > 0:
        link.settimeout(left / 1e9)
        try:
            packet, ((_, _, stamp), *_), _, _ = link.recvmsg(2048, 64)
        except TimeoutError:
            return None
        seconds, fraction = struct.unpack("qq", stamp)
        head = (packet[0] & 15) * 4
        kind, _, _, whose, sequence = struct.unpack_from("!BBHHH", packet, head)
        if kind == REPLY and whose == identity and sequence in sent:
            return sequence, seconds * 1_000_000_000 + fraction - sent.pop(sequence)
    return None


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("-c", type=int, default=1)
    words.add_argument("-i", type=float, default=1.0)
    words.add_argument("-W", type=float, default=2.0)
    words.add_argument("address")
    said = words.parse_args()
    identity, sent, received = os.getpid() & 0xFFFF, dict[int, int](), 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as link:
        link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        link.connect((socket.gethostbyname(said.address), 0))
        begin = time.monotonic_ns()
        for sequence in range(said.c):
            sent[sequence] = time.time_ns()
            try:
                link.send(request(identity, sequence))
            except OSError as error:
                print(error)
                del sent[sequence]
            last = sequence == said.c - 1
            until = time.monotonic_ns() + int(said.W * 1e9) if last else begin + int((sequence + 1) * said.i * 1e9)
            while sent and (found := answer(link, identity, sent, until)) is not None:
                received += 1
                print(f"icmp_seq={found[0] + 1} time={found[1] // 1000 / 1000:.3f} ms", flush=True)
            # Late answers are waited for only after the last request.
            time.sleep(0 if last else max(0.0, (until - time.monotonic_ns()) / 1e9))
    print(f"{said.c} sent, {received} received")
    return 0 if received else 1


if __name__ == "__main__":
    sys.exit(main())
