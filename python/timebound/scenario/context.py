"""What every step of resolving shares: where things were written, and where problems go."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path as FilePath

from timebound.scenario.closest import closest
from timebound.scenario.names import RangeError, expand
from timebound.scenario.problems import Place
from timebound.scenario.tree import Mapping, Path, Sources, Tree, dotted, find


class Context:
    """The tree of a scenario with its sources; collects problems, warnings and locations."""

    def __init__(self, tree: Tree, sources: Sources, folder: FilePath | None) -> None:
        self.tree = tree
        self.sources = sources
        self.folder = folder
        self.locations: dict[str, Place] = {}
        self.paths: dict[str, tuple[str, dict[str, str]]] = {}
        """Part of the resolved model -> its path in the file, and its own parts with their keys there."""
        self._keys: dict[int, dict[str, str]] = {}

    @property
    def failed(self) -> bool:
        """Was there any error?"""
        return bool(self.sources.problems)

    def error(self, path: Path, message: str, hint: str) -> None:
        """Records an error at what was written for `path`."""
        place, _ = find(self.tree, path)
        self.sources.problem(place, dotted(path), message, hint)

    def warn(self, path: Path, message: str, hint: str) -> None:
        """Records a warning."""
        place, _ = find(self.tree, path)
        self.sources.problem(place, dotted(path), message, hint, warning=True)

    def key_error(self, path: Path, message: str, hint: str) -> None:
        """Records an error at the key (not the value) that ends `path`."""
        self.sources.problem(self.key_place(path), dotted(path), message, hint)

    def error_at(self, target: str, message: str, hint: str) -> None:
        """Records an error at a part of the resolved model (`flows[3].after`), or at the whole that it belongs to where nothing was written for it."""
        self.sources.problem(self._place_at(target), target, message, hint)

    def warn_at(self, target: str, message: str, hint: str) -> None:
        """Records a warning in the same way."""
        self.sources.problem(self._place_at(target), target, message, hint, warning=True)

    def _place_at(self, target: str) -> Place:
        return (
            self.locations.get(target) or self.locations.get(target.rpartition(".")[0]) or Place(self.tree.place.file)
        )

    def key_place(self, path: Path) -> Place:
        """Where the last key of `path` was written."""
        _, parent = find(self.tree, path[:-1])
        if isinstance(parent, Mapping):
            last = path[-1]
            if isinstance(last, int) and last < len(parent.entries):
                last = list(parent.entries)[last]
            if last in parent.keys:
                return parent.keys[str(last)]
        return find(self.tree, path)[0]

    def remember(self, target: str, path: Path, renamed: dict[str, str] | None = None) -> None:
        """Notes the place of `target` (`links[3]`) and of its parts, under the names of the resolved model."""
        place, node = find(self.tree, path)
        self.locations[target] = place
        self.paths[target] = dotted(path), self._keys.setdefault(id(renamed), _turned(renamed or {}))
        if isinstance(node, Mapping) and renamed:
            for key, value in node.entries.items():
                if key in renamed:
                    part = f"{target}.{renamed[key]}"
                    self.locations[part] = value.place
                    if isinstance(value, Mapping):
                        self.locations |= {f"{part}.{inner}": found.place for inner, found in value.entries.items()}

    def expand(self, text: str, path: Path, *, key: bool = False) -> list[str]:
        """The names of a range; none, with an error, where it is malformed."""
        try:
            return expand(text)
        except RangeError as error:
            (self.key_error if key else self.error)(path, error.message, error.hint)
            return []


def _turned(renamed: dict[str, str]) -> dict[str, str]:
    """Of several keys that make one part the first."""
    found: dict[str, str] = {}
    for key, part in renamed.items():
        found.setdefault(part, key)
    return found


def close_to(name: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean 'h1'?`, or the other hint where nothing is close."""
    close = closest(name, known)
    return f"did you mean {close!r}?" if close else otherwise
