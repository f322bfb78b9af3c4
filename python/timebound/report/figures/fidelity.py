"""The certificate over time: how late frames left, when the data plane was held up, and which stretches were beyond a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..markup import Markup, el, join
from ..palette import paint
from ..run import Run, figure, items, mapping, text
from ..svg import Canvas, Scale, footer, legend, line, polyline, scale_note, stroke_key, tip, value_scale, x_axis
from ..svg import y_axis as value_axis
from ..units import time_text

LINES = (
    ("p50_us", "p50", "host", None),
    ("p99_us", "p99", "observed", None),
    ("max_us", "latest frame", "application", "1 2"),
    ("overrun_us", "data plane held up (longest)", "simulated", "5 3"),
)
"""Key in the series, its words, colour and dash."""
KINDS = {
    "lateness": "p99 beyond its limit",
    "late-frames": "late frames",
    "overrun": "data plane held up",
    "steal": "CPU time stolen",
    "ring": "frames lost in the ring",
    "early": "frames early",
    "refused": "frames refused",
    "clock": "wall clock set",
}
LEAST = 0.1
"""A lateness of zero has no place on a logarithmic scale; microseconds."""
HEIGHT = 210.0


def fidelity(run: Run, width: float) -> Markup | None:
    """p50, p99 and greatest lateness and the longest overrun of each window, the limit, and the disturbed stretches shaded."""
    series = mapping(run.precision.get("series"))
    times = [figure(value) for value in _list(series.get("time_s"))]
    courses = {key: [figure(value) for value in _list(series.get(key))] for key, *_ in LINES}
    known = [value for course in courses.values() for value in course if value is not None]
    if len(times) < 2 or None in times or not known or any(len(c) != len(times) for c in courses.values()):
        return None
    at = [value for value in times if value is not None]
    limit = figure(run.precision.get("lateness_limit_us"))
    narrow = width < 600
    left, right, top = 62.0, width - 20, 30.0
    bottom = top + HEIGHT
    scale = value_scale([max(value, LEAST) for value in [*known, *([limit] if limit else [])]], bottom, top)
    time = Scale(min(at), max(at) + (at[1] - at[0]), left, right)
    keys = [(words, stroke_key(colour, dash)) for _, words, colour, dash in LINES]
    if limit is not None:
        keys.append((f"limit for p99, {time_text(limit)}", stroke_key("alarm", "4 3", 1.5)))
    key, key_height = legend(keys, left, bottom + 34, right - left)
    periods = items(run.precision.get("periods"))
    foot = [f"Time since the start of the run, warm-up included. {scale_note(scale).capitalize()}."]
    if periods:
        foot.append("Shaded: stretches in which something was beyond a limit of one window; point at one to read what.")
    small, small_height = footer(foot, left, bottom + 34 + key_height + 12, right - left)
    height = bottom + 34 + key_height + 12 + small_height
    words = f"{text(run.precision.get('verdict'))}; {len(periods)} stretches beyond a limit"
    canvas = Canvas("fidelity", width, height, "Lateness of the emulator over the run", words)
    canvas.add(x_axis(time, top, bottom, lambda value: f"{value:g} s", most=4 if narrow else 9))
    canvas.add(value_axis(scale, left, right, time_text))
    canvas.add(*(_shade(period, time, top, bottom) for period in periods))
    for key_, _, colour, dash in LINES:
        points = _points(at, courses[key_], time, scale)
        canvas.add(polyline(points, colour, width=1.8 if key_ == "p99_us" else 1.3, dash=dash))
    if limit is not None:
        canvas.add(line(left, scale(limit), right, scale(limit), "alarm", width=1.5, dash="4 3"))
    canvas.add(key, small)
    return canvas.render()


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _points(
    at: Sequence[float], course: Sequence[float | None], time: Scale, scale: Scale
) -> list[tuple[float, float] | None]:
    return [
        None if value is None else (time(moment), scale(max(value, LEAST)))
        for moment, value in zip(at, course, strict=True)
    ]


def _shade(period: Mapping[str, Any], time: Scale, top: float, bottom: float) -> Markup:
    start, end = figure(period.get("from_s")), figure(period.get("to_s"))
    if start is None or end is None or end < time.low or start > time.high:
        return join([])
    kinds = ", ".join(KINDS.get(text(kind), text(kind)) for kind in _list(period.get("kinds")))
    late, held = figure(period.get("lateness_us")), figure(period.get("overrun_us"))
    said = [f"{start:.3f} to {end:.3f} s: {kinds}"]
    said += [f"latest frame {time_text(late)}"] if late else []
    said += [f"held up for {time_text(held)}"] if held else []
    x = time(start)
    box = el(
        "rect", x=x, y=top, width=max(2.5, time(end) - x), height=bottom - top, fill_opacity=0.18, **paint(fill="alarm")
    )
    flag = el("path", d=f"M{x:.1f} {top:.1f}v-8h8l-2 4l2 4z", **paint(fill="alarm"))
    return tip("; ".join(said), box, flag)
