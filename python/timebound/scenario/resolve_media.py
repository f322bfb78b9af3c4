"""`tdma` of links and segments -> slots of the directions that send; token buckets of flows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from timebound.scenario.context import Context, close_to
from timebound.scenario.framing import Framing
from timebound.scenario.model import Link, Node
from timebound.scenario.model_media import Slots, TokenBucket
from timebound.scenario.shape_media import Slot, Tdma
from timebound.scenario.shape_media import TokenBucket as BucketShape
from timebound.scenario.tree import Path
from timebound.scenario.units import LONGEST_NS, format_rate, format_time

_NANOS = 8_000_000_000
LEAST_MTU = 68
"""RFC 791, section 3.2."""


def link_slots(tdma: Tdma, ends: tuple[Node, Node], link: Link, framing: Framing, path: Path, context: Context) -> Link:
    """The link with slots for those of its ends that have some; `ends` are its nodes, first and second."""
    a, b = ends
    names = {"forward": a.name, "backward": b.name}
    given: dict[str, Slots] = {}
    for key, slots in tdma.slots.items():
        here: Path = (*path, "slots", key)
        expanded = [names[key]] if key in names else context.expand(key, here)
        for name in expanded:
            if name not in (a.name, b.name):
                context.error(here, f"{name!r} is no end of this link", f"name {a.name} or {b.name}")
            elif next(node for node in ends if node.name == name).kind == "segment":
                context.error(here, f"{name!r} is a segment and sends nothing of its own", "name the other end")
            elif name in given:
                context.error(here, f"{name!r} has slots already", "state the slots of each sender once")
            else:
                found = _slots(tdma, slots, here, context)
                if found is not None:
                    given[name] = found
    return _with(link, given, {node.name: node for node in ends}, framing, path, context)


def segment_slots(
    segment: Node,
    tdma: Tdma,
    links: list[Link],
    nodes: dict[str, Node],
    framing: Framing,
    path: Path,
    context: Context,
) -> None:
    """Gives every neighbour of a segment its slots; `links` is changed in place."""
    members = {
        (link.b if link.a == segment.name else link.a): index
        for index, link in enumerate(links)
        if segment.name in (link.a, link.b)
    }
    given: dict[str, Slots] = {}
    for key, slots in tdma.slots.items():
        here: Path = (*path, "slots", key)
        for name in context.expand(key, here):
            if name not in members:
                hint = close_to(name, members, f"its neighbours: {', '.join(list(members)[:8]) or 'none'}")
                context.error(here, f"{name!r} is not on segment {segment.name!r}", hint)
                break
            if name in given:
                context.error(here, f"{name!r} has slots already", "state the slots of each sender once")
                break
            found = _slots(tdma, slots, here, context)
            if found is None:
                break
            rival = next((other for other, known in given.items() if known.overlaps(found)), None)
            if rival is not None:
                context.error(here, f"the slots of {rival!r} and {name!r} overlap", "on one medium one sends at a time")
                break
            given[name] = found
    missing = next((name for name in members if name not in given), None)
    if missing is not None and not context.failed:
        hint = "give every neighbour of the segment its slots"
        context.error((*path, "slots"), f"{missing!r} has no slots on segment {segment.name!r}", hint)
        return
    for name, found in given.items():
        link = links[members[name]]
        links[members[name]] = _with(link, {name: found}, nodes, framing, path, context)


def _slots(tdma: Tdma, slots: Iterable[Slot], path: Path, context: Context) -> Slots | None:
    """The slots of one sender, checked."""
    if tdma.cycle == 0:
        context.error((*path[:-2], "cycle"), "a cycle of no length", "cycle: 10 ms")
        return None
    good = True
    ranges: list[tuple[int, int]] = []
    for index, slot in enumerate(slots):
        here: Path = (*path, index)
        if slot.length == 0:
            context.error(here, "a slot of no length", "length: 1 ms")
            good = False
        elif slot.at + slot.length > tdma.cycle:
            cycle = format_time(tdma.cycle)
            context.error(here, f"the slot ends behind its cycle of {cycle}", "make it shorter, or the cycle longer")
            good = False
        elif any(slot.at < at + length and at < slot.at + slot.length for at, length in ranges):
            context.error(here, "two slots of one sender overlap", "slots of one sender follow each other")
            good = False
        else:
            ranges.append((slot.at, slot.length))
    if not ranges and good:
        context.error(path, "no slot, so that it never sends", "state at least one: [{at: 0 ms, length: 1 ms}]")
    return Slots(cycle_ns=tdma.cycle, slots_ns=tuple(sorted(ranges))) if good and ranges else None


def _with(
    link: Link, given: dict[str, Slots], nodes: dict[str, Node], framing: Framing, path: Path, context: Context
) -> Link:
    """The link with these slots of its ends, by name."""
    for name, slots in given.items():
        forward = name == link.a
        direction = link.forward if forward else link.backward
        node = nodes[name]
        if node.kind == "host":
            frame = framing.wire(node.mtu)
            carried = slots.longest_ns * direction.rate_bps // _NANOS
            if carried < frame:
                message = (
                    f"the longest slot of {name!r} ({format_time(slots.longest_ns)}) carries {carried} bytes on the wire, and its "
                    f"mtu of {node.mtu} needs {frame}"
                )
                hint = "make a slot longer, or the mtu smaller" + (
                    f": mtu: {framing.packet(carried)}" if framing.packet(carried) > LEAST_MTU else ""
                )
                context.error((*path, "slots"), message, hint)
        if direction.trace is not None:
            context.error(path, "slots beside a trace", "a link has either slots or a trace")
        changed = replace(direction, slots=slots)
        link = replace(link, forward=changed) if forward else replace(link, backward=changed)
    return link


def bucket(stated: BucketShape | None) -> TokenBucket | None:
    """The token bucket of a flow or of background traffic."""
    return None if stated is None else TokenBucket(rate_bps=stated.rate, burst_bytes=stated.burst)


def check_burst(stated: BucketShape | None, path: Path, context: Context) -> None:
    """A burst whose time at its rate no analysis covers."""
    if stated is None or stated.burst * _NANOS <= LONGEST_NS * stated.rate:
        return
    takes = format_time(stated.burst * _NANOS // stated.rate)
    message = f"a burst of {stated.burst} B takes {takes} at {format_rate(stated.rate)}, longer than {format_time(LONGEST_NS)}"
    least = -(-stated.burst * _NANOS // LONGEST_NS)
    hint = f"burst: {LONGEST_NS * stated.rate // _NANOS} B or less, or rate: {format_rate(least)} or more"
    context.error((*path, "token-bucket", "burst"), message, hint)
