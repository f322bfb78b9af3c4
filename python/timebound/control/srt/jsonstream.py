"""JSON texts out of a byte stream that does not separate them, as OVSDB sends them (RFC 7047, section 4). Pure.

The ends of texts are found by counting braces outside strings, once over every byte; only whole texts are parsed. That is about a
hundred times as fast as a parser that is fed character by character in Python.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_BYTES = 256 * 2**20
"""Greatest text: a table of a million rows."""

_TOKEN = re.compile(rb'[{}]|"(?:[^"\\]|\\.)*+"|"', re.DOTALL)
"""Braces and strings; a lone quotation mark begins a string whose end has not come yet."""


class JsonStreamError(ValueError):
    """These bytes are no sequence of JSON objects; the connection is of no use any more."""


class JsonStream:
    """Takes bytes as they come, gives objects as they are complete."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._buffer = bytearray()
        self._most = most_bytes
        self._looked = 0
        """Bytes of the buffer in which ends were looked for already."""
        self._depth = 0

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The objects that these bytes complete, in order.

        Raises:
            JsonStreamError: no JSON, something outside of objects, or an object that is too large.
        """
        self._buffer += data
        found: list[dict[str, Any]] = []
        begin = 0
        position = self._looked
        while match := _TOKEN.search(self._buffer, position):
            token = match.group()
            if token == b'"':
                # The string is not all there: look at it again from its beginning when there is more.
                position = match.start()
                break
            position = match.end()
            if token == b"{":
                if self._depth == 0:
                    self._only_space(begin, match.start())
                    begin = match.start()
                self._depth += 1
            elif token == b"}":
                self._depth -= 1
                if self._depth < 0:
                    raise JsonStreamError("a closing brace without an opening one")
                if self._depth == 0:
                    found.append(_parse(bytes(self._buffer[begin:position])))
                    begin = position
            elif self._depth == 0:
                raise JsonStreamError("a text outside of an object")
        else:
            position = len(self._buffer)
        if self._depth == 0:
            self._only_space(begin, len(self._buffer))
            begin = position = len(self._buffer)
        del self._buffer[:begin]
        self._looked = position - begin
        if len(self._buffer) > self._most:
            raise JsonStreamError(f"an object of more than {self._most} bytes")
        return found

    def _only_space(self, begin: int, end: int) -> None:
        if self._buffer[begin:end].strip(b" \t\r\n"):
            raise JsonStreamError("something outside of an object")


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonStreamError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise JsonStreamError("no object")
    return found
