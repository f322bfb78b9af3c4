"""The statements, checked on cells that were made up so that each holds, and so that it does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from timebound.reproduce.scalability.statements import STATEMENTS, check_all

HELD = {
    "broker_cpu": (0.010, 0.012, 0.020),
    "broker_rx_bytes": (90e3, 100e3, 130e3),
    "broker_tx_bytes": (70e3, 80e3, 100e3),
    "broker_bytes": (160e3, 180e3, 230e3),
    "subscriber_cpu": (0.0040, 0.0044, 0.0050),
    "subscriber_bytes": (180e3, 200e3, 252e3),
    "publisher_cpu": (0.00090, 0.00094, 0.00100),
    "publisher_bytes": (500.0, 560.0, 700.0),
    "all_nodes_cpu": (0.33, 0.35, 0.39),
}


def cell(scenario: int, qos: int) -> dict[str, Any]:
    held = {name: values[qos] for name, values in HELD.items()}
    if scenario == 2:
        held["broker_tx_bytes"] = held["broker_rx_bytes"] * 1.01
    steps = (1, 50, 100, 300, 350)
    small = (5000, 6000, 7000)[qos]
    return {
        "scenario": scenario,
        "qos": qos,
        "clients": 350,
        "nodes": 352,
        "certificate": {"verdict": "good", "reasons": []},
        "messages": {"sent": 1000, "received": 1000, "lost": 0},
        "held": held,
        "curve": [{"clients": n, "subscriber_cpu": 0.004 + qos * 0.001 * n / 350} for n in steps],
        "packets": {
            "frame_classes": {"<40": 0, "40-79": small, "80-159": 50 * qos, "160-319": 0, "320-639": 0, "640-1279": 1000, ">=1280": 0},
            "kinds": {"40-79": {"tcp-control": small}, "80-159": {"mqtt-control": 50 * qos}, "640-1279": {"publish": 1000}},
            "categories": {"arp": 0.0001},
            "without_transport_payload": 0.85 if qos != 1 else 0.81,
            "without_application_payload": 0.9,
        },
        "packets_missing": None,
    }  # fmt: skip


def cells() -> dict[tuple[int, int], dict[str, Any]]:
    return {(scenario, qos): cell(scenario, qos) for scenario in (1, 2) for qos in range(3)}


def verdict(found: dict[tuple[int, int], dict[str, Any]], name: str) -> tuple[bool | None, str]:
    (answer,) = [answer for answer in check_all(found) if answer["id"] == name]
    return answer["holds"], answer["why"]


SURE = sorted({statement.id for statement in STATEMENTS} - {"adapter", "payload-30"})


@pytest.mark.parametrize("name", SURE)
def test_a_paper_that_is_right_is_found_right(name: str) -> None:
    assert verdict(cells(), name) == (True, "")


def test_two_statements_that_exclude_each_other_cannot_both_hold() -> None:
    found = cells()
    assert (verdict(found, "tcp-overhead-80")[0], verdict(found, "payload-30")[0]) == (True, False)
    found[1, 1]["packets"]["without_transport_payload"] = 0.7
    assert (verdict(found, "tcp-overhead-80")[0], verdict(found, "payload-30")[0]) == (False, True)


CHANGES: list[tuple[str, tuple[int, int], str, float]] = [
    ("broker-cpu-order", (1, 2), "broker_cpu", 0.011),
    ("broker-network-order", (1, 0), "broker_bytes", 200e3),
    ("broker-cpu-step", (1, 2), "broker_cpu", 0.013),
    ("broker-network-step", (1, 2), "broker_bytes", 190e3),
    ("subscriber-cpu-order", (1, 1), "subscriber_cpu", 0.003),
    ("subscriber-network-order", (1, 1), "subscriber_bytes", 100e3),
    ("subscriber-cpu-ratio", (1, 2), "subscriber_cpu", 0.05),
    ("subscriber-network-ratio", (1, 2), "subscriber_bytes", 900e3),
    ("cpu-below-network", (1, 0), "subscriber_cpu", 0.9),
    ("publisher-network", (1, 0), "publisher_bytes", 90.0),
    ("publisher-cpu-order", (1, 2), "publisher_cpu", 0.0001),
    ("host-cpu-order", (1, 2), "all_nodes_cpu", 0.1),
    ("qos-weighs-at-broker", (1, 2), "publisher_cpu", 0.01),
    ("broker-receives-more", (1, 1), "broker_tx_bytes", 100e3),
    ("scenario-2-broker-cpu", (2, 0), "broker_cpu", 0.02),
    ("scenario-2-broker-order", (2, 0), "broker_cpu", 0.02),
    ("scenario-2-network-order", (2, 2), "broker_bytes", 1e3),
    ("scenario-2-equal-rates", (2, 1), "broker_tx_bytes", 50e3),
]


@pytest.mark.parametrize(("name", "place", "quantity", "value"), CHANGES)
def test_a_paper_that_is_wrong_is_found_wrong_and_the_reason_is_said(
    name: str, place: tuple[int, int], quantity: str, value: float
) -> None:
    found = cells()
    found[place]["held"][quantity] = value
    holds, why = verdict(found, name)
    assert holds is False and why


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sizes-shift", {"frame_classes": dict.fromkeys(("<40", "80-159", "160-319", "320-639", ">=1280"), 0) | {"40-79": 1, "640-1279": 1000}}),
        ("arp-share", {"categories": {"arp": 0.01}}),
        ("class-40-79", {"kinds": {"40-79": {"mqtt-control": 1}, "80-159": {}, "640-1279": {}}}),
        ("class-80-159", {"kinds": {"40-79": {}, "80-159": {"publish": 1}, "640-1279": {}}}),
        ("class-640-1279", {"kinds": {"40-79": {}, "80-159": {}, "640-1279": {"tcp-data": 1}}}),
        ("most-without-message", {"without_application_payload": 0.4}),
    ],
)  # fmt: skip
def test_packets_that_are_otherwise_are_found_otherwise(name: str, change: dict[str, Any]) -> None:
    found = cells()
    found[1, 2]["packets"] |= change
    holds, why = verdict(found, name)
    assert holds is False and why


def test_what_cannot_be_decided_says_why() -> None:
    assert verdict(cells(), "adapter")[0] is None
    fewer = cells()
    for one in fewer.values():
        one["clients"] = 20
    for name in ("subscriber-network-ratio", "publisher-network", "nodes-supported"):
        holds, why = verdict(fewer, name)
        assert holds is None and "350" in why
    without = cells()
    without[1, 1] |= {"packets": None, "packets_missing": "tshark is not installed"}
    assert verdict(without, "arp-share") == (None, "tshark is not installed")
    partly = {key: one for key, one in cells().items() if key[0] == 1}
    holds, why = verdict(partly, "scenario-2-equal-rates")
    assert holds is None and "scenario 2 QoS 0" in why
    close = cells()
    close[1, 1]["held"]["broker_cpu"] = close[1, 0]["held"]["broker_cpu"] * 1.001
    assert verdict(close, "broker-cpu-order")[0] is None


def test_a_disturbed_cell_is_named_wherever_it_counts() -> None:
    found = copy.deepcopy(cells())
    found[1, 2]["certificate"]["verdict"] = "disturbed"
    holds, why = verdict(found, "broker-cpu-order")
    assert holds is True and "disturbed scenario 1 QoS 2" in why
    assert "disturbed" not in verdict(found, "scenario-2-equal-rates")[1]


def test_lost_messages_and_growing_costs_decide_their_statements() -> None:
    found = cells()
    found[1, 0]["messages"]["lost"] = 3
    assert verdict(found, "qos0-arrives")[0] is False
    for point in found[1, 2]["curve"]:
        point["subscriber_cpu"] = 0.006
    assert verdict(found, "qos-cost-grows")[0] is False


def test_no_verdict_on_cpu_time_rests_on_less_than_the_machine_varies_by() -> None:
    found = cells()
    for one in found.values():
        one["spread"] = {"broker_cpu": 0.9, "subscriber_cpu": 0.9, "publisher_cpu": 0.01, "all_nodes_cpu": 0.9}
    for name in (
        "broker-cpu-order",
        "broker-cpu-step",
        "subscriber-cpu-order",
        "host-cpu-order",
        "qos-weighs-at-broker",
    ):
        holds, why = verdict(found, name)
        assert holds is None and "90%" in why, name
    assert verdict(found, "publisher-cpu-order") == (True, "")
    assert verdict(found, "broker-network-order") == (True, "")
    for qos in range(3):
        found[2, qos]["held"]["broker_cpu"] = found[1, qos]["held"]["broker_cpu"] * 1.5
    assert verdict(found, "scenario-2-broker-cpu")[0] is None
