"""`run.data-plane` -> settings of the emulation; what cannot be done on this network is refused here."""

from __future__ import annotations

from timebound.scenario.context import Context
from timebound.scenario.fields import to_key
from timebound.scenario.model import DataPlane
from timebound.scenario.resolve_network import Net
from timebound.scenario.shape_plane import DataPlane as DataPlaneShape

LEAST_FRAMES = 4
"""Back-pressure lets two largest frames through at once, and one more is on its way: the first port has room for four."""


def resolve_data_plane(plane: DataPlaneShape, net: Net, context: Context) -> DataPlane:
    """Checks that back-pressure has one link to follow at every host."""
    real = next((name for name, node in net.nodes.items() if node.engine == "ovs"), None)
    if plane.back_end == "tap" and real is not None:
        message = f"TAP devices carry hosts only, and {real!r} is a real switch"
        path = ("run", to_key("data_plane"), to_key("back_end"))
        context.error(path, message, "leave back-end out, or take ring")
    if plane.back_pressure:
        _check_back_pressure(net, context)
    return DataPlane(back_end=plane.back_end, threads=plane.threads, back_pressure=plane.back_pressure)


def _check_back_pressure(net: Net, context: Context) -> None:
    path = ("run", to_key("data_plane"), to_key("back_pressure"))
    for name, node in net.nodes.items():
        if node.kind != "host":
            continue
        links = [link for link in net.links if name in (link.a, link.b)]
        if len(links) > 1:
            context.error(
                path,
                f"back-pressure needs one link per host, and {name!r} has {len(links)}",
                "leave back-pressure out, or give the host one link",
            )
            return
        for link in links:
            direction = link.forward if link.a == name else link.backward
            if link.half_duplex or net.nodes[link.b if link.a == name else link.a].kind == "segment":
                context.error(
                    path,
                    f"back-pressure needs a link of its own, and {name!r} shares its medium",
                    "leave back-pressure out: on a shared medium the rate that a host gets is not known beforehand",
                )
                return
            if direction.buffer_bytes < LEAST_FRAMES * net.framing.wire(node.mtu):
                context.error(
                    path,
                    f"the first port of {name!r} has room for {direction.buffer_bytes} B, too little for back-pressure",
                    f"make its buffer at least {LEAST_FRAMES * net.framing.wire(node.mtu)} B",
                )
                return
