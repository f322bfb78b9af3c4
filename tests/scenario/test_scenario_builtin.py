"""The built-in scenarios, the JSON Schema and the reference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from timebound.scenario import builtin_file, builtin_names, json_schema, load, reference
from timebound.scenario.builtin import builtin, find
from timebound.scenario.model import MqttStack


def test_the_built_in_scenarios_are_there() -> None:
    assert {"backbone", "edge-networks", "hello", "real-switches", "segments"} <= set(builtin_names())
    assert all(entry.description for entry in builtin())
    assert find("hello") == builtin_file("hello")


@pytest.mark.parametrize("name", builtin_names())
def test_a_built_in_scenario_loads_without_a_warning_and_survives_being_resolved(name: str) -> None:
    loaded = load(name)
    assert loaded.warnings == ()
    assert loaded.name == name
    assert load(loaded.to_yaml()) == loaded
    assert (builtin_file(name).parent / "README.md").is_file()


def test_hello_is_light() -> None:
    loaded = load("hello")
    kinds = [node.kind for node in loaded.nodes]
    assert (kinds.count("host"), kinds.count("switch"), loaded.run.duration_ns) == (3, 2, 10 * 10**9)
    assert sum(10**9 / flow.period_ns for flow in loaded.flows) < 300
    assert all(flow.deadline_ns is not None and flow.priority > 0 for flow in loaded.flows)


@pytest.mark.parametrize(("level", "publishers"), [("low", 20), ("medium", 40), ("high", 60)])
def test_edge_networks_has_the_loads_of_the_article(level: str, publishers: int) -> None:
    loaded = load("edge-networks", {"load": level})
    assert len(loaded.flows) == 2 * publishers
    assert loaded.reading == f"topics-of-a at {level} load"
    assert len(load("edge-networks", {"load": level, "reading": "all"}).flows) == 6 * publishers
    assert all(15_000_000 <= flow.period_ns <= 20_000_000 for flow in loaded.flows)
    for flow in loaded.flows:
        assert [(s.broker, s.receivers) for s in flow.services] == [
            ("h5", ("h4",)),
            ("h10", ("h9",)),
            ("h15", ("h14",)),
        ]
    assert isinstance(loaded.stack, MqttStack)


def test_edge_networks_loads_the_broker_link_as_worked_out() -> None:
    """123.04 us per message at the mean of the periods drawn: 0.28 for topics of A, 0.84 for all (timing analysis)."""
    for reading, expected in (("topics-of-a", 0.28), ("all", 0.84)):
        flows = load("edge-networks", {"reading": reading}).flows
        assert sum(123_040 / flow.period_ns for flow in flows) == pytest.approx(expected, abs=0.02)


def test_the_backbone_has_thousands_of_flows_over_real_distances() -> None:
    loaded = load("backbone")
    assert len(loaded.flows) == 3300
    longest = max(loaded.links, key=lambda link: link.length_m or 0)
    assert {longest.a, longest.b} == {"losangeles", "houston"} or (longest.length_m or 0) > 2_000_000


def test_the_traces_of_segments_are_what_the_repository_generates(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, str(root / "scripts" / "make-traces.py"), str(tmp_path)], check=True, timeout=60)
    for name in ("field.up", "field.down"):
        shipped = builtin_file("segments").parent / name
        assert shipped.read_bytes() == (tmp_path / name).read_bytes()


def test_segments_names_bridges_traces_and_a_schedule() -> None:
    loaded = load("segments")
    field = next(link for link in loaded.links if link.a == "field")
    assert field.forward.trace is not None and field.backward.trace is not None
    assert field.forward.trace.period_ns == field.backward.trace.period_ns == 5_000_000_000
    assert [node.kind for node in loaded.nodes].count("segment") == 3
    assert {event.at_ns // 10**9 for event in loaded.events} >= {3, 4, 6, 8, 9, 10}


def _validator() -> Any:
    """The published schema language is the judge; its validator is a tool of the tests only."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


def _plain(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.mark.parametrize("name", builtin_names())
def test_the_schema_accepts_resolved_built_in_scenarios(name: str) -> None:
    validator = _validator()
    loaded = load(name, {"urgent": 1, "state": 1} if name == "backbone" else None)
    errors = [f"{list(error.path)}: {error.message[:200]}" for error in validator.iter_errors(_plain(loaded.to_yaml()))]
    assert errors[:3] == []


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"flows": {"a": {"from": "h1", "to": ["h2"], "size": "30 B", "period": "15..20 ms"}}}, True),
        ({"stack": {"udp": None}}, True),
        ({"stack": {"mqtt": {"broker": ["h1", {"node": "h2"}], "version": 5}}}, True),
        (
            {"flows": [{"name": "a", "from": "h1", "to": "h2", "size": "${size}", "period": "1 s", "count": "${n}"}]},
            True,
        ),
        ({"flows": [{"name": "a", "from": "h1", "to": "h2", "size": "30", "period": "1 s"}]}, False),
        ({"flows": [{"name": "a", "from": "h1", "too": "h2", "size": "30 B", "period": "1 s"}]}, False),
        ({"network": {"nodes": {"h1": "hots"}}}, False),
        ({"run": {"duration": 10}}, False),
        ({"nme": "x"}, False),
    ],
)
def test_the_schema_knows_units_and_keys(change: dict[str, object], valid: bool) -> None:
    whole = {"name": "x", "network": {"nodes": {"h1": "host"}, "links": [["h1", "h2"]]}, "stack": {"udp": {}}, **change}
    validator = _validator()
    assert validator.is_valid(whole) is valid


def test_the_reference_names_every_key_and_its_example_loads(tmp_path: Path) -> None:
    text = reference.reference()
    for definition in json_schema()["$defs"].values():
        for key in definition.get("properties", {}):
            assert f"| `{key}` |" in text
    example = text.split("```yaml\n")[1].split("```")[0]
    assert load(example).warnings == ()
    reference.main(str(tmp_path))
    assert json.loads((tmp_path / "scenario.schema.json").read_text(encoding="utf-8")) == json_schema()
