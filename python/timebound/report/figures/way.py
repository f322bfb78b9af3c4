"""From publisher to subscriber: the bound of each part of a flow's way, stacked; the deadline as a line."""

from __future__ import annotations

from ..markup import Markup, el, join
from ..palette import paint
from ..ranking import critical
from ..run import Flow, Run
from ..svg import Canvas, Scale, fit, footer, label, legend, line, swatch, text_width, tip, x_axis
from ..units import time_text
from ..way import KINDS, WORDS

MOST = 24
COLOUR = {"network": "observed", "handshake": "application", "broker": "broker", "hold": "idle"}


def way(run: Run, width: float) -> Markup | None:
    """Stacked bars of the most critical flows with a broker on the way, on a linear scale."""
    every = [flow for flow in critical(run.flows) if flow.way.has_broker and flow.way.bound is not None]
    flows = every[:MOST]
    if not flows:
        return None
    narrow = width < 600
    left, right = (8.0, width - 12) if narrow else (min(250.0, width * 0.26), width - 16)
    used = [kind for kind in KINDS if any(part.kind == kind for flow in flows for part in flow.way.parts)]
    key, key_height = legend([(f"{WORDS[kind]}, bound", swatch(COLOUR[kind])) for kind in used], 8, 8, width - 16)
    top, pitch = key_height + 10, 42.0 if narrow else 26.0
    bottom = top + pitch * len(flows)
    high = max(flow.way.bound or 0.0 for flow in flows) or 1.0
    scale = Scale(0, high * 1.02 / (1 - 80 / (right - left)), left, right)
    foot = ["Linear scale, from the nominal release. A bar marked * leaves the own time of a broker out."]
    if len(every) > len(flows):
        foot.append(f"The {len(flows)} most critical of {len(every)} flows.")
    small, small_height = footer(foot, 8, bottom + 38, width - 16)
    canvas = Canvas(
        "way",
        width,
        bottom + 40 + small_height,
        "From publisher to subscriber: segments and brokers",
        f"Stacked bars for {len(flows)} flows. {' '.join(foot)}",
    )
    canvas.add(key, x_axis(scale, top, bottom, time_text, most=4 if narrow else 8))
    for index, flow in enumerate(flows):
        y = top + index * pitch
        named = label(8, y + (15 if narrow else 17), fit(flow.name, (right if narrow else left) - 16, 12), bold=True)
        canvas.add(line(8, y, right, y), named, _stack(flow, scale, y + (21 if narrow else 5)))
    canvas.add(small)
    return canvas.render()


def _stack(flow: Flow, scale: Scale, y: float) -> Markup:
    parts: list[Markup] = []
    total = 0.0
    for part in flow.way.parts:
        if part.bound is None:
            continue
        start, end = scale(total), scale(total + part.bound)
        total += part.bound
        shape = el(
            "rect",
            x=start,
            y=y,
            width=max(end - start, 0.5),
            height=16.0,
            **paint(fill=COLOUR[part.kind], stroke="ground"),
        )
        inside = label((start + end) / 2, y + 12, part.name, size=10.5, anchor="middle", colour="ground")
        words = f"{flow.name}, {WORDS[part.kind]} {part.name}: bound {time_text(part.bound, 4)}"
        parts.append(tip(words, shape, inside if text_width(part.name, 10.5) + 6 < end - start else None))
    mark = " *" if flow.way.covers == "network" else ""
    parts.append(label(scale(total) + 6, y + 12, f"{time_text(total)}{mark}", size=11))
    if flow.deadline is not None and flow.deadline <= scale.high:
        at = scale(flow.deadline)
        parts.append(tip(f"deadline {time_text(flow.deadline, 4)}", line(at, y - 3, at, y + 19, "deadline", width=2)))
    return join(parts)
