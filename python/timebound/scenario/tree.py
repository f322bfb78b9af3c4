"""YAML text -> a tree that knows where everything was written.

libyaml's event parser does the reading (fast, and it never builds more than we ask for); the tree is ours, so that
size, depth and alias expansion are limited while it grows. Ranges (`h[1-3]`) and parameters (`${n}`) contain characters that
end a plain YAML scalar inside `[]` and `{}`; they are replaced, one character for one, before parsing and put back
after it, so that columns stay true and files without the quotes that YAML wants there load as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from timebound.scenario.problems import Place, Problem
from timebound.scenario.written import Written

MOST_BYTES = 2_000_000
"""Of one file."""
MOST_ALL_BYTES = 4_000_000
"""Of a scenario: all files, each as often as it is included, and what is put in for parameters."""
MOST_NODES = 150_000
"""Values of one file."""
MOST_ALL_NODES = 300_000
"""Values of a scenario."""
DEEPEST = 40
_RANGES = "write many alike nodes and flows as ranges (h[1-60], count: 20)"
_SMALLER = f"{_RANGES}, or what is different in several files: include: [flows-1.yaml, flows-2.yaml] (each may be as large, two such in all)"

_PARSER: Any = yaml.cyaml.__dict__["CParser"] if yaml.__with_libyaml__ else yaml.Loader
"""libyaml's parser; where PyYAML was built without it the slower one of the same events."""


@dataclass(slots=True)
class Scalar:
    """A leaf: the value by the YAML 1.2 core schema and the text as written."""

    place: Place
    value: str | int | float | bool | None
    text: str
    plain: bool = True
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class Sequence:
    """A list."""

    place: Place
    items: list[Tree] = field(default_factory=list)
    size: int = 1
    height: int = 1


@dataclass(slots=True)
class Mapping:
    """A mapping with the place of each key."""

    place: Place
    entries: dict[str, Tree] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    size: int = 1
    height: int = 1


Tree = Scalar | Sequence | Mapping
Path = tuple[str | int, ...]


MOST_PROBLEMS = 500


class TooManyProblemsError(Exception):
    """`MOST_PROBLEMS` are recorded: nobody reads more at once, and looking for more takes time."""


_LINE_ENDS = "\r\n|[\r\n\x85\u2028\u2029]"


class Sources:
    """The texts that were read, for the offending lines of problems, and the problems found so far."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.parametrised = False
        """Does `${` occur anywhere?"""
        self._unknown: set[Place] = set()
        self._bytes = 0
        self._values = 0

    @property
    def is_exhausted(self) -> bool:
        """Is the budget of the scenario used up? Nothing more is to be read then."""
        return self._bytes > MOST_ALL_BYTES or self._values > MOST_ALL_NODES

    def take(self, place: Place, *, size: int = 0, values: int = 0) -> bool:
        """Counts on the budget of the scenario; False, with a problem said once, where that is used up."""
        was_exhausted = self.is_exhausted
        self._bytes += size
        self._values += values
        if not self.is_exhausted:
            return True
        if not was_exhausted:
            what = f"{MOST_ALL_BYTES} bytes" if self._bytes > MOST_ALL_BYTES else f"{MOST_ALL_NODES} values"
            self.problem(
                place,
                "",
                f"the scenario has more than {what} with all that is included and put in for parameters",
                f"{_RANGES}, and include each file once",
            )
        return False

    def add(self, file: str, text: str) -> None:
        """Remembers a source."""
        self.parametrised = self.parametrised or "${" in text
        self.lines[file] = re.split(_LINE_ENDS, text)

    def unknown_value(self, place: Place, message: str, hint: str) -> None:
        """Records that nobody knows the value at a place; nothing that is found about what stands in for it is recorded."""
        self.problem(place, "", message, hint)
        self._unknown.add(place)

    def problem(self, place: Place, path: str, message: str, hint: str, *, warning: bool = False) -> None:
        """Records a problem (or a warning) at a place; `TooManyProblemsError` once there are enough."""
        if path and place in self._unknown:
            return
        if not warning and len(self.problems) >= MOST_PROBLEMS:
            raise TooManyProblemsError
        lines = self.lines.get(place.file, [])
        source_line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        (self.warnings if warning else self.problems).append(
            Problem(
                file=place.file,
                line=place.line,
                column=place.column,
                path=path,
                message=message,
                hint=hint,
                source_line=source_line,
                length=place.length,
                severity="warning" if warning else "error",
            )
        )


_RANGE = re.compile(r"(?<=[A-Za-z0-9_.\-\]\uE001])\[([0-9][0-9,\-]*)\]")
_PARAMETER = re.compile(r"\$\{([^{}\s\"',\[\]]{1,64})\}")
_HIDE = str.maketrans("[],{}", "\ue000\ue001\ue002\ue003\ue004")
_SHOW = str.maketrans("\ue000\ue001\ue002\ue003\ue004", "[],{}")
_PRIVATE = re.compile("[\ue000-\ue004]")


def decode(data: bytes, file: str, sources: Sources) -> str | None:
    """The text of a file, or `None` with a problem when it cannot be a scenario (too large, binary, not UTF-8)."""
    place = Place(file)
    if len(data) > MOST_BYTES:
        sources.problem(
            place,
            "",
            f"the file has more than {MOST_BYTES} bytes",
            _SMALLER,
        )
        return None
    if b"\0" in data[:65536] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        sources.problem(place, "", "this is a binary file", "a scenario is a YAML text file in UTF-8")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            sources.problem(Place(file, 1, 1), "", "the file is UTF-16", "save the file as UTF-8")
            return None
        before = data[: error.start].decode("utf-8-sig")
        sources.add(file, data.decode("utf-8-sig", "replace"))
        lines = re.split(_LINE_ENDS, before)
        shown = data[error.start : error.start + 1].decode("latin-1")
        hint = (
            f"save the file as UTF-8 (in Latin-1 this byte is {shown!r})"
            if shown.isprintable()
            else "save the file as UTF-8"
        )
        message = f"byte {data[error.start]:#04x} is not UTF-8"
        sources.problem(Place(file, len(lines), len(lines[-1]) + 1), "", message, hint)
        return None


def compose(text: str, file: str, sources: Sources) -> Tree | None:
    """The tree of a text; `None` with at least one problem where there is none."""
    if not sources.take(Place(file), size=len(text)):
        return None
    sources.add(file, text)
    private = _PRIVATE.search(text)
    if private is not None:
        line = text.count("\n", 0, private.start()) + 1
        sources.problem(Place(file, line, 1), "", "a private-use character", "remove U+E000 to U+E004")
        return None
    hidden = text
    for _ in range(3):  # up to three brackets in one name
        hidden = _RANGE.sub(lambda match: match[0].translate(_HIDE), hidden)
    hidden = _PARAMETER.sub(lambda match: match[0].translate(_HIDE), hidden)
    builder = _Builder(file, sources, hidden != text)
    try:
        tree = builder.document(_PARSER(hidden))
    except _StopError:
        return None
    except yaml.MarkedYAMLError as error:
        _syntax(error, file, sources)
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        sources.problem(Place(file, line, 1), "", f"an unreadable character: {error.reason}", "remove it")
        return None
    except (UnicodeError, ValueError) as error:
        sources.problem(Place(file), "", f"this text cannot be read: {error}", "a scenario is a YAML text in UTF-8")
        return None
    if tree is None:
        sources.problem(Place(file), "", "the file is empty", "start with: name, network, flows, stack, run")
        return None
    return tree if sources.take(Place(file), values=builder.count) else None


def _syntax(error: yaml.MarkedYAMLError, file: str, sources: Sources) -> None:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    lines = sources.lines[file]
    if mark and mark.line >= len(lines):
        place = Place(file, len(lines), len(lines[-1]) + 1)
    message = (error.problem or "this is no YAML").translate(_SHOW)
    offending = lines[place.line - 1] if place.line else ""
    if "\t" in offending:
        hint = "use spaces, YAML does not allow tabs here"
    elif "flow" in (error.context or ""):
        opened = error.context_mark
        hint = "close every [ and { and separate their parts with commas"
        hint += f" (opened in line {opened.line + 1})" if opened else ""
    else:
        hint = "check the indentation, and that every key is followed by ': '"
    sources.problem(place, "", f"no valid YAML: {message}", hint)


class _StopError(Exception):
    """The problem is recorded; reading on makes no sense."""


class _Builder:
    def __init__(self, file: str, sources: Sources, hidden: bool) -> None:
        self.file = file
        self.sources = sources
        self.hidden = hidden
        self.anchors: dict[str, Tree] = {}
        self.count = 0
        self.depth = 0

    def document(self, parser: Any) -> Tree | None:
        tree: Tree | None = None
        documents = 0
        while parser.check_event():
            event = parser.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.stop(event, "a second document", "keep one scenario in one file, without '---' between parts")
                tree = self.node(parser, parser.get_event())
        return tree

    def place(self, event: Any) -> Place:
        start, end = event.start_mark, event.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Place(self.file, start.line + 1, start.column + 1, length if length > 1 else 1)

    def stop(self, event: Any, message: str, hint: str) -> None:
        self.sources.problem(self.place(event), "", message, hint)
        raise _StopError

    def grow(self, event: Any, by: int) -> None:
        self.count += by
        if self.count > MOST_NODES:
            self.stop(
                event,
                f"the scenario has more than {MOST_NODES} values (aliases count each time)",
                _SMALLER,
            )

    def deeper(self, event: Any, height: int) -> None:
        if self.depth + height > DEEPEST:
            self.stop(event, f"nested deeper than {DEEPEST} levels", "a scenario needs about eight")

    def node(self, parser: Any, event: Any) -> Tree:
        if isinstance(event, yaml.AliasEvent):
            target = self.anchors.get(event.anchor or "")
            if target is None:
                self.stop(event, f"unknown alias *{event.anchor}", f"mark the value meant with &{event.anchor} above")
                raise _StopError
            self.grow(event, target.size)
            self.deeper(event, target.height)
            return target
        self.count += 1
        if self.count > MOST_NODES:
            self.grow(event, 0)
        if event.tag not in (None, "!"):
            self.sources.problem(self.place(event), "", f"the tag {event.tag}", "remove it; quote what is text")
        tree: Tree
        if isinstance(event, yaml.ScalarEvent):
            tree = self.scalar(event)
        else:
            self.depth += 1
            self.deeper(event, 0)
            is_list = isinstance(event, yaml.SequenceStartEvent)
            tree = self.sequence(parser, event) if is_list else self.mapping(parser, event)
            self.depth -= 1
        if event.anchor:
            self.anchors[event.anchor] = tree
        return tree

    def scalar(self, event: Any) -> Scalar:
        text: str = event.value
        if self.hidden:
            text = text.translate(_SHOW)
        if "\0" in text:
            # The kernel ends names, words and paths with it; no shape has to look for it.
            hint = "remove it: no name, word, path or text may have one (in double quotes \\0 and \\x00 stand for it)"
            self.sources.unknown_value(self.place(event), "a NUL character", hint)
            text = text.replace("\0", "?")
        plain = bool(event.implicit[0])
        value = resolve_plain(text) if plain and text[:1] in _NOT_ONLY_TEXT else text
        return Scalar(self.place(event), value, text, plain)

    def sequence(self, parser: Any, start: Any) -> Sequence:
        sequence = Sequence(self.place(start))
        while not isinstance(event := parser.get_event(), yaml.SequenceEndEvent):
            item = self.node(parser, event)
            sequence.items.append(item)
            sequence.size += item.size
            if item.height >= sequence.height:
                sequence.height = item.height + 1
        return sequence

    def mapping(self, parser: Any, start: Any) -> Mapping:
        mapping = Mapping(self.place(start))
        merged: list[Tree] = []
        while not isinstance(event := parser.get_event(), yaml.MappingEndEvent):
            place = self.place(event)
            key = self.node(parser, event)
            value = self.node(parser, parser.get_event())
            mapping.size += value.size + 1
            if value.height >= mapping.height:
                mapping.height = value.height + 1
            if not isinstance(key, Scalar):
                self.sources.problem(place, "", "a list or mapping as a key", "quote the key if it is text")
            elif key.text == "<<" and key.plain:
                merged += value.items if isinstance(value, Sequence) else [value]
            elif key.text in mapping.entries:
                first = mapping.keys[key.text]
                self.sources.problem(
                    place, key.text, f"duplicate key {key.text!r}", f"first written in line {first.line}: keep one"
                )
            else:
                mapping.entries[key.text] = value
                mapping.keys[key.text] = place
        for base in merged:
            if isinstance(base, Mapping):
                for name, value in base.entries.items():
                    if name not in mapping.entries:
                        mapping.entries[name] = value
                        mapping.keys[name] = base.keys[name]
            else:
                self.sources.problem(base.place, "<<", "only mappings can be merged", "use <<: *name of a mapping")
        return mapping


_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")


_NOT_ONLY_TEXT = frozenset("0123456789+-.~nNtTfF") | {""}
"""What a number, a truth value or nothing can begin with."""


def resolve_plain(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar by the YAML 1.2 core schema (`no` and `on` are text), without octal or infinity."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def to_plain(tree: Tree) -> Any:
    """Dicts, lists, texts and [`Written`]; every alias becomes an own copy."""
    if isinstance(tree, Scalar):
        value = tree.value
        return value if isinstance(value, str) else Written(tree.text, value)
    if isinstance(tree, Sequence):
        return [to_plain(item) for item in tree.items]
    return {key: to_plain(value) for key, value in tree.entries.items()}


def find(tree: Tree, path: Path) -> tuple[Place, Tree]:
    """The place of `path`, or of the deepest part of it that was written.

    Short forms are written out before they are checked, so a path may have an index where the file has a single value
    (skipped) or a mapping by name (its n-th entry), and a key where the file has a list (skipped).
    """
    place = tree.place
    for position, part in enumerate(path):
        if isinstance(tree, Mapping):
            following = path[position + 1] if position + 1 < len(path) else None
            if isinstance(part, int):
                if following in tree.entries or part >= len(tree.entries):
                    continue
                part = list(tree.entries)[part]
            if part not in tree.entries:
                break
            tree = tree.entries[part]
        elif isinstance(tree, Sequence):
            if isinstance(part, str):
                continue  # what the list is short for has it under this key
            if part >= len(tree.items):
                break
            if part == 0 and isinstance(tree.items[0], Scalar) and _is_list(path[position + 1 :]):
                continue  # the list is its only entry
            tree = tree.items[part]
        else:
            break
        place = tree.place
    return place, tree


def _is_list(rest: Path) -> bool:
    """A key, and a number in it."""
    return len(rest) > 1 and isinstance(rest[0], str) and isinstance(rest[1], int)


def dotted(path: Path) -> str:
    """`network.links[3].rate`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
