"""What happened when: latency of flows and load of links over the run, with disturbances marked."""

from __future__ import annotations

from collections.abc import Sequence

from ..markup import Markup, el, join
from ..palette import paint
from ..ranking import critical
from ..run import Flow, Run
from ..svg import (
    Canvas,
    Scale,
    fit,
    label,
    legend,
    line,
    polyline,
    stroke_key,
    text_width,
    tip,
    value_scale,
    x_axis,
    y_axis,
)
from ..units import share_text, time_text

MOST_FLOWS = 8
MOST_LINKS = 20
MOST_CELLS = 120


def _time_scale(run: Run, left: float, right: float) -> Scale | None:
    times = [t for t in run.series.time if t is not None]
    if len(times) < 2:
        return None
    return Scale(min(times), max(times), left, right)


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _marks(run: Run, scale: Scale, top: float, bottom: float) -> Markup:
    parts = []
    for time, words in run.series.marks[:200]:
        if scale.low <= time <= scale.high:
            x = scale(time)
            flag = el("path", d=f"M{x:.1f} {top:.1f}v-7h7l-2 3.5l2 3.5z", **paint(fill="alarm"))
            parts.append(tip(f"{_seconds(time)}: {words}", line(x, top - 7, x, bottom, "alarm", dash="2 2"), flag))
    return join(parts)


def latency(run: Run, width: float) -> Markup | None:
    """p50 and maximum network latency per flow over time, one panel each, with bound and deadline where in view."""
    known = run.series.flows
    every = [flow for flow in critical(run.flows) if flow.key in known]
    flows = every[:MOST_FLOWS]
    narrow = width < 600
    columns = 1 if narrow or len(flows) == 1 else 2
    wide, tall = (width - 16) / columns, 168.0
    if not flows or _time_scale(run, 0, 1) is None:
        return None
    entries = [("p50", stroke_key("observed")), ("maximum", stroke_key("simulated"))]
    entries += [("bound", stroke_key("bound", "4 3", 1.5)), ("deadline", stroke_key("deadline", "1 3", 2))]
    if run.series.marks:
        entries.append(("disturbance or change", stroke_key("alarm", "2 2")))
    key, key_height = legend(entries, 8, 8, width - 16)
    rows = -(-len(flows) // columns)
    top = key_height + 10
    more = f"The {len(flows)} most critical of {len(every)} flows." if len(every) > len(flows) else ""
    title = "Network latency over time"
    canvas = Canvas(
        "series", width, top + rows * tall + (26 if more else 6), title, f"{len(flows)} panels over the run. {more}"
    )
    canvas.add(key)
    for index, flow in enumerate(flows):
        canvas.add(_panel(run, flow, 8 + index % columns * wide, top + index // columns * tall, wide, tall))
    if more:
        canvas.add(label(8, top + rows * tall + 16, more, size=11, colour="muted"))
    return canvas.render()


def _panel(run: Run, flow: Flow, x: float, y: float, wide: float, tall: float) -> Markup:
    left, right, top, bottom = x + 62, x + wide - 18, y + 30, y + tall - 30
    time = _time_scale(run, left, right)
    median, worst = run.series.flows[flow.key]
    values = [v for v in (*median, *worst) if v is not None]
    highest = max(values, default=0.0)
    limits = [v for v in (flow.bound, flow.deadline) if v is not None and v <= 3 * highest]
    scale = value_scale([*values, *limits], bottom, top)
    parts = [label(x, y + 14, fit(flow.name + (" (logarithmic)" if scale.log else ""), wide - 12, 12), bold=True)]
    if time is None or not values:
        return join([*parts, label(left, (top + bottom) / 2, "nothing was received", size=11, colour="muted")])
    parts += [x_axis(time, top, bottom, _seconds, most=5), y_axis(scale, left, right, time_text)]
    for value, colour, dash in ((flow.bound, "bound", "4 3"), (flow.deadline, "deadline", "1 3")):
        if value is not None and value in limits:
            parts.append(line(left, scale(value), right, scale(value), colour, width=1.5, dash=dash))
    for figures, colour, words in ((worst, "simulated", "maximum"), (median, "observed", "p50")):
        points = [
            (time(t), scale(v)) if t is not None and v is not None else None
            for t, v in zip(run.series.time, figures, strict=False)
        ]
        parts.append(tip(f"{flow.name}: {words} per interval", polyline(points, colour, width=1.8)))
    parts.append(_marks(run, time, top, bottom))
    return join(parts)


def _thinned(values: Sequence[float | None], cells: int) -> list[float | None]:
    """At most `cells` values: the largest of each stretch, so that no peak is lost."""
    if len(values) <= cells:
        return list(values)
    size = -(-len(values) // cells)
    stretches = (values[i : i + size] for i in range(0, len(values), size))
    return [max((v for v in stretch if v is not None), default=None) for stretch in stretches]


def _cell(load: float) -> str:
    for limit, colour in ((0.01, "idle"), (0.25, "load1"), (0.5, "load2"), (0.75, "load3"), (0.995, "load4")):
        if load < limit:
            return colour
    return "alarm"


def links(run: Run, width: float) -> Markup | None:
    """The load of the busiest links over time as a heat map, one row per port, with each row's maximum in words."""
    every = [(name, loads) for name, loads in run.series.links.items() if any(v is not None for v in loads)]
    every.sort(key=lambda entry: (-max(v for v in entry[1] if v is not None), entry[0]))
    chosen = every[:MOST_LINKS]
    narrow = width < 600
    longest = max((text_width(_arrow(name), 11) for name, _ in chosen), default=0.0)
    left, right = min(longest + 20, 100.0 if narrow else 220.0), width - 60
    time = _time_scale(run, left, right)
    if not chosen or time is None:
        return None
    entries = [(words, stroke_key(colour, width=9)) for words, colour in _SHADES]
    key, key_height = legend(entries, 8, 8, width - 16, 11.5)
    top, pitch = key_height + 22, 20.0
    bottom = top + pitch * len(chosen)
    more = f"The {len(chosen)} busiest of {len(every)} links." if len(every) > len(chosen) else ""
    title = "Load of the links over time"
    canvas = Canvas("links", width, bottom + (48 if more else 30), title, f"{len(chosen)} links, shade by load. {more}")
    canvas.add(key, x_axis(time, top, bottom, _seconds, most=4 if narrow else 8))
    for index, (name, loads) in enumerate(chosen):
        canvas.add(_row(name, loads, left, right, top + index * pitch, pitch))
    canvas.add(label(right + 6, top - 5, "max", size=11, colour="muted"), _marks(run, time, top, bottom))
    if more:
        canvas.add(label(8, bottom + 38, more, size=11, colour="muted"))
    return canvas.render()


_SHADES = (
    ("under 1 %", "idle"),
    ("1 to 25 %", "load1"),
    ("25 to 50 %", "load2"),
    ("50 to 75 %", "load3"),
    ("75 % and more", "load4"),
    ("full", "alarm"),
)


def _row(name: str, loads: Sequence[float | None], left: float, right: float, y: float, pitch: float) -> Markup:
    cells = _thinned(loads, MOST_CELLS)
    step = (right - left) / len(cells)
    shapes: list[Markup] = []
    start = 0
    # Neighbours of one shade become one rectangle: most rows are long stretches of one colour.
    for index in range(1, len(cells) + 1):
        if index < len(cells) and _shade(cells[index]) == _shade(cells[start]):
            continue
        colour = _shade(cells[start])
        if colour is not None:
            box = {"x": left + start * step, "y": y + 2, "width": (index - start) * step, "height": pitch - 4}
            shapes.append(el("rect", **box, **paint(fill=colour)))
        start = index
    highest = max(v for v in loads if v is not None)
    named = label(left - 6, y + pitch * 0.68, fit(_arrow(name), left - 14, 11), size=11, anchor="end")
    worst = label(right + 6, y + pitch * 0.68, share_text(highest), size=11)
    return tip(f"{name}: at most {share_text(highest)}", named, *shapes, worst)


def _arrow(name: str) -> str:
    return name.replace("->", " → ")


def _shade(load: float | None) -> str | None:
    return None if load is None else _cell(load)
