"""Writes docs/scenario.md and docs/scenario.schema.json from the models that check scenarios.

python -m timebound.scenario.reference docs
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from timebound.scenario import units
from timebound.scenario.emit import flow_style
from timebound.scenario.fields import Efforts, Names, Quantity
from timebound.scenario.resolve_network import BUILT_IN_TEXT
from timebound.scenario.schema import json_schema
from timebound.scenario.shape import ScenarioShape

_HEAD = """# The scenario file

*Generated from the models that check scenarios (`make docs`); do not edit.*

A scenario is one YAML file in UTF-8. It says which network there is, which flows applications publish over it, and which
protocol stack carries them.

```yaml
{example}```

`timebound validate FILE` shows every problem at once, each with file, line, column and a hint.
`timebound validate --schema` prints the JSON Schema for editors.

## Quantities

Every quantity carries its unit; a number without a unit is an error. Arithmetic is exact, and nothing is rounded: what is no
whole number of nanoseconds, bit/s, bytes (millimetres, Hz) is an error. Delays are one-way. Rates and buffers count the whole wire (preamble 8, header, FCS 4 and
gap 12 bytes included); `size` of a flow is the payload of one message.

| quantity | units | from | to | example |
|---|---|---|---|---|
{quantities}

A range is written `15..20 ms`, `10 us..1 ms`, `10 ± 5 ms` or `10 +- 5 ms`.
A length becomes a delay at 2e8 m/s: 5 us per km. Points in time (`at`, `outages`, `start`, `stop`) count from the start of the run,
its warm-up included.

## Ranges of names

`h[1-3]` is h1, h2, h3; `h[01-12]` keeps its zeros; `h[1,4,7-9]` names some; `r[1-2]p[1-2]` is r1p1, r1p2, r2p1, r2p2. They may stand
in `network.nodes`, in links (`["h[1-3]", s1]` joins each to s1, `["h[1-3]", "s[1-3]"]` joins them one to one), in `from` and `to`. Inside `[ ]` and `{{ }}` YAML wants
quotes around them (editors and other programs say so); Timebound reads them without as well. A name that looks like a number or a truth value
(`010`, `0x10`, `on`) is the text that is written; other programs take it for what it looks like, unless it is quoted.

## Parameters, overrides, includes

`parameters: {{n: 20}}` gives `${{n}}` a value wherever a value stands, not in keys (in quotes inside `[ ]` and `{{ }}`: `count: "${{n}}"` is the number). `--set n=40` changes it; `--set` changes anything else by its path as well:
`--set flows.alpha.period="10 ms"`, `--set network.links.s1-s4.rate="1 Mbit/s"`, `--set run.seed=7`. Entries of a list are named by their
name, links by their ends, anything by its number.

`include: [base.yaml]` builds on other files. Mappings are merged key by key, and the including file wins. A short form that a mapping (or `--set`) is laid
upon counts as what it stands for: `framing: {{overhead: 4 B}}` on `framing: vlan` is `{{kinds: [vlan], overhead: 4 B}}`. Of keys that exclude each other, as the kinds of loss
and the stacks do, the later one counts; a short form laid upon anything takes its place. The lists `network.links`,
`flows` and `background` are appended to those of the included files; every other list replaces them. File names are relative to the
including file and may contain parameters.

A file has at most 2 MB and 150,000 values, a scenario 4 MB and 300,000: all files, each as often as it is included, and what is put in for parameters.

## Keys
"""

_EXAMPLE = """name: two-rooms
network:
  nodes: {"h[1-3]": host, "s[1-2]": switch}
  links: [[h1, s1], ["h[2-3]", s2], {between: [s1, s2], rate: 10 Mbit/s, delay: 1 ms}]
flows:
  - {name: alarm, from: h1, to: h3, size: 64 B, period: 50 ms, deadline: 20 ms, priority: 6, qos: 1}
stack: {mqtt: {broker: h2}}
run: {duration: 10 s}
"""
"""A first scenario; the tests load it."""


def reference() -> str:
    """docs/scenario.md as text."""
    lines = [_HEAD.format(example=_EXAMPLE, quantities="\n".join(_quantities()))]
    for path, model in _models(ScenarioShape, "", set()):
        lines.append(f"### {f'`{path}`' if path else 'The file'}\n")
        lines.append(" ".join((model.__doc__ or "").split()) + "\n")
        if path == "network.defaults.link":
            lines.append(f"Where neither a link nor the defaults say: {BUILT_IN_TEXT}.\n")
        lines += ["| key | type | default | meaning | example |", "|---|---|---|---|---|"]
        lines += [_row(name, field) for name, field in model.model_fields.items()]
        lines.append("")
    return "\n".join(lines)


def key_tables(shape: type[BaseModel], heading: str = "###") -> list[str]:
    """Tables of all keys of another kind of file, for its page."""
    lines: list[str] = []
    for path, model in _models(shape, "", set()):
        lines += [f"{heading} {f'`{path}`' if path else 'The file'}\n", " ".join((model.__doc__ or "").split()) + "\n"]
        lines += ["| key | type | default | meaning | example |", "|---|---|---|---|---|"]
        lines += [*(_row(name, field) for name, field in model.model_fields.items()), ""]
    return lines


def _quantities() -> Iterator[str]:
    for kind in (units.TIME, units.RATE, units.SIZE, units.SHARE, units.LENGTH):
        least, most = units.limits(kind)
        known = ", ".join(f"`{unit}`" for unit in kind.units if unit != "μs")
        yield f"| {kind.name} | {known} | {least} | {most} | `{kind.example}` |"


def _models(model: type[BaseModel], path: str, seen: set[type[BaseModel]]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every model once, at the first path where it may stand."""
    seen.add(model)
    yield path, model
    for name, field in model.model_fields.items():
        inner, suffix = _inner(field.annotation)
        if inner is not None and inner not in seen:
            key = field.alias or name
            yield from _models(inner, f"{path}.{key}{suffix}" if path else f"{key}{suffix}", seen)


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model inside an annotation, and `[]` or `.NAME` where it is in a list or mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _inner(arguments[0])
    if origin in (Union, types.UnionType):
        return next((found for item in arguments if (found := _inner(item))[0]), (None, ""))
    if origin is list:
        model, suffix = _inner(arguments[0])
        return model, f"[]{suffix}"
    if origin is dict:
        model, suffix = _inner(arguments[1])
        return model, f".NAME{suffix}"
    return None, ""


def _row(name: str, field: FieldInfo) -> str:
    example = f"`{flow_style(field.examples[0])}`" if field.examples else ""
    cells = [f"`{field.alias or name}`", _type(field.annotation, field.metadata), _default(field)]
    cells += [field.description or "", example]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(annotation: Any, metadata: list[Any]) -> str:
    for item in metadata:
        if isinstance(item, Quantity):
            return item.kind.name + (" or range" if item.ranged else "")
        if isinstance(item, Efforts):
            return "whole number or time"
        if isinstance(item, Names):
            return "two names" if item.most else "name or names"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], list(arguments[1:]))
    if origin is Literal:
        return " / ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        kinds = [_type(item, []) for item in arguments if item is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is list:
        return f"list of {_type(arguments[0], [])}"
    if origin is dict:
        return f"mapping to {_type(arguments[1], [])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"{_short(annotation)}"
    return {str: "text", int: "whole number", float: "number", bool: "true / false"}.get(annotation, "text")


def _short(model: type[BaseModel]) -> str:
    return f"*{model.__name__}*"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined or field.default is None or field.default == "":
        return ""
    for item in field.metadata:
        if isinstance(item, Quantity) and item.kind is units.TIME:
            return units.format_time(field.default)
        if isinstance(item, Quantity) and item.kind is units.SHARE:
            return units.format_share(field.default)
        if isinstance(item, Quantity) and item.kind is units.SIZE:
            return f"{field.default} B"
    return flow_style(field.default)


def main(folder: str) -> None:
    """Writes both files into a folder."""
    target = Path(folder)
    (target / "scenario.md").write_text(reference(), encoding="utf-8")
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    (target / "scenario.schema.json").write_text(schema, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs")
