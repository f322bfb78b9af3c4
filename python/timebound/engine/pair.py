"""Two machines that emulate one network: they meet, prove that they share a token, compare clocks and start together.

The machine that the scenario names first listens on its own address alone; the second connects. Each proves by HMAC over
both nonces that it knows the token, and every line after that is authenticated with a key made of token and nonces. Nothing is
encrypted. The clocks are compared as NTP does (RFC 5905, section 8): of many exchanges the one with the shortest round trip
counts, and half of that round trip is the uncertainty, since how it divides between the two ways cannot be known.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.scenario.model import Scenario
from timebound.scenario.model_hardware import Computer

PORT = 4790
"""TCP port of the meeting."""
TUNNEL_PORT = 4789
"""UDP port of VXLAN (RFC 7348, section 5)."""
EXCHANGES = 64
INTERVAL_S = 0.5
LEAD_NS = 700_000_000
"""From the agreement to time zero."""
LONGEST_LINE = 4096
SHORTEST_TOKEN = 16


class PairError(Exception):
    """The two machines do not come together."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Clocks:
    """The other machine's CLOCK_MONOTONIC less this one's, and how well that is known; all ns."""

    offset_ns: int = 0
    uncertainty_ns: int = 0
    round_trips_ns: list[int] = field(default_factory=list)
    drift_ns: int | None = None
    """Offset at the end less that at the start; None where it was not compared again."""

    def summary(self) -> dict[str, Any]:
        """For `pair.json`."""
        ordered = sorted(self.round_trips_ns)

        def pick(share: float) -> int | None:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None

        return {
            "clock_offset_ns": self.offset_ns,
            "clock_uncertainty_ns": self.uncertainty_ns,
            "clock_drift_ns": self.drift_ns,
            "round_trip_ns": {"min": pick(0), "p50": pick(0.5), "p99": pick(0.99), "max": pick(1.0)},
            "one_way_ns": None if not ordered else ordered[0] // 2,
            "exchanges": len(ordered),
        }


def best(samples: list[tuple[int, int, int, int]]) -> tuple[int, int]:
    """(offset, round trip) of the exchange with the shortest round trip; each is (sent, heard, answered, returned)."""
    sent, heard, answered, returned = min(samples, key=lambda s: (s[3] - s[0]) - (s[2] - s[1]))
    return ((heard - sent) + (answered - returned)) // 2, (returned - sent) - (answered - heard)


def read_token(path: Path) -> bytes:
    """The shared secret, from a file that only its owner may read.

    Raises:
        PairError: it cannot be read, is too short, or others may read it.
    """
    hint = "make it once (head -c 32 /dev/urandom | base64 > token; chmod 600 token) and copy it to both machines"
    try:
        token = path.read_bytes().strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise PairError(f"cannot read the token {path}: {error.strerror}", hint) from None
    if len(token) < SHORTEST_TOKEN:
        raise PairError(f"the token in {path} has fewer than {SHORTEST_TOKEN} bytes", hint)
    if mode & 0o077:
        raise PairError(f"others may read the token {path}", f"chmod 600 {path}")
    return token


class Pair:
    """The connection to the other machine."""

    def __init__(self, scenario: Scenario, here: Computer, there: Computer, token: bytes, timeout_s: float) -> None:
        self.here, self.there = here, there
        self.first = scenario.machines[0].name == here.name
        self.clocks = Clocks()
        self.ended = False
        self.lost = False
        self._key = token
        self._counts = {"out": 0, "in": 0}
        self._pending = b""
        self._condition = threading.Condition()
        self._writing = threading.Lock()
        self._reached: dict[str, int | None] = {}
        self._samples: list[tuple[int, int, int, int]] = []
        self.socket = self._meet(timeout_s)
        try:
            self.socket.settimeout(20.0)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.run = self._agree(scenario, token)
            self._compare()
            self.socket.settimeout(None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.socket.close()
            raise PairError(
                f"machine {there.name!r} does not answer as it should: {error}", "see its own message"
            ) from None
        except PairError:
            self.socket.close()
            raise
        self._thread = threading.Thread(target=self._listen, name="pair", daemon=True)
        self._thread.start()

    def _meet(self, timeout_s: float) -> socket.socket:
        end = time.monotonic() + timeout_s
        who = f"machine {self.there.name!r} ({self.there.address})"
        hint = f"start timebound emulate --machine {self.there.name} there; TCP port {PORT} and UDP port {TUNNEL_PORT} must be open"
        try:
            if self.first:
                with socket.create_server((self.here.address, PORT)) as server:
                    while (left := end - time.monotonic()) > 0:
                        server.settimeout(left)
                        connection, (address, _) = server.accept()
                        if address == self.there.address:
                            return connection
                        connection.close()
            while time.monotonic() < end and not self.first:
                try:
                    source = (self.here.address, 0)
                    return socket.create_connection((self.there.address, PORT), 5.0, source_address=source)
                except (ConnectionError, TimeoutError):
                    time.sleep(0.1)
        except TimeoutError:
            pass
        except OSError as error:
            message = f"cannot meet {who} from {self.here.address}: {error.strerror or error}"
            raise PairError(message, f"is {self.here.address} an address of this computer? (ip address)") from None
        raise PairError(f"{who} did not come within {timeout_s:g} s", hint)

    def _agree(self, scenario: Scenario, token: bytes) -> int:
        """Both know the token and run the same scenario; the run's number."""
        text = f"{__version__}\n{scenario.to_yaml()}".encode()
        nonce, digest = secrets.token_hex(16), hashlib.sha256(text).hexdigest()
        self._write_plain({"nonce": nonce, "digest": digest, "machine": self.here.name})
        said = self._read_plain()
        theirs = str(said["nonce"])
        if said["machine"] != self.there.name or theirs == nonce:
            raise PairError(
                f"the other side says that it is machine {said['machine']!r}", "start the other machine there"
            )
        both = (nonce + theirs if self.first else theirs + nonce).encode()

        def proof(name: str) -> str:
            return hmac.new(token, both + name.encode(), "sha256").hexdigest()

        self._write_plain({"proof": proof(self.here.name)})
        if not hmac.compare_digest(str(self._read_plain()["proof"]), proof(self.there.name)):
            raise PairError(f"machine {self.there.name!r} has another token", "copy one token file to both machines")
        if said["digest"] != digest:
            hint = "copy the scenario, and install the same version of timebound, on both machines"
            raise PairError(f"machine {self.there.name!r} runs another scenario or version", hint)
        self._key = hmac.new(token, both + b"lines", "sha256").digest()
        return int.from_bytes(hmac.new(token, both + b"run", "sha256").digest()[:3], "big") or 1

    def _write_plain(self, message: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def _read_plain(self) -> dict[str, Any]:
        found = json.loads(self._line())
        if not isinstance(found, dict):
            raise ValueError("no object")
        return found

    def _line(self) -> bytes:
        while b"\n" not in self._pending:
            chunk = self.socket.recv(LONGEST_LINE)
            if not chunk:
                raise ConnectionError("it closed the connection")
            self._pending += chunk
            if len(self._pending) > 4 * LONGEST_LINE:
                raise ValueError("a line without end")
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _seal(self, way: str, name: str, payload: bytes) -> bytes:
        head = f"{name}/{self._counts[way]}/".encode()
        self._counts[way] += 1
        return hmac.new(self._key, head + payload, "sha256").hexdigest().encode()

    def _write(self, message: dict[str, Any]) -> None:
        payload = json.dumps(message).encode()
        with self._writing:
            self.socket.sendall(self._seal("out", self.here.name, payload) + b" " + payload + b"\n")

    def _read(self) -> dict[str, Any]:
        seal, _, payload = self._line().partition(b" ")
        if not hmac.compare_digest(seal, self._seal("in", self.there.name, payload)):
            raise ValueError("a line that the other machine did not write")
        found: dict[str, Any] = json.loads(payload)
        return found

    def _compare(self) -> None:
        """Before the run: the second machine asks, the first answers, and learns the result."""
        if self.first:
            while True:
                said = self._read()
                if "offset" in said:
                    break
                self._answer(said)
            self.clocks = Clocks(-int(said["offset"]), int(said["uncertainty"]), [int(x) for x in said["round_trips"]])
            return
        samples = []
        for _ in range(EXCHANGES):
            sent = time.monotonic_ns()
            self._write({"ask": sent})
            said = self._read()
            samples.append((sent, int(said["heard"]), int(said["answered"]), time.monotonic_ns()))
        offset, trip = best(samples)
        trips = [(s[3] - s[0]) - (s[2] - s[1]) for s in samples]
        self.clocks = Clocks(offset, -(-trip // 2), trips)
        self._write({"offset": offset, "uncertainty": self.clocks.uncertainty_ns, "round_trips": trips})

    def _answer(self, said: dict[str, Any]) -> None:
        heard = time.monotonic_ns()
        self._write({"ask": int(said["ask"]), "heard": heard, "answered": time.monotonic_ns()})

    def _listen(self) -> None:
        try:
            while not self.ended:
                said = self._read()
                now = time.monotonic_ns()
                with self._condition:
                    if "heard" in said:
                        self._samples.append((int(said["ask"]), int(said["heard"]), int(said["answered"]), now))
                    elif "reached" in said:
                        self._reached[str(said["reached"])] = said.get("time")
                    elif "over" in said:
                        self.clocks.drift_ns = said.get("drift")
                    self._condition.notify_all()
                if "ask" in said and "heard" not in said:
                    self._answer(said)
        except (OSError, ValueError, KeyError, TypeError):
            with self._condition:
                self.lost = not self.ended
                self._condition.notify_all()

    def barrier(self, name: str, timeout_s: float) -> int | None:
        """Waits until both are there. At `start`: this machine's CLOCK_MONOTONIC at time zero.

        Raises:
            PairError: the other machine is gone, or does not get there in time.
        """
        zero = time.monotonic_ns() + LEAD_NS
        if not self.first:
            self._tell({"reached": name})
            found = self._await(name, timeout_s)
            return None if found is None else found - self.clocks.offset_ns
        # The first machine fixes time zero once the second is there too.
        self._await(name, timeout_s)
        zero = time.monotonic_ns() + LEAD_NS
        self._tell({"reached": name, "time": zero if name == "start" else None})
        return zero if name == "start" else None

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._write(message)
        except OSError:
            self.lost = True

    def _await(self, name: str, timeout_s: float) -> int | None:
        with self._condition:
            there = self._condition.wait_for(lambda: name in self._reached or self.lost, timeout_s)
            if not there or name not in self._reached:
                why = "is gone" if self.lost else f"did not get as far as {name!r} within {timeout_s:g} s"
                raise PairError(f"machine {self.there.name!r} {why}", "see its own message")
            return self._reached[name]

    def close(self) -> None:
        """Compares the clocks once more where the other is still there, and parts."""
        if not self.first and not self.lost:
            with self._condition:
                self._samples.clear()
            for _ in range(16):
                self._tell({"ask": time.monotonic_ns()})
                time.sleep(0.005)
            with self._condition:
                self._condition.wait_for(lambda: len(self._samples) >= 16 or self.lost, 2.0)
                samples = list(self._samples)
            if samples:
                self.clocks.drift_ns = best(samples)[0] - self.clocks.offset_ns
                self._tell({"over": True, "drift": -self.clocks.drift_ns})
        elif not self.lost:
            with self._condition:
                self._condition.wait_for(lambda: self.clocks.drift_ns is not None or self.lost, 10.0)
        self.ended = True
        self.socket.close()

    def cut_plan(self) -> dict[str, Any]:
        """The JSON of `CutPlan`."""
        return {
            "nodes": list(self.here.nodes),
            "local": self.here.address,
            "remote": self.there.address,
            "udp_port": TUNNEL_PORT,
            "run": self.run,
        }

    def summary(self, live: dict[str, Any]) -> dict[str, Any]:
        """`pair.json`: who with whom, how well the clocks agree, and how the frames crossed."""
        return {
            "machine": self.here.name,
            "peer": self.there.name,
            "address": self.here.address,
            "peer_address": self.there.address,
            **self.clocks.summary(),
            "tunnel": live.get("cut"),
            "lost": self.lost,
        }


def too_short(scenario: Scenario, pair: Pair) -> list[tuple[int, int, int]]:
    """(link, its delay, the underlay's least one-way delay) of the cut links that cannot be on time, ns."""
    trips = pair.clocks.round_trips_ns
    least = min(trips) // 2 if trips else 0
    here = set(pair.here.nodes)
    return [
        (index, min(link.forward.delay_ns, link.backward.delay_ns), least)
        for index, link in enumerate(scenario.links)
        if (link.a in here) != (link.b in here) and min(link.forward.delay_ns, link.backward.delay_ns) < least
    ]
