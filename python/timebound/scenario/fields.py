"""Field types of the scenario's shape: quantities, names, and the base of all its models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from timebound.scenario import units
from timebound.scenario.written import settle


def fail(message: str, hint: str) -> PydanticCustomError:
    """An error whose hint survives the trip through pydantic."""
    return PydanticCustomError("scenario", "{message}", {"message": message, "hint": hint})


def _word(value: Any) -> Any:
    """Arguments are often numbers (`[ping, -c, 3]`); the program gets them as text."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]})]
"""A word of a command, or the value of an environment variable."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """Annotation: a text with a unit, parsed to the base unit of its kind."""

    kind: units.Kind
    ranged: bool = False
    least: int | None = None
    """In the base unit, where less has no meaning."""

    def convert(self, value: Any) -> Any:
        """Parses; raises the pydantic error with the hint of the unit error."""
        try:
            if self.ranged:
                low, high = units.parse_range(value, self.kind)
                return self._result(low, value), self._result(high, value)
            single = self._result(units.parse(value, self.kind), value)
        except units.UnitError as error:
            raise fail(error.message, error.hint) from None
        if self.kind in (units.CORES, units.FREQUENCY) and single < (
            units.LEAST_CORES if self.kind is units.CORES else 1
        ):
            raise fail(f"{value!r} is too little", f"use at least {units.format_share(units.LEAST_CORES)} of a core")
        if self.least is not None and single < self.least:
            shown = units.format_time(self.least) if self.kind is units.TIME else units.format_size(self.least)
            raise fail(f"{value!r} is too little", f"use at least {shown}")
        return single

    def _result(self, exact: Fraction, written: Any) -> int | float:
        if self.kind in (units.SHARE, units.CORES):
            return units.share(exact, written)
        return units.exactly(exact, written, self.kind)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.convert)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        pattern = self.kind.range_pattern if self.ranged else self.kind.pattern
        return {"type": "string", "pattern": pattern, "examples": [self.kind.example], "x-quantity": self.kind.name}


Time = Annotated[int, Quantity(units.TIME)]
Cost = Annotated[int, Quantity(units.COST)]
Duration = Annotated[int, Quantity(units.TIME, least=1_000_000)]
Memory = Annotated[int, Quantity(units.SIZE, least=4 * 2**20)]
TimeRange = Annotated[tuple[int, int], Quantity(units.TIME, ranged=True)]
Rate = Annotated[int, Quantity(units.RATE)]
Size = Annotated[int, Quantity(units.SIZE)]
Share = Annotated[float, Quantity(units.SHARE)]
Cores = Annotated[float, Quantity(units.CORES)]
Frequency = Annotated[int, Quantity(units.FREQUENCY)]
Length = Annotated[int, Quantity(units.LENGTH)]


@dataclass(frozen=True, slots=True)
class SearchTime:
    """A search that is limited by time, not by evaluations."""

    nanoseconds: int


@dataclass(frozen=True, eq=False)
class Efforts:
    """Annotation: a number of evaluations, or a time as [`SearchTime`]."""

    most: int = 1_000_000_000
    least_ns: int = 1_000_000

    def convert(self, value: Any) -> int | SearchTime:
        """A whole number stays one; a text is a time."""
        if isinstance(value, SearchTime):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value <= self.most:
                raise fail(f"{value} evaluations are not possible", f"use 0 to {self.most} of them, or a time: 30 s")
            return value
        if not isinstance(value, str):
            raise fail("expected a number of evaluations or a time", "write for example 20000 or 30 s")
        if value.strip().isdecimal():
            raise fail(f"{value} evaluations are not possible", f"use 0 to {self.most} of them, or a time: 30 s")
        if not re.match(r"\s*[-+]?\.?[0-9]", value):
            raise fail(f"{value!r} is neither a number of evaluations nor a time", "write for example 20000 or 30 s")
        return SearchTime(Quantity(units.TIME, least=self.least_ns).convert(value))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.convert)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        time = {"type": "string", "pattern": units.TIME.pattern, "x-quantity": units.TIME.name}
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": self.most}, time]}


Effort = Annotated[int | SearchTime, Efforts()]


@dataclass(frozen=True, eq=False)
class Names:
    """Annotation: one name (or range of names), or a list of them; parsed to a list of texts."""

    most: int | None = None

    def convert(self, value: Any) -> Any:
        """A list of texts; ranges are expanded later, where the place of each is known."""
        items = value if isinstance(value, list) else [value]
        names = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise fail("expected the name of a node, or a list of names", "write for example h1, h[1-3] or [h1, h5]")
        if self.most is not None and len(names) != self.most:
            raise fail(f"expected {self.most} names", "a link joins two nodes: [h1, s1]")
        return names

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.convert)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many: JsonSchemaValue = {"type": "array", "items": {"type": "string"}, "minItems": 1, "x-quantity": "names"}
        if self.most is not None:
            return {**many, "minItems": self.most, "maxItems": self.most}
        return {"anyOf": [{"type": "string"}, many], "x-quantity": "names"}


NodeNames = Annotated[list[str], Names()]
Ends = Annotated[list[str], Names(most=2)]


def to_key(name: str) -> str:
    """The key in the file: hyphens, and no trailing underscore (`from_` is `from`)."""
    return name.rstrip("_").replace("_", "-")


class Shape(BaseModel):
    """Base of all shapes: unknown keys are errors, numbers are not made of texts, `warm_up` is written `warm-up`. Texts are made
    of whatever was written without quotes.

    While validating, `context["models"]` learns which model read which mapping, so that an unknown key can be compared
    with the keys that exist there.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_key, use_enum_values=True)

    instead_of: ClassVar[Mapping[str, frozenset[str]]] = {}
    """Keys (as written) that exclude others: whoever lays them upon a mapping, as `include` and `--set` do, means them in the place of those."""

    @model_validator(mode="before")
    @classmethod
    def _remember(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            settle(cls, value)
            if isinstance(info.context, dict):
                info.context["models"][id(value)] = cls
        return value


def one_of(*keys: str) -> dict[str, frozenset[str]]:
    """`Shape.instead_of` where one of these keys is stated."""
    return {key: frozenset(keys) - {key} for key in keys}


class Short:
    """Annotation: `convert` turns the short forms of a value into the long one before it is validated; the JSON Schema
    offers both."""

    def __init__(self, convert: Callable[[Any], Any], *schemas: JsonSchemaValue) -> None:
        self.convert = convert
        self.schemas = list(schemas)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.convert, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [*self.schemas, handler(schema)]}
