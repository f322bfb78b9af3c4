"""What the report knows of bounds in parts: `explained` of `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("jitter", "blocking", "higher", "same", "own", "service", "link", "broker")
"""Parts of a way in the order in which they are drawn."""

WORDS: Mapping[str, str] = {
    "jitter": "release jitter",
    "blocking": "blocking by lower priority",
    "higher": "higher priority",
    "same": "same priority",
    "own": "own frame",
    "service": "others in turn",
    "link": "propagation and switching",
    "broker": "broker",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a way: a port, a broker, or the release. `parts` are (kind, us) and sum up to what it takes; `detail` is for
    who wants to know more."""

    name: str
    parts: tuple[tuple[str, float], ...]
    detail: str

    @property
    def total(self) -> float:
        return sum(us for _, us in self.parts)


@dataclass(frozen=True, slots=True)
class Explained:
    """One flow at one receiver."""

    flow: str
    receiver: str
    deadline: float | None
    stages: tuple[Stage, ...]

    @property
    def name(self) -> str:
        return f"{self.flow} → {self.receiver}"

    @property
    def total(self) -> float:
        return sum(stage.total for stage in self.stages)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Explained:
        from .run import figure, items, text

        stages: list[Stage] = []
        gaps = raw.get("between")
        between = gaps if isinstance(gaps, list) else []
        segments = items(raw.get("segments"))
        for place, segment in enumerate(segments):
            jitter = figure(segment.get("source_jitter_us")) or 0.0
            if place == 0 and jitter > 0:
                stages.append(Stage("release", (("jitter", jitter),), "later than the nominal release"))
            stages += [_port(hop) for hop in items(segment.get("hops"))]
            if place + 1 < len(segments) and place < len(between):
                stages += [
                    Stage(text(part.get("name")), (("broker", figure(part.get("bound_us")) or 0.0),), "response time")
                    for part in items(between[place])
                    if figure(part.get("bound_us"))
                ]
        return cls(text(raw.get("flow")), text(raw.get("receiver")), figure(raw.get("deadline_us")), tuple(stages))


def _port(hop: Mapping[str, Any]) -> Stage:
    """A port's parts without what is subtracted: what cannot have come yet is taken off the class itself, what is over when the frame
    arrives off what was sent first: blocking, more urgent frames, then those of the class. What ports before have counted is off the
    more urgent frames first."""
    from .run import figure, text

    gross = {kind: figure(hop.get(f"{kind}_us")) or 0.0 for kind in ("blocking", "higher", "same", "own", "service")}
    net = dict(gross)
    for left, kinds in (
        (figure(hop.get("shaping_us")) or 0.0, ("same", "higher", "blocking", "own")),
        (figure(hop.get("window_us")) or 0.0, ("blocking", "higher", "same", "service", "own")),
        (figure(hop.get("counted_before_us")) or 0.0, ("higher", "same", "blocking", "service", "own")),
    ):
        # Rounding can make it negative: then the class itself has a little more.
        net[kinds[0]] -= min(left, 0.0)
        remaining = max(left, 0.0)
        for kind in kinds:
            taken = min(net[kind], remaining)
            net[kind] -= taken
            remaining -= taken
    net["link"] = sum(figure(hop.get(f"{name}_us")) or 0.0 for name in ("propagation", "link_jitter", "switching"))
    parts = tuple((kind, net[kind]) for kind in KINDS if net.get(kind, 0.0) > 1e-6)
    blocked = text(hop.get("blocked_by"))
    words = [f"{WORDS[kind]} {us:g} us" for kind, us in gross.items() if us]
    if blocked:
        words.append(f"blocked by {blocked}")
    if figure(hop.get("shaping_us")):
        words.append(f"{figure(hop.get('shaping_us')):g} us cannot have come yet")
    if figure(hop.get("window_us")):
        words.append(f"{figure(hop.get('window_us')):g} us are over when the frame arrives")
    if figure(hop.get("counted_before_us")):
        words.append(f"{figure(hop.get('counted_before_us')):g} us are counted at ports before")
    for kind in ("higher", "same"):
        words += _streams(kind, hop.get(kind))
    return Stage(text(hop.get("port")).replace("->", " → "), parts, "; ".join(words))


def _streams(kind: str, value: object) -> list[str]:
    from .run import figure, items, text

    named = []
    for entry in items(value):
        us = figure(entry.get("us")) or 0.0
        if entry.get("stream") is None:
            named.append(f"{figure(entry.get('streams')) or 0:.0f} others {us:g} us")
            continue
        frames = figure(entry.get("frames"))
        count = "" if frames is None else f"{frames:.0f} x "
        named.append(f"{count}{text(entry.get('stream'))} {us:g} us")
    return [f"{WORDS[kind]}: {', '.join(named)}"] if named else []
