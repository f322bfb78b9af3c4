"""How long work says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told what is being done and how far it is."""

    def step(self, name: str, text: str) -> None:
        """A new part begins."""

    def at(self, share: float, text: str = "") -> None:
        """The part is at a share of 0..1."""

    def note(self, text: str) -> None:
        """Something that the user should read."""


class _Silent:
    def step(self, name: str, text: str) -> None:
        pass

    def at(self, share: float, text: str = "") -> None:
        pass

    def note(self, text: str) -> None:
        pass


SILENT: Progress = _Silent()
