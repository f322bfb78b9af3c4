"""Configuration files of the services: YAML, every problem at once with file, line, column and hint, as scenarios have them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from timebound.scenario.complaints import Subject, validate
from timebound.scenario.context import Context
from timebound.scenario.files import instead_of_file
from timebound.scenario.problems import Place, Problem, ScenarioError
from timebound.scenario.tree import Path as TreePath
from timebound.scenario.tree import Sources, TooManyProblemsError, compose, decode, to_plain

Shaped = TypeVar("Shaped", bound=BaseModel)
Resolved = TypeVar("Resolved")


class ConfigurationError(ScenarioError):
    """A configuration file that cannot be used, with every reason."""

    subject = "the configuration"


class _Sources(Sources):
    """Of a file that is no scenario, though it is read as one: its problems speak of what it is."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject

    def problem(self, place: Place, path: str, message: str, hint: str, *, warning: bool = False) -> None:
        """See `Sources.problem`."""
        if not path:
            message, hint = (re.sub(r"\b(a|the|one) scenario\b", r"\1 configuration", text) for text in (message, hint))
            if "flows" in hint:
                # What a scenario may need many of, or begins with.
                hint = f"see {self._subject.page}"
        super().problem(place, path, message, hint, warning=warning)


def read(
    file: str | os.PathLike[str], shape: type[Shaped], resolve: Callable[[Shaped, Context], Resolved], subject: Subject
) -> tuple[Resolved, tuple[Problem, ...]]:
    """What a file says, and warnings about it. `resolve` checks what the shape cannot, and puts problems into the context.

    Raises:
        ConfigurationError: with every problem.
    """
    sources = _Sources(subject)
    path = Path(file)
    found: Resolved | None = None
    with contextlib.suppress(TooManyProblemsError):
        found = _read(path, shape, resolve, subject, sources)
    if found is None or sources.problems:
        unique = dict.fromkeys(sources.problems)
        raise ConfigurationError(sorted(unique, key=lambda problem: (problem.line, problem.column)))
    return found, tuple(sources.warnings)


def _read(
    path: Path,
    shape: type[Shaped],
    resolve: Callable[[Shaped, Context], Resolved],
    subject: Subject,
    sources: Sources,
) -> Resolved | None:
    place = Place(str(path))
    try:
        if (reason := instead_of_file(path)) is not None:
            sources.problem(place, "", f"cannot be read: it {reason}", f"name an existing file (see {subject.page})")
            return None
        with path.open("rb") as stream:
            data = stream.read(2_000_001)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        sources.problem(place, "", f"cannot be read: {reason}", f"name an existing file (see {subject.page})")
        return None
    if not data.strip():
        sources.problem(place, "", "the file is empty", f"see {subject.page}")
        return None
    text = decode(data, str(path), sources)
    tree = compose(text, str(path), sources) if text is not None else None
    if tree is None:
        return None
    context = Context(tree, sources, path.parent)
    plain = to_plain(tree)
    if not isinstance(plain, dict):
        sources.problem(tree.place, "", f"{subject.name} is a mapping of keys to values", f"see {subject.page}")
        return None
    checked = validate(shape, plain, context, subject)
    return resolve(checked, context) if checked is not None else None


def readable(context: Context, path: TreePath, name: str) -> Path:
    """A file that the configuration names, relative to it; a problem where it cannot be read."""
    file = (context.folder or Path()) / name
    reason: str | None
    try:
        wrong = instead_of_file(file)
        reason = None if wrong is None else f"it {wrong}"
        if reason is None:
            with file.open("rb"):
                pass
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        context.error(path, f"{str(file)!r} cannot be read: {reason}", "name a readable file")
    return file


def folder_of_table(file: Path, path: TreePath, context: Context) -> None:
    """A problem where the file of the table (`file:`) cannot be made for want of a folder."""
    if not file.parent.is_dir():
        context.error(path, f"the folder {str(file.parent)!r} does not exist", "make it, or name another file")
    elif file.is_dir():
        context.error(path, f"{str(file)!r} is a folder", "name a file in it")


def appended(name: str | None, path: TreePath, context: Context) -> Path | None:
    """A file that a service writes, relative to the configuration; it need not be there yet, but its folder."""
    if name is None:
        return None
    file = (context.folder or Path()) / name
    folder_of_table(file, path, context)
    return file


def table_s_address(url: str, path: TreePath, context: Context) -> None:
    """A problem where `tcp:` or `ssl:` names no address and port at which a server could be."""
    kind, _, rest = url.partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("tcp", "ssl") or not rest:
        return
    if not (address and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        context.error(path, f"{url!r} has no address and port", f"write for example {kind}:192.0.2.1:6640")


@dataclass(frozen=True, slots=True)
class Door:
    """Where a service listens."""

    purpose: str
    path: TreePath
    address: str
    port: int
    """0: a free one."""

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def bars(self, other: Door) -> bool:
        """Can `other` not listen where this one does? What is no address is told elsewhere."""
        try:
            here, there = (
                ip_address("127.0.0.1" if door.address == "localhost" else door.address) for door in (self, other)
            )
        except ValueError:
            return False
        if not self.port or self.port != other.port or here.version != there.version:
            return False
        return here == there or here.is_unspecified or there.is_unspecified


def apart(doors: Sequence[Door], context: Context) -> None:
    """Each address and port is for one purpose."""
    for number, door in enumerate(doors):
        barring = next((other for other in doors[:number] if other.bars(door)), None)
        if barring is not None:
            context.error(door.path, f"{door} is for {barring.purpose} already", "choose another port")
