"""From a file and overrides to one tree: includes merged, `--set` applied, parameters put in.

Mappings are merged key by key and the including file wins; the lists `network.links`, `flows` and `background` are
appended to those of the included files; every other list is replaced. Short forms are written out before something is laid upon them (`short_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as AbstractMapping
from contextlib import suppress
from itertools import islice
from pathlib import Path as FilePath

from timebound.scenario.builtin import suggest
from timebound.scenario.closest import closest
from timebound.scenario.files import instead_of_file
from timebound.scenario.problems import OPTION, Place
from timebound.scenario.shape import ScenarioShape
from timebound.scenario.short_forms import Spot, is_null
from timebound.scenario.tree import (
    MOST_BYTES,
    Mapping,
    Scalar,
    Sequence,
    Sources,
    TooManyProblemsError,
    Tree,
    compose,
    decode,
    resolve_plain,
)

_APPENDED = frozenset({("network", "links"), ("flows",), ("background",)})
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
MOST_FILES = 50
SCENARIO = Spot.root(ScenarioShape)


def read(
    text: str | None, file: FilePath | None, label: str, overrides: AbstractMapping[str, object], sources: Sources
) -> Mapping | None:
    """The merged tree of a scenario, or `None` with problems in `sources`."""
    if text is None and file is not None:
        text = read_file(file, label, Place(label), sources)
    if text is None:
        return None
    tree = compose(text, label, sources)
    if tree is None:
        return None
    if not isinstance(tree, Mapping):
        sources.problem(tree.place, "", "a scenario is a mapping", "start with: name: my-network")
        return None
    settings = _overrides(overrides, sources)
    for path, value in settings:  # before the includes, whose names may depend on parameters
        if path[0] == "parameters" or (len(path) == 1 and path[0] in parameters_of(tree)):
            _set(tree, path if path[0] == "parameters" else ["parameters", *path], value, sources)
        elif path[0] == "include":
            _set(tree, path, value, sources)
    settings = [(path, value) for path, value in settings if path[0] != "include"]
    tree = _Includer(file, sources).include(tree, file)
    if sources.is_exhausted:
        return None
    known = parameters_of(tree)
    for path, value in settings:
        if len(path) == 1 and path[0] in known:
            path = ["parameters", *path]
        _set(tree, path, value, sources)
    if sources.parametrised:
        substitute(tree, parameters_of(tree), sources)
    return tree


def read_file(file: FilePath, label: str, place: Place, sources: Sources) -> str | None:
    """The text of a file, or `None` with a problem at the place that names it."""
    try:
        if (reason := instead_of_file(file)) is not None:
            # No line: the name comes from the command line and may have been meant for a built-in scenario.
            hint = "name an existing file" if place.line else suggest(label)
            if label.startswith("~"):
                hint = "only a shell makes a home folder of ~, and where it is not quoted: write the whole path"
            sources.problem(place, "", f"{label!r} {reason}", hint)
            return None
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        sources.problem(place, "", f"{label!r} cannot be read: {reason}", "name a readable file")
        return None
    return decode(data, label, sources)


class _Includer:
    def __init__(self, root: FilePath | None, sources: Sources) -> None:
        self.sources = sources
        self.open = [root.resolve()] if root else []
        self.count = 0

    def include(self, tree: Mapping, file: FilePath | None) -> Mapping:
        entry = tree.entries.pop("include", None)
        if entry is None:
            return tree
        parameters = parameters_of(tree)
        merged: Mapping | None = None
        for item in entry.items if isinstance(entry, Sequence) else [entry]:
            if self.sources.is_exhausted:
                break
            if not isinstance(item, Scalar) or item.value is None:
                self.sources.problem(item.place, "include", "an include is the name of a file", "include: [base.yaml]")
                continue
            substitute(item, parameters, self.sources)
            base = self.read(item, file, parameters)
            if base is not None:
                merged = base if merged is None else merge(merged, base, SCENARIO)
        return tree if merged is None else merge(merged, tree, SCENARIO)

    def read(self, item: Scalar, file: FilePath | None, parameters: AbstractMapping[str, Scalar]) -> Mapping | None:
        name = FilePath(item.text)
        path = name if file is None else file.parent / name
        self.count += 1
        if self.count > MOST_FILES:
            self.sources.problem(item.place, "include", f"more than {MOST_FILES} includes", "include fewer files")
            return None
        if instead_of_file(path) is None and self._is_elsewhere(path):
            return self._elsewhere(item, path, parameters)
        return self._read(item, path, parameters)

    def _is_elsewhere(self, path: FilePath) -> bool:
        """Does it lie outside of the folder of the scenario (by links, too)?"""
        folder = self.open[0].parent if self.open else FilePath.cwd()
        return not path.resolve().is_relative_to(folder)

    def _elsewhere(self, item: Scalar, path: FilePath, parameters: AbstractMapping[str, Scalar]) -> Mapping | None:
        """A file that is no scenario is nobody's to show: of one outside of the scenario's folder only the line is told that is wrong."""
        apart, tree = Sources(), None
        with suppress(TooManyProblemsError):
            text = read_file(path, str(path), item.place, apart)
            tree = None if text is None else compose(text, str(path), apart)
        for problem in apart.problems[:1]:
            if problem.place.file != str(path):
                # It cannot be read.
                self.sources.problem(problem.place, problem.path, problem.message, problem.hint)
                return None
        keys = tree.entries if isinstance(tree, Mapping) else {}
        if keys and all(not SCENARIO.below(key).is_unknown for key in keys):
            return self._read(item, path, parameters)
        line = next((problem.line for problem in apart.problems if problem.line), 0)
        where = f" (line {line})" if line else ""
        hint = f"an included file is a mapping with keys of a scenario: {', '.join(islice(ScenarioShape.model_fields, 6))}, ..."
        self.sources.problem(item.place, "include", f"{item.text!r} is no scenario{where}", hint)
        return None

    def _read(self, item: Scalar, path: FilePath, parameters: AbstractMapping[str, Scalar]) -> Mapping | None:
        text = read_file(path, str(path), item.place, self.sources)
        if text is None:
            return None
        resolved = path.resolve()
        if resolved in self.open:
            self.sources.problem(item.place, "include", f"{item.text!r} includes itself", "remove one of the includes")
            return None
        base = compose(text, str(path), self.sources)
        if base is None:
            return None
        if not isinstance(base, Mapping):
            self.sources.problem(base.place, "", "an included file is a mapping", "start with: network: ...")
            return None
        self.open.append(resolved)
        base = self.include(_with_parameters(base, parameters), path)
        self.open.pop()
        return base


def _with_parameters(base: Mapping, parameters: AbstractMapping[str, Scalar]) -> Mapping:
    """What the including file sets for a parameter counts in the included one."""
    declared = base.entries.get("parameters")
    if isinstance(declared, Mapping):
        for name, value in parameters.items():
            if name in declared.entries:
                declared.entries[name] = value
    return base


def merge(base: Mapping, over: Mapping, spot: Spot, path: tuple[str, ...] = ()) -> Mapping:
    """`over` laid upon `base`; `spot` is what is read there."""
    excluded = spot.excluded(over.entries)
    kept = {key: value for key, value in base.entries.items() if key not in excluded}
    result = Mapping(over.place, kept, {key: base.keys[key] for key in kept})
    for key, value in over.entries.items():
        here = (*path, key)
        below = kept.get(key)
        result.entries[key] = value if below is None else _laid(below, value, spot.below(key), here)
        result.keys[key] = over.keys[key]
    return result


def _laid(below: Tree, value: Tree, spot: Spot, path: tuple[str, ...]) -> Tree:
    if isinstance(value, Mapping):
        if path == ("flows",) and isinstance(below, Sequence):
            return _by_name(below, value, spot)
        if isinstance(found := spot.one(below), Mapping):
            return merge(found, value, spot, path)
    elif isinstance(value, Sequence) and path in _APPENDED:
        if path == ("flows",) and isinstance(below, Mapping):
            below = named(below)
        if isinstance(below, Sequence):
            return Sequence(value.place, below.items + value.items)
    return value


def _by_name(below: Sequence, over: Mapping, spot: Spot) -> Sequence:
    """Flows by name, laid upon a list of them."""
    items = list(below.items)
    where = {_label(item): index for index, item in enumerate(items)}
    for key, flow in zip(over.entries, named(over).items, strict=True):
        index = where.get(key)
        if index is None:
            items.append(flow)
        elif isinstance(item := items[index], Mapping) and isinstance(flow, Mapping):
            items[index] = merge(item, flow, spot.below(0))
    return Sequence(over.place, items)


def named(flows: Mapping) -> Sequence:
    """Flows by name as the list that they stand for."""
    items: list[Tree] = []
    for key, flow in flows.entries.items():
        if isinstance(flow, Mapping):
            place = flows.keys[key]
            name = Scalar(place, key, key)
            flow = Mapping(flow.place, {"name": name, **flow.entries}, {"name": place, **flow.keys})
        items.append(flow)
    return Sequence(flows.place, items)


def parameters_of(tree: Mapping) -> dict[str, Scalar]:
    """The declared parameters that are single values."""
    declared = tree.entries.get("parameters")
    if not isinstance(declared, Mapping):
        return {}
    return {name: value for name, value in declared.entries.items() if isinstance(value, Scalar)}


PLACEHOLDERS = ("node", "index")
"""Names that each node fills in itself; a parameter of that name hides it."""


def _node_parts(tree: Tree) -> list[Tree]:
    """Where nodes and what they have in common are declared."""
    network = tree.entries.get("network") if isinstance(tree, Mapping) else None
    if not isinstance(network, Mapping):
        return []
    defaults = network.entries.get("defaults")
    parts = [network.entries.get("nodes"), network.entries.get("templates")]
    parts.append(defaults.entries.get("host") if isinstance(defaults, Mapping) else None)
    return [part for part in parts if part is not None]


def substitute(tree: Tree, parameters: AbstractMapping[str, Scalar], sources: Sources) -> None:
    """Puts the values of parameters in place of `${name}` everywhere (keys stay as they are); in what declares nodes
    `${node}` and `${index}` stay, as every node has its own."""
    seen: set[int] = set()
    kept: tuple[str, ...] = ()

    def visit(node: Tree) -> None:
        if id(node) in seen:  # aliases share their target
            return
        seen.add(id(node))
        if isinstance(node, Sequence):
            for item in node.items:
                visit(item)
        elif isinstance(node, Mapping):
            for value in node.entries.values():
                visit(value)
        elif "${" in node.text:
            _substitute_scalar(node, parameters, sources, kept)

    kept = PLACEHOLDERS
    for part in _node_parts(tree):
        visit(part)
    kept = ()
    visit(tree)


def _substitute_scalar(
    node: Scalar, parameters: AbstractMapping[str, Scalar], sources: Sources, kept: tuple[str, ...]
) -> None:
    def value(match: re.Match[str]) -> str:
        name = match[1].strip()
        found = parameters.get(name)
        if found is None and name in kept:
            return f"${{{name}}}"
        if found is not None and "${" not in found.text:
            return found.text
        if found is not None:
            sources.unknown_value(node.place, f"parameter {name!r} refers to a parameter", "give it a plain value")
            return "0"
        close = closest(name, parameters)
        known = ", ".join(islice(parameters, 8)) or "none"
        more = f" and {len(parameters) - 8} more" if len(parameters) > 8 else ""
        hint = f"did you mean ${{{close}}}?" if close else f"declare it under parameters (declared: {known}{more})"
        sources.unknown_value(node.place, f"unknown parameter {name!r}", hint)
        return "0"

    whole = _REFERENCE.fullmatch(node.text)
    alone = parameters.get(whole[1].strip()) if whole else None
    references = _REFERENCE.findall(node.text)
    grown = sum(len(parameters[name.strip()].text) for name in references if name.strip() in parameters)
    if not sources.take(node.place, size=grown):
        raise TooManyProblemsError
    node.text = _REFERENCE.sub(value, node.text)
    if alone is not None and not node.plain and "${" not in alone.text:
        node.value = alone.value  # `count: "${n}"`: YAML wants the quotes, and what is meant is the parameter's value
    else:
        node.value = resolve_plain(node.text) if node.plain else node.text


def _overrides(overrides: AbstractMapping[str, object], sources: Sources) -> list[tuple[list[str], Tree]]:
    settings: list[tuple[list[str], Tree]] = []
    for key, value in overrides.items():
        label = f"{OPTION}{key}"
        text = value if isinstance(value, str) else _literal(value)
        tree = compose(text, label, sources) if text.strip() else Scalar(Place(label), None, "")
        path = key.split(".")
        if not all(path):
            sources.problem(Place(label), key, "an empty name in the path", 'write --set flows.alpha.period="10 ms"')
        elif tree is not None:
            settings.append((path, tree))
    return settings


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _set(tree: Mapping, path: list[str], value: Tree, sources: Sources) -> None:
    """Sets one dotted path; list entries are found by `name` (flows, background), by `a-b` (links) or by number."""
    node: Tree = tree
    spot = SCENARIO
    rest = list(path)
    shown = ".".join(path)
    while rest:
        if isinstance(node, Mapping):
            key, rest = _longest_key(node, rest)
            for other in spot.excluded([key]) & set(node.entries):
                del node.entries[other], node.keys[other]
            if not rest:
                node.entries[key] = value
                node.keys[key] = value.place
                return
            spot = spot.below(key)
            if key not in node.entries or is_null(node.entries[key]):
                if spot.is_list(rest[0]):
                    above = ".".join(path[: len(path) - len(rest)])
                    sources.problem(
                        value.place,
                        shown,
                        f"{above} is no list yet: it has no entry {rest[0]!r}",
                        _as_list(above, rest, value),
                    )
                    return
                node.entries[key] = Mapping(value.place)
                node.keys[key] = value.place
            node.entries[key] = _own(_written_out(node.entries[key], rest, spot))
            node = node.entries[key]
        elif isinstance(node, Sequence):
            index, used = _index_of(node, rest)
            if index is None:
                names = [name for item in node.items if (name := _label(item))]
                turned = _turned(rest[0], names)
                close = turned[0] if turned else closest(rest[0], names)
                hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(names[:8]) or 'none'}"
                sources.problem(value.place, shown, f"nothing is called {rest[0]!r} in this list", hint)
                return
            rest, spot = rest[used:], spot.below(index)
            if not rest:
                node.items[index] = value
                return
            node.items[index] = _own(_written_out(node.items[index], rest, spot))
            node = node.items[index]
        else:
            above = ".".join(path[: len(path) - len(rest)])
            hint = (
                _as_list(above, rest, value) if spot.is_list(rest[0]) else f"state it as a whole: {OPTION}{above}=VALUE"
            )
            sources.problem(value.place, shown, f"there is nothing below a single value ({rest[0]!r})", hint)
            return


def _as_list(above: str, rest: list[str], value: Tree) -> str:
    """How a list is stated that is not there to be changed."""
    entry = value.text if isinstance(value, Scalar) and len(rest) == 1 else "..."
    return f'state the list as a whole: {OPTION}{above}="[{entry}]"'


def _written_out(tree: Tree, rest: list[str], spot: Spot) -> Tree:
    """A short form as what it stands for, so that something can be set in it; of a list of one entry that entry, where `rest` names none."""
    found = spot.written_out(tree)
    if isinstance(found, Sequence) and found is not tree and _index_of(found, rest)[0] is None:
        return spot.one(tree)
    return found


def _turned(name: str, names: list[str]) -> list[str]:
    """The link whose ends were named the other way round: forward is as it is written."""
    return [known for known in names if {*_halves(name)} & {(b, a) for a, b in _halves(known)}]


def _halves(name: str) -> list[tuple[str, str]]:
    return [(name[:cut], name[cut + 1 :]) for cut, letter in enumerate(name) if letter == "-"]


def _own(tree: Tree) -> Tree:
    """A copy of this level: what an alias shares must not change with it."""
    if isinstance(tree, Mapping):
        return Mapping(tree.place, dict(tree.entries), dict(tree.keys))
    return Sequence(tree.place, list(tree.items)) if isinstance(tree, Sequence) else tree


def _longest_key(node: Mapping, rest: list[str]) -> tuple[str, list[str]]:
    """Names may contain dots: the longest existing key counts."""
    for end in range(len(rest), 0, -1):
        key = ".".join(rest[:end])
        if key in node.entries:
            return key, rest[end:]
    return rest[0], rest[1:]


def _index_of(node: Sequence, rest: list[str]) -> tuple[int | None, int]:
    for used in range(len(rest), 0, -1):
        wanted = ".".join(rest[:used])
        for index, item in enumerate(node.items):
            if _label(item) == wanted:
                return index, used
    if rest[0].isdigit() and len(rest[0]) < 7 and int(rest[0]) < len(node.items):
        return int(rest[0]), 1
    return None, 0


def _label(item: Tree) -> str | None:
    if isinstance(item, Scalar):
        return item.text or None
    if isinstance(item, Mapping):
        name = item.entries.get("name", item.entries.get("node"))
        if isinstance(name, Scalar):
            return name.text
        return _label(item.entries["between"]) if "between" in item.entries else None
    if isinstance(item, Sequence) and len(item.items) == 2:
        return "-".join(end.text for end in item.items if isinstance(end, Scalar))
    return None
