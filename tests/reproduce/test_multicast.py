"""`timebound reproduce mrt-mqtt`: the cells, their figures, the paper's statements, and going on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from timebound.cli.app import execute
from timebound.engine import programs, runs
from timebound.engine.folder import FolderError
from timebound.engine.progress import SILENT
from timebound.reproduce.multicast import experiment, measure, statements
from timebound.reproduce.multicast.cells import (
    FULL_DURATION_NS,
    PATHS,
    PROTOCOLS,
    TOPICS,
    Cell,
    Protocol,
    scenario_of,
)
from timebound.reproduce.multicast.effort import clock, left
from timebound.reproduce.multicast.stretch import stretched
from timebound.scenario.model import Impairments, MqttStack

SECOND = 1_000_000_000


def cell(protocol: Protocol = "mrt-mqtt", load: str = "low", **other: Any) -> Cell:
    stated: dict[str, Any] = {
        "publishers": 1,
        "duration_ns": SECOND,
        "iterations": 1,
        "seed": 1,
        "evaluations": 20,
        "emulate": False,
    }
    return Cell(protocol=protocol, load=load, **(stated | other))


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_only_the_stack_differs_between_the_cells_of_a_load(protocol: Protocol) -> None:
    found = scenario_of(cell(protocol, publishers=20), 0, emulated=False)
    other = scenario_of(cell("mqtt-bridged", publishers=20), 0, emulated=False)
    assert isinstance(found.stack, MqttStack) and found.stack.kind == protocol
    assert len(found.flows) == 40 and {flow.receivers for flow in found.flows} == {("h5", "h10", "h15")}
    timing = [(flow.name, flow.period_ns, flow.jitter_ns, flow.size_bytes, flow.qos) for flow in found.flows]
    assert timing == [(flow.name, flow.period_ns, flow.jitter_ns, flow.size_bytes, flow.qos) for flow in other.flows]
    assert found.links == other.links and found.background == other.background
    switches = [node for node in found.nodes if node.kind == "switch"]
    assert {(node.switching_min_ns, node.switching_max_ns) for node in switches} == {(10_000, 20_000)}


def test_every_iteration_draws_its_own_periods() -> None:
    periods = [[flow.period_ns for flow in scenario_of(cell(publishers=5), n, emulated=False).flows] for n in (0, 1)]
    assert periods[0] != periods[1]


def test_only_emulated_channels_need_switches_that_take_longer() -> None:
    def switch(protocol: Protocol) -> tuple[str, int]:
        node = scenario_of(cell(protocol), 0, emulated=True).node("s1")
        return node.engine, node.switching_max_ns

    assert switch("mqtt-bridged") == ("fabric", 20_000)
    assert switch("mrt-mqtt") == ("ovs", 20_000_000)
    # Over such switches the controller would refuse what the paper's deadlines may be; classes stay.
    plain, slow = (scenario_of(cell("mrt-mqtt"), 0, emulated=emulated).flows for emulated in (False, True))
    assert {flow.deadline_ns for flow in plain} == {15_000_000, 10_000_000} != {flow.deadline_ns for flow in slow}
    assert [flow.priority for flow in plain] == [flow.priority for flow in slow] == [4, 5]


def test_a_stretched_cell_uses_every_port_as_much_and_takes_so_many_times_as_long() -> None:
    plain = scenario_of(cell("mqtt-bridged", publishers=3), 0, emulated=True)
    slow = scenario_of(cell("mqtt-bridged", publishers=3, stretch=5), 0, emulated=True)
    assert slow.run.duration_ns == 5 * plain.run.duration_ns and slow.run.warm_up_ns == plain.run.warm_up_ns
    assert [flow.period_ns for flow in slow.flows] == [5 * flow.period_ns for flow in plain.flows]
    before, after = (runs.figures_only(scenario, {"predict"})["ports"] for scenario in (plain, slow))
    assert before and len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert one["port"] == other["port"]
        if one["utilisation_declared"] is not None:
            assert other["utilisation_declared"] == pytest.approx(one["utilisation_declared"], rel=1e-3)


def test_what_has_a_time_of_its_own_is_not_stretched() -> None:
    scenario = scenario_of(cell(), 0, emulated=False)
    assert stretched(scenario, 1) == scenario
    with pytest.raises(ValueError, match="at least 1"):
        stretched(scenario, 0)
    held = replace(scenario.links[0].forward, impairments=Impairments(held=True))
    with pytest.raises(ValueError, match="impairments"):
        stretched(replace(scenario, links=(replace(scenario.links[0], forward=held),)), 2)


def test_a_cell_has_bounds_above_what_is_simulated_on_every_path() -> None:
    summary = runs.figures_only(scenario_of(cell(), 0, emulated=False), {"predict", "simulate"})
    found = measure.computed(summary)
    assert list(found) == [f"{path} {topic}" for path in PATHS for topic in TOPICS.values()]
    for entry in found.values():
        simulated = entry["simulated"]
        assert simulated["median_us"] <= simulated["worst_us"] <= entry["searched_us"] <= entry["bound_us"]
    assert found["L_AA beta"]["bound_us"] < found["L_AB beta"]["bound_us"] < found["L_AC beta"]["bound_us"]


def test_without_priorities_nothing_is_promised_beside_bulk_tcp() -> None:
    summary = runs.figures_only(scenario_of(cell("mqtt-bridged"), 0, emulated=False), {"predict", "simulate"})
    for entry in measure.computed(summary).values():
        assert entry["bound_us"] is None and "no declared arrival" in entry["reason"]
        assert entry["simulated"]["worst_us"] > 0


def test_a_run_that_does_not_carry_its_load_is_said_to(tmp_path: Path) -> None:
    scenario = scenario_of(cell(publishers=2, duration_ns=10 * SECOND), 0, emulated=False)
    due = sum(10 * SECOND // flow.period_ns * 3 for flow in scenario.flows)

    def found(sent: int, lost: int) -> dict[str, Any]:
        return {"L_AA alpha": {"messages": sent, "lost": lost}}

    assert measure.load_not_kept(found(due, 0), scenario) is None
    held_back = measure.load_not_kept(found(due // 2, 0), scenario)
    assert held_back is not None and "50% were sent" in held_back
    late = measure.load_not_kept(found(due, due // 10), scenario)
    assert late is not None and "10% had not arrived" in late


def test_the_last_answer_to_a_request_counts(tmp_path: Path) -> None:
    scenario = scenario_of(cell(), 0, emulated=True)
    assert measure.channels(tmp_path, scenario) == {}
    (tmp_path / "live.json").write_text(json.dumps({"epoch_unix_ns": 1_000 * SECOND}))

    def said(second: int, what: str, request: str, outcome: str) -> dict[str, str]:
        time = datetime.fromtimestamp(second, UTC).isoformat()
        return {"time": time, "what": what, "id": request, "outcome": outcome, "side": "publish"}

    lines = [
        said(999, "verdict", "a", "unavailable"),
        said(999, "verdict", "b", "refused"),
        said(1000, "channel", "a", "proven"),
        said(1000, "verdict", "c", "unavailable") | {"side": "subscribe"},
        said(1001, "verdict", "a", "granted"),
        # The run ends after 8 s of warm-up and one that counts.
        said(1010, "verdict", "a", "unavailable"),
    ]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "controller-audit.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measure.channels(tmp_path, scenario) == {"granted": 1, "refused": 1}


def test_an_experiment_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell("mqtt-bridged", iterations=2, evaluations=0), cell("dm-mqtt", evaluations=0)]
    computed = runs.figures_only
    calls: list[str] = []

    def interrupted(scenario: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
        calls.append(scenario.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return computed(scenario, *arguments, **named)

    monkeypatch.setattr(runs, "figures_only", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(cells, tmp_path / "out", SILENT)
    done = experiment.run(cells, tmp_path / "out", SILENT)
    assert calls == ["mrt-mqtt-mqtt-bridged-low"] * 3 + ["mrt-mqtt-dm-mqtt-low"], "the first iteration was kept"
    assert done.exit_code == 0 and done.result["complete"]
    assert [entry["verdict"] for entry in done.result["cells"]] == ["simulated", "simulated"]
    assert len(done.result["cells"][0]["paths"][0]["simulated"]["worst_of_iterations_us"]) == 2
    # More of the same: what there is counts, other conditions do not.
    experiment.run([cell("mqtt-bridged", iterations=2, evaluations=0)], tmp_path / "out", SILENT)
    assert len(calls) == 4
    experiment.run([cell("mqtt-bridged", evaluations=0, seed=9)], tmp_path / "out", SILENT)
    assert len(calls) == 5
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What the paper says" in page and (tmp_path / "out" / "figures" / "low.svg").exists()
    table = pl.read_parquet(tmp_path / "out" / "paths.parquet")
    assert set(table["kind"]) == {"simulated"} and table.height == 6


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "reproduce.json").write_text(json.dumps({"experiment": "mqtt-scalability"}))
    with pytest.raises(FolderError, match="holds other files"):
        experiment.run([], tmp_path, SILENT)


def made(
    protocol: str, load: str, worst: dict[str, float], verdict: str = "simulated", bound: float | None = None
) -> Any:
    """A cell of which only what statements read is there; `worst` by topic, longer on longer paths."""
    paths = []
    for number, path in enumerate(PATHS):
        for topic in TOPICS.values():
            figures = {"worst_us": worst[topic] + 10 * number}
            measured = {"worst_us": 2 * figures["worst_us"]} if verdict != "simulated" else None
            paths.append(
                {
                    "path": path,
                    "topic": topic,
                    "bound_us": bound,
                    "searched_us": figures["worst_us"],
                    "simulated": figures,
                    "emulated": measured,
                }
            )
    return {"protocol": protocol, "load": load, "verdict": verdict, "violations": 0, "paths": paths}


def holds(cells: list[Any]) -> dict[str, bool | None]:
    return {entry["id"]: entry["holds"] for entry in statements.check_all(cells)}


def test_statements_follow_the_figures() -> None:
    plain = made("mqtt-bridged", "low", {"alpha": 900, "beta": 1000})
    dm = made("dm-mqtt", "low", {"alpha": 700, "beta": 700})
    mrt = made("mrt-mqtt", "low", {"alpha": 600, "beta": 300}, bound=700)
    found = holds([plain, dm, mrt])
    assert found["multicast-mrt"] and found["multicast-dm"] and found["priorities"] and found["beta"]
    assert found["longer"] and found["bounded"]
    assert found["local"] is None and found["deviation-low"] is None
    slow = made("mrt-mqtt", "low", {"alpha": 2000, "beta": 2500}, bound=1000)
    found = holds([plain, dm, slow])
    assert found["multicast-mrt"] is False and found["priorities"] is False and found["beta"] is False
    assert found["bounded"] is False, "a bound below what was searched"
    assert set(holds([]).values()) == {None}


def test_what_the_machine_disturbed_is_not_compared() -> None:
    """Emulated figures are twice the simulated ones here: they count only where both cells kept up."""
    good = made("dm-mqtt", "low", {"alpha": 100, "beta": 100}, "good")
    plain = made("mqtt-bridged", "low", {"alpha": 150, "beta": 150}, "good")
    disturbed = made("mqtt-bridged", "low", {"alpha": 150, "beta": 150}, "disturbed")

    def said(cells: list[Any]) -> str:
        return next(str(e["ours"]) for e in statements.check_all(cells) if e["id"] == "multicast-dm")

    assert "emulated" in said([good, plain]) and "simulated" in said([good, disturbed])


def test_two_worst_cases_that_are_as_good_as_equal_are_no_reduction() -> None:
    cells = [
        made("mqtt-bridged", "high", {"alpha": 85_000, "beta": 85_000}),
        made("dm-mqtt", "high", {"alpha": 84_900, "beta": 84_900}),
    ]
    assert holds(cells)["multicast-dm"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mrt-mqtt", "--publishers", "0"], "--publishers 0 is out of range"),
        (["mrt-mqtt", "--duration", "10 ms"], "--duration 10 ms is out of range"),
        (["mrt-mqtt", "--duration", "soon"], "--duration"),
        (["mrt-mqtt", "--iterations", "-1"], "--iterations -1 is out of range"),
        (["mrt-mqtt", "--qos", "1"], "mrt-mqtt has no --qos"),
        (["mrt-mqtt", "--background", "tools", "--no-emulation"], "--no-emulation has none"),
        (["mrt-mqtt-bounds", "--background", "tools"], "mrt-mqtt-bounds has no --background"),
        (["mrt-mqtt-bounds", "--publishers", "2"], "mrt-mqtt-bounds has no --publishers"),
        (["--load", "low"], "--load without an experiment"),
    ],
)
def test_what_is_not_possible_is_refused_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["reproduce", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_command_prints_paths_and_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "reproduce mrt-mqtt --no-emulation --load low --protocol dm-mqtt --publishers 1 --evaluations 0 --quiet"
    assert execute([*words.split(), "--duration", "1 s", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "L_AC beta" in shown and "what the paper says" in shown


def test_tools_make_the_background_of_what_is_emulated_and_of_nothing_else() -> None:
    tools = cell("dm-mqtt", background="tools", stretch=10)
    ours = scenario_of(replace(tools, background="generators"), 0, emulated=True)
    made_by = {source.name: source.program for source in scenario_of(tools, 0, emulated=True).background}
    assert {name.partition("[")[0]: program for name, program in made_by.items()} == {
        "d-itg": "d-itg",
        "vlc": "vlc",
        "vsftpd": "vsftpd",
    }
    rates = [source.rate_bps for source in scenario_of(tools, 0, emulated=True).background]
    assert len(rates) == 9 and rates == [source.rate_bps for source in ours.background]
    assert scenario_of(tools, 0, emulated=False) == scenario_of(
        replace(tools, background="generators"), 0, emulated=False
    )


def test_a_missing_tool_is_named_with_its_package_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "SERVERS", str(tmp_path))
    words = ["reproduce", "mrt-mqtt", "--background", "tools", "--output", str(tmp_path / "out")]
    assert execute(words) == 3
    said = capsys.readouterr().err
    for program, package in (("ITGSend", "d-itg"), ("vlc", "vlc-bin"), ("vsftpd", "vsftpd")):
        assert program in said and package in said
    assert not (tmp_path / "out").exists()


def test_what_came_of_each_source_of_background_is_measured(tmp_path: Path) -> None:
    scenario = scenario_of(cell(background="tools"), 0, emulated=True)
    frames = {
        "stream": ["background/d-itg[1]", "background/d-itg[2]", "background/d-itg[1]", "background/vlc[3]", "alpha"],
        "wire_bytes": [1000, 500, 4000, 300, 900],
        "ingress_ns": [0, SECOND // 2, 2 * SECOND, 5, 5],
        "delivered_ns": [100, SECOND, 2 * SECOND + 9, -1, 9],
    }
    pl.DataFrame(frames).write_parquet(tmp_path / "frames.parquet")
    found = measure.background(tmp_path, scenario, 10)
    # Of one second, so many times as slow; what was lost or came after the end does not count.
    assert [(source["name"], source["measured_bps"]) for source in found] == [
        ("d-itg", 120_000),
        ("vlc", 0),
        ("vsftpd", 0),
    ]
    assert found[0]["declared_bps"] == 3 * 3_333_000 * 10
    said = experiment._silent(found)
    assert said is not None and "vlc, vsftpd did not come" in said
    assert experiment._silent(found[:1]) is None


def test_an_iteration_of_the_paper_has_100_messages_of_every_publisher() -> None:
    full = scenario_of(cell(publishers=60, duration_ns=FULL_DURATION_NS), 0, emulated=False)
    assert {(flow.period_ns + flow.jitter_ns <= 20_400_000) for flow in full.flows} == {True}
    assert min((FULL_DURATION_NS - flow.jitter_ns) // flow.period_ns for flow in full.flows) >= 100


def test_the_fewest_messages_of_a_publisher_are_counted(tmp_path: Path) -> None:
    messages = {"flow": ["a", "a", "a", "b"], "receiver": ["h5", "h5", "h10", "h5"]}
    pl.DataFrame(messages).write_parquet(tmp_path / "messages.parquet")
    assert measure.fewest_messages(tmp_path) == 1


def test_what_is_left_is_estimated_from_what_is_finished() -> None:
    one = cell("mrt-mqtt", iterations=1000, duration_ns=FULL_DURATION_NS, emulate=True)
    other = replace(one, protocol="mqtt-bridged")
    # 8 s of warm-up with channels and 2 s without, 2.0004 s of run.
    before = left([one, other], {})
    assert (before.wanted, before.kept) == (2000, 0) and before.least_s == pytest.approx(14_000.8)
    assert (
        before.words()
        == "2,000 iterations, 0 of them finished; the rest takes at least 3 h 53 min in real time, and computing and set-up beside"
    )
    later = left([one, other], {one.name: [20.0, 30.0]})
    # The other one is expected to take as many times its least time.
    assert later.expected_s == pytest.approx(998 * 25 + 1000 * 4.0004 * 25 / 10.0004)
    assert "about" in later.words() and "2 of them finished" in later.words()
    computed = [replace(one, emulate=False), replace(other, emulate=False)]
    assert "shows with the first iteration" in left(computed, {}).words()
    assert left(computed, {one.name: [3.0]}).expected_s == pytest.approx(3 * 1999)
    assert left([cell(iterations=1)], {"mrt-mqtt-low": [1.0]}).words() == "1 iteration, 1 of them finished"


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (600, "10 min"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")]
)
def test_long_times_are_told_in_words(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_a_failed_emulation_is_tried_again_and_the_estimate_stands_before_each_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def emulated(cell: Cell, index: int, *rest: Any, **named: Any) -> dict[str, Any]:
        tries.append(index)
        return {"not_emulated": "the run failed: no", "failed": len(tries) == 1, "attempts": 1}

    monkeypatch.setattr(experiment, "_emulated", emulated)
    said: list[str] = []

    class Heard(type(SILENT)):  # type: ignore[misc]
        def step(self, name: str, text: str) -> None:
            said.append(f"{name}: {text}")

    wanted = [cell("mqtt-bridged", iterations=2, evaluations=0, emulate=True)]
    experiment.run(wanted, tmp_path / "out", Heard())
    experiment.run(wanted, tmp_path / "out", Heard())
    assert tries == [0, 1, 0], "the second one counted"
    assert said[0].startswith("plan: 1 cell, 2 iterations, 0 of them finished; the rest takes at least")
    assert any(
        "iteration 2 of 2; in all 2 iterations, 1 of them finished; the rest takes about" in words for words in said
    )
