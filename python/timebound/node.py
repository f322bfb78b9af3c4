"""Programs that run inside a node: `python -m timebound.node broker --bind ADDRESS --port PORT`; `bridges`, which waits until a
broker of the node has connected to others; `ready`, which waits until a service says so; `table`, an OVSDB server with the table of requirements;
`video`, which writes one to a file; `sink`, which takes datagrams; `ftp`, a server of one file (vsftpd)."""

import argparse
import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ESTABLISHED = "01"
"""The state as `/proc/net/tcp` writes it (include/net/tcp_states.h)."""
LOOK_S = 0.05


def main() -> int:
    """The embedded MQTT broker, until SIGTERM; or the look-out for bridges, until all are there."""
    parser = argparse.ArgumentParser(prog="timebound.node")
    roles = parser.add_subparsers(dest="role", required=True)
    broker = roles.add_parser("broker")
    broker.add_argument("--bind", default="127.0.0.1")
    broker.add_argument("--port", type=int, default=1883)
    broker.add_argument(
        "--short", action="append", default=[], help="topic of measured messages without room for a header"
    )
    bridges = roles.add_parser("bridges")
    bridges.add_argument("--to", action="append", required=True, help="ADDRESS:PORT of a listener")
    bridges.add_argument("--ready", type=Path, required=True, help="file to write once all connections stand")
    waits = roles.add_parser("ready")
    waits.add_argument("--port", type=int, required=True, help="of the service's health page on this node")
    waits.add_argument("--ready", type=Path, required=True, help="file to write once the service is ready")
    table = roles.add_parser("table")
    table.add_argument("--socket", required=True, help="Unix socket to serve at")
    video = roles.add_parser("video")
    video.add_argument("--rate", type=int, required=True, help="bit/s of the elementary stream")
    video.add_argument("--seconds", type=float, required=True)
    video.add_argument("--file", type=Path, required=True)
    video.add_argument("--ready", type=Path, required=True, help="file to write once the video is there")
    sink = roles.add_parser("sink")
    sink.add_argument("--port", type=int, nargs="+", required=True, help="UDP")
    sink.add_argument("--ready", type=Path, required=True, help="file to write once it is bound")
    ftp = roles.add_parser("ftp")
    ftp.add_argument("--folder", type=Path, required=True, help="to make, with one file `data` in it")
    ftp.add_argument("--bytes", type=int, required=True, help="of that file")
    ftp.add_argument("--settings", type=Path, required=True, help="vsftpd.conf(5), without the folder")
    arguments = parser.parse_args()
    if arguments.role == "bridges":
        return wait_for_bridges(arguments.to, arguments.ready)
    if arguments.role == "ready":
        return wait_for_service(arguments.port, arguments.ready)
    if arguments.role == "table":
        return serve_table(arguments.socket)
    if arguments.role == "video":
        return write_video(arguments.rate, arguments.seconds, arguments.file, arguments.ready)
    if arguments.role == "sink":
        return take_datagrams(arguments.port, arguments.ready)
    if arguments.role == "ftp":
        return serve_file(arguments.folder, arguments.bytes, arguments.settings)
    from timebound import _core

    # Anonymous clients are welcome: the broker's network is the run's own and has no way out.
    settings = {
        "bind": arguments.bind,
        "port": arguments.port,
        "allow_anonymous": True,
        "short_topics": arguments.short,
    }
    return _core.broker(json.dumps(settings))


def wait_for_bridges(
    targets: list[str], ready: Path, table: Path = Path("/proc/net/tcp"), timeout_s: float = 60.0
) -> int:
    """Waits until this node has a connection to each of the targets at two looks in a row, then writes the file.

    A bridge of mosquitto 2.0 that finds nobody tries again after six seconds, and messages before that are lost.
    """
    wanted = {_remote(target) for target in targets}
    end, standing = time.monotonic() + timeout_s, 0
    while time.monotonic() < end:
        standing = standing + 1 if wanted <= connected(table.read_text(encoding="ascii")) else 0
        if standing == 2:
            ready.write_text("connected\n", encoding="ascii")
            return 0
        time.sleep(LOOK_S)
    return 1


def wait_for_service(port: int, ready: Path, timeout_s: float = 60.0) -> int:
    """Waits until `/readyz` of a service on this node answers 200, then writes the file; what it said last is on standard error."""
    said = "nothing"
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                ready.write_bytes(answer.read())
                return 0
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
        except OSError as error:
            said = str(error)
        time.sleep(LOOK_S)
    print(f"not ready after {timeout_s:g} s: {said}", file=sys.stderr)
    return 1


def serve_table(place: str) -> int:
    """Becomes an OVSDB server (ovsdb-server(1)) with an empty table, in this folder."""
    from timebound.control.srt.schema import schema

    Path("table.ovsschema").write_text(json.dumps(schema()), encoding="utf-8")
    Path("table.db").unlink(missing_ok=True)
    subprocess.run(["ovsdb-tool", "create", "table.db", "table.ovsschema"], check=True)
    # Open vSwitch takes relative names of sockets from a folder of its own.
    command = ["ovsdb-server", "table.db", f"--remote=punix:{place}", "--unixctl=table.ctl"]
    os.execvpe(command[0], command, {**os.environ, "OVS_RUNDIR": "."})


def write_video(rate_bps: int, seconds: float, file: Path, ready: Path) -> int:
    """Writes a video of that rate and length, then the second file."""
    from timebound.stacks.video import pictures

    with file.open("wb") as out:
        out.writelines(pictures(rate_bps, seconds))
    ready.write_text("written\n", encoding="ascii")
    return 0


def take_datagrams(ports: list[int], ready: Path) -> int:
    """Holds UDP ports until SIGTERM, so that senders get no ICMP in return. What comes is not read: the kernel drops it when the buffer is full."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
    for each, port in zip(sockets, ports, strict=True):
        each.bind(("0.0.0.0", port))
    ready.write_text("bound\n", encoding="ascii")
    while True:
        signal.pause()


def serve_file(folder: Path, size: int, settings: Path) -> int:
    """Becomes vsftpd(8) for a file of zeros, which takes no room on the disk. Its session changes folders, so paths are absolute."""
    folder.mkdir()
    with (folder / "data").open("wb") as data:
        data.truncate(size)
    place = folder.resolve()
    with settings.open("a", encoding="utf-8") as stated:
        stated.write(f"anon_root={place}\nsecure_chroot_dir={place}\n")
    command = ["vsftpd", str(settings.resolve())]
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    os.execvpe(command[0], command, {**os.environ, "PATH": path})


def connected(table: str) -> set[str]:
    """The remote ends of all established connections, as `/proc/net/tcp` writes them (`0300000A:2710`)."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[2] for row in rows if len(row) > 3 and row[3] == ESTABLISHED}


def _remote(target: str) -> str:
    address, _, port = target.rpartition(":")
    number = struct.unpack("=I", ipaddress.IPv4Address(address).packed)[0]
    return f"{number:08X}:{int(port):04X}"


if __name__ == "__main__":
    sys.exit(main())
