"""The AFDX network of a public course (`afdx`): it was refused for its small payloads, and its frames have AFDX's length."""

from __future__ import annotations

from collections import Counter

import pytest

from timebound.engine.predict import Prediction, predict
from timebound.scenario import builtin_file, load
from timebound.stacks import build_plan

LOADS = {
    "S1->S5": 11_624_500,
    "S5->S1": 5_435_000,
    "S2->S6": 11_520_750,
    "S6->S2": 5_435_000,
    "S3->S5": 18_272_500,
    "S4->S6": 18_314_000,
    "S5->S7": 5_704_750,
    "S6->S8": 5_663_250,
    "S5->R1": 39_088_000,
    "S6->R2": 39_088_000,
    "S1->S2": 124_500,
    "S3->S4": 3_091_000,
    "S4->S3": 5_767_000,
    "S5->S6": 705_500,
    "S6->S5": 643_250,
    "S7->S8": 186_750,
}
"""Bit/s of the links between switches in a public answer to the course, where a payload of 16 bytes has 83 on the wire: without the byte that pads it."""
PADDING_BPS = 250
"""That byte of a virtual link, every 32 ms."""


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict(build_plan(load(builtin_file("afdx"))))


def test_all_virtual_links_of_the_network_have_bounds_within_their_deadlines(prediction: Prediction) -> None:
    """198 of them were refused, for payloads without room for a measurement header."""
    scenario = prediction.plan.scenario
    sizes = Counter(flow.size_bytes for flow in scenario.flows)
    assert sizes == {16: 198, 282: 56, 602: 11} and sum(len(flow.receivers) for flow in scenario.flows) == 1_002
    # Payload and 67 bytes, the sequence number among them; at least 64 and 20.
    assert {stream.frames_bytes for stream in prediction.plan.streams} == {(84,), (349,), (669,)}
    assert len(prediction.outcomes) == 1_002
    for stream in prediction.plan.streams:
        for receiver in stream.destinations:
            bound = prediction.outcomes[stream.name, receiver].actual_ns
            assert bound is not None and stream.deadline_ns is not None and bound <= stream.deadline_ns


def test_the_load_of_every_link_between_switches_is_the_published_one(prediction: Prediction) -> None:
    """Which also says that virtual links go the ways that they have there, and cross each link once."""
    loads = {port["name"]: port["utilisation"]["value"] * 100e6 for port in prediction.ports}
    small: Counter[str] = Counter()
    for name, published in LOADS.items():
        number, rest = divmod(round(loads[name]) - published, PADDING_BPS)
        assert rest == 0 and 0 <= number <= 198, name
        small[name] = number
    # A1 to A8 and R1 have ten kinds of period and size between them: the rest of a link's load is virtual links of 83 bytes every 32 ms.
    assert small["S1->S5"] == (LOADS["S1->S5"] - 8 * 349 * 8 * 500) // 20_750 == 22
    assert small["S5->R1"] == small["S6->R2"] == 0


def test_a_bound_of_the_network_is_the_one_worked_out_by_hand_and_is_reached(prediction: Prediction) -> None:
    """A56 to R2: behind its own seven frames of 84 bytes it is at S6 after 7 x 6.72 + 27.92 us. There the eight frames of S2, thirteen of S4 and six of
    S8, 349 bytes each, have come back to back on three links. When it comes with the eighth of S2 and S4, 22 have come and seven have left: it leaves
    as the sixteenth of those that are left."""
    small, large = 84 * 80, 349 * 80
    by_hand = 7 * small + large + 16 * large
    [bound] = {found.actual_ns for (name, _), found in prediction.outcomes.items() if name.startswith("A56-Service")}
    assert bound == by_hand == 521_680
    worst = prediction.network.search({"evaluations": 300, "seed": 1})["worst"]
    reached = {prediction.plan.streams[one["stream"]].name: one["latency"] for one in worst}
    assert reached["A56-Service-R2/direct"] == by_hand
    bounds = {(prediction.plan.streams[one["stream"]].name, one["node"]): one["latency"] for one in worst}
    names = [node.name for node in prediction.plan.scenario.nodes]
    for (name, node), latency in bounds.items():
        limit = prediction.outcomes[name, names[node]].actual_ns
        assert limit is not None and latency <= limit, name
