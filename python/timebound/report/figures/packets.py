"""What captures are made of: shares of frames by size and kind, bytes on the wire by what they are for, and rates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..markup import Markup, el, join
from ..palette import paint
from ..run import Run, figure, items, mapping, text
from ..svg import (
    Canvas,
    Scale,
    fit,
    footer,
    label,
    legend,
    line,
    polyline,
    stroke_key,
    swatch,
    text_width,
    tip,
    value_scale,
    x_axis,
    y_axis,
)
from ..units import bytes_text, count_text, plain_text, share_text

MOST_ROWS = 24
MOST_PANELS = 8

SIZES = {
    "<40": "idle",
    "40-79": "load1",
    "80-159": "load2",
    "160-319": "load3",
    "320-639": "host",
    "640-1279": "simulated",
    ">=1280": "broker",
}
KINDS = {
    "publish": "observed",
    "mqtt-control": "simulated",
    "tcp-control": "load1",
    "retransmission": "alarm",
    "mqtt-unfinished": "broker",
    "tcp-data": "application",
    "udp": "host",
    "arp": "idle",
    "icmp": "load3",
    "other": "bound",
}
BYTES = {
    "application payload": "observed",
    "headers and gaps of frames with payload": "load1",
    "MQTT control": "simulated",
    "TCP control": "idle",
    "retransmissions and unfinished packets": "alarm",
    "ARP, ICMP, other": "bound",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a row's whole."""

    name: str
    colour: str
    amount: float


def captures(run: Run) -> list[Mapping[str, Any]]:
    """The captures that have frames."""
    entries = items(run.packets.get("captures"))
    return [entry for entry in entries if figure(mapping(entry.get("totals")).get("frames"))]


def _rows(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Each capture, and its ports where both directions were captured."""
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for entry in captures(run):
        rows.append((text(entry.get("capture")), entry))
        ports = items(entry.get("ports"))
        if len(ports) > 1:
            rows += [(text(port.get("port")).replace("->", " → "), port) for port in ports]
    return rows[:MOST_ROWS]


def sizes(run: Run, width: float) -> Markup | None:
    """Share of the frames in each size class."""
    rows = []
    for name, entry in _rows(run):
        counts = mapping(mapping(entry.get("sizes")).get("frame"))
        rows.append((name, [Part(size, colour, figure(counts.get(size)) or 0.0) for size, colour in SIZES.items()]))
    keys = {f"{size} bytes": colour for size, colour in SIZES.items()}
    title = "Frames by size (bytes of the frame, as Wireshark counts them)"
    return _stacks("packet-sizes", title, rows, keys, width, lambda value: f"{count_text(value)} frames")


def kinds(run: Run, width: float) -> Markup | None:
    """Share of the frames of each kind."""
    rows = []
    for name, entry in _rows(run):
        found = mapping(mapping(entry.get("totals")).get("categories"))
        parts = [Part(kind, c, figure(mapping(found.get(kind)).get("frames")) or 0.0) for kind, c in KINDS.items()]
        rows.append((name, parts))
    used = {part.name for _, parts in rows for part in parts if part.amount}
    keys = {kind: colour for kind, colour in KINDS.items() if kind in used}
    return _stacks(
        "packet-kinds", "Frames by what they carry", rows, keys, width, lambda value: f"{count_text(value)} frames"
    )


def overhead(run: Run, width: float) -> Markup | None:
    """Bytes on the wire: application payload, and what the rest is for."""
    rows = []
    for name, entry in _rows(run):
        totals = mapping(entry.get("totals"))
        found = mapping(totals.get("categories"))
        wire = {kind: figure(mapping(found.get(kind)).get("wire_bytes")) or 0.0 for kind in KINDS}
        payload = figure(totals.get("payload_bytes")) or 0.0
        carrying = wire["publish"] + wire["udp"] + wire["tcp-data"]
        amounts = (
            payload,
            max(0.0, carrying - payload),
            wire["mqtt-control"],
            wire["tcp-control"],
            wire["retransmission"] + wire["mqtt-unfinished"],
            wire["arp"] + wire["icmp"] + wire["other"],
        )
        parts = [Part(kind, colour, amount) for (kind, colour), amount in zip(BYTES.items(), amounts, strict=True)]
        rows.append((name, parts))
    title = "Bytes on the wire by what they are for (preamble, FCS and gap included)"
    return _stacks("packet-overhead", title, rows, BYTES, width, bytes_text)


def _stacks(
    name: str,
    title: str,
    rows: Sequence[tuple[str, list[Part]]],
    keys: Mapping[str, str],
    width: float,
    show: Any,
) -> Markup | None:
    """One bar of 100 % per row; a part's share stands in it where there is room."""
    if not rows:
        return None
    narrow = width < 600
    left, right = (8.0, width - 12) if narrow else (min(210.0, width * 0.24), width - 16)
    key, key_height = legend([(words, swatch(colour)) for words, colour in keys.items()], 8, 8, width - 16)
    top, pitch = key_height + 10, 42.0 if narrow else 26.0
    bottom = top + pitch * len(rows)
    scale = Scale(0, 1, left, right)
    canvas = Canvas(name, width, bottom + 26, title, f"Stacked bars of shares for {len(rows)} captures and ports.")
    canvas.add(key, x_axis(scale, top, bottom, share_text, most=4 if narrow else 10))
    for index, (heading, parts) in enumerate(rows):
        y = top + index * pitch
        named = label(8, y + (15 if narrow else 17), fit(heading, (right if narrow else left) - 16, 12), bold=True)
        canvas.add(line(8, y, right, y), named, _stack(heading, parts, scale, y + (21 if narrow else 5), show))
    return canvas.render()


def _stack(heading: str, parts: Sequence[Part], scale: Scale, y: float, show: Any) -> Markup:
    whole = sum(part.amount for part in parts)
    drawn: list[Markup] = []
    before = 0.0
    for part in parts:
        if not part.amount or not whole:
            continue
        start, end = scale(before / whole), scale((before + part.amount) / whole)
        before += part.amount
        shown = share_text(part.amount / whole)
        shape = el("rect", x=start, y=y, width=max(end - start, 0.5), height=16.0, **paint(fill=part.colour))
        inside = label((start + end) / 2, y + 12, shown, size=10.5, anchor="middle", colour="ink", halo=True)
        room = text_width(shown, 10.5) + 8 < end - start
        drawn.append(tip(f"{heading}, {part.name}: {show(part.amount)}, {shown}", shape, inside if room else None))
    return join(drawn)


def series(run: Run, width: float) -> Markup | None:
    """Bytes per second on the wire and of application payload, and retransmissions, one panel per capture."""
    every = [entry for entry in captures(run) if len(mapping(entry.get("series")).get("time_s") or []) > 1]
    chosen = every[:MOST_PANELS]
    if not chosen:
        return None
    columns = 1 if width < 600 or len(chosen) == 1 else 2
    wide, tall = (width - 16) / columns, 168.0
    entries = [("on the wire", stroke_key("bound")), ("application payload (goodput)", stroke_key("observed"))]
    entries.append(("segments sent again in the interval", stroke_key("alarm", width=5)))
    key, key_height = legend(entries, 8, 8, width - 16)
    top, rows = key_height + 10, -(-len(chosen) // columns)
    more = [f"The first {len(chosen)} of {len(every)} captures."] if len(every) > len(chosen) else []
    small, small_height = footer(more, 8, top + rows * tall + 16, width - 16)
    title = "Rates over time at the captures"
    height = top + rows * tall + small_height + 8
    canvas = Canvas("packet-series", width, height, title, f"{len(chosen)} panels over the run.")
    canvas.add(key, small)
    for index, entry in enumerate(chosen):
        canvas.add(_panel(entry, 8 + index % columns * wide, top + index // columns * tall, wide, tall))
    return canvas.render()


def _panel(entry: Mapping[str, Any], x: float, y: float, wide: float, tall: float) -> Markup:
    left, right, top, bottom = x + 70, x + wide - 18, y + 30, y + tall - 30
    found = mapping(entry.get("series"))
    step = (figure(found.get("step_ns")) or 1e9) / 1e9
    times = [figure(t) for t in found.get("time_s") or []]
    known = [t for t in times if t is not None]
    clock = Scale(min(known), max(known) + step, left, right)
    rates = {
        name: [None if (v := figure(value)) is None else v / step for value in found.get(name) or []]
        for name in ("wire_bytes", "payload_bytes")
    }
    highest = max((v for values in rates.values() for v in values if v is not None), default=0.0)
    scale = value_scale([highest], bottom, top)
    parts = [label(x, y + 14, fit(text(entry.get("capture")), wide - 12, 12), bold=True)]
    parts += [
        x_axis(clock, top, bottom, lambda v: f"{v:g} s", most=5),
        y_axis(scale, left, right, lambda v: f"{plain_text(v / 1e3, 3)} kB/s"),
    ]
    for time, again in zip(times, found.get("retransmissions") or [], strict=False):
        if time is not None and figure(again):
            start, end = clock(time), clock(time + step)
            mark = el(
                "rect", x=start, y=bottom - 5, width=max(end - start - 0.5, 0.5), height=5.0, **paint(fill="alarm")
            )
            parts.append(tip(f"{time:g} s: {count_text(figure(again))} segments sent again", mark))
    for name, colour, words in (
        ("wire_bytes", "bound", "bytes per second on the wire"),
        ("payload_bytes", "observed", "application payload per second"),
    ):
        points = [
            (clock(t + step / 2), scale(v)) if t is not None and v is not None else None
            for t, v in zip(times, rates[name], strict=False)
        ]
        parts.append(tip(f"{text(entry.get('capture'))}: {words}", polyline(points, colour, width=1.8)))
    return join(parts)
