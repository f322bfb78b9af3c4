"""The table as an OVSDB schema (RFC 7047, section 3.2), and rows as OVSDB values: both derived from the row types.

Lists in order are maps from position to value, because sets of OVSDB have no order. Texts that can only have certain values are enumerated,
so that ovsdb-server refuses others.
"""

from __future__ import annotations

from typing import Any

from timebound.control.srt.columns import Column, ColumnError, Value, check_values, columns, flatten, unflatten
from timebound.control.srt.rows import ROWS, Row, TableName, table_of

DATABASE = "Timebound"
VERSION = "1.4.0"
"""Of the schema (`<x>.<y>.<z>`, RFC 7047): x counts changes that older programs do not understand, y additions. 1.1: `groups`, and what managers need
for them. `ovsdb-tool convert` fills a new column of old rows with what its type has as nothing, which must be the field's default."""


def schema() -> dict[str, Any]:
    """The database schema, for `ovsdb-tool create`."""
    return {
        "name": DATABASE,
        "version": VERSION,
        "tables": {
            table: {
                "columns": {column.name: {"type": _type(column)} for column in columns(table)},
                "indexes": [["id"]],
                "isRoot": True,
            }
            for table in ROWS
        },
    }


def _type(column: Column) -> dict[str, Any]:
    if column.listed:
        most: int | str = "unlimited" if column.repeated else len(column.atoms)
        least = 0 if column.repeated or column.optional else len(column.atoms)
        return {"key": "integer", "value": "string" if column.mixed else _base(column), "min": least, "max": most}
    return {"key": _base(column), "min": 0 if column.optional else 1, "max": 1}


def _base(column: Column) -> dict[str, Any]:
    if column.enumerated:
        return {"type": "string", "enum": ["set", list(column.enumerated)]}
    return {"type": {str: "string", int: "integer", bool: "boolean"}[column.atoms[0]]}


def to_json(row: Row) -> dict[str, Any]:
    """The columns of a row as RFC 7047 values."""
    values = flatten(row)
    return {column.name: _encode(column, values[column.name]) for column in columns(table_of(row))}


def _encode(column: Column, value: Value) -> Any:
    if column.listed:
        items = value if isinstance(value, tuple) else ()
        return ["map", [[number, str(item) if column.mixed else item] for number, item in enumerate(items)]]
    if column.optional:
        return ["set", [] if value is None else [value]]
    return value


def from_json(table: TableName, values: dict[str, Any]) -> Row:
    """The row of these columns as ovsdb-server sends them.

    Raises:
        ColumnError: something else than `to_json` wrote them.
    """
    try:
        decoded = {column.name: _decode(column, values[column.name]) for column in columns(table)}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ColumnError(f"{table}: {type(error).__name__} {error}") from None
    row = unflatten(table, decoded)
    try:
        check_values(row)
    except ValueError as error:
        # Nobody could write it again, nor what refers to it.
        raise ColumnError(str(error)) from None
    return row


def _decode(column: Column, value: Any) -> Value:
    """A set of one may come as its element alone (RFC 7047, section 5.1)."""
    if column.listed:
        items = _in_order(value)
        if column.mixed and len(items) == len(column.atoms):
            items = [int(item) if kind is int else item for kind, item in zip(column.atoms, items, strict=True)]
        return None if column.optional and not items else tuple(items)
    if column.optional and isinstance(value, list):
        found = _tagged("set", value)
        if len(found) > 1:
            raise ValueError("more than one value")
        return found[0] if found else None
    if isinstance(value, list):
        raise TypeError("a set where one value belongs")
    return value  # type: ignore[no-any-return]


def _in_order(value: Any) -> list[Any]:
    pairs = sorted(_tagged("map", value))
    if [number for number, _ in pairs] != list(range(len(pairs))):
        raise ValueError("positions of a list are missing")
    return [item for _, item in pairs]


def _tagged(tag: str, value: Any) -> list[Any]:
    if not (isinstance(value, list) and len(value) == 2 and value[0] == tag and isinstance(value[1], list)):
        raise TypeError(f"no {tag}")
    return value[1]


def missing(theirs: Any) -> list[str]:
    """What a server's schema lacks of ours: tables and columns (an older version, or another database of that name).

    A column of another type shows when it is written or read.
    """
    tables = _mapping(_mapping(theirs).get("tables"))
    found: list[str] = []
    for table in ROWS:
        if table not in tables:
            found.append(table)
            continue
        has = _mapping(_mapping(tables[table]).get("columns"))
        found += [f"{table}.{column.name}" for column in columns(table) if column.name not in has]
    return found


def _mapping(value: Any) -> dict[str, Any]:
    """What should be one, from a server."""
    return value if isinstance(value, dict) else {}
