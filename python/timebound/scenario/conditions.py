"""Conditions of a direction of a link as a schedule changes them: named profiles, single values, ramps between two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from timebound.scenario import shape
from timebound.scenario import shape_network as network_shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.model import Direction, Jitter, Loss
from timebound.scenario.names import is_flow_name
from timebound.scenario.resolve_network import resolve_disconnections, resolve_jitter, resolve_loss
from timebound.scenario.tree import Path

CHANGED = (
    "rate",
    "delay",
    "buffer",
    "loss",
    "jitter",
    "corruption",
    "corruption_drops",
    "duplication",
    "disconnections",
    "queued",
)
"""What a schedule can change of a direction, `up` apart."""
RAMPED = ("rate", "delay", "buffer", "loss", "jitter", "corruption", "duplication")
"""What can change in steps over time: quantities."""


@dataclass(slots=True)
class Profiles:
    """The named conditions of a scenario."""

    known: dict[str, network_shape.Profile]

    def find(self, name: str, path: Path, context: Context) -> network_shape.Profile | None:
        """The profile, or `None` with the error reported."""
        profile = self.known.get(name)
        if profile is None:
            hint = close_to(name, self.known, "declare it under conditions")
            context.error(path, f"unknown conditions {name!r}", hint)
        return profile


def check_profiles(known: dict[str, network_shape.Profile], context: Context) -> Profiles:
    """The profiles with their names and values checked."""
    for name, profile in known.items():
        path: Path = ("conditions", name)
        if name == "original":
            context.key_error(
                path, "original means the conditions that a link was declared with", "choose another name"
            )
        elif not is_flow_name(name):
            context.key_error(path, f"{name!r} is no name", "use letters, digits, '_', '.', '-'")
        if profile.jitter is not None:
            resolve_jitter(profile.jitter, (*path, "jitter"), context)
        if profile.disconnections is not None:
            resolve_disconnections(profile.disconnections, (*path, "disconnections"), context)
    return Profiles(known)


def stated_keys(change: shape.Change) -> tuple[str, ...]:
    """The conditions that a change states."""
    return tuple(key for key in (*CHANGED, "up") if getattr(change, key) is not None)


def value_of(direction: Direction, key: str) -> Any:
    """The value of a condition of the resolved model."""
    if key == "rate":
        return direction.rate_bps
    if key == "delay":
        return direction.delay_ns
    if key == "buffer":
        return direction.buffer_bytes
    return getattr(direction.impairments, "held" if key == "queued" else key)


def apply_profile(direction: Direction, profile: network_shape.Profile, path: Path, context: Context) -> Direction:
    """The direction under a profile; what the profile does not state stays."""
    return _apply(direction, profile, path, context)


def apply_change(direction: Direction, change: shape.Change, path: Path, context: Context) -> Direction:
    """The direction after a change."""
    return _apply(direction, change, path, context)


def _apply(
    direction: Direction, stated: shape.Change | network_shape.Profile, path: Path, context: Context
) -> Direction:
    new: dict[str, Any] = {}
    if stated.loss is not None:
        new["loss"] = resolve_loss(stated.loss)
    if stated.jitter is not None:
        new["jitter"] = resolve_jitter(stated.jitter, (*path, "jitter"), context)
    if stated.disconnections is not None:
        new["disconnections"] = resolve_disconnections(stated.disconnections, (*path, "disconnections"), context)
    if stated.queued is not None:
        new["held"] = stated.queued == "held"
    for key in ("corruption", "corruption_drops", "duplication"):
        if getattr(stated, key) is not None:
            new[key] = getattr(stated, key)
    return replace(
        direction,
        rate_bps=direction.rate_bps if stated.rate is None else stated.rate,
        delay_ns=direction.delay_ns if stated.delay is None else stated.delay,
        buffer_bytes=direction.buffer_bytes if stated.buffer is None else stated.buffer,
        impairments=replace(direction.impairments, **new) if new else direction.impairments,
    )


def interpolate(start: Direction, goal: Direction, key: str, step: int, steps: int) -> shape.Change | None:
    """The change to the value `step` of `steps` of the way between two directions; `None` where the two have values of
    different kinds. Whole numbers round towards the start; the last step is the goal exactly."""
    first, last = value_of(start, key), value_of(goal, key)
    if key == "loss":
        if not _plain_loss(first) or not _plain_loss(last):
            return None
        share = _between(first.probability if first else 0.0, last.probability if last else 0.0, step, steps)
        return shape.Change.model_construct(loss=network_shape.Loss.model_construct(independent=share))
    if key == "jitter":
        if not _plain_jitter(first) or not _plain_jitter(last):
            return None
        greatest = _between(first.max_ns if first else 0, last.max_ns if last else 0, step, steps)
        reorder = (last or first).reorder if (last or first) else False
        jitter = network_shape.Jitter.model_construct(uniform=greatest, reorder=reorder)
        return shape.Change.model_construct(jitter=jitter)
    return shape.Change.model_construct(**{key: _between(first, last, step, steps)})


def _between(first: Any, last: Any, step: int, steps: int) -> Any:
    if step == steps:
        return last
    if isinstance(first, float) or isinstance(last, float):
        return first + (last - first) * step / steps
    way = (abs(last - first) * step) // steps
    return first + way if last >= first else first - way


def _plain_loss(loss: Loss | None) -> bool:
    return loss is None or loss.kind == "bernoulli"


def _plain_jitter(jitter: Jitter | None) -> bool:
    return jitter is None or jitter.kind == "uniform"
