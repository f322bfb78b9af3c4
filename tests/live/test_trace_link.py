"""A link that follows a cellular trace, measured from inside the nodes with iperf3; and the built-in scenario of segments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.live.test_emulation import pytestmark, timebound
from tests.live.test_link import need

__all__ = ["pytestmark"]

LINK = """name: link
network:
  nodes:
    a: {kind: host, address: 10.0.0.1, run: [{command: COMMAND, name: tool, start: 200 ms}]}
    b: {kind: host, address: 10.0.0.2, run: [{command: [iperf3, -s, -J], name: server, ready-port: 5201}]}
  links: [{between: [a, b], delay: 10 ms, buffer: 32 KiB, trace: {up: cell.up, down: cell.down}}]
flows: [{name: beat, from: a, to: b, size: 24 B, period: 1 s}]
stack: {udp: {}}
run: {duration: 6 s, warm-up: 0 s, seed: 3, simulate: {duration: 1 s, search: 0}}
"""


def test_iperf3_gets_the_capacity_of_the_trace(tmp_path: Path) -> None:
    need("iperf3")
    # More than the trace ever carries is sent, so that no opportunity is wasted.
    # Per second: 600 packets in its first half and 100 in its second, 8.42 Mbit/s of 1504 bytes.
    times = [1 + n * 500 // 600 for n in range(600)] + [500 + n * 5 for n in range(1, 101)]
    (tmp_path / "cell.up").write_text("".join(f"{time}\n" for time in times))
    (tmp_path / "cell.down").write_text("1\n")
    command = "[iperf3, -c, 10.0.0.2, -u, -b, 20M, -l, '1472', -t, '4', -J, --get-server-output]"
    (tmp_path / "link.yaml").write_text(LINK.replace("COMMAND", command))
    expected = 700 * 1472 * 8
    goodputs = []
    for attempt in range(3):
        folder = tmp_path / f"run{attempt}"
        done = subprocess.run(
            timebound("emulate", str(tmp_path / "link.yaml"), "--output", str(folder), "--quiet"),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 1, 4), done.stderr
        printed = (folder / "logs" / "tool.log").read_text()
        seconds = json.loads(printed[printed.index("{") :])["server_output_json"]["intervals"]
        whole = [interval["sum"]["bits_per_second"] for interval in seconds[1:-1]]
        goodputs.append(sum(whole) / len(whole))
        if abs(goodputs[-1] / expected - 1) < 0.02:
            break
    # A second of iperf3 begins anywhere in the trace's, and its border takes a few packets of a burst with it.
    assert min(abs(goodput / expected - 1) for goodput in goodputs) < 0.02, (goodputs, expected)
    checks = json.loads((folder / "live.json").read_text())["precision"]["preflight"]
    assert all(check["ok"] for check in checks)


def test_the_segments_run_and_say_what_was_not_probed_and_when_what_changed(tmp_path: Path) -> None:
    done = subprocess.run(
        timebound("emulate", "segments", "--output", str(tmp_path / "run"), "--quiet"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 4), done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "failure" not in summary, summary["failure"]
    assert all(flow["received"] > 30 for flow in summary["flows"]), summary["flows"]
    marks = {mark["text"]: mark["time_s"] for mark in summary["series"]["events"]}
    assert marks["segment S1: loss"] == 2.0
    assert marks["link b13-S3: constrained"] == 3.0
    assert marks["link b32-S3: delay (ramp ends)"] == 9.0
    checks = json.loads((tmp_path / "run" / "live.json").read_text())["precision"]["preflight"]
    assert any(check["check"] == "not probed" and "by schedule" in check["measured"] for check in checks)
