"""Where the time goes: the medians of the network, broker and host share of application latency, stacked."""

from __future__ import annotations

from ..markup import Markup, el, join
from ..palette import paint
from ..ranking import critical
from ..run import SHARES, Flow, Run
from ..svg import Canvas, Scale, fit, footer, label, legend, line, swatch, text_width, tip, x_axis
from ..units import time_text

MOST = 24
COLOUR = {"network": "observed", "broker": "broker", "host": "host"}


def shares(run: Run, width: float) -> Markup | None:
    """Stacked bars of the most critical flows, always on a linear scale: parts of a sum have no meaning on another."""
    every = [flow for flow in critical(run.flows) if any(flow.shares[name].p50 is not None for name in SHARES)]
    flows = every[:MOST]
    if not flows:
        return None
    narrow = width < 600
    left, right = (8.0, width - 12) if narrow else (min(250.0, width * 0.26), width - 16)
    key, key_height = legend([(f"{name} share, p50", swatch(COLOUR[name])) for name in SHARES], 8, 8, width - 16)
    top, pitch = key_height + 10, 42.0 if narrow else 26.0
    bottom = top + pitch * len(flows)
    high = max(sum(flow.shares[name].p50 or 0 for name in SHARES) for flow in flows) or 1.0
    scale = Scale(0, high * 1.02 / (1 - 70 / (right - left)), left, right)
    foot = ["Linear scale. Medians of the parts; their sum need not be the median of the whole."]
    if len(every) > len(flows):
        foot.append(f"The {len(flows)} most critical of {len(every)} flows.")
    small, small_height = footer(foot, 8, bottom + 38, width - 16)
    canvas = Canvas(
        "shares",
        width,
        bottom + 40 + small_height,
        "Where the time goes: network, broker and host share",
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
    for name in SHARES:
        spread = flow.shares[name]
        if spread.p50 is None:
            continue
        start, end = scale(total), scale(total + spread.p50)
        total += spread.p50
        shape = el("rect", x=start, y=y, width=max(end - start, 0.5), height=16.0, **paint(fill=COLOUR[name]))
        shown = time_text(spread.p50)
        inside = label((start + end) / 2, y + 12, shown, size=10.5, anchor="middle", colour="ground")
        words = f"{flow.name}, {name} share: p50 {time_text(spread.p50, 4)}, maximum {time_text(spread.max, 4)}"
        parts.append(tip(words, shape, inside if text_width(shown, 10.5) + 6 < end - start else None))
    parts.append(label(scale(total) + 6, y + 12, time_text(total), size=11))
    return join(parts)
