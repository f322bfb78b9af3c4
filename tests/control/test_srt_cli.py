"""`timebound srt`, as people use it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from srt_helpers import CONTROLLER, M1, M2, Open, OvsdbServer, connection, group, manager, request

from tests.tools import need
from timebound.control.srt.rows import ChannelRow, ChannelState, ControllerRow, Outcome, VerdictRow
from timebound.control.srt.store import Put


def srt(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from timebound.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, "srt", *arguments], capture_output=True, text=True, timeout=60)


def test_the_printed_schema_makes_a_database(tmp_path: Path) -> None:
    need("ovsdb-tool")
    printed = srt("schema")
    assert printed.returncode == 0
    schema = tmp_path / "t.ovsschema"
    schema.write_text(printed.stdout)
    subprocess.run(["ovsdb-tool", "create", tmp_path / "t.db", schema], check=True)
    version = subprocess.run(
        ["ovsdb-tool", "db-version", tmp_path / "t.db"], check=True, capture_output=True, text=True
    )
    assert version.stdout.strip() == json.loads(printed.stdout)["version"]


def test_show_says_who_asks_for_what_and_what_became_of_it(url: str, open_for: Open) -> None:
    now = time.time_ns() + 60_000_000_000  # so that it is alive however long this takes
    ours, theirs, dead = open_for(url, M1), open_for(url, CONTROLLER), open_for(url, M2)
    ours.transact(
        [Put(manager(beat_ns=now)), Put(connection("x")), Put(request("r", "x", 2)), Put(request("new", "x"))]
    )
    dead.transact([Put(manager("m2", now - 120_000_000_000)), Put(connection("y", "m2")), Put(request("old", "y"))])
    verdict = VerdictRow(
        id="r", revision=2, outcome=Outcome.REFUSED, reason="link s1->s2 is full", priority=0, bound_ns=None
    )
    channel = ChannelRow(
        id="ch1", connection="x", requests=("r",), protocol="tcp", source_address="10.0.0.2", source_port=1, destination_address="10.0.0.1",
        destination_port=1883, priority=5, rate_bps=2_000_000, burst_bytes=3000, links=("h1->s1", "s1->h2"), bound_ns=1_500_000,
        state=ChannelState.PROVEN,
    )  # fmt: skip
    theirs.transact([Put(group("g1", ("m2", "m3")))])
    theirs.transact([Put(verdict), Put(channel), Put(ControllerRow(id="c1", version="1", beat_ns=now))])
    shown = srt("show", url)
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if line}
    assert "yes" in lines["m1"] and "no" in lines["m2"]
    assert "h1->s1 s1->h2" in lines["ch1"] and "1.5 ms" in lines["ch1"] and "proven" in lines["ch1"]
    assert "239.192.0.1" in lines["g1"] and "m2 m3" in lines["g1"] and "2 ms" in lines["g1"]
    requests = [line for line in shown.stdout.splitlines() if "a/b" in line and not line.startswith("g1")]
    assert sorted(line.split()[5] for line in requests) == ["pending", "refused", "stale"]
    assert any("link s1->s2 is full" in line for line in requests)
    told = json.loads(srt("show", url, "--json").stdout)
    assert told["requests"]["r"]["requirements"]["bandwidth_bps"] == [1, 2]
    assert told["stale"] == {"managers": ["m2"], "connections": ["y"], "requests": ["old"]}

    assert srt("forget", url, "m1").returncode == 2, "one that is alive is left alone"
    assert srt("forget", url, "nobody").returncode == 2
    dead.close()
    assert srt("forget", url, "m2").returncode == 0
    told = json.loads(srt("show", url, "--json").stdout)
    assert (
        list(told["managers"]) == ["m1"]
        and list(told["connections"]) == ["x"]
        and sorted(told["requests"]) == ["new", "r"]
    )


def test_a_store_that_is_not_there_is_said(server: OvsdbServer, tmp_path: Path) -> None:
    server.kill()
    answer = srt("show", server.url)
    assert answer.returncode == 3
    assert answer.stderr.startswith(f"error: {server.url}: ")
    answer = srt("show", "nonsense")
    assert (answer.returncode, "file:PATH" in answer.stderr) == (3, True)
    absent = tmp_path / "absent.db"
    answer = srt("show", f"file:{absent}")
    assert (answer.returncode, "there is no table" in answer.stderr, absent.exists()) == (3, True, False)
