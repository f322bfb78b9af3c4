"""A gateway with real packets: NAT by nftables, leases and names by dnsmasq, DHCP clients in the hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import GATEWAY, need
from timebound.engine.doctor import can_emulate

pytestmark = pytest.mark.skipif(not can_emulate(), reason="this host allows no user namespaces and we are not root")

SERVER = (
    "import socket; s = socket.create_server(('0.0.0.0', 7777)); c, a = s.accept(); "
    "print('peer', a[0], flush=True); c.sendall(c.recv(99))"
)
CLIENT = (
    "import socket; s = socket.create_connection(('srv', 7777), 8); s.sendall(b'hello'); "
    "print('answer', s.recv(99).decode(), 'from', s.getsockname()[0])"
)
LOOK = "cat /etc/resolv.conf; busybox nslookup h2.plant.test; getent hosts h2; busybox ip route"
TEXT = f"""name: behind-nat
network:
  defaults: {{link: {{rate: 10 Mbit/s, delay: 100 us}}}}
  nodes:
    gw: {{kind: gateway, gateway: {{domain: plant.test, nat: NAT, outside: wan-side}}}}
    h1:
      kind: host
      address: dhcp
      run:
        - {{name: client, start: 500 ms, command: [python3, -c, "{CLIENT}"]}}
        - {{name: look, start: 500 ms, command: [sh, -c, "{LOOK}"]}}
    h2: {{kind: host, address: dhcp}}
    srv: {{kind: host, run: [{{name: server, command: [python3, -c, "{SERVER}"]}}]}}
    s1: switch
    s2: switch
  links: [["h[1-2]", s1], [gw, s1], [wan-side, s2], [srv, s2]]
flows:
  - {{name: alpha, from: h1, to: h2, topic: t/alpha, size: 200 B, period: 10 ms, jitter: 1 ms, priority: 5}}
stack: {{udp: {{}}}}
run: {{duration: 3 s, warm-up: 300 ms, seed: 1}}
"""


def tools() -> None:
    need(*GATEWAY, "busybox")


@pytest.mark.parametrize(("nat", "more"), [(True, []), (True, ["--rootless"]), (False, [])])
def test_hosts_behind_a_gateway_get_leases_names_and_a_way_out(tmp_path: Path, nat: bool, more: list[str]) -> None:
    tools()
    file, folder = tmp_path / "gateway.yaml", tmp_path / "run"
    file.write_text(TEXT.replace("NAT", str(nat).lower()))
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "emulate", str(file)]
    done = subprocess.run(
        [*command, "--output", str(folder), "--quiet", *more], capture_output=True, text=True, timeout=120
    )
    logs = {log.stem: log.read_text() for log in (folder / "logs").glob("*.log")}
    assert done.returncode in (0, 4), (done.stderr, logs)
    summary = json.loads((folder / "summary.json").read_text())
    # The declared flow runs between leased addresses, as planned.
    assert summary["flows"][0]["received"] and summary["violations"] == []
    # What crossed: the other side answers, and sees the gateway where there is NAT, the host where there is none.
    assert "answer hello from 10.0.0.2" in logs["client"], logs
    assert logs["server"].split() == ["peer", "10.1.0.1" if nat else "10.0.0.2"]
    # Leases, in the run folder.
    assert "lease of 10.0.0.2 obtained from 10.0.0.1" in logs["dhcp-h1"]
    assert "address=10.0.0.3" in (folder / "dhcp-h2.lease").read_text()
    assert "10.0.0.3 h2" in (folder / "dnsmasq-gw.leases").read_text()
    # Names.
    look = logs["look"]
    assert look.startswith("nameserver 10.0.0.1\nsearch plant.test\n")
    assert "h2.plant.test\nAddress: 10.0.0.3" in look
    assert any(line.split()[:2] == ["10.0.0.3", "h2"] for line in look.splitlines())
    assert "default via 10.0.0.1" in look


def test_a_network_that_is_only_held_has_its_leases_and_names_too(tmp_path: Path) -> None:
    tools()
    file = tmp_path / "gateway.yaml"
    file.write_text(TEXT.replace("NAT", "true"))
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "exec", str(file), "h2", "--"]
    look = "cat /etc/resolv.conf; busybox ip route; busybox nslookup h1.plant.test"
    done = subprocess.run([*command, "sh", "-c", look], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.startswith("nameserver 10.0.0.1\nsearch plant.test\n")
    assert "default via 10.0.0.1" in done.stdout
    assert "h1.plant.test\nAddress: 10.0.0.2" in done.stdout
