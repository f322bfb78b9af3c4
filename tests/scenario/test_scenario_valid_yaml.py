"""Every scenario that we show is YAML for other programs too, and passes the schema that editors use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from timebound.control.controller.configuration import json_schema as controller_schema
from timebound.control.manager.configuration import json_schema as manager_schema
from timebound.scenario import load
from timebound.scenario.schema import json_schema

ROOT = Path(__file__).parents[2]
BUILT_IN = ROOT / "python" / "timebound" / "_scenarios"
KEYS = (
    "name",
    "network",
    "flows",
    "stack",
    "background",
    "conditions",
    "at",
    "run",
    "parameters",
    "include",
    "assigned",
)
_START = re.compile(rf"(?:#.*\n)?(?:{'|'.join((*KEYS, 'nodes', 'links', 'peer', 'listen', 'openflow'))}):(?:\s|$)")


def examples() -> Iterator[Any]:
    """Whole scenarios, files that scenarios include, and all parts of scenarios in the documentation."""
    for file in sorted(BUILT_IN.glob("*/*.yaml")):
        yield pytest.param(file.read_text(encoding="utf-8"), json_schema, id=f"{file.parent.name}/{file.name}")
    for name, schema in (("controller", controller_schema), ("manager", manager_schema)):
        yield pytest.param((ROOT / "docs" / f"{name}.example.yaml").read_text(encoding="utf-8"), schema, id=name)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *BUILT_IN.glob("*/README.md")]):
        schema = {"manager": manager_schema, "controller": controller_schema}.get(page.stem, json_schema)
        for number, block in enumerate(blocks(page.read_text(encoding="utf-8"))):
            yield pytest.param(block, schema, id=f"{page.relative_to(ROOT)}-{number}")


def blocks(page: str) -> Iterator[str]:
    """Code of a page that is a scenario or a part of one; of alternatives each for itself."""
    fenced = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?<=\n\n)((?:    .*\n|\n(?=    ))+)", page)
    for code in [*fenced, *(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in indented)]:
        if _START.match(code) is None:
            continue
        parts = re.split(r"^(?=[a-z-]+:)", code, flags=re.MULTILINE)
        keys = [part.split(":")[0] for part in parts if part.strip()]
        yield from [code] if len(set(keys)) == len(keys) else [part for part in parts if part.strip()]


def faults(text: str, schema: dict[str, Any]) -> list[str]:
    """What another reader of YAML and the schema say of a text, which may be a part of a scenario."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [str(error)]
    found = [f"twice: {key}" for key in _repeated(root)]
    inside = {key: plain.pop(key) for key in ("nodes", "links") if key in plain}
    if inside:
        plain["network"] = inside
    if not {"name", "network", "stack"} <= set(plain):
        schema = {key: value for key, value in schema.items() if key != "required"}
    validator = jsonschema.Draft202012Validator(schema)
    return found + [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(plain)]


def _repeated(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        yield from (str(key) for key in set(map(str, keys)) if list(map(str, keys)).count(key) > 1)
        for _, value in node.value:
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)


@pytest.mark.parametrize(("text", "schema"), list(examples()))
def test_other_readers_of_yaml_and_the_schema_accept_it(text: str, schema: Any) -> None:
    assert faults(text, schema()) == []


def test_examples_of_every_page_are_found() -> None:
    found = [str(example.id) for example in examples()]
    for part in (
        "backbone/scenario",
        "real-switches/scenario",
        "README.md-0",
        "tutorial",
        "media",
        "conditions",
        "scenario.md",
    ):
        assert any(part in name for name in found), part
    assert len(found) > 40


@pytest.mark.parametrize(
    "text",
    [
        "network: {links: [[plc[1-2], line1]]}",
        "network: {nodes: {agv[1-2]: host}}",
        "network: {defaults: {link: {rate: ${rate}}}}",
        "network: {defaults: {switch: {engine: fabrik}}}",
        "run: {seed: ten}",
        "run: {seed: 1, seed: 2}",
    ],
)
def test_what_is_no_yaml_or_no_scenario_would_be_noticed(text: str) -> None:
    assert faults(text, json_schema()) != []


def test_examples_of_keys_are_yaml() -> None:
    for page in ("scenario", "manager"):
        rows = re.findall(
            r"^\| `([^`]+)` \|.*\| `([^`]+)` \|$", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.M
        )
        assert rows
        for key, example in rows:
            yaml.safe_load(f"{key}: {example}")


def test_a_parameter_may_stand_for_any_value_in_the_schema() -> None:
    text = """
parameters: {engine: fabric, up: true, n: 2, version: 5, threads: 2, kind: host, search: 5, latitude: 1, priority: 3}
name: "${kind}s"
network:
  defaults: {switch: {engine: "${engine}"}}
  nodes: {"h[1-2]": "${kind}", s: {kind: switch, latitude: "${latitude}", longitude: "${latitude}"}}
  links: [["h[1-2]", s]]
flows: [{name: a, from: h1, to: h2, size: 100 B, period: 10 ms, count: "${n}", priority: "${priority}"}]
stack: {mqtt: {broker: h2, version: "${version}", priorities: "${up}"}}
at: {1 s: {link h1-s: {up: "${up}"}}}
run: {seed: "${n}", simulate: {search: "${search}"}, data-plane: {threads: "${threads}", back-pressure: "${up}"}}
"""
    assert faults(text, json_schema()) == []
    found = load(text)
    assert (len(found.flows), found.flows[0].priority, found.run.seed) == (2, 3, 2)
    assert load(text, {"n": 3}).run.seed == 3
