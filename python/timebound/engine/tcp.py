"""What emulation sets of TCP in each node: what the bounds rest on. The pre-flight check reads it back."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from timebound.engine.predict import Prediction
from timebound.engine.windows import at_once, round_ns
from timebound.scenario.model import Node
from timebound.scenario.model_tcp import UNKNOWN_WINDOW
from timebound.stacks.transport import Carrier

UNBOUNDED_ROUND_NS = 1_000_000_000
"""Counted for a round trip that has no bound."""
MOST_SEGMENTS = 1_000_000
MOST_BYTES = 1 << 30
RECEIVE = (4_096, 131_072, 6_291_456)
SEND = (4_096, 16_384, 4_194_304)
"""Least, first and greatest buffer, bytes: the kernel's own, whatever this host's administrator has made of them."""
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


@lru_cache(maxsize=1)
def unpaced() -> str:
    """A congestion control without pacing that nodes may have: cubic, where this kernel's is allowed to them, else reno, which always is."""
    try:
        allowed = _ALLOWED.read_text(encoding="ascii").split()
    except OSError:
        allowed = []
    return "cubic" if "cubic" in allowed else "reno"


def under_way(prediction: Prediction, carrier: Carrier) -> int:
    """Segments that a connection can have under way at once, in one direction: for so many its window must have room. Twice that where it is bounded, as messages
    that come late meet others."""
    plan = prediction.plan
    streams = [prediction.streams[one.stream] for one in carrier.carried]
    bounded = all(stream.period_ns is not None for stream in streams)
    keys = [(one.stream, carrier.receiver) for one in carrier.carried]
    keys += [(name, carrier.sender) for name in carrier.answers]
    span = (
        round_ns(carrier, prediction.outcomes) if bounded and all(key in prediction.outcomes for key in keys) else None
    )
    jitters = {flow.name: flow.jitter_ns for flow in plan.scenario.flows}
    most = max(jitters.values(), default=0)
    arrivals = [
        (one.segments, one.period_ns, max(most, stream.jitter_ns))
        for one, stream in zip(carrier.carried, streams, strict=True)
    ]
    return min(MOST_SEGMENTS, 2 * at_once(arrivals, UNBOUNDED_ROUND_NS if span is None else span))


def host_plan(prediction: Prediction, node: Node) -> dict[str, Any]:
    """The parts of a node's `HostPlan` that concern TCP: settings of its namespace, and windows by peer."""
    if node.is_external or node.side_of is not None:
        return {}
    plan, tcp = prediction.plan, node.sender
    windows: dict[str, list[int]] = {}
    send, receive = SEND[1], RECEIVE[1]
    for carrier in plan.carriers.values():
        if node.name not in (carrier.sender, carrier.receiver) or not carrier.carried:
            continue
        peer = carrier.receiver if node.name == carrier.sender else carrier.sender
        entry = windows.setdefault(plan.addresses[peer], [UNKNOWN_WINDOW, UNKNOWN_WINDOW])
        needed = under_way(prediction, carrier)
        # What the kernel counts for a segment: its headers, and room rounded up.
        room = min(MOST_BYTES // 2, needed * (4 * (carrier.segment_bytes + 512)))
        if node.name == carrier.sender:
            entry[0] = max(entry[0], needed)
            send = max(send, room)
        else:
            entry[1] = max(entry[1], needed)
            receive = max(receive, room)
    if not tcp.known:
        windows = {}
        send, receive = SEND[1], RECEIVE[1]
    if tcp.initial_window is not None:
        windows = {peer: [tcp.initial_window, entry[1]] for peer, entry in windows.items()}
    if tcp.receive_window is not None:
        size = plan.mtu(node.name) - 52
        windows = {peer: [entry[0], max(1, -(-tcp.receive_window // size))] for peer, entry in windows.items()}
    stated_receive = None if tcp.receive_window is None else 4 * tcp.receive_window
    stated_send = None if tcp.send_buffer is None else 4 * tcp.send_buffer
    settings = {
        "net.ipv4.tcp_congestion_control": tcp.congestion_control or unpaced(),
        "net.ipv4.tcp_slow_start_after_idle": str(int(tcp.slow_start_after_idle or not tcp.known)),
        # Else Linux keeps a message back while the one before waits in the interface's queue, and joins the two in spite of TCP_NODELAY.
        "net.ipv4.tcp_autocorking": str(int(not tcp.known)),
        "net.ipv4.tcp_rmem": _buffers(RECEIVE, receive, stated_receive),
        "net.ipv4.tcp_wmem": _buffers(SEND, send, stated_send),
    }
    usual = [UNKNOWN_WINDOW, UNKNOWN_WINDOW]
    return {"sysctls": settings, "windows": {peer: entry for peer, entry in windows.items() if entry != usual}}


def _buffers(usual: tuple[int, int, int], first: int, stated: int | None) -> str:
    if stated is not None:
        return f"{min(usual[0], stated)} {stated} {stated}"
    return f"{usual[0]} {first} {max(usual[2], min(MOST_BYTES, 2 * first))}"
