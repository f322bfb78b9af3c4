"""Real switches in the resolved scenario: their controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The program that tells the real switches what to forward; it runs where they do."""

    command: tuple[str, ...]
    """`{run}` in it stands for the run folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 6653
    """TCP port on 127.0.0.1 at which the switches look for it."""
    ready_port: int | None = None
    """TCP port that accepts once it is ready; with `ready_file` none: `port`."""
    ready_file: str | None = None
    """File in the run folder that is there once it is ready."""
    timeout_ns: int = 30_000_000_000
