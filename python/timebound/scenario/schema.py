"""The JSON Schema of scenario files (draft 2020-12), for editors: completion, descriptions, patterns of units."""

from __future__ import annotations

from typing import Any

from timebound.scenario.shape import ScenarioShape

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a whole file. What it cannot say (names that exist, reachable receivers) `load` checks."""
    schema = ScenarioShape.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    named = {**definitions["Flow"], "required": [key for key in definitions["Flow"]["required"] if key != "name"]}
    definitions["NamedFlow"] = {**named, "title": "NamedFlow"}
    for option in schema["properties"]["flows"]["anyOf"]:
        if option.get("type") == "object":
            option["additionalProperties"] = {"$ref": "#/$defs/NamedFlow"}
    for definition in definitions.values():
        _short_forms(definition)
    _parameters(schema)
    return {"$schema": SCHEMA_ID, **schema, "title": "Timebound scenario"}


def _short_forms(definition: dict[str, Any]) -> None:
    """The empty value of `udp:` and the number 5 as a version are accepted by the loader too."""
    version = definition.get("properties", {}).get("version")
    if version is not None and "enum" in version:
        version["enum"] = [*version["enum"], 5]
        version.pop("type", None)
    if "udp" in definition.get("properties", {}):
        definition["properties"]["udp"]["anyOf"].append({"type": "null"})


def _parameters(node: Any) -> None:
    """Wherever a number or a fixed word is expected, `${parameter}` may stand."""
    reference = {"type": "string", "pattern": r"\$\{[^{}]+\}"}
    if isinstance(node, list):
        for item in node:
            _parameters(item)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("pattern"), str) and "x-quantity" in node:
        node["pattern"] = rf"({node['pattern']})|\$\{{[^{{}}]+\}}"
    properties = node.get("properties")
    if isinstance(properties, dict):
        for key, value in properties.items():
            if isinstance(value, dict) and value.get("type") in ("integer", "number"):
                kept = {
                    name: value.pop(name) for name in ("title", "description", "default", "examples") if name in value
                }
                properties[key] = {**kept, "anyOf": [value, reference]}
    for value in node.values():
        _parameters(value)
