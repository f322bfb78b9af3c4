"""The manifest as the mark of a run folder: who wrote it, for which scenario, and which files in it are ours."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .beneath import FolderError, Kind, Place
from .former import files_of as files_of_former
from .former import is_former
from .inputs import refuse_inputs_beneath

MARK = "manifest.json"
LOCK = ".lock"
FORMAT = "timebound-run/1"
MOST = 1 << 26
"""Bytes of a manifest. Ours has a name for each file, and so some 100 kB for a thousand nodes."""
RESULTS = ("summary.json", "scenario.yaml", "plan.json", "precision.parquet")
_PART = re.compile(r"\.(.+)-[0-9a-f]{8}\.part")
_ANOTHER = "say --force to replace them, or name another folder with --output"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is to be written into a run folder. `files` are all that it may come to, written down before the first of them is made;
    one that ends in `/*` stands for whatever a program puts into a folder of its own."""

    name: str
    source: str | None
    """Where the scenario comes from: the absolute path of its file, or `built-in NAME`."""
    parts: tuple[str, ...]
    files: tuple[str, ...]
    folders: tuple[str, ...] = ()
    """Folders that are made or used; a link or a file in the place of one is refused."""
    inputs: tuple[str, ...] = ()
    """Absolute paths of files that the command reads: none of them may be in the place of what is written or removed."""

    def stated(self) -> dict[str, Any]:
        """The keys of the manifest by which the folder is known again."""
        return {"format": FORMAT, "run": {"name": self.name, "source": self.source}, "parts": list(self.parts)}


@dataclass(frozen=True, slots=True)
class Mark:
    """The manifest of a run folder of ours."""

    content: dict[str, Any]
    files: tuple[str, ...]
    former: bool
    """Written by a version that kept no list: `files` are names that it is known to write."""

    def is_of(self, claim: Claim, place: Place) -> bool:
        """Is it the same scenario (its name and its source) by the same verb (its parts)?"""
        if sorted(self.content["parts"]) != sorted(claim.parts):
            return False
        if not self.former:
            return bool(self.content["run"] == {"name": claim.name, "source": claim.source})
        summary = _object(place.read("summary.json", MOST))
        scenario = summary.get("scenario") if summary is not None else None
        if isinstance(scenario, dict):
            return bool(scenario.get("name") == claim.name)
        stated, source = self.content.get("scenario"), claim.source
        ends = [PurePosixPath(file.removeprefix("built-in ")).parts[-2:] for file in (str(stated), str(source))]
        return ends[0] == ends[1]

    def said(self) -> str:
        """In words whose results they are."""
        run = self.content.get("run")
        name, source = (
            (run["name"], run.get("source")) if isinstance(run, dict) else (self.content.get("scenario"), None)
        )
        # A scenario that was moved has the same name: where it was says why it is another one.
        return f"the results of {name} ({', '.join([*self.content['parts'], *([str(source)] if source else [])])})"


def read_mark(place: Place) -> Mark | None:
    """The manifest, where it is one of ours; anything else is somebody else's file."""
    content = _object(place.read(MARK, MOST))
    if content is None or not isinstance(version := content.get("timebound"), str) or not re.match(r"\d", version):
        return None
    if content.get("format") == FORMAT:
        run, files = content.get("run"), _texts(content.get("files"))
        good = isinstance(run, dict) and set(run) == {"name", "source"} and isinstance(run["name"], str)
        if not good or files is None or not _texts(content.get("parts")) or not all(map(_is_plain, files)):
            return None
        return Mark(content, files, former=False)
    if "format" not in content and is_former(content):
        return Mark(content, files_of_former(_object(place.read("emulation.json", MOST))), former=True)
    return None


def results_of(folder: Path) -> list[Path]:
    """What a command reads that takes a run folder: all that its manifest lists, and by the names that all have where there is none."""
    try:
        with Place(folder) as place:
            mark = read_mark(place)
            names = {MARK, *RESULTS, *(() if mark is None else _there(place, mark.files))}
            return [folder / name for name in sorted(names) if place.kind(name) is Kind.FILE]
    except OSError:
        return []


def is_empty(place: Place) -> bool:
    """Nothing in it but what a run leaves that is killed before it says what it is."""
    return all(
        (name == LOCK and place.read(name, 0) == b"") or ((found := _PART.fullmatch(name)) and found[1] == MARK)
        for name in place.entries()
    )


def take_over(place: Place, claim: Claim, *, force: bool) -> None:
    """Makes the folder ready for a run: what an earlier run wrote goes, and everything else stays. The caller holds its lock.

    Raises:
        FolderError: it is no run folder; or of another scenario or verb, without `force`; or something of somebody else's
            stands where a file would be written. Nothing was touched.
    """
    earlier = read_mark(place)
    if earlier is None and not is_empty(place):
        raise foreign(place)
    if earlier is not None and not force and not earlier.is_of(claim, place):
        raise FolderError(f"{place.path} holds {earlier.said()}", _ANOTHER)
    ours = set() if earlier is None else set(_there(place, earlier.files))
    if earlier is not None and earlier.former:
        ours |= set(_there(place, claim.files))
    for name in claim.folders:
        if (kind := place.kind(name)) not in (Kind.ABSENT, Kind.FOLDER):
            raise place.refused(f"{name}/.", kind)
    refuse_inputs_beneath(place.path, claim.inputs, {*ours, *claim.files, MARK})
    _refuse_collisions(place, claim, ours)
    before = () if earlier is None else earlier.files
    written = {"timebound": _version(), **claim.stated(), "files": list(dict.fromkeys([*claim.files, *before]))}
    place.write(MARK, json.dumps(written) + "\n")
    for name in sorted(ours):
        place.remove(name)
    _remove_halves(place, {*ours, *before, *claim.files, MARK})
    for folder in sorted({_folder(name) for name in [*before, *claim.files]} - {""}, key=len, reverse=True):
        place.remove_folder(folder)
    written["files"] = list(claim.files)
    place.write(MARK, json.dumps(written) + "\n")


def foreign(place: Place) -> FolderError:
    """The error for a folder that is not ours."""
    return FolderError(f"{place.path} holds other files", "name an empty or new folder with --output")


def adopt(
    place: Place, names: Iterable[str], *, force: bool = False, ours: Callable[[Place], bool] | None = None
) -> None:
    """Says beforehand that these files will be written into a folder that has a run's results already.

    Raises:
        FolderError: one is there that is not listed, nor `ours`, and nobody said `--force`; or it is a link or no file.
    """
    names, mark = list(names), read_mark(place)
    known = set() if mark is None else set(mark.files)
    for name in names:
        kind = place.kind(name)
        if kind is Kind.FILE and (force or name in known or (ours is not None and ours(place))):
            continue
        if kind is Kind.FILE:
            raise FolderError(f"{place.path / name} is not ours", "move it away, or say --force to replace it")
        if kind is not Kind.ABSENT:
            raise place.refused(name, kind)
    if mark is not None and not mark.former and not set(names) <= known:
        _rewrite(place, mark.content, dict.fromkeys([*mark.files, *names]))


def close_list(place: Place) -> None:
    """Keeps in the list what was written in the end; a program's own folder by the names in it."""
    mark = read_mark(place)
    if mark is not None and not mark.former:
        _rewrite(place, mark.content, dict.fromkeys(_there(place, mark.files)))


def _rewrite(place: Place, content: dict[str, Any], files: Iterable[str]) -> None:
    head = json.dumps({key: value for key, value in content.items() if key != "files"}, indent=1).removesuffix("\n}")
    place.write(MARK, f'{head},\n "files": {json.dumps(list(files))}\n}}\n')


def _refuse_collisions(place: Place, claim: Claim, ours: set[str]) -> None:
    for name in [*claim.files, MARK]:
        if name.endswith("/*"):
            folder = _folder(name)
            names = [f"{folder}/{entry}" for entry in place.entries(folder)]
        else:
            names = [name]
        for each in names:
            kind = place.kind(each)
            mine = each in ours or each == MARK or ((half := _PART.fullmatch(each)) and half[1] in ours)
            if kind is Kind.ABSENT or (mine and kind in (Kind.FILE, Kind.SOCKET)):
                continue
            raise place.refused(each, kind)


def _there(place: Place, names: Iterable[str]) -> Iterable[str]:
    """Those of the names that are regular files or sockets, those of a program's folder one by one."""
    for name in names:
        folder = _folder(name)
        each = [f"{folder}/{entry}" for entry in place.entries(folder)] if name.endswith("/*") else [name]
        yield from (found for found in each if place.kind(found) in (Kind.FILE, Kind.SOCKET))


def _remove_halves(place: Place, names: set[str]) -> None:
    """What a killed run had not yet given its name."""
    for folder in {_folder(name) for name in names}:
        for entry in place.entries(folder or "."):
            found = _PART.fullmatch(entry)
            if found is not None and (f"{folder}/{found[1]}" if folder else found[1]) in names:
                place.remove(f"{folder}/{entry}" if folder else entry)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _object(text: bytes | None) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text or b"")
        return found if isinstance(found, dict) else None
    return None


def _texts(value: object) -> tuple[str, ...] | None:
    texts = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return tuple(value) if texts and isinstance(value, list) else None


def _is_plain(name: str) -> bool:
    """A relative name of at most three parts that leaves its folder nowhere."""
    parts = name.removesuffix("/*").split("/")
    return len(parts) <= 3 and "\0" not in name and not {"", ".", ".."} & set(parts) and name not in (LOCK, MARK)


def _version() -> str:
    from timebound import __version__

    return __version__
