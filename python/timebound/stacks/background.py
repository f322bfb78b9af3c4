"""Background traffic: what nobody measures but everybody meets.

Constant UDP and bursts keep a declared arrival curve. TCP, Poisson, request/response and video promise nothing but their
largest frame, so no flow of their class or below has a finite bound, unless Poisson or video declares a token bucket. The simulator holds it
to that; an emulated source sends as it does, and what arrived is measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timebound.scenario.model import Background
from timebound.stacks import release, tools
from timebound.stacks.plan import Marker, Plan, Stream
from timebound.stacks.wire import IPV4_HEADER, TCP_HEADER

FIRST_PORT = 50_000
UDP_JITTER_NS = 1_000_000
"""Declared release jitter of constant UDP and bursts."""
GROUP_OF_PICTURES = 12
I_TO_P = 4
"""An I picture has four times the bytes of a P picture."""
VIDEO_PACKET = 1400


def lay(plan: Plan) -> None:
    """Adds the scenario's background traffic."""
    for index, item in enumerate(plan.scenario.background):
        origin = f"background[{index}]"
        plan.role(item.source, "background")
        plan.role(item.destination, "background")
        _check(plan, item, origin)
        streams, traffic = _describe(plan, item, origin)
        for stream in streams:
            plan.add(origin, stream)
        tcp = item.kind in ("tcp", "request-response")
        source, target = plan.addresses[item.source], plan.addresses[item.destination]
        port = FIRST_PORT + 2 * index
        if item.program is not None:
            tools.lay(plan, item, port)
            continue
        there = f"background/{item.name}"
        back = f"{there}/back" if tcp else None
        plan.markers.append(
            Marker(source, target, "tcp" if tcp else "udp", port, port + 1, data=there, ack=there if tcp else None)
        )
        if back is not None:
            plan.markers.append(Marker(target, source, "tcp", port + 1, port, data=back, ack=back, rewrite_dscp=True))
        plan.background.append(
            {
                "name": item.name,
                "source": item.source,
                "destination": item.destination,
                "source_address": source,
                "source_port": port,
                "destination_address": target,
                "port": port + 1,
                "dscp": item.priority * release.DSCP_PER_CLASS,
                "start_ns": item.start_ns,
                "stop_ns": item.stop_ns,
                "traffic": traffic,
            }
        )


def _check(plan: Plan, item: Background, origin: str) -> None:
    """Do its packets fit the interfaces of both ends?"""
    if item.kind in ("tcp", "request-response"):
        plan.check_segments(origin, item.source, item.destination)
    else:
        size = min(item.size_bytes, VIDEO_PACKET) if item.kind == "video" else item.size_bytes
        plan.check_datagrams(origin, size, item.source, (item.destination,))


def _describe(plan: Plan, item: Background, origin: str) -> tuple[list[Stream], dict[str, Any]]:
    match item.kind:
        case "tcp":
            return _tcp(plan, item)
        case "udp":
            return _constant(plan, item)
        case "poisson":
            return _poisson(plan, item, origin)
        case "burst":
            return _burst(plan, item)
        case "request-response":
            return _request_response(plan, item)
        case "video":
            return _video(plan, item, origin)


def _stream(
    item: Background, back: bool, frames: tuple[int, ...], pattern: dict[str, Any], period: int | None
) -> Stream:
    return Stream(
        name=f"background/{item.name}/back" if back else f"background/{item.name}",
        source=item.destination if back else item.source,
        destinations=(item.source if back else item.destination,),
        priority=item.priority,
        role="background",
        frames_bytes=frames,
        period_ns=period,
        jitter_ns=0 if period is None else UDP_JITTER_NS,
        release=pattern,
    )


def _kept(stream: Stream, item: Background, origin: str, smallest: int) -> Stream:
    """The stream with the token bucket that its source is declared to keep to, if any."""
    if item.token_bucket is None:
        return stream
    period, jitter = release.bucket_times(item.token_bucket, max(stream.frames_bytes), f"{origin}.token_bucket.burst")
    return replace(stream, bucket=item.token_bucket, smallest_frame=smallest, period_ns=period, jitter_ns=jitter)


def _gap(frame: int, rate_bps: int) -> int:
    """Time between frames of `frame` wire bytes at a wire rate, ns, rounded up."""
    return max(1, -(-frame * 8 * 1_000_000_000 // rate_bps))


def _payload_rate(rate_bps: int, payload: int, frame: int) -> int:
    return max(1, rate_bps * payload // frame)


def _rate(plan: Plan, item: Background) -> int:
    """The stated rate, else that of the source's fastest link."""
    if item.rate_bps is not None:
        return item.rate_bps
    rates = [link.forward.rate_bps for link in plan.scenario.links if link.a == item.source]
    rates += [link.backward.rate_bps for link in plan.scenario.links if link.b == item.source]
    return max(rates)


def _tcp(plan: Plan, item: Background) -> tuple[list[Stream], dict[str, Any]]:
    mtu = plan.mtu(item.source, item.destination)
    full = plan.wire.packet(mtu)
    gap = _gap(full, _rate(plan, item))
    # Programs have conversations beside their data, so more than acknowledgements goes back.
    most_back = plan.wire.ack if item.program is None else full
    streams = [
        _stream(item, False, (full,), {"kind": "constant", "gap_ns": gap, "frame_bytes": full}, None),
        _stream(item, True, (most_back,), {"kind": "constant", "gap_ns": 2 * gap, "frame_bytes": plan.wire.ack}, None),
    ]
    payload = 0 if item.rate_bps is None else _payload_rate(item.rate_bps, mtu - IPV4_HEADER - TCP_HEADER, full)
    return streams, {"kind": "tcp-bulk", "rate_bps": payload}


def _constant(plan: Plan, item: Background) -> tuple[list[Stream], dict[str, Any]]:
    assert item.rate_bps is not None
    frames = tuple(plan.wire.udp(item.size_bytes, plan.mtu(item.source)))
    whole = sum(frames)
    streams = [_stream(item, False, frames, {"kind": "periodic", "offset_ns": None}, _gap(whole, item.rate_bps))]
    rate = _payload_rate(item.rate_bps, item.size_bytes, whole)
    return streams, {"kind": "udp-constant", "rate_bps": rate, "payload_bytes": item.size_bytes}


def _poisson(plan: Plan, item: Background, origin: str) -> tuple[list[Stream], dict[str, Any]]:
    assert item.rate_bps is not None
    frames = plan.wire.udp(item.size_bytes, plan.mtu(item.source))
    gap = _gap(sum(frames), item.rate_bps)
    # The simulator's draws are of frames: a fragmented datagram becomes that many of them on average.
    each = {"kind": "poisson", "mean_gap_ns": max(1, gap // len(frames)), "frame_bytes": max(frames)}
    streams = [_kept(_stream(item, False, (max(frames),), each, None), item, origin, min(frames))]
    seed = release.stream_seed(plan.scenario.run.seed, f"background/{item.name}")
    return streams, {"kind": "udp-poisson", "mean_gap_ns": gap, "payload_bytes": item.size_bytes, "seed": seed}


def _burst(plan: Plan, item: Background) -> tuple[list[Stream], dict[str, Any]]:
    frames = tuple(plan.wire.udp(item.size_bytes, plan.mtu(item.source))) * item.frames
    streams = [_stream(item, False, frames, {"kind": "periodic", "offset_ns": None}, item.gap_ns)]
    return streams, {
        "kind": "udp-burst",
        "gap_ns": item.gap_ns,
        "frames": item.frames,
        "payload_bytes": item.size_bytes,
    }


def _request_response(plan: Plan, item: Background) -> tuple[list[Stream], dict[str, Any]]:
    streams = []
    mtu = plan.mtu(item.source, item.destination)
    for back, size in ((False, item.size_bytes), (True, item.response_bytes)):
        frames = plan.wire.tcp(max(1, size), mtu)
        pattern: dict[str, Any] = {"kind": "silent"}
        if item.gap_ns:
            pattern = {"kind": "burst", "gap_ns": item.gap_ns, "frames": len(frames), "frame_bytes": max(frames)}
        # Requests that wait for TCP, and the responses to them, leave in full segments.
        streams.append(_stream(item, back, (plan.wire.packet(mtu),), pattern, None))
    return streams, {
        "kind": "request-response",
        "request_bytes": item.size_bytes,
        "response_bytes": item.response_bytes,
        "period_ns": item.gap_ns,
    }


def _video(plan: Plan, item: Background, origin: str) -> tuple[list[Stream], dict[str, Any]]:
    assert item.rate_bps is not None
    packet = min(item.size_bytes, VIDEO_PACKET)
    frames = plan.wire.udp(packet, plan.mtu(item.source))
    frame, whole = max(frames), sum(frames)
    gap = 1_000_000_000 // item.frames_per_second
    mean = max(24, item.rate_bps * packet // whole // 8 // item.frames_per_second)
    small = max(12, mean * GROUP_OF_PICTURES // (I_TO_P + GROUP_OF_PICTURES - 1))
    pattern = {"kind": "burst", "gap_ns": gap, "frames": max(1, -(-mean // packet)) * len(frames), "frame_bytes": frame}
    # The last packet of a picture may be small.
    return [_kept(_stream(item, False, (frame,), pattern, None), item, origin, plan.wire.framing.least)], {
        "kind": "video",
        "transport": "udp",
        "picture_gap_ns": gap,
        "group": GROUP_OF_PICTURES,
        "i_picture_bytes": small * I_TO_P,
        "p_picture_bytes": small,
        "packet_bytes": packet,
    }
