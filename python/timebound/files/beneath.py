"""Files beneath a folder that is held by its descriptor, opened name by name, so that no symbolic link leads out of it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import IO, Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

ASK = "name another file with --output, or say --force to replace it"


class FolderError(Exception):
    """A folder or file that cannot be used, with a hint and an exit code: 2 for a wrong name, 3 where the host refuses."""

    def __init__(self, message: str, hint: str, code: int = 2) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


class Kind(Enum):
    """What stands under a name. A name that leads through a link is one (`LINK`)."""

    ABSENT = "absent"
    FILE = "file"
    SOCKET = "socket"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "something else"


class Place:
    """A folder. Names are relative to it (`logs/h1.log`); none may leave it, and no part of one may be a link."""

    def __init__(self, path: Path) -> None:
        """Opens the folder; its own name may be a link, since it was given by whoever asks.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def kind(self, name: str) -> Kind:
        """What stands there now."""
        *folders, last = _parts(name)
        for number in range(len(folders)):
            kind = self._kind("/".join(folders[: number + 1]))
            if kind is not Kind.FOLDER:
                return Kind.OTHER if kind is Kind.FILE else kind
        return self._kind("/".join([*folders, last]))

    def _kind(self, name: str) -> Kind:
        try:
            with self._folder_of(name) as (folder, last):
                mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return Kind.ABSENT
        kinds = {
            stat.S_IFREG: Kind.FILE,
            stat.S_IFSOCK: Kind.SOCKET,
            stat.S_IFDIR: Kind.FOLDER,
            stat.S_IFLNK: Kind.LINK,
        }
        return kinds.get(stat.S_IFMT(mode), Kind.OTHER)

    def entries(self, name: str = ".") -> list[str]:
        """The names in the folder itself or in one beneath; none where there is no such folder."""
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=self.descriptor) if name != "." else os.dup(self.descriptor)
        except OSError:
            return []
        try:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - a path would be looked up again
        finally:
            os.close(descriptor)

    def read(self, name: str, most: int) -> bytes | None:
        """A regular file of at most so many bytes; `None` where there is no such file, or a longer one.

        Raises:
            OSError: it cannot be read.
        """
        if self.kind(name) is not Kind.FILE:
            return None
        with self._folder_of(name) as (folder, last):
            # A pipe that takes the name's place would keep us waiting.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(last, flags, dir_fd=folder), "rb") as file:
                content = file.read(most + 1)
        return content if len(content) <= most else None

    @contextlib.contextmanager
    def writing(self, name: str, *, replace: bool = True) -> Iterator[IO[bytes]]:
        """A file that stands there whole when the block ends, in the place of a former one, or not at all.

        Raises:
            FolderError: a link, a folder or something else that is no file stands there; without `replace`, a file.
            OSError: it cannot be written.
        """
        self._free(name, replace=replace)
        with self._folder_of(name, make=True) as (folder, last):
            temporary = f".{last}-{secrets.token_hex(4)}.part"
            try:
                with os.fdopen(os.open(temporary, _NEW, 0o666, dir_fd=folder), "wb") as file:
                    yield file
                if replace:
                    # Takes the place of a link and never follows it.
                    os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    self._settle(folder, temporary, last)
            except OSError as error:
                # A full disk says no name of itself.
                error.filename = str(self.path / name) if error.filename in (None, temporary) else error.filename
                raise
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)

    def write(self, name: str, content: str | bytes) -> None:
        """Writes a file whole or not at all; as `writing`."""
        with self.writing(name) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def create(self, name: str) -> IO[bytes]:
        """An empty file to be written bit by bit, in the place of a former one (which others may have under another name); as `writing`."""
        self._free(name, replace=True)
        with self._folder_of(name, make=True) as (folder, last):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=folder)
            return os.fdopen(os.open(last, _NEW, 0o666, dir_fd=folder), "wb")

    def make(self, name: str) -> None:
        """A real folder beneath this one, made where there is none.

        Raises:
            FolderError: a link or a file stands there.
            OSError: it cannot be made.
        """
        with self._folder_of(f"{name}/.", make=True):
            pass

    def remove(self, name: str) -> bool:
        """Removes a regular file or a socket, with no look behind any link; is it gone?"""
        if self.kind(name) not in (Kind.FILE, Kind.SOCKET):
            return False
        with self._folder_of(name) as (folder, last):
            os.unlink(last, dir_fd=folder)
        return True

    def remove_folder(self, name: str) -> None:
        """Removes a folder that is empty; any other stays."""
        with contextlib.suppress(OSError), self._folder_of(name) as (folder, last):
            os.rmdir(last, dir_fd=folder)

    def refused(self, name: str, kind: Kind) -> FolderError:
        """The error for what stands in the way of a name."""
        first, hint = self.path / name, "move it away, or name another place with --output"
        parts = _parts(name)
        for number in range(1, len(parts)):
            beneath = "/".join(parts[:number])
            if (standing := self._kind(beneath)) is not Kind.FOLDER:
                first, kind = self.path / beneath, standing
                break
        words = {
            Kind.FILE: "is there and was not written by this run folder's run",
            Kind.FOLDER: "is a folder, and a file would be written there",
            Kind.LINK: "is a link, and links are not followed",
        }
        if kind is Kind.FILE and first != self.path / name:
            words[kind] = "is a file, and a folder would be made there"
        return FolderError(f"{first} {words.get(kind, 'is no file')}", hint)

    def _free(self, name: str, *, replace: bool) -> None:
        kind = self.kind(name)
        if kind is not Kind.ABSENT and not (replace and kind is Kind.FILE):
            raise self.refused(name, kind)

    def _settle(self, folder: int, temporary: str, last: str) -> None:
        """Gives a file its name if nobody else has it."""
        try:
            os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise FolderError(f"{self.path / last} exists", ASK) from None
        except OSError:
            # A file system without hard links.
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)

    @contextlib.contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that a name is in, and the last part of the name."""
        *folders, last = _parts(name) if not name.endswith("/.") else [*_parts(name[:-2]), "."]
        descriptor = os.dup(self.descriptor)
        try:
            for number, part in enumerate(folders):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=descriptor)
                except OSError as error:
                    if make and error.errno in (errno.ELOOP, errno.ENOTDIR):
                        way = "/".join(folders[: number + 1])
                        raise self.refused(f"{way}/.", Kind.OTHER) from None
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor, last
        finally:
            os.close(descriptor)


def _parts(name: str) -> list[str]:
    parts = name.removesuffix("/.").split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FolderError(f"{name!r} leads out of its folder", "names in a run folder are plain")
    return [*parts, "."] if name.endswith("/.") else parts
