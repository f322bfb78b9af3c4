"""`reproduce velox-model`: every published number to its printed digit, the corrected ones by another way, and a bound beside them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.cli.app import execute
from timebound.reproduce.velox import bound, experiment, model
from timebound.reproduce.velox.model import Parameters
from timebound.reproduce.velox.page import number

PAPER = Parameters()
COMPUTED = ("transmission", "network", "pub_and_sub", "both_cpus", "total", "waiting")


@pytest.mark.parametrize("name", COMPUTED)
def test_the_papers_formulas_give_every_number_of_its_tables_to_the_printed_digit(name: str) -> None:
    printed = model.published()[name]
    assert model.rounded(model.as_printed(PAPER)[name], printed.digits) == printed.value


def test_the_papers_parameters_are_those_of_its_tables() -> None:
    printed = {name: entry.value for name, entry in model.published().items()}
    assert (PAPER.hops, PAPER.packets, PAPER.packet_bits) == (
        printed["hops"], printed["packets"], printed["packet_bits"],
    )  # fmt: skip
    assert (PAPER.processing_us, PAPER.propagation_us) == (printed["processing"], printed["propagation"])
    assert (PAPER.appmid_us, PAPER.midapp_us) == (printed["appmid"], printed["midapp"])


def test_the_shares_of_the_text_are_those_of_the_corrected_reading_and_not_of_the_printed_formulas() -> None:
    printed, right, published = model.as_printed(PAPER), model.corrected(PAPER), model.published()
    for name in ("pi_0", "pi_1", "rho"):
        assert model.rounded(right[name], 1) == published[name].value
    for name in ("pi_0", "pi_1"):
        assert model.rounded(printed[name], 1) != published[name].value


def test_the_difference_to_the_measurement_is_the_printed_one() -> None:
    published = model.published()
    gap = published["measured"].value - model.as_printed(PAPER)["total"]
    # The paper prints 44 for 43.26 and relates it to the model: 14 %.
    assert math.ceil(gap) == published["difference"].value
    assert round(float(100 * gap / model.as_printed(PAPER)["total"])) == published["difference_share"].value


def test_the_corrected_figures_by_another_way() -> None:
    right = model.corrected(PAPER)
    arrivals, services = 12_000.0, 125_000.0
    # Stationary distribution of the birth-death chain, its mean, and Little's law: no formula for the sojourn time is used.
    weights = [1.0]
    for _ in range(200):
        weights.append(weights[-1] * arrivals / services)
    customers = sum(count * weight for count, weight in enumerate(weights)) / sum(weights)
    sojourn = customers / arrivals * 1e6
    assert float(right["customers"]) == pytest.approx(customers, rel=1e-12)
    assert float(right["sojourn"]) == pytest.approx(sojourn, rel=1e-12)
    assert f"{float(right['sojourn']):.2f}" == "8.85"
    assert right["transmission"] == Fraction("81.92")
    assert right["network"] == Fraction("169.84") == 2 * Fraction("0.5") + 2 * Fraction("81.92") + 5
    assert float(right["total"]) == pytest.approx(1.6 + 42 + 2 * sojourn + 169.84, rel=1e-12)
    assert model.shown(right["total"]) == "231.14"


def test_the_two_state_chain_is_stationary_in_the_corrected_reading_only() -> None:
    """Balance: what leaves state 0 (rate lambda) enters it again from state 1 (rate mu)."""
    right, printed = model.corrected(PAPER), model.as_printed(PAPER)
    assert right["pi_0"] * PAPER.arrivals_per_s == right["pi_1"] * PAPER.services_per_s
    assert printed["pi_0"] * PAPER.arrivals_per_s != printed["pi_1"] * PAPER.services_per_s
    assert right["pi_0"] + right["pi_1"] == 1


def test_the_mean_wait_for_the_link_is_that_of_a_simulated_queue() -> None:
    """M/D/1 by Lindley's recursion at a load where 400,000 arrivals settle the mean."""
    import random

    parameters = Parameters(arrivals_per_s=Fraction(6_000))
    draws, service = random.Random(7), 81.92
    wait = total = 0.0
    count = 400_000
    for _ in range(count):
        wait = max(0.0, wait + service - draws.expovariate(6_000 / 1e6))
        total += wait
    assert float(model.corrected(parameters)["link_waiting"]) == pytest.approx(total / count, rel=0.03)


def test_every_defect_is_named_with_both_numbers() -> None:
    result = experiment.result_of(PAPER)
    numbers = {defect["id"]: (defect["printed"], defect["right"]) for defect in result["defects"]}
    assert numbers["waiting"] == ("83.3 us", "0.85 us")
    assert numbers["sojourn"] == ("91.3 us", "8.85 us")
    assert numbers["probabilities"] == ("0.0876 and 0.9124", "8.85 us")
    assert numbers["swapped"] == ("0.0876 and 0.9124", "0.9124 and 0.0876")
    assert numbers["counted-once-lambda"] == ("83.3 us", "1.70 us")
    assert numbers["counted-once-mu"] == ("8.00 us", "16.00 us")
    (once,) = (defect for defect in result["defects"] if defect["id"] == "counted-once-lambda")
    assert "166.6 us, by the paper's own eq. 4" in once["why"]
    assert numbers["transmission"] == ("82.92 us", "81.92 us")
    assert numbers["link-waiting"] == ("0 us", "2374.13 us")


def test_the_table_and_the_list_of_defects_correct_a_quantity_to_the_same_figure() -> None:
    result = experiment.result_of(PAPER)
    rows = {entry["id"]: entry for entry in result["quantities"]}
    right = {defect["id"]: defect["right"] for defect in result["defects"]}
    for row, defect in (
        ("pub_and_sub", "counted-once-lambda"), ("both_cpus", "counted-once-mu"), ("waiting", "waiting"), ("transmission", "transmission"),
    ):  # fmt: skip
        assert number(rows[row]["corrected"], rows[row]["unit"]) == right[defect]
    # What table 2 is made of adds up to its total, printed and corrected.
    for side in ("printed", "corrected"):
        terms = sum(rows[name][side] or 0.0 for name in ("pub_and_sub", "both_cpus", "network")) + 42 + 1.6
        assert terms == pytest.approx(rows["total"][side], abs=1e-9)


def test_the_packets_of_the_paper_do_not_fit_its_link_once_they_are_ethernet_frames() -> None:
    counted, ethernet = bound.bounds(PAPER)
    assert ethernet["frame_bytes"] == 1024 + 14 + 4 + 20 and ethernet["utilisation"] > 1
    assert ethernet["bound_us"] is None and "is 1 or more" in ethernet["reason"]
    assert counted["utilisation"] == pytest.approx(0.98304)
    assert counted["bound_us"] is not None


def by_hand(frame_ns: int, period_ns: int, hops: int) -> int:
    """The holistic bound of one flow on a line, written out again (timing.md): blocking by one full frame on every port."""
    blocking, jitter, total = 123_040, 0, 0
    for hop in range(hops):
        worst, k = 0, 0
        busy = blocking + frame_ns
        while (longer := blocking + -(-(busy + jitter) // period_ns) * frame_ns) != busy:
            busy = longer
        times = [0]
        while (t := k * period_ns - jitter) < busy:
            times += [t] if t >= 0 else []
            k += 1
        for t in times:
            started = blocking + ((t + jitter) // period_ns + 1) * frame_ns - frame_ns
            worst = max(worst, started + frame_ns - t)
        total += worst + 500 + (5_000 if hop + 1 < hops else 0)
        jitter += worst - frame_ns
    return total


@pytest.mark.parametrize(("rate", "hops"), [(12_000, 2), (6_000, 2), (100, 5), (3_000, 1)])
def test_the_bound_beside_the_model_is_the_one_written_out_by_hand(rate: int, hops: int) -> None:
    parameters = Parameters(arrivals_per_s=Fraction(rate), hops=hops)
    counted = bound.bounds(parameters)[0]
    assert counted["bound_us"] is not None
    # Never above what the holistic approach gives, and above the unloaded network with a full frame before it at each port.
    assert counted["bound_us"] * 1000 <= by_hand(81_920, 1_000_000_000 // rate, hops)
    alone = hops * (81_920 + 123_040 + 500) + (hops - 1) * 5_000
    assert counted["bound_us"] * 1000 >= alone - hops


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 20_000), st.integers(20_001, 10**6), st.integers(1, 12), st.integers(1, 20), st.integers(64, 12_000)
)
def test_any_parameters_give_means_that_agree_and_a_bound_above_the_unloaded_network(
    arrivals: int, services: int, hops: int, packets: int, bits: int
) -> None:
    parameters = Parameters(
        arrivals_per_s=Fraction(arrivals),
        services_per_s=Fraction(services),
        hops=hops,
        packets=packets,
        packet_bits=bits,
    )
    right, printed = model.corrected(parameters), model.as_printed(parameters)
    assert right["pi_0"] + right["pi_1"] == 1 == printed["pi_0"] + printed["pi_1"]
    assert right["waiting"] + right["service"] == right["sojourn"]
    assert right["network"] <= printed["network"]
    ends = right["pub_and_sub"] + right["both_cpus"]
    assert ends == 2 * right["sojourn"]
    assert right["total"] == parameters.midapp_us + parameters.appmid_us + ends + right["network"]
    for entry in bound.bounds(parameters):
        assert (entry["bound_us"] is None) == (entry["reason"] is not None)
        if entry["bound_us"] is not None:
            assert entry["bound_us"] >= float(right["network"]) - 1e-3


def read(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "reproduce.json").read_text())
    return document


def test_the_command_prints_the_table_and_writes_page_figure_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["reproduce", "velox-model", "-o", str(tmp_path / "v")]) == 0
    out = capsys.readouterr().out
    for words in ("means, never bounds", "171.84", "306.74", "169.84 us", "231.14 us", "no finite bound", "415.92 us"):
        assert words in out
    page = (tmp_path / "v" / "report.html").read_text()
    assert "306.74" in page and "None of them is a bound" in page and "<svg" in page
    assert (tmp_path / "v" / "figures" / "parts.svg").read_text().startswith("<?xml")
    result = read(tmp_path / "v")
    for side, total in (("printed", 306.74), ("corrected", 231.139)):
        assert sum(part["us"] for part in result["parts"][side]) == pytest.approx(total, abs=1e-3)


def test_parameters_come_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--lambda", "1000", "--mu", "50000", "--hops", "4", "--packets", "3", "--link-rate", "1 Gbit/s", "--packet-size", "1500 B",
    ]  # fmt: skip
    assert execute(["reproduce", "velox-model", "-o", str(tmp_path), "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    figures = {entry["id"]: entry for entry in result["quantities"]}
    assert figures["transmission"]["corrected"] == figures["transmission"]["printed"] == 12.0
    assert figures["network"]["corrected"] == 4 * 0.5 + 3 * 12 + 3 * 12 + 3 * 5
    assert figures["sojourn"]["corrected"] == pytest.approx(1e6 / 49_000)
    assert "transmission" not in {defect["id"] for defect in result["defects"]}
    assert not result["is_papers"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lambda", "125000"], "lambda must be below mu"),
        (["--lambda", "0"], "--lambda 0 is out of range"),
        (["--mu", "nan"], "--mu nan is out of range"),
        (["--hops", "0"], "--hops 0 is out of range"),
        (["--packets", "1001"], "--packets 1001 is out of range"),
        (["--link-rate", "fast"], "--link-rate: 'fast' is no rate"),
        (["--packet-size", "1 MB"], "--packet-size 1 MB is out of range"),
        (["--processing", "-5 us"], "is negative"),
    ],
)
def test_parameters_without_sense_are_refused_before_anything_is_written(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    option, value = arguments
    assert execute(["reproduce", "velox-model", "-o", str(tmp_path / "v"), f"{option}={value}"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "v").exists()


def test_a_parameter_of_the_model_means_nothing_to_another_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["reproduce", "mqtt-scalability", "--lambda", "5"]) == 2
    assert "mqtt-scalability has no --lambda" in capsys.readouterr().err


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert execute(["reproduce", "velox-model", "-o", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
