"""What was written without quotes and is no text for YAML: `010`, `1e3`, `true`. Only where it stands says what is meant.

The reader gives such values as [`Written`]: the text as it stands in the file together with the value that YAML takes it for. A
shape then takes the text where it expects one (the host `010` is not the host `8`), and the value elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


class Written(str):
    """The text of a scalar without quotes that YAML takes for `value`."""

    value: int | float | bool | None

    def __new__(cls, text: str, value: int | float | bool | None) -> Written:
        """Both as the reader knows them."""
        written = super().__new__(cls, text)
        written.value = value
        return written


class TextForm:
    """Annotation: a short form of this value is a text (`broker: 010`), or takes its parts as texts (`run: [ping, -c, 010]`)."""


class Expected:
    """What a place expects, from its annotation."""

    __slots__ = ("entries", "items", "opaque", "required", "text")

    def __init__(self, annotation: Any, metadata: tuple[Any, ...] = (), *, required: bool = True) -> None:
        members, found = _flat(annotation)
        marks = [*metadata, *found]
        self.opaque = any(isinstance(mark, TextForm) or mark is TextForm for mark in marks)
        lists = [get_args(member)[0] for member in members if get_origin(member) is list]
        maps = [get_args(member)[1] for member in members if get_origin(member) is dict]
        numbers = any(member in (int, float, bool) for member in members)
        self.items = Expected(lists[0]) if lists else None
        self.entries = Expected(maps[0]) if maps else None
        self.text: bool = (str in members and not numbers) or bool(self.items and self.items.text) or self.opaque
        self.required = required and type(None) not in members

    def settle(self, value: Any) -> Any:
        """The value with every `Written` in it turned into what is expected there; lists and mappings stay the same objects.

        What a model is to be made of is left alone: its own fields settle it.
        """
        if type(value) is Written:
            return self._scalar(value)
        if type(value) is list:
            if self.items is not None and not self.opaque:
                for index, item in enumerate(value):
                    if type(item) in _UNSETTLED:
                        value[index] = self.items.settle(item)
            elif self.opaque:
                _to_text(value)
        elif type(value) is dict and self.entries is not None:
            for key, item in value.items():
                if type(item) in _UNSETTLED:
                    value[key] = self.entries.settle(item)
        return value

    def _scalar(self, written: Written) -> Any:
        if not self.text:
            return written.value
        return _text(written) if self.required or written.value is not None else None


def value_of(value: Any) -> Any:
    """What YAML takes a scalar without quotes for."""
    return value.value if type(value) is Written else value


def _text(written: Written) -> str | None:
    """Somebody may be called `null`; `~` and nothing at all are no text."""
    return str(written) if written.value is not None or written.isalpha() else None


_UNSETTLED = frozenset({Written, list, dict})


@cache
def expectations(model: type[BaseModel]) -> dict[str, Expected]:
    """What each key of a model expects."""
    return {
        field.alias or name: Expected(field.annotation, tuple(field.metadata), required=field.is_required())
        for name, field in model.model_fields.items()
    }


def settle(model: type[BaseModel], values: dict[str, Any]) -> None:
    """Turns what was written without quotes into what the keys of a model expect."""
    expected = expectations(model)
    for key, value in values.items():
        if type(value) in _UNSETTLED:
            known = expected.get(key)
            values[key] = value_of(value) if known is None else known.settle(value)


def _to_text(value: list[Any]) -> None:
    for index, item in enumerate(value):
        if type(item) is Written:
            value[index] = _text(item)
        elif type(item) is list:
            _to_text(item)


def _flat(annotation: Any) -> tuple[list[Any], list[Any]]:
    """The types behind `Annotated` and unions, and the annotations on the way."""
    members: list[Any] = []
    marks: list[Any] = []
    for member, found in walk(annotation):
        members.append(member)
        marks += found
    return members, marks


def walk(annotation: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The types behind `Annotated` and unions, each with the annotations on the way to it."""
    if get_origin(annotation) is Annotated:
        for member, found in walk(get_args(annotation)[0]):
            yield member, [*found, *annotation.__metadata__]
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from walk(each)
    else:
        yield annotation, []
