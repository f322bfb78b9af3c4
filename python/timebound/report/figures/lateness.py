"""The emulator's own lateness: how long after its virtual departure a frame really left."""

from __future__ import annotations

from ..markup import Markup, el, join
from ..palette import paint
from ..run import Run, figure, mapping
from ..svg import Canvas, label, line, scale_note, tip, value_scale, x_axis
from ..units import time_text

POINTS = (
    ("p50", "p50", "half of the frames"),
    ("p99", "p99", "1 in 100"),
    ("p999", "p99.9", "1 in 1000"),
    ("max", "max", "the latest"),
)


def lateness(run: Run, width: float) -> Markup | None:
    """The quantiles of the lateness as points on one scale, or nothing when nothing was emulated."""
    raw = mapping(run.precision.get("lateness_us"))
    found = [(words, meaning, value) for key, words, meaning in POINTS if (value := figure(raw.get(key))) is not None]
    if not found:
        return None
    narrow = width < 600
    left, right = (96.0 if narrow else 170.0), width - 84
    scale = value_scale([value for _, _, value in found], left, right)
    top, pitch = 12.0, 26.0
    bottom = top + pitch * len(found)
    canvas = Canvas(
        "lateness",
        width,
        bottom + 44,
        "Lateness of the emulator",
        "; ".join(f"{words} {time_text(value)}" for words, _, value in found),
    )
    canvas.add(x_axis(scale, top, bottom, time_text, most=4 if narrow else 7))
    for index, (words, meaning, value) in enumerate(found):
        y = top + pitch * (index + 0.5)
        named = [
            label(8, y + 4, words, bold=True),
            None if narrow else label(62, y + 4, meaning, size=11, colour="muted"),
        ]
        dot = el("circle", cx=scale(value), cy=y, r=5, **paint(fill="observed"))
        shown = label(scale(value) + 10, y + 4, time_text(value), size=11, halo=True)
        bar = line(left, y, scale(value), y, "observed", width=2)
        canvas.add(join(named), tip(f"{words}: {time_text(value, 4)}", bar, dot, shown))
    canvas.add(label(8, bottom + 36, f"Lateness, {scale_note(scale)}.", size=11, colour="muted"))
    return canvas.render()
