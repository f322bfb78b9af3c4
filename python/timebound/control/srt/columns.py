"""Rows as flat columns, derived from the row types by their annotations: one table of columns for every store.

A column holds a text, an integer, a truth value or an enumerated text; one of them, at most one, or a list in order. Parts of a
row (`Requirements`, `Offer`) are laid flat: `requirements_deadline_ns`. So a row type that gets a field gets a column in every
store and in the schema, and nothing can diverge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from timebound.control.srt.rows import ROWS, Row, TableName, table_of

Atom = str | int | bool
Value = Atom | tuple[Atom, ...] | None
"""What a column of a row holds: `None` where it is optional and nothing is said."""


class ColumnError(ValueError):
    """Values of columns that are no row: something else than these row types wrote them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    path: tuple[str, ...]
    """Fields from the row down to the value."""
    atoms: tuple[type, ...]
    """Type of the value, or of each item of a tuple: `str`, `int`, `bool` or a `StrEnum`."""
    listed: bool = False
    """A tuple: of the length of `atoms`, or with `repeated` of any length."""
    repeated: bool = False
    optional: bool = False
    default: Value = None
    """What it holds in rows that were written before it was there; a field without a default has none."""

    @property
    def mixed(self) -> bool:
        """Are items of several types?"""
        return any(kind is not self.atoms[0] for kind in self.atoms)

    @property
    def enumerated(self) -> tuple[str, ...]:
        """The only texts that it may hold; empty: any."""
        kind = self.atoms[0]
        return tuple(item.value for item in kind) if issubclass(kind, StrEnum) else ()


@cache
def columns(table: TableName) -> tuple[Column, ...]:
    """The columns of a table in the order of the row's fields; the first is `id`."""
    return tuple(_of_type(ROWS[table], (), ""))


def _of_type(kind: type, path: tuple[str, ...], prefix: str) -> list[Column]:
    found = []
    hints = get_type_hints(kind)
    for field in fields(kind):
        here, name, hint = (*path, field.name), prefix + field.name, hints[field.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            found += _of_type(hint, here, f"{name}_")
        else:
            default = None if field.default is MISSING else field.default
            found.append(replace(_of_hint(name, here, hint), default=default))
    return found


def _of_hint(name: str, path: tuple[str, ...], hint: Any) -> Column:
    optional = False
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
        optional = True
    if get_origin(hint) is not tuple:
        return Column(name, path, (hint,), optional=optional)
    parts = get_args(hint)
    repeated = parts[-1] is Ellipsis
    return Column(name, path, parts[:1] if repeated else parts, listed=True, repeated=repeated, optional=optional)


def flatten(row: Row) -> dict[str, Value]:
    """The values of a row by column."""
    found: dict[str, Value] = {}
    for column in columns(table_of(row)):
        value: Any = row
        for part in column.path:
            value = getattr(value, part)
        found[column.name] = value.value if isinstance(value, StrEnum) else value
    return found


def unflatten(table: TableName, values: Mapping[str, Value]) -> Row:
    """The row of these values; columns that it does not know are passed over (a newer writer's).

    Raises:
        ColumnError: a value is missing or has another type.
    """
    tree: dict[str, Any] = {}
    for column in columns(table):
        if column.name not in values:
            raise ColumnError(f"{table}: column {column.name} is missing")
        value = _checked(table, column, values[column.name])
        place = tree
        for part in column.path[:-1]:
            place = place.setdefault(part, {})
        place[column.path[-1]] = value
    row: Row = _built(ROWS[table], tree)
    return row


@cache
def _parts(kind: type) -> tuple[tuple[str, type], ...]:
    """Fields of a row type that are laid flat."""
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind) if is_dataclass(hints[field.name]))


def _built(kind: type, tree: dict[str, Any]) -> Any:
    for name, part in _parts(kind):
        tree[name] = _built(part, tree[name])
    return kind(**tree)


def _checked(table: TableName, column: Column, value: Value) -> Any:
    if value is None:
        if not column.optional:
            raise ColumnError(f"{table}: column {column.name} is empty")
        return None
    if not column.listed:
        return _atom(table, column, column.atoms[0], value)
    if not isinstance(value, tuple) or not (column.repeated or len(value) == len(column.atoms)):
        raise ColumnError(f"{table}: column {column.name} holds {value!r}")
    kinds = column.atoms * len(value) if column.repeated else column.atoms
    return tuple(_atom(table, column, kind, item) for kind, item in zip(kinds, value, strict=True))


def _atom(table: TableName, column: Column, kind: type, value: Any) -> Atom:
    if kind is str or kind is int or kind is bool:
        exact = type(value) is kind  # `True` is no integer here.
        if exact:
            atom: Atom = value
            return atom
    elif issubclass(kind, StrEnum):
        for member in kind:
            if member.value == value:
                return member
    raise ColumnError(f"{table}: column {column.name} holds {value!r}")


GREATEST = 2**63 - 1
"""Greatest integer that both OVSDB and SQLite hold."""


def check_values(row: Row) -> None:
    """Can every store hold this row?

    Raises:
        ValueError: a NUL or half a surrogate pair in a text, an integer outside 0 .. 2**63 - 1, an empty id.
    """
    for name, value in flatten(row).items():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str) and ("\0" in item or not _encodable(item)):
                raise ValueError(f"{table_of(row)} {row.id!r}: {name} has characters that no store can hold: {item!r}")
            if isinstance(item, int) and not 0 <= item <= GREATEST:
                raise ValueError(f"{table_of(row)} {row.id!r}: {name} is out of range: {item}")
    if not row.id:
        raise ValueError(f"{table_of(row)}: an empty id")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
