"""Programs that run inside a node: `python -m timebound.node broker --bind ADDRESS --port PORT`, and `bridges`, which waits until a
broker of the node has connected to others."""

import argparse
import ipaddress
import json
import struct
import sys
import time
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
    bridges = roles.add_parser("bridges")
    bridges.add_argument("--to", action="append", required=True, help="ADDRESS:PORT of a listener")
    bridges.add_argument("--ready", type=Path, required=True, help="file to write once all connections stand")
    arguments = parser.parse_args()
    if arguments.role == "bridges":
        return wait_for_bridges(arguments.to, arguments.ready)
    from timebound import _core

    # Anonymous clients are welcome: the broker's network is the run's own and has no way out.
    return _core.broker(json.dumps({"bind": arguments.bind, "port": arguments.port, "allow_anonymous": True}))


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
