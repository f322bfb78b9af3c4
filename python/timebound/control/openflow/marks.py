"""Marks to queues on hosts whose Open vSwitch forwards in user space: `python -m timebound.control.openflow.marks PORT... | nft -f -`.

The userspace datapath sends through a packet socket, so the queue that a rule chose is not known to the kernel, and every frame ends in queue 0. The mark
is in the frame, so a netfilter hook before the queues chooses by it: class c of HTB's is 1:(c + 1), as Open vSwitch numbers queues. The rules name
ports and do not depend on the queues, so they are loaded once, when the ports exist (Linux 5.16 or newer). The kernel datapath needs none of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from timebound.control.openflow.channels import CLASSES, mark_of

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,15}")


def ruleset(ports: Sequence[str]) -> str:
    """Rules of nft, which replace those that were loaded before. Raises `ValueError` for a name that no port can have."""
    if not ports:
        raise ValueError("name at least one port")
    for port in ports:
        if not _NAME.fullmatch(port):
            raise ValueError(f"{port!r} is no name of a port")
    devices = ", ".join(f'"{port}"' for port in ports)
    lines = [
        "table netdev timebound_marks",
        "delete table netdev timebound_marks",
        "table netdev timebound_marks {",
        "    chain egress {",
        f"        type filter hook egress devices = {{ {devices} }} priority 0; policy accept;",
    ]
    lines += [f"        ip dscp {mark_of(c)} meta priority set 1:{c + 1:x}" for c in range(CLASSES)]
    return "\n".join([*lines, "    }", "}", ""])


def main() -> int:
    """Prints the rules."""
    try:
        sys.stdout.write(ruleset(sys.argv[1:]))
    except ValueError as error:
        sys.stderr.write(f"{error}\nusage: python -m timebound.control.openflow.marks PORT...\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
