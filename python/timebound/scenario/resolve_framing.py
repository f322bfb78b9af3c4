"""`network.framing` -> how long frames are, and what cannot be beside it."""

from __future__ import annotations

from collections.abc import Iterable

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context
from timebound.scenario.framing import ETHERNET, LEAST_FRAME, MOST_OVERHEAD, Framing, twice
from timebound.scenario.model import Link, Node
from timebound.scenario.tree import Path

PATH: Path = ("network", "framing")


def resolve_framing(stated: shape.Framing | None, context: Context, path: Path = PATH) -> Framing:
    """The framing; Ethernet's own where something is wrong with it, which `context` knows then."""
    if stated is None:
        return ETHERNET
    double = twice(stated.kinds)
    if double is not None:
        hint = (
            "two tags are double-vlan"
            if double == "vlan"
            else "name each once, and state what else there is as overhead"
        )
        again = stated.kinds.index(double, stated.kinds.index(double) + 1)
        context.error((*path, "kinds", again), f"{double} is named twice", hint)
        return ETHERNET
    overhead = stated.overhead or 0
    if overhead > MOST_OVERHEAD:
        message = f"an overhead of {overhead} B is more than frames bear"
        context.error((*path, "overhead"), message, f"state at most {MOST_OVERHEAD} B: what is added to each frame")
        return ETHERNET
    found = Framing(tuple(kind for kind in stated.kinds if kind != "ethernet"), overhead, stated.least)
    most = LEAST_FRAME + found.overhead_bytes
    if not LEAST_FRAME <= found.least_frame_bytes <= most:
        added = f"an overhead of {found.overhead_bytes} B" if found.overhead_bytes else "nothing added"
        message = f"the shortest frame cannot have {stated.least} B with {added}"
        if most == LEAST_FRAME:
            hint = f"leave least out: with nothing added it is {LEAST_FRAME} B; or state the kinds or the overhead that frames bear"
        else:
            hint = f"state {LEAST_FRAME} B (padded with the overhead) to {most} B (padded before), header and check sequence included"
        context.error((*path, "least"), message, hint)
        return ETHERNET
    return found


def check_packets(framing: Framing, nodes: Iterable[Node], context: Context) -> None:
    """What takes a part of the frame's payload leaves less to packets."""
    if not framing.inside_bytes:
        return
    for index, node in enumerate(nodes):
        if node.kind == "host" and node.mtu > framing.mtu:
            place = context.locations.get(f"nodes[{index}].mtu", context.locations[f"nodes[{index}]"])
            message = f"frames of {framing} carry IP packets of {framing.mtu} B at most, and {node.name!r} has an mtu of {node.mtu}"
            context.sources.problem(
                place, f"network.nodes.{node.name}.mtu", message, f"mtu: {framing.mtu}, or leave it out"
            )


def check_links(framing: Framing, links: Iterable[Link], context: Context) -> None:
    """A trace says how many bytes of IP packets pass, whatever they are framed in."""
    if framing.overhead_bytes == 0:
        return
    for link in links:
        if link.forward.trace is not None or link.backward.trace is not None:
            message = f"framing {framing} beside the trace of {link.a}-{link.b}, which counts IP packets and no frames"
            context.error(PATH, message, "remove framing, or give the link a rate in place of the trace")
            return
