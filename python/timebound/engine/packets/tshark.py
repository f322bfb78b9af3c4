"""tshark as a process: where it is, what it is asked, what its complaints mean.

Its settings come from here alone: a user's own profile must not change what a run reports.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timebound.engine.folder import FolderError
from timebound.engine.packets.sources import MQTT_PORT, VERSIONS, Source

INSTALL = "sudo apt-get install tshark"
CHUNK_BYTES = 4 << 20
"""Text is taken in pieces of about this size."""

FIELDS = (
    "frame.number",
    "frame.interface_name",
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.encap_type",
    "frame.protocols",
    "eth.src",
    "eth.dst",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "arp.src.proto_ipv4",
    "ip.len",
    "ipv6.plen",
    "ip.proto",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.flags",
    "tcp.len",
    "udp.length",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.out_of_order",
    "tcp.analysis.lost_segment",
    "tcp.analysis.ack_lost_segment",
    "tcp.analysis.zero_window",
    "tcp.analysis.keep_alive",
    "tcp.segment",
    "tcp.segment.count",
    "mqtt.msgtype",
    "mqtt.msg",
)
"""What is asked of each frame; several values of a field are joined by commas."""


class MissingToolError(FolderError):
    """tshark is not installed: exit code 3, with what to do."""

    def __init__(self, tool: str = "tshark") -> None:
        super().__init__(f"{tool} is not installed: captures cannot be analysed without it", INSTALL, 3)


class CaptureError(FolderError):
    """A capture file that tshark cannot read to its end. `partial`: what comes before the damage was counted."""

    def __init__(self, message: str, hint: str, *, partial: bool = False) -> None:
        super().__init__(message, hint)
        self.partial = partial


def find(tool: str = "tshark") -> str:
    """The path of tshark (or mergecap, which comes with it).

    Raises:
        MissingToolError: it is not installed.
    """
    path = shutil.which(tool)
    if path is None:
        raise MissingToolError(tool)
    return path


def version() -> str:
    """tshark's version, `4.0.17`; `unknown` where it does not say."""
    done = subprocess.run([find(), "--version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r"\b(\d+\.\d+\.\d+)\b", done.stdout)
    return match[1] if match else "unknown"


def preferences(source: Source) -> list[str]:
    """tshark's options for a source; the same ones in another tshark give the same numbers.

    Out-of-order segments are put in order before they are dissected: otherwise every MQTT packet behind a lost segment
    would go uncounted.
    """
    options = ["-n"]
    for setting in (
        "ip.defragment:TRUE",
        "tcp.desegment_tcp_streams:TRUE",
        "tcp.reassemble_out_of_order:TRUE",
        "tcp.analyze_sequence_numbers:TRUE",
        "mqtt.show_msg_as_text:FALSE",
    ):
        options += ["-o", setting]
    if source.version in VERSIONS:
        options += ["-o", f"mqtt.default_version:{VERSIONS[source.version]}"]
    for port in source.mqtt_ports:
        if port != MQTT_PORT:
            options += ["-d", f"tcp.port=={port},mqtt"]
    return options


def _commands(source: Source) -> list[list[str]]:
    """The processes of a pipeline, first to last."""
    ask = [find(), *preferences(source), "-T", "fields", "-E", "separator=/t", "-E", "quote=n", "-E", "occurrence=a"]
    ask += ["-E", "aggregator=,", *(word for name in FIELDS for word in ("-e", name))]
    files = [str(file.resolve()) for file in source.files]
    if len(files) == 1 and not source.select:
        return [[*ask, "-r", files[0]]]
    commands = [[find("mergecap"), "-F", "pcapng", "-w", "-", *files]]
    if source.select:
        wanted = ", ".join(f'"{port}"' for port in source.ports)
        commands.append([find(), "-n", "-r", "-", "-Y", f"frame.interface_name in {{{wanted}}}", "-w", "-"])
    return [*commands, [*ask, "-r", "-"]]


@contextmanager
def lines(source: Source) -> Iterator[Iterator[bytes]]:
    """Whole lines of tshark's answer, in pieces of about `CHUNK_BYTES`.

    Raises:
        MissingToolError: tshark is not installed.
        CaptureError: after the last piece, where a file is damaged or cut short.
    """
    with tempfile.TemporaryDirectory(prefix="timebound-tshark-") as place:
        # An empty place for settings: neither the user's profile nor their names of hosts and ports take part.
        environment = {
            **os.environ,
            "WIRESHARK_CONFIG_DIR": place,
            "XDG_CONFIG_HOME": place,
            "HOME": place,
            "LC_ALL": "C",
        }
        logs = [Path(place) / f"{index}.log" for index in range(3)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command, log in zip(_commands(source), logs, strict=False):
                upstream = processes[-1].stdout if processes else subprocess.DEVNULL
                with log.open("wb") as errors:
                    process = subprocess.Popen(
                        command, stdin=upstream, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=place
                    )
                if processes and processes[-1].stdout is not None:
                    processes[-1].stdout.close()
                processes.append(process)
            yield _pieces(processes, logs, source)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()


def _pieces(processes: list[subprocess.Popen[bytes]], logs: list[Path], source: Source) -> Iterator[bytes]:
    stream = processes[-1].stdout
    assert stream is not None
    pending: list[bytes] = []
    size = 0
    while block := stream.read(1 << 18):
        pending.append(block)
        size += len(block)
        if size >= CHUNK_BYTES and b"\n" in block:
            whole, _, rest = b"".join(pending).rpartition(b"\n")
            yield whole + b"\n"
            pending, size = [rest], len(rest)
    if last := b"".join(pending):
        yield last
    for process, log in zip(processes, logs, strict=False):
        code = process.wait()
        words = _complaint(log.read_text(encoding="utf-8", errors="replace"))
        # A process whose reader has gone is not the one at fault.
        if code not in (0, -signal.SIGPIPE):
            raise _error(words, code, source)


def _complaint(text: str) -> str:
    kept = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Running as user")]
    return " ".join(kept)


def _error(words: str, code: int, source: Source) -> CaptureError:
    named = ", ".join(str(file) for file in source.files)
    if "cut short" in words:
        hint = "the program that wrote it was killed, or the disk was full; --partial counts what is there"
        return CaptureError(f"{named} is cut short in the middle of a packet", hint, partial=True)
    if "isn't a capture file" in words:
        return CaptureError(f"{named} is no capture file", "name a .pcap or .pcapng file")
    if "damaged or corrupt" in words:
        reason = words.partition("(")[2].rstrip(")") or "tshark does not say where"
        hint = "--partial counts what comes before the damage"
        return CaptureError(f"{named} is damaged: {reason}", hint, partial=True)
    hint = f"does `tshark -r {source.files[0]}` work?"
    return CaptureError(f"tshark cannot read {named}: {words or f'it ended with status {code}'}", hint)
