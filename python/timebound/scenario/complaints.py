"""What pydantic finds wrong, in words for people: place, message, hint. For scenarios and for the services' configuration files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from timebound.scenario.closest import closest
from timebound.scenario.context import Context
from timebound.scenario.tree import Path, dotted
from timebound.scenario.written import value_of

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Subject:
    """What kind of file is checked."""

    name: str = "the scenario"
    page: str = "docs/scenario.md"
    """Where its keys are explained."""


SCENARIO = Subject()


def validate(shape: type[Model], plain: Any, context: Context, subject: Subject = SCENARIO) -> Model | None:
    """The checked shape of a plain tree, or `None` with every problem in the context."""
    models: dict[int, type[BaseModel]] = {}
    try:
        return shape.model_validate(plain, context={"models": models})
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            _report(error, plain, models, context, subject, shape)
    return None


def _report(
    error: Any,
    plain: Any,
    models: dict[int, type[BaseModel]],
    context: Context,
    subject: Subject,
    shape: type[BaseModel],
) -> None:
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    kind, details = error["type"], error.get("ctx", {})
    error["input"] = value_of(error["input"])
    if kind == "extra_forbidden":
        parent = plain
        for part in path[:-1]:
            try:
                parent = (
                    parent[part]
                    if not (isinstance(parent, dict) and isinstance(part, int))
                    else list(parent.values())[part]
                )
            except (KeyError, IndexError, TypeError):
                continue
        # A short form was made into a mapping that is not the one in the file: its keys are found by the shape alone.
        known = _keys(models.get(id(parent))) or _keys_at(shape, path[:-1])
        key = str(path[-1])
        close = closest(key, known, 0.55)
        known_text = f"known keys: {', '.join(known)}" if known else "remove it"
        hint = f"did you mean {close!r}?" if close else known_text
        above = [name for name in known if key in _keys_at(shape, (*path[:-1], name))]
        if len(above) == 1:
            hint = f"it belongs under {above[0]!r}"
        context.key_error(path, f"unknown key {key!r}", hint)
    elif kind == "missing":
        where = dotted(path[:-1]) or subject.name
        message = f"{where} has no {str(path[-1])!r}"
        context.error(path[:-1], message, f"add {path[-1]}: ... (see {subject.page})")
    else:
        message, hint = _worded(kind, details, error, subject)
        if kind in _EXPECTED and error["input"] is None:
            hint = _instead_of_nothing(_EXPECTED[kind], shape, path)
        context.error(path, message, hint)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _at(shape: type[BaseModel], path: Path) -> tuple[list[FieldInfo], list[Any]]:
    """The fields that may stand at a place of the file (none in the entry of a list), and the types that are read there."""
    fields: list[FieldInfo] = []
    annotations: list[Any] = [shape]
    for part in path:
        fields = [
            field
            for model in _models_in(annotations)
            for name, field in model.model_fields.items()
            if (field.alias or name) == part
        ]
        entries = [get_args(each)[-1] for each in _members(annotations) if get_origin(each) in (list, dict)]
        annotations = [field.annotation for field in fields] + entries
    return fields, annotations


def _keys_at(shape: type[BaseModel], path: Path) -> list[str]:
    return list(dict.fromkeys(key for model in _models_in(_at(shape, path)[1]) for key in _keys(model)))


def _members(annotations: list[Any]) -> list[Any]:
    """What is behind `Annotated` and unions."""
    found: list[Any] = []
    for each in annotations:
        if get_origin(each) is Annotated:
            found += _members([get_args(each)[0]])
        elif get_origin(each) in (Union, UnionType):
            found += _members(list(get_args(each)))
        else:
            found.append(each)
    return found


def _models_in(annotations: list[Any]) -> list[type[BaseModel]]:
    return [each for each in _members(annotations) if isinstance(each, type) and issubclass(each, BaseModel)]


def _instead_of_nothing(expected: str, shape: type[BaseModel], path: Path) -> str:
    """A key without a value: what belongs there."""
    fields, known = _at(shape, path)[0], _keys_at(shape, path)
    examples = [example for field in fields for example in field.examples or []]
    hint = f"write {expected}"
    if expected == "a mapping" and known:
        hint += f"; its keys: {', '.join(known)}"
    elif examples:
        hint += f", such as {json.dumps(examples[0], ensure_ascii=False)}"
    optional = bool(fields) and not any(field.is_required() for field in fields)
    return f"{hint}; or leave the key out" if optional else hint


_MANY_DIGITS = re.compile(r"[+-]?[0-9]{19,}")
"""More than 64 bits hold; shorter ones in quotes are a text where a number should be."""
_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _worded(kind: str, details: dict[str, Any], error: Any, subject: Subject) -> tuple[str, str]:
    """Message and hint for the kinds of errors that the shapes can give."""
    if kind == "scenario":
        return str(details["message"]), str(details["hint"])
    if kind == "literal_error":
        expected = str(details["expected"])
        known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
        close = closest(str(error["input"]), known, 0.5)
        hint = f"did you mean {close!r}?" if close else f"use one of: {', '.join(known)}"
        return f"{_shown(error['input'])} is not possible here", hint
    if kind == "int_type" and isinstance(error["input"], str) and _MANY_DIGITS.fullmatch(error["input"]):
        return f"{_shown(error['input'])} is out of range", "use a number closer to 0"
    if kind == "list_type" and isinstance(error["input"], (str, int, float)) and not isinstance(error["input"], bool):
        shown = str(error["input"])
        return (
            f"expected a list, found {_shown(error['input'])}",
            f"write a list: [{shown if len(shown) <= 40 else '...'}]",
        )
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {_shown(error['input'])}", f"write {_EXPECTED[kind]}"
    limits = {
        "greater_than_equal": ("ge", "at least"),
        "less_than_equal": ("le", "at most"),
        "greater_than": ("gt", "more than"),
    }
    if kind in limits:
        key, words = limits[kind]
        return f"{_shown(error['input'])} is out of range", f"use {words} {details[key]}"
    lengths = {
        "too_short": ("min_length", "at least", "entry", "entries"),
        "too_long": ("max_length", "at most", "entry", "entries"),
        "string_too_short": ("min_length", "at least", "character", "characters"),
        "string_too_long": ("max_length", "at most", "character", "characters"),
    }
    if kind in lengths:
        key, words, one, many = lengths[kind]
        limit, found = details[key], len(error["input"])
        wanted = f"{words} {limit} {one if limit == 1 else many}"
        shown = "an empty text" if found == 0 and one == "character" else _shown(error["input"])
        if found == 0:
            return (
                f"expected {wanted}, found {'an empty list' if one == 'entry' else shown}",
                "name one, or leave the key out",
            )
        return f"expected {wanted}, found {found}", f"write {wanted}"
    return f"{error['msg']}: {_shown(error['input'])}", f"see {subject.page}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
