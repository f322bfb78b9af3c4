"""One figure per flow from the nominal release to the receiver, and what it is made of: `end_to_end_us` of `summary.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("network", "handshake", "broker", "hold")
WORDS = {
    "network": "network segment",
    "handshake": "handshake of QoS 2",
    "broker": "broker",
    "hold": "held back by TCP",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stage; `bound` in microseconds, None where it has none or nothing is known of it."""

    kind: str
    name: str
    bound: float | None
    known: bool


@dataclass(frozen=True, slots=True)
class Way:
    """The whole way of a flow to one receiver; times in microseconds."""

    bound: float | None = None
    parts: tuple[Part, ...] = ()
    covers: str = ""
    statement: str = ""
    reason: str = ""

    @property
    def has_broker(self) -> bool:
        return any(part.kind == "broker" for part in self.parts)

    @classmethod
    def parse(cls, value: object) -> Way:
        """From the JSON; anything that is not as it should be is absent."""
        if not isinstance(value, Mapping):
            return cls()
        listed = value.get("parts")
        parts = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        return cls(
            bound=_figure(value.get("bound")),
            parts=tuple(
                Part(
                    kind=str(part.get("kind")) if part.get("kind") in KINDS else "network",
                    name=str(part.get("name") or ""),
                    bound=_figure(part.get("bound")),
                    known=part.get("known") is not False,
                )
                for part in parts
            ),
            covers=str(value.get("covers") or ""),
            statement=str(value.get("statement") or ""),
            reason=str(value.get("reason") or ""),
        )


def _figure(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) and converted >= 0 else None
