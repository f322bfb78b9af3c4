"""The command line as a user meets it: exit codes, what goes where, errors with their place."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from timebound.cli.app import execute

PLANT = """name: plant
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {sensor: host, broker: host, control: host, s1: switch, s2: switch}
  links: [[sensor, s1], [broker, s1], {between: [s1, s2], rate: 10 Mbit/s}, [s2, control]]
flows:
  - {name: pressure, from: sensor, to: control, size: 200 B, period: 20 ms, jitter: 1 ms, deadline: 20 ms, priority: 5, qos: 1}
stack: {mqtt: {broker: broker}}
run: {duration: 2 s, warm-up: 0 s, seed: 1, simulate: {search: 50}}
"""


@pytest.fixture
def plant(tmp_path: Path) -> str:
    file = tmp_path / "plant.yaml"
    file.write_text(PLANT)
    return str(file)


def test_interrupted_in_the_search_nothing_was_shown_of_what_it_had_found(plant: str) -> None:
    command = [sys.executable, "-c", "from timebound.cli import main; main()", "simulate", plant, "--search", "60 s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        while "search" not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        process.send_signal(signal.SIGINT)
        table, rest = process.communicate(timeout=30)
    assert process.returncode == 130 and "The search for worst cases was interrupted after" in rest, rest
    assert "pressure" in table and "none" not in table, "the plain run is over when the search begins"


def test_interrupted_in_the_search_a_run_emulated_nothing_and_kept_what_was_found(
    plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("timebound.engine.core.Network.search", interrupt)
    assert execute(["run", plant, "-o", str(tmp_path / "out"), "--quiet"]) == 130
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["search_interrupted"] == 0 and summary["flows"][0]["simulated_max_us"] > 0
    assert summary["precision"]["verdict"] != "good" and summary["flows"][0]["latency_us"] is None
    assert "was interrupted after 0 evaluations" in (tmp_path / "out" / "report.html").read_text()


def test_predict_prints_json_and_nothing_else(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", plant, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    flow = summary["flows"][0]
    assert summary["verdict"] == "met" and flow["bound_us"]["bound"] > 1000 and flow["latency_us"] is None
    assert [segment["path"] for segment in flow["segments"]] == [
        ["sensor->s1", "s1->broker"], ["broker->s1", "s1->s2", "s2->control"]
    ]  # fmt: skip


def test_simulated_worst_cases_stay_below_the_bound(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["simulate", plant, "--json"]) == 0
    flow = json.loads(capsys.readouterr().out)["flows"][0]
    assert 0 < flow["simulated_max_us"] <= flow["bound_us"]["bound"]


def test_simulation_is_reproducible(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("1", "1", "2"):
        execute(["simulate", plant, "--json", "--set", f"run.seed={seed}"])
        outputs.append(json.loads(capsys.readouterr().out)["flows"])
    assert outputs[0] == outputs[1] != outputs[2]


def test_an_overloaded_port_has_no_finite_bound_and_says_why(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = execute(
        ["predict", plant, "--json", "--set", "flows.pressure.period=100 us", "--set", "flows.pressure.deadline=100 us"]
    )
    flow = json.loads(capsys.readouterr().out)["flows"][0]
    assert code == 1 and flow["verdict"] == "unbounded"
    assert flow["bound_us"]["bound"] is None and "utilisation" in flow["bound_us"]["reason"]


def test_losses_are_unsupported_and_give_no_number(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = execute(["predict", plant, "--json", "--set", "network.defaults.link.loss=1 %"])
    flow = json.loads(capsys.readouterr().out)["flows"][0]
    assert code == 1 and flow["verdict"] == "unsupported" and flow["bound_us"]["bound"] is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["predict", "no-such-file.yaml"], "does not exist"),
        (["predict", "helo"], "did you mean 'hello'?"),
        (["predict"], "SCENARIO"),
        (["predct", "hello"], "predct"),
        (["predict", "hello", "--set", "nonsense"], "KEY=VALUE"),
        (["predict", "hello", "--set", "flows.alarm.perod=10 ms"], "period"),
        (["predict", "hello", "--set", "flows.alarm.period=10"], "unit"),
        (["predict", "hello", "--set", "network.x=3"], " --> --set network.x=3 (network.x)"),
        (["predict", "hello", "--set", "flows.alarm.period=10"], " --> --set flows.alarm.period=10 (flows[0].period)"),
        (
            ["predict", "hello", "--set", "network.links.0.between=[h1, zz]"],
            "read with --set network.links.0.between=[h1, zz]",
        ),
        (["predict", "hello", "--set", "flows.alarm.via=[]"], "expected at least 1 entry, found an empty list"),
        (["predict", "hello", "--set", "name=''"], "expected at least 1 character, found an empty text"),
        (["show", "hello", "--force"], "--force without --output"),
        (["predict", "hello", "--assign", "routes", "--force"], "--force without --output"),
        (["report", "no-such-folder"], "no run folder"),
        (["predict", "hello", "--assign-by", "audsley"], "--assign-by without --assign"),
        (["predict", "hello", "--assign-for", "60 s"], "--assign-for without --assign"),
        (["predict", "hello", "--assign-for", "60 s", "--explain", "alarm"], "--assign-for without --assign"),
        (["predict", "hello", "--assign", "routes", "--assign-by", "best"], "--assign-by says how classes are found"),
        (["predict", "hello", "--assign", "routes", "--ports"], "--assign beside --ports"),
        (["predict", "hello", "--assign", "routes", "--method", "calculus"], "--assign beside --method"),
        (["doctor", "--quick"], "--quick is for --calibrate"),
        (["show", "hello", "--output", "picture.bmp"], "unknown kind of file"),
    ],
)
def test_wrong_input_ends_with_code_2_and_a_hint(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and not captured.out


def test_files_are_not_overwritten_unasked(
    plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run folder that holds something else is left alone."""
    from timebound.engine import broker_profile

    def measured(*_: object, **__: object) -> None:
        raise AssertionError("a profile is not measured only to be refused")

    monkeypatch.setattr(broker_profile, "profile", measured)
    run = tmp_path / "run"
    assert execute(["predict", plant, "-o", str(run), "--quiet"]) == 0
    for name, arguments in (
        ("thesis.svg", ["show", plant]),
        ("thesis.yaml", ["predict", plant, "--assign", "priorities", "--quiet"]),
        ("thesis.json", ["profile-broker", "--quiet"]),
        ("thesis.parquet", ["packets", str(tmp_path / "some.pcapng")]),
        ("thesis.html", ["compare", str(run), str(run)]),
    ):
        precious = tmp_path / name
        precious.write_text("precious")
        (tmp_path / "some.pcapng").touch()
        capsys.readouterr()
        assert execute([*arguments, "--output", str(precious)]) == 2, name
        assert f"{precious} exists" in (told := capsys.readouterr().err) and "--force" in told
        assert precious.read_text() == "precious"
    for name, arguments in (
        ("thesis.svg", ["show", plant]),
        ("thesis.yaml", ["predict", plant, "--assign", "priorities", "--quiet"]),
        ("thesis.html", ["compare", str(run), str(run)]),
    ):
        assert execute([*arguments, "--output", str(tmp_path / name), "--force"]) == 0, name
        assert (tmp_path / name).read_text() != "precious"
    # An earlier comparison is replaced as an earlier run is.
    assert execute(["compare", str(run), str(run), "--output", str(tmp_path / "thesis.html")]) == 0


def test_errors_are_json_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", "helo", "--json"]) == 2
    assert "did you mean 'hello'?" in json.loads(capsys.readouterr().out)["problems"][0]["hint"]


def test_a_folder_with_other_files_is_not_touched(
    plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.json").write_text("{}")
    assert execute(["predict", plant, "--output", str(precious)]) == 2
    assert [file.name for file in precious.iterdir()] == ["thesis.json"]
    assert "holds other files" in capsys.readouterr().err


def test_a_run_folder_is_written_and_used_again(plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        assert execute(["simulate", plant, "--output", str(folder), "--quiet"]) == 0
    names = {file.name for file in folder.iterdir()}
    assert names >= {"scenario.yaml", "plan.json", "manifest.json", "summary.json", "simulated.parquet", "report.html"}
    assert execute(["predict", str(folder / "scenario.yaml"), "--json"]) == 0
    capsys.readouterr()
    assert execute(["compare", str(folder), str(folder), "--output", str(tmp_path / "both.html")]) == 0
    assert (tmp_path / "both.html").stat().st_size > 1000
    assert execute(["report", str(folder)]) == 0


def test_built_in_scenarios_are_well_formed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["scenarios", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {entry["name"] for entry in entries} >= {"hello", "edge-networks", "backbone"}
    for entry in entries:
        assert entry["description"]
        assert execute(["validate", entry["name"]]) == 0


def test_show_draws_and_exports(plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["show", plant]) == 0
    assert "sensor" in capsys.readouterr().out
    for suffix, start in (
        (".svg", b"<svg"),
        (".png", b"\x89PNG"),
        (".graphml", b"<?xml"),
        (".gml", b"graph"),
        (".json", b"{"),
    ):
        file = tmp_path / f"topology{suffix}"
        assert execute(["show", plant, "--output", str(file)]) == 0
        assert file.read_bytes().lstrip().startswith(start)


def test_every_verb_has_help_that_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (
        "run",
        "predict",
        "simulate",
        "emulate",
        "report",
        "compare",
        "validate",
        "show",
        "scenarios",
        "doctor",
    ):
        assert execute([verb, "--help"]) == 0
        assert len(capsys.readouterr().out) > 200


def test_a_full_disk_is_said_in_words(
    plant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import timebound.report
    from timebound.report import ReportError

    def full(folder: Path) -> Path:
        raise ReportError(f"the report cannot be written to {folder}: No space left on device")

    monkeypatch.setattr(timebound.report, "write_report", full)
    folder = Path(plant).parent / "run"
    assert execute(["predict", plant, "--output", str(folder)]) == 3
    assert "No space left on device" in capsys.readouterr().err and (folder / "summary.json").exists()


def test_a_queue_without_room_for_its_backlog_is_not_met(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", plant, "--json", "--set", "network.defaults.link.buffer=100 B"]) == 1
    flow = json.loads(capsys.readouterr().out)["flows"][0]
    assert flow["verdict"] == "missed" and "has room for 100" in flow["risk"]


def test_an_assignment_that_queues_may_lose_is_no_promise(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "network.defaults.link.buffer=300 B"]
    assert execute(["predict", plant, *small, "--assign", "priorities"]) == 1
    out = capsys.readouterr().out
    assert "deadlines not promised: 0 before" not in out and "messages can be lost" in out
    assert execute(["predict", plant, "--assign", "priorities"]) == 0
    assert "messages can be lost" not in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["validate", "predict", "admit"])
def test_with_standard_output_closed_the_verdict_is_the_exit_code(plant: str, verb: str) -> None:
    command = "import sys; from timebound.cli.app import execute; sys.exit(execute(sys.argv[1:]))"
    line = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", command, verb, plant]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_a_folder_that_is_being_written_is_refused(
    plant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl

    folder = tmp_path / "busy"
    line = [sys.executable, "-c", "import sys; from timebound.cli.app import execute; sys.exit(execute(sys.argv[1:]))"]
    subprocess.run([*line, "predict", plant, "--output", str(folder)], check=True, capture_output=True, timeout=120)
    with (folder / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert execute(["predict", plant, "--output", str(folder)]) == 2
    assert "another process is writing" in capsys.readouterr().err


def test_a_search_by_evaluations_or_time_tells_how_much_is_open(plant: str, capsys: pytest.CaptureFixture[str]) -> None:
    tightness = {}
    for effort in ("4", "2000", "300 ms"):
        assert execute(["simulate", plant, "--search", effort, "--json"]) == 0
        (flow,) = json.loads(capsys.readouterr().out)["flows"]
        assert flow["tightness"] == pytest.approx(flow["bound_us"]["bound"] / flow["simulated_max_us"], abs=1e-3)
        tightness[effort] = flow["tightness"]
    assert 1 <= tightness["2000"] <= tightness["4"]
    assert execute(["simulate", plant, "--search", "400", "--quiet"]) == 0
    table = capsys.readouterr().out
    assert "/found" in table and "true worst case" in table
    assert execute(["simulate", plant, "--search=-5"]) == 2
    assert "0 to 1000000000 of them, or a time: 30 s" in capsys.readouterr().err
