"""`timebound reproduce mrt-mqtt-bounds`: the networks, what is measured, and the statements as pure functions of the cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timebound.cli.app import execute
from timebound.reproduce.bounds import statements
from timebound.reproduce.bounds.measure import METHODS, measure
from timebound.reproduce.bounds.networks import FRAME_BYTES, LOADS, case


def loads_of(cell: dict[str, Any]) -> dict[str, float]:
    return {port["port"]: port["utilisation"] for port in cell["ports"]}


def method(cell: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in cell["methods"] if entry["name"] == name)


@pytest.fixture(scope="module")
def low() -> dict[str, Any]:
    return measure(case("low", "topics-of-a"), 60, 1)


def test_the_network_is_the_papers() -> None:
    for load, publishers in LOADS.items():
        found = case(load, "topics-of-a")
        assert len(found.publishers) == 2 * publishers
        assert {p.source: p.topic for p in found.publishers} == {"h1": "alpha", "h2": "beta"}
        assert all(15e6 <= p.period_ns <= 20e6 and p.jitter_ns == 400_000 for p in found.publishers)
        assert {p.topic: p.priority for p in found.publishers} == {"alpha": 4, "beta": 5}
    assert len(case("low", "all").publishers) == 6 * 20
    stream = case("low", "all").declaration["streams"][0]
    assert stream["destinations"] == ["h5", "h10", "h15"]
    assert stream["arrival"]["frames_bytes"] == [FRAME_BYTES] == [1538]


def test_utilisation_comes_first_and_is_what_the_text_implies(low: dict[str, Any]) -> None:
    """0.28 on the way up with the topics of A; 0.84 on a broker's link with all (mean period 17.5 ms; drawn ones differ a little)."""
    ports = loads_of(low)
    for port in ("s1->h5", "s1->s4", "s4->s2", "s2->h10", "s4->s5", "s5->s3", "s3->h15"):
        assert ports[port] == pytest.approx(0.28, abs=0.01)
    assert ports["h1->s1"] + ports["h2->s1"] == pytest.approx(ports["s1->s4"], abs=1e-5)
    by_load = {load: loads_of(measure(case(load, "all"), 0, 1))["s2->h10"] for load in LOADS}
    assert by_load == pytest.approx({"low": 0.84, "medium": 1.69, "high": 2.53}, abs=0.04)


def test_no_worst_case_found_is_above_a_safe_bound_and_the_printed_trajectory_is_below(low: dict[str, Any]) -> None:
    assert low["evaluations"] == 60
    for group in low["figures"]:
        seen, values = group["simulated_us"], group["values_us"]
        assert 0 < seen <= values["bound"] <= min(values["holistic"], values["calculus"])
        assert values["trajectory-as-published"] < seen
    assert method(low, "trajectory-as-published")["largest_deviation_percent"] < 0
    assert {m["name"]: m["safety"] for m in low["methods"]} == {m.name: m.safety for m in METHODS}
    assert all(m["compute_ms"] > 0 for m in low["methods"])


def test_an_overloaded_port_leaves_no_finite_bound_and_nothing_to_search_for() -> None:
    cell = measure(case("high", "all"), 10, 1)
    assert cell["evaluations"] == 0 and "utilisation is 1 or more" in cell["not_searched"]
    for group in cell["figures"]:
        assert group["simulated_us"] is None
        assert group["values_us"]["bound"] is None and "is 1 or more" in group["reasons"]["bound"]
    assert method(cell, "bound")["largest_deviation_percent"] is None


def test_statements_are_decided_by_the_cells(low: dict[str, Any]) -> None:
    found = {entry["id"]: entry for entry in statements.check_all([low])}
    assert found["trajectory-above"]["holds"] is False
    assert found["beta"]["holds"] is True and found["longer"]["holds"] is True
    assert (
        found["deviation-trajectory-low"]["paper"] == "+7.3 %" and found["deviation-holistic-low"]["paper"] == "+32.7 %"
    )
    assert found["deviation-holistic-low"]["holds"] is None
    assert "deviation-holistic-high" not in found
    turned = json.loads(json.dumps(low))
    for group in turned["figures"]:
        group["topic"] = {"alpha": "beta", "beta": "alpha"}[group["topic"]]
    found = {entry["id"]: entry for entry in statements.check_all([turned])}
    assert found["beta"]["holds"] is False and found["longer"]["holds"] is True


def test_without_a_search_nothing_is_decided() -> None:
    found = {entry["id"]: entry for entry in statements.check_all([measure(case("low", "topics-of-a"), 0, 1)])}
    for name in ("holistic-above", "trajectory-above", "tighter", "beta", "longer", "deviation-trajectory-low"):
        assert found[name]["holds"] is None


def test_the_papers_numbers_are_those_of_its_text() -> None:
    found = {
        (entry["load"], entry["method"]): (entry["deviation_percent"], entry["compute_ms"])
        for entry in statements.published()
    }
    assert found == {
        ("low", "trajectory"): (7.3, 964), ("medium", "trajectory"): (8.5, 1140), ("high", "trajectory"): (9.7, 1346),
        ("low", "holistic"): (32.7, 262), ("medium", "holistic"): (34.9, 308), ("high", "holistic"): (36.8, 345),
    }  # fmt: skip


def test_the_command_writes_table_page_and_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "b"
    arguments = [
        "reproduce",
        "mrt-mqtt-bounds",
        "-o",
        str(folder),
        "-q",
        "--evaluations",
        "20",
        "--reading",
        "topics-of-a",
    ]
    assert execute(arguments) == 0
    out = capsys.readouterr().out
    assert "UNSAFE, not a bound" in out and "experimental, not a bound" in out and "utilisation: " in out
    result = json.loads((folder / "reproduce.json").read_text())
    assert [cell["load"] for cell in result["cells"]] == ["low", "medium", "high"]
    page = (folder / "report.html").read_text()
    for words in ("Fig. 16", "Fig. 17", "Fig. 18", "UNSAFE, not a bound", "no number is read off one"):
        assert words in page
    assert {file.name for file in (folder / "figures").iterdir()} == {f"topics-of-a-{load}.svg" for load in LOADS}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mrt-mqtt-bounds", "--evaluations=-1"], "--evaluations -1 is out of range"),
        (["mrt-mqtt-bounds", "--seed=-1"], "--seed -1 is out of range"),
        (["mrt-mqtt-bounds", "--reading", "some"], "some"),
        (["velox-model", "--evaluations", "5"], "velox-model has no --evaluations"),
    ],
)
def test_options_without_sense_are_refused(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["reproduce", *arguments, "-o", str(tmp_path / "x")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
