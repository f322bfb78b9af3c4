"""Background traffic made by real programs in place of our generators: D-ITG, VLC, and vsftpd with curl.

They are started as processes in the nodes and nothing more. They are declared like the generators that they stand for: promising nothing but their
largest frame. All ports of a program are those of its source of background, so that its conversations beside the data (D-ITG's signalling, FTP's
commands, VLC's RTCP) are told apart from everybody else's, too.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from timebound.scenario.model import Background, BackgroundProgram
from timebound.stacks.plan import Marker, Plan
from timebound.stacks.wire import IPV4_HEADER, TCP_HEADER

NEEDED: dict[BackgroundProgram, dict[str, str]] = {
    "d-itg": {"ITGSend": "d-itg", "ITGRecv": "d-itg"},
    "vlc": {"vlc": "vlc-bin", "unshare": "util-linux", "timeout": "coreutils"},
    "vsftpd": {"vsftpd": "vsftpd", "curl": "curl"},
}
"""Executable -> package of Debian, by program."""
VLC_PLUGIN, VLC_PLUGIN_PACKAGE = "stream_out/libstream_out_rtp_plugin.so", "vlc-plugin-base"
"""What VLC needs to send RTP, and the package that has it."""
READY_MS = 20_000
NOBODY = "65534"
"""VLC refuses to be the superuser, which everybody is in a node: there it has this identity (of a user namespace of its own)."""
TS_TABLES_BPS = 50_000
"""What tables, clock references and the padding of 25 pictures add on the wire, bit/s; measured of VLC 3.0: 40 to 63 kbit/s."""
VLC_SPARE_S = 3
"""By so much the file is longer than what is played of it."""
FTP_CHUNK = 8_192
"""What vsftpd writes at a time, bytes: its rate is kept between two of them, and the default is in bursts."""
TS_PAYLOAD, TS_DATAGRAM = 7 * 184, 12 + 7 * 188
"""Of an RTP packet of VLC with seven packets of an MPEG transport stream: bytes of video, and of the datagram."""


def lay(plan: Plan, item: Background, port: int) -> None:
    """Adds the programs of one source of background, which has the ports `port` and `port + 1`."""
    for end in (item.source, item.destination):
        plan.role(end, "program")
    _mark(plan, item, port)
    match item.program:
        case "d-itg":
            _d_itg(plan, item, port)
        case "vlc":
            _vlc(plan, item, port)
        case "vsftpd":
            _vsftpd(plan, item, port)
        case None:
            raise ValueError(f"{item.name} is made by no program")


def missing(program: BackgroundProgram, path: str) -> dict[str, str]:
    """What of a program is not found in a search path: executable or plugin -> package of Debian."""
    absent = {name: package for name, package in NEEDED[program].items() if shutil.which(name, path=path) is None}
    vlc = shutil.which("vlc", path=path)
    if program == "vlc" and vlc is not None:
        libraries = Path(vlc).resolve().parent.parent
        if not any(next(libraries.glob(f"{lib}/vlc/plugins/{VLC_PLUGIN}"), None) for lib in ("lib", "lib64", "lib/*")):
            absent[Path(VLC_PLUGIN).name] = VLC_PLUGIN_PACKAGE
    return absent


def _mark(plan: Plan, item: Background, port: int) -> None:
    """Programs choose the other end's port themselves."""
    source, target = plan.addresses[item.source], plan.addresses[item.destination]
    there = f"background/{item.name}"
    back = f"{there}/back"
    for own in (port, port + 1):
        if item.program == "vlc":
            plan.markers.append(Marker(source, target, "udp", None, own, data=there))
            continue
        # D-ITG's receiver listens, and so does the server of FTP, which is the sender.
        here, far = (None, own) if item.program == "d-itg" else (own, None)
        plan.markers.append(Marker(source, target, "tcp", here, far, data=there, ack=there))
        plan.markers.append(Marker(target, source, "tcp", far, here, data=back, ack=back))


def _length_ns(plan: Plan, item: Background) -> int:
    """How long it sends, ns."""
    run = plan.scenario.run
    return (run.warm_up_ns + run.duration_ns if item.stop_ns is None else item.stop_ns) - item.start_ns


def _segment(plan: Plan, item: Background) -> tuple[int, int]:
    """Payload of a full segment, and its bytes on the wire."""
    mtu = plan.mtu(item.source, item.destination)
    return mtu - IPV4_HEADER - TCP_HEADER, plan.wire.packet(mtu)


def _d_itg(plan: Plan, item: Background, port: int) -> None:
    """Signalling to `port`, data to `port + 1`: TCP, one full segment after another at a constant rate."""
    assert item.rate_bps is not None
    payload, wire = _segment(plan, item)
    per_second = f"{item.rate_bps / 8 / wire:.6g}"
    length_ms = max(1, _length_ns(plan, item) // 1_000_000)
    _program(plan, f"d-itg-{port}-receiver", item.destination, ["ITGRecv", "-Sp", str(port)], ready={"tcp_port": port})
    argv = ["ITGSend", "-a", plan.addresses[item.destination], "-Sdp", str(port), "-rp", str(port + 1), "-T", "TCP"]
    # It refuses to bind a port of its own with TCP (2.8.1); logs are not what we measure.
    argv += ["-C", per_second, "-c", str(payload), "-t", str(length_ms), "-l", "/dev/null", "-x", "/dev/null"]
    _program(plan, f"d-itg-{port}-sender", item.source, argv, start_ns=item.start_ns)


def _vlc(plan: Plan, item: Background, port: int) -> None:
    """MPEG video in a transport stream over RTP to `port`, RTCP to `port + 1`, where nobody watches; the file is made before the run."""
    assert item.rate_bps is not None
    file, done, taken = f"vlc-{port}.m2v", f"vlc-{port}.file", f"vlc-{port}-sink.file"
    sink = [sys.executable, "-m", "timebound.node", "sink", "--port", str(port), str(port + 1), "--ready", taken]
    _program(plan, f"vlc-{port}-sink", item.destination, sink, ready={"file": taken})
    rate = max(1, (item.rate_bps - TS_TABLES_BPS) * TS_PAYLOAD // plan.wire.datagram(TS_DATAGRAM))
    make = [sys.executable, "-m", "timebound.node", "video", "--rate", str(rate), "--file", file, "--ready", done]
    # At its end VLC leaves with what it has not sent yet, so the end is not to come.
    make += ["--seconds", f"{_length_ns(plan, item) / 1e9 + VLC_SPARE_S:.3f}"]
    _program(plan, f"vlc-{port}-file", item.source, make, ready={"file": done})
    argv = ["unshare", "--user", f"--map-user={NOBODY}", "vlc", "-I", "dummy", "--ignore-config", "--no-media-library"]
    argv += ["--sout", f"#rtp{{dst={plan.addresses[item.destination]},port={port},mux=ts}}", file]
    if item.stop_ns is not None:
        argv[:0] = ["timeout", f"{_length_ns(plan, item) / 1e9:.3f}"]
    _program(plan, f"vlc-{port}", item.source, argv, start_ns=item.start_ns)


def _vsftpd(plan: Plan, item: Background, port: int) -> None:
    """A file in the sender's server, downloaded by the receiver: commands to `port + 1`, data from `port`, at the rate that the server keeps."""
    assert item.rate_bps is not None
    payload, wire = _segment(plan, item)
    rate = max(1, item.rate_bps * payload // wire // 8)
    size = rate * _length_ns(plan, item) // 1_000_000_000 + 2 * FTP_CHUNK
    folder, file = f"vsftpd-{port}", f"vsftpd-{port}.conf"
    settings = {
        "listen": "YES",
        "background": "NO",
        "listen_port": port + 1,
        "pasv_min_port": port,
        "pasv_max_port": port,
        "anonymous_enable": "YES",
        "no_anon_password": "YES",
        "local_enable": "NO",
        "write_enable": "NO",
        # The user of this process is the only one that a node is sure to have.
        "run_as_launching_user": "YES",
        "seccomp_sandbox": "NO",
        "xferlog_enable": "NO",
        "anon_max_rate": rate,
        "trans_chunk_size": FTP_CHUNK,
    }
    plan.files[file] = "".join(f"{key}={value}\n" for key, value in settings.items())
    serve = [
        sys.executable,
        "-m",
        "timebound.node",
        "ftp",
        "--folder",
        folder,
        "--bytes",
        str(size),
        "--settings",
        file,
    ]
    _program(plan, f"vsftpd-{port}-server", item.source, serve, ready={"tcp_port": port + 1})
    url = f"ftp://{plan.addresses[item.source]}:{port + 1}/data"
    argv = ["curl", "--silent", "--show-error", "--disable", "--output", "/dev/null", url]
    if item.stop_ns is not None:
        argv[1:1] = ["--max-time", f"{_length_ns(plan, item) / 1e9:.3f}"]
    _program(plan, f"vsftpd-{port}-client", item.destination, argv, start_ns=item.start_ns)


def _program(
    plan: Plan,
    name: str,
    node: str,
    argv: list[str],
    *,
    ready: dict[str, object] | None = None,
    start_ns: int | None = None,
) -> None:
    plan.programs.append(
        {
            "name": name,
            "node": node,
            "argv": argv,
            "env": {},
            "folder": None,
            "essential": False,
            "ready": None if ready is None else {**ready, "timeout_ms": READY_MS},
            "start_ns": start_ns,
        }
    )
