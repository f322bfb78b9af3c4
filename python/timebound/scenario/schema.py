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


_REFERENCE = {"type": "string", "pattern": r"\$\{[^{}]+\}"}
_OUTSIDE = ("title", "description", "default", "examples")


def _parameters(node: dict[str, Any], *, member: bool = False) -> None:
    """Wherever a value is expected, `${parameter}` may stand."""
    for key in ("properties", "$defs"):
        for inner in node.get(key, {}).values():
            _parameters(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            _parameters(node[key])
    for inner in node.get("anyOf", []):
        _parameters(inner, member=True)
    if any(_is_fixed(inner) for inner in node.get("anyOf", [])):
        node["anyOf"].append(dict(_REFERENCE))
    elif not member and _is_fixed(node):
        value = {key: node.pop(key) for key in list(node) if key not in _OUTSIDE}
        node["anyOf"] = [value, dict(_REFERENCE)]


def _is_fixed(node: dict[str, Any]) -> bool:
    """Is it a single value that cannot be just any text?"""
    return (
        "enum" in node or "const" in node or "pattern" in node or node.get("type") in ("integer", "number", "boolean")
    )
