"""`profile`, `service` and `via`: what they resolve to, and errors with their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.scenario import ScenarioError, load
from timebound.scenario.broker_profile import ProfileError, parse_profile
from timebound.scenario.model import MqttStack, Scenario
from timebound.scenario.model_broker import BrokerService

TEXT = """name: x
network: {defaults: {link: {rate: 100 Mbit/s}}, nodes: {a: host, b: host, c: host, s: switch}, links: [[a, s], [b, s], [c, s]]}
flows: [{name: alpha, from: a, to: c, size: 100 B, period: 10 ms, FLOW}]
stack: {mqtt: {broker: [{node: b, BROKER}, {node: c, program: mosquitto}]}}
"""
TIMES = {"count": 10, "median_ns": 50_000, "p99_ns": 80_000, "max_ns": 90_000}
PROFILE: dict[str, Any] = {
    "format": "timebound-broker-profile",
    "schema": 1,
    "measured": "2026-01-02T03:04:05+00:00",
    "broker": {"program": "mosquitto", "version": "2.0.11"},
    "precision": {"verdict": "good", "reasons": []},
    "cells": [
        {"size_bytes": 64, "message_bytes": 75, "qos": 1, "fan_out": 4, "alone": TIMES, "first_copy": TIMES, "back_to_back": TIMES}
    ],
    "fit": {"latency_ns": 80_000, "message_ns": 9_000, "copy_ns": 4_000, "byte_ps": 250, "acknowledgement_ns": 3_000},
}  # fmt: skip


def scenario(broker: str = "program: mosquitto", flow: str = "qos: 1", folder: Path | None = None) -> Scenario:
    text = TEXT.replace("BROKER", broker).replace("FLOW", flow)
    if folder is None:
        return load(text)
    (folder / "x.yaml").write_text(text)
    return load(folder / "x.yaml")


def service(loaded: Scenario) -> BrokerService:
    assert isinstance(loaded.stack, MqttStack)
    found = loaded.stack.brokers[0].service
    assert found is not None
    return found


def problem(*args: Any, **named: Any) -> tuple[int, str, str]:
    with pytest.raises(ScenarioError) as caught:
        scenario(*args, **named)
    (found,) = caught.value.problems
    assert found.column > 1 and found.hint
    return found.line, found.path, found.message


def test_declared_times_are_read_to_the_picosecond() -> None:
    stated = (
        "service: {latency: 200 us, per-message: 30 us, per-copy: 10 us, per-byte: 0.25 ns, per-acknowledgement: 5 us}"
    )
    found = service(scenario(stated))
    assert (found.latency_ns, found.message_ns, found.copy_ns) == (200_000, 30_000, 10_000)
    assert (found.byte_ps, found.acknowledgement_ns, found.measured) == (250, 5_000, None)


def test_work_is_rounded_upwards() -> None:
    found = BrokerService(message_ns=1_000, copy_ns=100, byte_ps=333)
    assert found.publish_ns(100, 3) == 1_000 + 300 + 34 + 100
    assert found.publish_ns(100, 3) == found.publish_ns(100, 0) + found.forward_ns(100, 3)


def test_a_profile_gives_the_times_and_says_where_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(PROFILE))
    loaded = scenario("program: mosquitto, profile: m.json", folder=tmp_path)
    found = service(loaded)
    assert (found.latency_ns, found.copy_ns, found.byte_ps) == (80_000, 4_000, 250)
    assert found.measured is not None and found.measured.messages == 20
    assert found.measured.measured.startswith("2026-01-02") and found.measured.largest_fan_out == 4


def test_what_was_resolved_loads_again_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(PROFILE))
    for broker in (
        "program: mosquitto, profile: m.json",
        "program: mosquitto, service: {per-byte: 0.3 ns, latency: 1 us}",
    ):
        loaded = scenario(broker, "via: [b, c]", tmp_path)
        again = load(loaded.to_yaml())
        assert (again.stack, again.flows) == (loaded.stack, loaded.flows)
        assert again.flows[0].services[0].via == ("b",)


def test_a_profile_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(PROFILE))
    line, path, message = problem("profile: m.json", folder=tmp_path)
    assert (line, path) == (4, "stack.mqtt.broker[0].profile")
    assert "the profile of mosquitto, and this broker is embedded" in message


def test_a_disturbed_profile_is_warned_of(tmp_path: Path) -> None:
    disturbed = {**PROFILE, "precision": {"verdict": "disturbed", "reasons": ["busy"]}}
    (tmp_path / "m.json").write_text(json.dumps(disturbed))
    loaded = scenario("program: mosquitto, profile: m.json", folder=tmp_path)
    assert any("disturbed" in warning.message for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no profile of a broker"),
        (json.dumps({**PROFILE, "fit": {}}), "fit.latency_ns"),
        (json.dumps({**PROFILE, "schema": 2}), "schema"),
        (json.dumps({**PROFILE, "cells": []}), "cells"),
        (json.dumps({**PROFILE, "fit": {**PROFILE["fit"], "copy_ns": -1}}), "fit.copy_ns"),
        (json.dumps({**PROFILE, "fit": {**PROFILE["fit"], "copy_ns": 1e300}}), "fit.copy_ns"),
    ],
)
def test_files_that_are_no_profiles_are_refused_with_their_place(
    tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "m.json").write_text(content)
    line, path, message = problem("program: mosquitto, profile: m.json", folder=tmp_path)
    assert (line, path) == (4, "stack.mqtt.broker[0].profile") and said in message


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: json.dumps({"format": text}).encode()))
@settings(max_examples=100, deadline=None)
def test_no_bytes_are_a_profile_by_chance(content: bytes) -> None:
    with pytest.raises(ProfileError):
        parse_profile(content, "x")


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=5),
    st.sampled_from(["schema", "measured", "broker", "precision", "cells", "fit"]),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_damaged_profile_is_an_error_of_its_own_kind(value: Any, key: str) -> None:
    try:
        found = parse_profile(json.dumps({**PROFILE, key: value}).encode(), "x")
    except ProfileError as error:
        assert "damaged" in str(error) or "not JSON" in str(error)
    else:
        assert found.fit.latency_ns >= 0 and found.cells


def test_both_a_profile_and_declared_times_are_too_much() -> None:
    line, path, _ = problem("program: mosquitto, profile: m.json, service: {latency: 1 ms}")
    assert (line, path) == (4, "stack.mqtt.broker[0].service")


@pytest.mark.parametrize(
    ("flow", "path", "said"),
    [
        ("via: [b, nowhere]", "flows[0].via[1]", "no broker of the stack"),
        ("via: [b, c, b]", "flows[0].via", "twice"),
        ("via: [b, c], broker: c", "flows[0].broker", "broker beside via"),
    ],
)
def test_ways_over_brokers_that_cannot_be_are_refused(flow: str, path: str, said: str) -> None:
    line, found, message = problem("program: mosquitto", flow)
    assert (line, found) == (3, path) and said in message


def test_the_embedded_broker_knows_no_bridges() -> None:
    line, path, message = problem("program: embedded", "via: [b, c]")
    assert (line, path) == (3, "flows[0].via[0]") and "knows no bridges" in message


def test_via_needs_mqtt() -> None:
    text = TEXT.replace("FLOW", "via: [b]").replace(TEXT.splitlines()[3], "stack: {udp: {}}")
    with pytest.raises(ScenarioError, match="via works with MQTT alone"):
        load(text)
