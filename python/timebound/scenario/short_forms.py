"""Short forms written out, where something is laid upon them: by a file that includes theirs, or by `--set`.

A shape says how its short forms are read (`Short`), and which of its keys exclude each other (`instead_of`). Whatever is laid upon a short form
finds the mapping that it stands for; of keys that exclude each other the one counts that comes later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticCustomError

from timebound.scenario.fields import Shape, Short
from timebound.scenario.tree import Mapping, Scalar, Sequence, Tree, to_plain
from timebound.scenario.written import Written, walk


class Spot:
    """A place of a file: what its shape reads there."""

    __slots__ = ("_annotations",)

    def __init__(self, annotations: Iterable[tuple[Any, tuple[Any, ...]]]) -> None:
        self._annotations = list(annotations)

    @classmethod
    def root(cls, shape: type[BaseModel]) -> Spot:
        """Where the shape itself is read."""
        return cls([(shape, ())])

    def below(self, part: str | int) -> Spot:
        """What is read under a key, or in the entries of a list."""
        found: list[tuple[Any, tuple[Any, ...]]] = []
        for member in self._members():
            if get_origin(member) in (list, dict):
                found.append((get_args(member)[-1], ()))
            elif isinstance(member, type) and issubclass(member, BaseModel):
                found += [
                    (field.annotation, tuple(field.metadata))
                    for name, field in member.model_fields.items()
                    if (field.alias or name) == part
                ]
        return Spot(found)

    def written_out(self, tree: Tree) -> Tree:
        """The mapping, or the list of mappings, that a short form stands for; every other tree as it is."""
        if isinstance(tree, Mapping) or is_null(tree):
            return tree
        for short in self._shorts():
            plain = to_plain(tree)
            try:
                long = short.convert(plain)
            except PydanticCustomError:
                return tree
            if _says_more(tree, long):
                known: dict[int, Tree] = {}
                _remember(tree, plain, known)
                return _rebuilt(long, tree, known)
        return tree

    def one(self, tree: Tree) -> Tree:
        """As `written_out`; where a list may stand and one entry does, that entry."""
        found = self.written_out(tree)
        if isinstance(found, Sequence) and len(found.items) == 1 and self._shorts():
            return self.below(0).written_out(found.items[0])
        return found

    def excluded(self, keys: Iterable[str]) -> set[str]:
        """The keys that these ones exclude in a mapping here."""
        stated, found = set(keys), set[str]()
        for member in self._members():
            if isinstance(member, type) and issubclass(member, Shape):
                found |= {other for key in stated for other in member.instead_of.get(key, ())}
        return found - stated

    @property
    def is_unknown(self) -> bool:
        """Is nothing read here?"""
        return not self._annotations

    def is_list(self, part: str) -> bool:
        """Is a list read here, below which this part can be no key? A short form of a list may be a mapping."""
        members = [member for member in self._members() if member is not type(None)]
        mappings = any(
            get_origin(each) is dict or (isinstance(each, type) and issubclass(each, BaseModel)) for each in members
        )
        is_key = bool(self._shorts()) and not part.isdigit()
        return not mappings and not is_key and any(get_origin(each) is list for each in members)

    def _members(self) -> list[Any]:
        return [member for annotation, _ in self._annotations for member, _ in walk(annotation)]

    def _shorts(self) -> list[Short]:
        marks = [mark for _, metadata in self._annotations for mark in metadata]
        marks += [mark for annotation, _ in self._annotations for _, found in walk(annotation) for mark in found]
        return [mark for mark in marks if isinstance(mark, Short)]


def is_null(tree: Tree) -> bool:
    """A key without a value."""
    return isinstance(tree, Scalar) and tree.value is None


def _says_more(tree: Tree, long: Any) -> bool:
    if isinstance(long, dict):
        return not any("${" in key for key in long)
    return isinstance(long, list) and (
        isinstance(tree, Scalar) or (any(isinstance(entry, dict) for entry in long) and len(long) > 0)
    )


def _remember(tree: Tree, plain: Any, known: dict[int, Tree]) -> None:
    """Where each part of a plain value was written."""
    known[id(plain)] = tree
    if isinstance(tree, Sequence):
        for item, value in zip(tree.items, plain, strict=True):
            _remember(item, value, known)


def _rebuilt(long: Any, tree: Tree, known: dict[int, Tree]) -> Tree:
    if (written := known.get(id(long))) is not None and not (isinstance(long, (bool, int)) or long is None):
        return written
    if isinstance(long, dict):
        entries = {key: _rebuilt(value, tree, known) for key, value in long.items()}
        return Mapping(tree.place, entries, dict.fromkeys(entries, tree.place))
    if isinstance(long, list):
        return Sequence(tree.place, [_rebuilt(value, tree, known) for value in long])
    value = long.value if isinstance(long, Written) else long
    text = str(value).lower() if isinstance(value, bool) else str(long)
    return Scalar(tree.place, value, text)
