"""Token buckets, slots and framing of a resolved scenario as YAML."""

from __future__ import annotations

from typing import Any

from timebound.scenario.framing import Framing
from timebound.scenario.model import Link
from timebound.scenario.model_media import Slots, TokenBucket
from timebound.scenario.units import format_rate, format_time


def token_bucket(bucket: TokenBucket) -> dict[str, Any]:
    """`token-bucket` of a flow."""
    return {"rate": format_rate(bucket.rate_bps), "burst": f"{bucket.burst_bytes} B"}


def framing(stated: Framing) -> Any:
    """`network.framing`."""
    kinds = list(stated.kinds)
    if not stated.stated_overhead_bytes and stated.stated_least_bytes is None:
        return kinds[0] if len(kinds) == 1 else kinds
    entry: dict[str, Any] = {"kinds": kinds} if kinds else {}
    if stated.stated_overhead_bytes:
        entry["overhead"] = f"{stated.stated_overhead_bytes} B"
    if stated.stated_least_bytes is not None:
        entry["least"] = f"{stated.stated_least_bytes} B"
    return entry


def tdma(link: Link) -> dict[str, Any]:
    """`tdma` of a link, by direction; nothing where no end has slots."""
    given = {"forward": link.forward.slots, "backward": link.backward.slots}
    stated = {key: slots for key, slots in given.items() if slots is not None}
    if not stated:
        return {}
    cycle = next(iter(stated.values())).cycle_ns
    return {"tdma": {"cycle": format_time(cycle), "slots": {key: _slots(slots) for key, slots in stated.items()}}}


def _slots(slots: Slots) -> list[dict[str, str]]:
    return [{"at": format_time(at), "length": format_time(length)} for at, length in slots.slots_ns]
