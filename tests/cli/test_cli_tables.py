"""What the tables of the command line show on a terminal of 80 columns, and what they say of what they leave out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import timebound.cli
from timebound.cli.app import execute
from timebound.cli.common import stderr, stdout
from timebound.cli.live_progress import TerminalProgress
from timebound.cli.table import duration, fit, flow_table, print_table

LATE = """name: late
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {a: host, b: host, c: host, s1: switch}
  links: [[a, s1], [b, s1], [c, s1]]
flows:
  - {name: pressure, from: a, to: [b, c], size: 200 B, period: 20 ms, jitter: 3800 us, deadline: 4 ms, priority: 5}
  - {name: calm, from: b, to: c, size: 1400 B, period: 20 ms, deadline: 20 ms, priority: 4}
stack: udp
run: {duration: 2 s, warm-up: 0 s, seed: 1, simulate: {search: 50}}
"""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def late(tmp_path: Path) -> str:
    file = tmp_path / "late.yaml"
    file.write_text(LATE)
    return str(file)


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert execute(arguments) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", ["predict", "simulate"])
def test_a_deadline_missed_by_release_jitter_is_seen_to_be_missed(
    verb: str, late: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed([verb, late, "--quiet"], capsys, 1)
    row = next(line for line in out.splitlines() if line.split()[:2] == ["pressure", "b"])
    assert "339.9 us" in row and "4.14 ms" in row and row.index("4.14 ms") < row.index("4 ms ") < row.index("missed")
    assert "to end" in out and "what a deadline is compared with" in out.replace("\n", " ")
    flow = json.loads(printed([verb, late, "--json"], capsys, 1))["flows"][0]
    whole = flow["end_to_end_us"]
    assert whole["bound"] == pytest.approx(flow["bound_us"]["bound"] + 3800)
    assert whole["from_actual"] == {"bound": flow["bound_us"]["bound"], "simulated": flow["simulated_max_us"]}


def test_without_jitter_and_brokers_there_is_one_bound(late: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "to end" not in printed(["predict", late, "--set", "flows.pressure.jitter=0 us"], capsys)


def test_a_sweeps_margin_is_that_of_its_verdict(late: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", late, "--vary", "flows.pressure.jitter=0 us, 3900 us", "--verb", "predict", "--quiet"]
    points = json.loads(printed([*arguments, "--json", "-o", str(tmp_path / "sweep")], capsys, 1))["points"]
    for point in points:
        assert (point["metrics"]["margin_us"] < 0) == (point["verdict"] == "missed")
    assert "end to end" in printed([*arguments, "-o", str(tmp_path / "sweep")], capsys, 1)


def test_a_method_keeps_its_label_whole(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["predict", "edge-networks", "--method", "trajectory"], capsys, 1)
    heading = out.splitlines()[:8]
    assert any("(experimental, " in line for line in heading) and all(len(line) <= 80 for line in heading)


def test_ports_stay_readable_and_reasons_stand_below(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["predict", "hello", "--ports"], capsys)
    ports = out[out.index("hello: ports") :].splitlines()
    rows = [line for line in ports if "->" in line and "%" in line]
    assert rows and all(len(line) <= 80 for line in rows)
    # A row for each class: nothing is folded letter by letter.
    assert len(ports) < 60
    assert any(line.startswith("s1->s2 class 0: background ") and "no declared arrival" in line for line in ports)


def test_a_queue_without_room_is_marked_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["predict", "hello", "--ports", "--set", "network.defaults.link.buffer=100 B"], capsys, 1)
    assert "too small" in out[out.index("hello: ports") :]


def test_rows_that_are_left_out_are_where_the_table_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["predict", "edge-networks", "--quiet"], capsys, 1)
    assert "more rows with --json" in out and "in the summary" not in out
    out = printed(["predict", "edge-networks", "--quiet", "-o", str(tmp_path / "run")], capsys, 1)
    assert "more rows in the summary" in out


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from timebound.cli.app import execute; sys.exit(execute(sys.argv[1:]))",
    ]
    with subprocess.Popen(
        [*command, "predict", "edge-networks", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(timeout=120) == 1 and "Broken pipe" not in told, "the verdict stays what it is"


def measured(late: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What a run would say: the network as simulated, applications 1 ms later, but for `calm`."""
    code = 0 if options else 1
    summary: dict[str, Any] = json.loads(printed(["simulate", late, "--json", *options], capsys, code))
    for flow in summary["flows"]:
        flow["latency_us"] = {"max": flow["simulated_max_us"]}
        later = 0 if flow["flow"] == "calm" else 1000
        flow["application_us"] = {"max": flow["simulated_max_us"] + later}
    return summary


def drawn(summary: dict[str, Any], columns: int) -> str:
    console = Console(width=columns, file=StringIO())
    table = flow_table(summary)
    fit(table, columns)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_application_latency_has_a_column_where_there_is_room(
    late: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = measured(late, capsys, "--set", "flows.pressure.jitter=0 us")
    out = drawn(summary, 80)
    row = next(line for line in out.splitlines() if line.split()[:2] == ["pressure", "b"])
    observed, application = (duration(summary["flows"][0][which]["max"]) for which in ("latency_us", "application_us"))
    assert observed != application and row.index(observed) < row.index(application), out
    assert "application" in out.splitlines()[1] + out.splitlines()[2] and "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_of_programs_the_application_latency_is_said_to_be_that_of_their_frames(
    late: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = measured(late, capsys)
    first, *others = summary["flows"]
    assert "application max: from the write at the publisher to the callback at" in " ".join(
        drawn(summary, 160).split()
    )
    first["programs"] = [first["segments"][0]["source"]]
    out = " ".join(drawn(summary, 160).split())
    assert (
        "callback at the subscriber; from the first port (the publisher is a program of its node) to the callback"
        in out
    )
    for flow in others:
        flow["application_us"] = None
    first["programs"].append(first["receiver"])
    out = " ".join(drawn(summary, 160).split())
    assert "application max: from the first port to the last (publisher and subscriber are programs" in out
    assert "from the write" not in out


def test_the_application_latency_without_room_is_told_where_it_differs(
    late: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release jitter brings a column of its own."""
    summary = measured(late, capsys)
    for flow in summary["flows"]:
        flow["lost"] = 3
    out = " ".join(drawn(summary, 80).split())
    told = ", ".join(
        f"{flow['flow']} at {flow['receiver']} {duration(flow['application_us']['max'])}"
        for flow in sorted(summary["flows"][:2], key=lambda each: -each["application_us"]["max"])
    )
    assert f"application max: {told}" in out and "calm at" not in out, out
    monkeypatch.setenv("COLUMNS", "160")
    wide = drawn(summary, 160)
    assert "pressure at" not in wide and duration(summary["flows"][0]["application_us"]["max"]) in wide


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_output_that_cannot_be_written_is_told_in_words(more: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "predict", "hello", *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 3 and "error: [Errno 28]" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("width", [50, 80])
def test_no_table_is_wider_than_the_terminal_and_no_verdict_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    table = Table(title="t", box=SIMPLE_HEAD)
    for title in ("flow", "receiver"):
        table.add_column(title, overflow="fold", min_width=8)
    for title in ("observed\nmax", "application\nmax", "worst\nfound", "bound", "end\nto end", "deadline", "lost"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", min_width=9)
    for verdict in ("[magenta]unsupported[/]", "[yellow]disturbed[/]", "met"):
        table.add_row("telemetry[12]", "receiver-7", *["123.4 us"] * 7, verdict)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert all(cell_len(line) <= width for line in lines)
    for verdict in ("unsupported", "disturbed", "met"):
        assert any(verdict in line for line in lines)
    shown = "".join(lines)
    assert "…" not in shown and (width < 80 or shown.count("telem") == 3)


def test_a_run_with_all_figures_keeps_its_caption_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    flow = flow_of_a_run()
    print_table(flow_table({"scenario": {"name": "x"}, "verdict": "met", "flows": [flow]}))
    out = capsys.readouterr().out
    assert "from the write at the publisher to the callback at the subscriber, with hosts" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())
    assert any(line.split()[-1:] == ["unsupported"] for line in out.splitlines())


def flow_of_a_run() -> dict[str, Any]:
    spread = {"min": 1.0, "p50": 1.0, "p99": 1.0, "max": 1628.0}
    return {
        "flow": "telemetry[1]",
        "receiver": "h3",
        "verdict": "unsupported",
        "latency_us": spread,
        "lost": 12,
        "application_us": {**spread, "max": 3665.0},
        "simulated_max_us": 1028.0,
        "worst_found_us": 1128.0,
        "tightness": 1.2,
        "best_us": 3.0,
        "deadline_us": 40000.0,
        "segments": [],
        "decides": True,
        "bound_us": {"reason": None, "bound": 2283.1, "holistic": 2283.0, "calculus": 2283.0},
        "end_to_end_us": {"bound": 4283.0, "reason": None, "parts": []},
    }


BAD = "x\x1b[31m\x9b1m\u202e\u2066\u200b\r\x07y"
SHOWN = r"x\x1b[31m\x9b1m\u202e\u2066\u200b\r\x07y"


def test_what_a_name_holds_is_shown_by_tables_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    table = Table(title=escape(BAD), caption=escape(BAD))
    table.add_column(escape(BAD))
    table.add_row(escape(BAD))
    print_table(table)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 4 and not set(BAD) & set(out) - set("x[31my")


def test_what_a_name_holds_is_shown_by_lines_and_progress_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    stdout(BAD)
    stderr(BAD)
    with TerminalProgress(quiet=False) as progress:
        progress.step("measure", BAD)
        progress.at(0.5, BAD)
        progress.note(BAD)
    seen = capsys.readouterr()
    assert seen.out == f"{SHOWN}\n" and seen.err.count(SHOWN) == 3
    assert not set(BAD) & set(seen.err) - set("x[31my")


def test_every_verb_prints_through_what_escapes() -> None:
    """`print` obeys what a file or a stranger says."""
    allowed = {"common.py", "app.py", "__init__.py"}
    folder = Path(timebound.cli.__file__).parent
    found = [file.name for file in folder.glob("*.py") if re.search(r"(?m)^\s*print\(", file.read_text())]
    assert set(found) <= allowed
    tables = [file.name for file in folder.glob("*.py") if re.search(r"Console\([^)]*\)\.print", file.read_text())]
    assert tables == []
