"""How latencies are distributed: box plots and cumulative distributions from the 101 quantiles of each flow."""

from __future__ import annotations

from ..markup import Markup, el, join
from ..palette import paint
from ..ranking import critical
from ..run import DISTRIBUTIONS, Flow, Run
from ..svg import (
    Canvas,
    Scale,
    fit,
    footer,
    label,
    legend,
    line,
    polyline,
    scale_note,
    stroke_key,
    swatch,
    tip,
    value_scale,
    x_axis,
    y_axis,
)
from ..units import share_text, time_text

MOST_BOXES = 16
MOST_PANELS = 12
COLOUR = {"network": "observed", "application": "application", "simulated": "simulated"}
WORDS = {"network": "network latency", "application": "application latency", "simulated": "simulated network latency"}


def quantile(values: tuple[float, ...], share: float) -> float:
    """The quantile of a list of equally spaced quantiles, interpolated."""
    position = share * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


def _with_distribution(run: Run, most: int) -> list[Flow]:
    return [flow for flow in critical(run.flows) if any(flow.quantiles.values())][:most]


def _present(flows: list[Flow]) -> list[str]:
    return [kind for kind in DISTRIBUTIONS if any(flow.quantiles[kind] for flow in flows)]


def _foot(flows: list[Flow], run: Run, scale: Scale | None) -> list[str]:
    words = [f"Latency, {scale_note(scale)}."] if scale else []
    every = sum(1 for flow in run.flows if any(flow.quantiles.values()))
    if every > len(flows):
        words.append(f"The {len(flows)} most critical of {every} flows with a distribution.")
    return words


def boxes(run: Run, width: float) -> Markup | None:
    """Box plots: whiskers from minimum to maximum, box from p25 to p75, median, tick at p99."""
    flows = _with_distribution(run, MOST_BOXES)
    if not flows:
        return None
    kinds = _present(flows)
    narrow = width < 600
    left, right = (8.0, width - 12) if narrow else (min(250.0, width * 0.26), width - 16)
    key, key_height = legend([(WORDS[kind], swatch(COLOUR[kind])) for kind in kinds], 8, 8, width - 16)
    top, pitch = key_height + 10, 17.0
    heights = [sum(1 for kind in kinds if f.quantiles[kind]) * pitch + (28 if narrow else 12) for f in flows]
    bottom = top + sum(heights)
    scale = value_scale((v for f in flows for kind in kinds for v in f.quantiles[kind]), left, right, room=0.02)
    foot = ["Line from minimum to maximum, box p25 to p75, white line p50, tick p99.", *_foot(flows, run, scale)]
    small, small_height = footer(foot, 8, bottom + 38, width - 16)
    canvas = Canvas(
        "boxes",
        width,
        bottom + 40 + small_height,
        "Latency distributions as box plots",
        f"{len(flows)} flows. {' '.join(foot)}",
    )
    canvas.add(key, x_axis(scale, top, bottom, time_text, most=4 if narrow else 8))
    y = top
    for flow, height in zip(flows, heights, strict=True):
        canvas.add(line(8, y, right, y))
        named = label(8, y + 15, fit(flow.name, (right if narrow else left) - 16, 12), bold=True)
        canvas.add(named)
        row = y + (22 if narrow else 6)
        for kind in kinds:
            if flow.quantiles[kind]:
                canvas.add(_box(flow, kind, scale, row))
                row += pitch
        y += height
    canvas.add(small)
    return canvas.render()


def _box(flow: Flow, kind: str, scale: Scale, y: float) -> Markup:
    values = flow.quantiles[kind]
    points = {
        name: quantile(values, share)
        for name, share in (("min", 0), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p99", 0.99), ("max", 1))
    }
    at = {name: scale(value) for name, value in points.items()}
    colour, middle = COLOUR[kind], y + 6
    box = el("rect", x=at["p25"], y=y, width=max(at["p75"] - at["p25"], 2.0), height=12.0, rx=1.5, **paint(fill=colour))
    words = ", ".join(f"{name} {time_text(value, 4)}" for name, value in points.items())
    return tip(
        f"{flow.name}, {WORDS[kind]}: {words}",
        line(at["min"], middle, at["max"], middle, colour, width=1.5),
        line(at["min"], y + 3, at["min"], y + 9, colour, width=1.5),
        line(at["max"], y + 3, at["max"], y + 9, colour, width=1.5),
        line(at["p99"], y + 1, at["p99"], y + 11, colour, width=2),
        box,
        line(at["p50"], y, at["p50"], y + 12, "ground", width=2),
    )


def cdf(run: Run, width: float) -> Markup | None:
    """Cumulative distributions, one panel per flow; dashed lines at the bound and the deadline where they are in view."""
    flows = _with_distribution(run, MOST_PANELS)
    if not flows:
        return None
    kinds = _present(flows)
    narrow = width < 600
    columns = 1 if narrow else min(3, len(flows)) if len(flows) != 4 else 2
    entries = [(WORDS[kind], stroke_key(COLOUR[kind])) for kind in kinds]
    entries += [("bound", stroke_key("bound", "4 3", 1.5)), ("deadline", stroke_key("deadline", "1 3", 2))]
    key, key_height = legend(entries, 8, 8, width - 16)
    rows = -(-len(flows) // columns)
    wide, tall = (width - 16) / columns, 172.0
    top = key_height + 10
    foot = [
        "Share of messages at or under a latency. Each panel has its own scale, linear from zero unless it says otherwise.",
        *_foot(flows, run, None),
    ]
    small, small_height = footer(foot, 8, top + rows * tall + 16, width - 16)
    canvas = Canvas(
        "cdf",
        width,
        top + rows * tall + 18 + small_height,
        "Latency distributions as cumulative shares",
        f"{len(flows)} panels, one for each flow. {' '.join(foot)}",
    )
    canvas.add(key)
    for index, flow in enumerate(flows):
        canvas.add(_panel(flow, kinds, 8 + index % columns * wide, top + index // columns * tall, wide, tall))
    canvas.add(small)
    return canvas.render()


def _panel(flow: Flow, kinds: list[str], x: float, y: float, wide: float, tall: float) -> Markup:
    left, right, top, bottom = x + 44, x + wide - 18, y + 24, y + tall - 30
    values = [v for kind in kinds for v in flow.quantiles[kind]]
    limits = [v for v in (flow.bound, flow.deadline) if v is not None and v <= 4 * max(values)]
    scale = value_scale([*values, *limits], left, right)
    shares = Scale(0, 1, bottom, top)
    parts = [label(x, y + 14, fit(flow.name + (" (logarithmic)" if scale.log else ""), wide - 12, 12), bold=True)]
    parts.append(x_axis(scale, top, bottom, time_text, most=4))
    parts.append(y_axis(shares, left, right, share_text, most=4))
    for value, colour, dash in ((flow.bound, "bound", "4 3"), (flow.deadline, "deadline", "1 3")):
        if value is not None and value in limits:
            parts.append(line(scale(value), top, scale(value), bottom, colour, width=1.5, dash=dash))
    for kind in kinds:
        found = flow.quantiles[kind]
        if found:
            steps = [(scale(value), shares(i / (len(found) - 1))) for i, value in enumerate(found)]
            parts.append(
                tip(f"{flow.name}, {WORDS[kind]}", polyline([(steps[0][0], bottom), *steps], COLOUR[kind], width=2))
            )
    return join(parts)
