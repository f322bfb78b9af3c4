"""The emulator's own lateness: how long after its virtual departure a frame really left."""

from __future__ import annotations

from ..details import Lateness
from ..markup import Markup, el, join
from ..palette import paint
from ..run import Run, figure, mapping
from ..svg import (
    Canvas,
    Scale,
    footer,
    label,
    line,
    polyline,
    scale_note,
    text_width,
    tip,
    value_scale,
    x_axis,
    y_axis,
)
from ..units import share_text, time_text

POINTS = (
    ("p50", "p50", "half of the frames"),
    ("p99", "p99", "1 in 100"),
    ("p999", "p99.9", "1 in 1000"),
    ("max", "max", "the latest"),
)
PANEL = 190.0


def lateness(run: Run, width: float) -> Markup | None:
    """The quantiles of the lateness beside its limit; with frames.parquet also its tail and its course over time."""
    raw = mapping(run.precision.get("lateness_us"))
    found = [(words, meaning, value) for key, words, meaning in POINTS if (value := figure(raw.get(key))) is not None]
    if not found:
        return None
    limit = figure(run.precision.get("lateness_limit_us"))
    narrow = width < 600
    left, right = (70.0 if narrow else 170.0), width - 84
    scale = value_scale([*(value for _, _, value in found), limit or 0.0], left, right)
    top, pitch = 26.0, 26.0
    bottom = top + pitch * len(found)
    foot = [f"Lateness, {scale_note(scale)}."]
    if run.lateness is not None:
        foot.append("Below: the share of frames later than a lateness, and the latest frame of each second.")
    small, small_height = footer(foot, 8, bottom + 36, width - 16)
    panels = bottom + 36 + small_height
    detail = _panels(run.lateness, width, panels) if run.lateness is not None else None
    rows = (2 if narrow else 1) if detail is not None else 0
    words = "; ".join(f"{words} {time_text(value)}" for words, _, value in found)
    canvas = Canvas("lateness", width, panels + rows * PANEL, "Lateness of the emulator", words)
    canvas.add(x_axis(scale, top, bottom, time_text, most=4 if narrow else 7))
    for index, (name, meaning, value) in enumerate(found):
        canvas.add(_point(scale, name, "" if narrow else meaning, value, top + pitch * (index + 0.5)))
    if limit is not None:
        x, said = scale(limit), f"limit for p99: {time_text(limit)}"
        start = min(x - text_width(said, 11) / 2, width - text_width(said, 11) - 4)
        canvas.add(line(x, top - 6, x, bottom, "alarm", width=1.5, dash="4 3"))
        canvas.add(label(max(4.0, start), top - 11, said, size=11, colour="alarm"))
    canvas.add(small)
    if detail is not None:
        canvas.add(detail)
    return canvas.render()


def _point(scale: Scale, name: str, meaning: str, value: float, y: float) -> Markup:
    named = [label(8, y + 4, name, bold=True), label(62, y + 4, meaning, size=11, colour="muted") if meaning else None]
    dot = el("circle", cx=scale(value), cy=y, r=5, **paint(fill="observed"))
    shown = label(scale(value) + 10, y + 4, time_text(value), size=11, halo=True)
    bar = line(scale.start, y, scale(value), y, "observed", width=2)
    return join([*named, tip(f"{name}: {time_text(value, 4)}", bar, dot, shown)])


def _panels(found: Lateness, width: float, y: float) -> Markup:
    narrow = width < 600
    wide = width - 16 if narrow else (width - 16) / 2
    second = (8.0, y + PANEL) if narrow else (8 + wide, y)
    return join([_tail(found, 8, y, wide), _course(found, *second, wide)])


def _tail(found: Lateness, x: float, y: float, wide: float) -> Markup:
    left, right, top, bottom = x + 62, x + wide - 20, y + 26, y + PANEL - 34
    # Lateness of zero has no place on a logarithmic scale; a tenth of a microsecond is below what anybody can measure here.
    points = [(share, max(value, 0.1)) for share, value in found.tail]
    scale = value_scale([value for _, value in points], left, right)
    shares = Scale(points[-1][0] * 0.999, 1.0, bottom, top, log=True)
    parts = [
        label(x, y + 14, f"Share of frames later ({'logarithmic' if scale.log else 'linear'})", bold=True),
        x_axis(scale, top, bottom, time_text, most=4),
        y_axis(shares, left, right, share_text, most=6),
        polyline([(scale(value), shares(share)) for share, value in points], "observed", width=2),
    ]
    dots = [
        tip(
            f"{share_text(share)} of the frames left {time_text(value, 4)} late or later",
            el("circle", cx=scale(value), cy=shares(share), r=3, **paint(fill="observed")),
        )
        for share, value in points
    ]
    return join([*parts, *dots])


def _course(found: Lateness, x: float, y: float, wide: float) -> Markup:
    left, right, top, bottom = x + 62, x + wide - 20, y + 26, y + PANEL - 34
    scale = value_scale([highest for _, _, highest in found.seconds], bottom, top)
    first, last = found.seconds[0][0], found.seconds[-1][0]
    time = Scale(first, last if last > first else first + 1, left, right)
    return join(
        [
            label(x, y + 14, f"Latest frame of each second ({'logarithmic' if scale.log else 'linear'})", bold=True),
            x_axis(time, top, bottom, lambda value: f"{value:g} s", most=5),
            y_axis(scale, left, right, time_text),
            polyline([(time(second), scale(highest)) for second, _, highest in found.seconds], "observed", width=1.8),
        ]
    )
