"""What bounds are made of: one stacked bar per hop, each beginning where the hop before ended, and one for the whole way."""

from __future__ import annotations

from ..explained import KINDS, WORDS, Explained, Stage
from ..markup import Markup, el, join
from ..palette import paint
from ..run import Run
from ..svg import Canvas, Scale, fit, footer, label, legend, line, swatch, text_width, tip
from ..units import time_text

COLOUR = {
    "jitter": "application",
    "blocking": "idle",
    "higher": "simulated",
    "same": "observed",
    "own": "ink",
    "service": "alarm",
    "link": "host",
    "broker": "broker",
}
PITCH = 20.0
BAR = 14.0
HEAD = 30.0
ROOM = 78.0
"""Pixels for the figure behind the longest bar."""


def explained(run: Run, width: float) -> Markup | None:
    """The flows with the least slack; every flow has a scale of its own, as parts of one are compared with each other."""
    ways = [way for way in run.explained if way.total > 0]
    if not ways:
        return None
    narrow = width < 600
    used = [kind for kind in KINDS if any(kind == name for way in ways for s in way.stages for name, _ in s.parts)]
    key, key_height = legend([(WORDS[kind], swatch(COLOUR[kind])) for kind in used], 8, 8, width - 16)
    left, right = (92.0, width - 8) if narrow else (min(230.0, width * 0.25), width - 16)
    y = key_height + 14
    drawn: list[Markup] = []
    for way in ways:
        drawn.append(_way(way, y, left, right))
        y += HEAD + PITCH * (len(way.stages) + 1) + 8
    foot = [
        "Linear scale from zero, one for each flow. A bar begins where the one above it ends. What is over when the frame arrives, "
        "frames that cannot have come yet over their link, and what ports before have counted are left out of the parts that they belong to.",
    ]
    small, small_height = footer(foot, 8, y + 10, width - 16)
    title = "What the bounds are made of, hop by hop"
    canvas = Canvas("explained", width, y + 12 + small_height, title, f"Stacked bars for {len(ways)} flows. {foot[0]}")
    canvas.add(key, *drawn, small)
    return canvas.render()


def _way(way: Explained, y: float, left: float, right: float) -> Markup:
    beyond = way.deadline is not None and way.deadline > 1.6 * way.total
    high = way.total if way.deadline is None or beyond else max(way.total, way.deadline)
    scale = Scale(0.0, high / (1 - ROOM / (right - left)), left, right)
    told = f"bound {time_text(way.total, 4)} from the nominal release"
    if way.deadline is not None:
        told += f", deadline {time_text(way.deadline, 4)}"
        told += f" (slack {time_text(way.deadline - way.total)})"
    heading = fit(way.name, min(text_width(way.name, 12.5) + 2, (right - 16) * 0.55), 12.5)
    after = 8 + text_width(heading, 12.5) + 12
    parts: list[Markup] = [line(8, y, right, y), label(8, y + 19, heading, size=12.5, bold=True)]
    parts.append(label(after, y + 19, fit(told, right - after, 11), size=11, colour="muted"))
    top = y + HEAD
    whole: dict[str, float] = {}
    for stage in way.stages:
        for kind, us in stage.parts:
            whole[kind] = whole.get(kind, 0.0) + us
    sums = tuple((kind, whole[kind]) for kind in KINDS if kind in whole)
    if way.deadline is not None and not beyond:
        x = scale(way.deadline)
        bottom = top + PITCH * (len(way.stages) + 1)
        marker = el("path", d=f"M{x - 4.5:.1f} {top - 7:.1f}h9l-4.5 6z", **paint(fill="deadline"))
        parts.append(
            tip(f"deadline {time_text(way.deadline, 4)}", line(x, top - 3, x, bottom, "deadline", width=1.5), marker)
        )
    parts.append(_stage(Stage("whole way", sums, ""), scale, top, 0.0, left, bold=True))
    begin = 0.0
    for place, stage in enumerate(way.stages, 1):
        parts.append(_stage(stage, scale, top + PITCH * place, begin, left))
        begin += stage.total
    return join(parts)


def _stage(stage: Stage, scale: Scale, y: float, begin: float, left: float, *, bold: bool = False) -> Markup:
    shapes: list[Markup] = [label(8, y + 11, fit(stage.name, left - 16, 11), size=11, bold=bold)]
    at = begin
    for kind, us in stage.parts:
        start, end = scale(at), scale(at + us)
        at += us
        shape = el("rect", x=start, y=y, width=max(end - start, 0.6), height=BAR, **paint(fill=COLOUR[kind]))
        edge = line(end, y, end, y + BAR, "ground", width=0.8)
        shown = time_text(us)
        inside = None
        if text_width(shown, 10) + 6 < end - start:
            # Dark words on the one light colour.
            ink = "ink" if kind == "blocking" else "ground"
            inside = label((start + end) / 2, y + 10.5, shown, size=10, anchor="middle", colour=ink)
        words = f"{stage.name}, {WORDS[kind]}: {time_text(us, 4)}" + (f" ({stage.detail})" if stage.detail else "")
        shapes.append(tip(words, shape, edge, inside))
    shapes.append(label(scale(at) + 5, y + 11, time_text(stage.total, 4), size=11, bold=bold, halo=True))
    return join(shapes)
