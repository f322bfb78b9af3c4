"""The main figure: per flow and receiver what was observed, simulated and promised, beside the deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..markup import Markup, el, join
from ..palette import paint
from ..ranking import critical, violations_of
from ..run import Flow, Run
from ..svg import (
    Canvas,
    Scale,
    fit,
    fit_start,
    footer,
    label,
    legend,
    line,
    scale_note,
    swatch,
    text_width,
    tip,
    value_scale,
    x_axis,
)
from ..units import time_text

MOST = 24
PITCH = 14.0
BAR = 10.0
APART = 0.45
"""Opacity of the bound from the nominal release beside that from the actual one."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `value` in microseconds, or `missing` words where there is no number. `ticks` are marks
    on the bar, `mark` a letter before its figure, `opacity` tells runs apart."""

    words: str
    value: float | None
    colour: str
    missing: str = ""
    ticks: tuple[tuple[str, float], ...] = ()
    hollow: bool = False
    alarm: bool = False
    mark: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one flow at one receiver."""

    name: str
    note: str
    bars: tuple[Bar, ...]
    deadline: float | None = None
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A bar group figure."""

    name: str
    title: str
    description: str
    groups: Sequence[Group]
    key: list[tuple[str, Callable[[float, float], Markup]]] = field(default_factory=list)
    footnote: str = ""


def draw(plot: Plot, width: float) -> Markup:
    """The figure at the given width: names beside the bars where there is room, above them on a phone."""
    narrow = width < 600
    left = 8.0 if narrow else min(250.0, width * 0.26)
    right = width - 10
    key, key_height = legend(plot.key, 8, 8, width - 16)
    top = key_height + 12
    heights = [_height(group, narrow) for group in plot.groups]
    bottom = top + sum(heights)
    scale = _scale(plot.groups, left, right)
    beyond = any(g.deadline is not None and g.deadline > scale.high for g in plot.groups)
    foot = [
        f"Latency, {scale_note(scale)}." + (" Deadlines beyond it stand at its edge." if beyond else ""),
        *([plot.footnote] if plot.footnote else []),
    ]
    small, small_height = footer(foot, 8, bottom + 38, width - 16)
    canvas = Canvas(plot.name, width, bottom + 40 + small_height, plot.title, f"{plot.description} {foot[0]}")
    canvas.add(key, x_axis(scale, top, bottom, time_text, most=4 if narrow else 8))
    y = top
    for group, height in zip(plot.groups, heights, strict=True):
        canvas.add(_group(canvas, group, scale, y, height, left, narrow))
        y += height
    canvas.add(small)
    return canvas.render()


def _scale(groups: Sequence[Group], left: float, right: float) -> Scale:
    """A scale for the bars. Deadlines widen it only while the bars keep at least a third of the width."""
    bars = [bar.value for group in groups for bar in group.bars if bar.value is not None]
    highest = max(bars, default=0.0)
    deadlines = [g.deadline for g in groups if g.deadline is not None and (not bars or g.deadline <= 3 * highest)]
    return value_scale([*bars, *deadlines], left, right, room=_room(groups, highest) / (right - left))


def _room(groups: Sequence[Group], highest: float) -> float:
    """Pixels kept free at the far end for the figures behind the bars and for deadlines off the scale."""
    off_scale = any(g.deadline is not None and highest and g.deadline > 3 * highest for g in groups)
    return 124.0 if off_scale else 62.0


def _height(group: Group, narrow: bool) -> float:
    bars = len(group.bars) * PITCH
    return bars + 36 if narrow else max(bars, 30) + 14


def _group(canvas: Canvas, group: Group, scale: Scale, y: float, height: float, left: float, narrow: bool) -> Markup:
    parts = [line(8, y, scale.end, y)]
    colour = "alarm" if group.alarm else "ink"
    if narrow:
        note_width = min(text_width(group.note, 11), 170)
        parts.append(label(8, y + 15, fit(group.name, scale.end - 24 - note_width, 12), bold=True, colour=colour))
        parts.append(label(scale.end, y + 15, fit(group.note, note_width, 11), size=11, anchor="end", colour=colour))
        first = y + 27
    else:
        parts.append(label(8, y + 18, fit(group.name, left - 20, 12.5), size=12.5, bold=True, colour=colour))
        parts.append(
            label(8, y + 33, fit(group.note, left - 20, 11), size=11, colour="alarm" if group.alarm else "muted")
        )
        first = y + 7
    drawn = [_bar(canvas, group, bar, scale, first + index * PITCH) for index, bar in enumerate(group.bars)]
    parts += [shape for shape, _ in drawn]
    if group.deadline is not None and group.bars:
        parts.append(_deadline(scale, first, first + len(group.bars) * PITCH, group))
    # Words come last: they have to stay readable where the deadline's line crosses them.
    return join([*parts, *(words for _, words in drawn)])


def _bar(canvas: Canvas, group: Group, bar: Bar, scale: Scale, y: float) -> tuple[Markup, Markup]:
    """The shape of a bar, and its words."""
    heading = f"{group.name}: {bar.words}"
    if bar.value is None:
        shown = fit_start(f"{bar.mark} {bar.missing}".strip(), scale.end - scale.start - 34, 11)
        hatched = paint(stroke="alarm") | {"fill": canvas.hatch("alarm")}
        box = el("rect", x=scale.start, y=y, width=26.0, height=BAR, **hatched)
        words = label(scale.start + 32, y + BAR - 1, shown, size=11, colour="alarm", halo=True)
        return tip(f"{heading}: {bar.missing}", box), words
    end = scale(bar.value)
    colour = "alarm" if bar.alarm else bar.colour
    attributes = paint(stroke=colour) | {"stroke_width": 1.5} if bar.hollow else paint(fill=colour)
    attributes["fill_opacity"] = bar.opacity if bar.opacity < 1 else None
    shape = el("rect", x=scale.start, y=y, width=max(end - scale.start, 1.0), height=BAR, rx=1.5, **attributes)
    marks = [line(scale(v), y + 1, scale(v), y + BAR - 1, "ground", width=1.6) for _, v in bar.ticks]
    shown = f"{bar.mark} {time_text(bar.value)}".strip() + (" !" if bar.alarm else "")
    words = label(end + 5, y + BAR - 1, shown, size=11, colour="alarm" if bar.alarm else "ink", halo=True)
    detail = ", ".join(f"{name} {time_text(v, 4)}" for name, v in bar.ticks)
    exact = f"{heading} {time_text(bar.value, 4)}" + (f" ({detail})" if detail else "")
    return tip(exact, shape, *marks), words


def _deadline(scale: Scale, top: float, bottom: float, group: Group) -> Markup:
    words = f"{group.name}: deadline {time_text(group.deadline, 4)}"
    deadline = group.deadline or 0.0
    if deadline > scale.high:
        # Off the scale: an arrow at the edge, at the shortest bar's height there is most room for its words.
        middle = (top + bottom) / 2
        arrow = el("path", d=f"M{scale.end - 6:.1f} {middle - 5:.1f}v10l7 -5z", **paint(fill="deadline"))
        shown = time_text(deadline)
        return tip(words, label(scale.end - 11, middle + 4, shown, size=11, anchor="end", halo=True), arrow)
    x = scale(deadline)
    marker = el("path", d=f"M{x - 4.5:.1f} {top - 7:.1f}h9l-4.5 6z", **paint(fill="deadline"))
    return tip(words, line(x, top - 4, x, bottom, "deadline", width=1.5), marker)


def deadline_key(x: float, y: float) -> Markup:
    marker = el("path", d=f"M{x + 4.5:.1f} {y:.1f}h9l-4.5 6z", **paint(fill="deadline"))
    return join([line(x + 9, y, x + 9, y + 11, "deadline", width=1.5), marker])


def hollow_key(colour: str) -> Callable[[float, float], Markup]:
    return lambda x, y: el(
        "rect", x=x + 1, y=y + 1, width=16, height=9, rx=1.5, stroke_width=1.5, **paint(stroke=colour)
    )


def flow_group(flow: Flow, violation: str | None, *, measured: bool, simulated: bool) -> Group:
    """The bars of one flow. Bars of verbs that ran for no flow are left out; where one ran but not for this flow, it says so."""
    alarm = flow.verdict == "violated" or violation is not None
    limit = flow.limit
    bars: list[Bar] = []
    network, application = flow.network, flow.application
    if measured and network.max is not None:
        ticks = tuple((name, v) for name, v in (("p50", network.p50), ("p99", network.p99)) if v is not None)
        over = alarm and limit is not None and network.max > limit
        bars.append(Bar("network latency observed, maximum", network.max, "observed", ticks=ticks, alarm=over))
    elif measured and application.max is None:
        bars.append(Bar("observed", None, "observed", "nothing was received"))
    if simulated and flow.simulated is not None:
        over = alarm and limit is not None and flow.simulated > limit
        bars.append(Bar("worst simulated", flow.simulated, "simulated", alarm=over))
    if flow.bound is not None:
        bars.append(Bar("bound", flow.bound, "bound"))
    elif flow.verdict == "unsupported" or flow.reason:
        word = "unsupported" if flow.verdict == "unsupported" else "no finite bound"
        # The reason often ends in the word itself.
        reason = flow.reason.removesuffix(f": {word}")
        bars.append(Bar("bound", None, "bound", f"{word}: {reason}" if reason else word))
    if flow.bound_observed is not None:
        bars.append(Bar("bound for the arrivals observed", flow.bound_observed, "bound", hollow=True))
    if flow.judged_apart and flow.promise is not None:
        bars.append(Bar("bound end to end, from the nominal release", flow.promise, "bound", opacity=APART))
    return Group(flow.name, _note(flow), tuple(bars), flow.deadline, alarm)


def _note(flow: Flow) -> str:
    return flow.verdict if flow.deadline is None else f"{flow.verdict}, deadline {time_text(flow.deadline)}"


def flow_bars(run: Run, width: float) -> Markup | None:
    """The most critical flows as bar groups, or nothing when the run has no flow."""
    chosen = critical(run.flows)[:MOST]
    measured = any(f.network.max is not None or f.application.max is not None for f in run.flows)
    simulated = any(f.simulated is not None for f in run.flows)
    found = violations_of(run)
    groups = [flow_group(f, found.get((f.flow, f.receiver)), measured=measured, simulated=simulated) for f in chosen]
    if not any(group.bars for group in groups):
        return None
    key: list[tuple[str, Callable[[float, float], Markup]]] = []
    if measured:
        key.append(("observed maximum (ticks: p50, p99)", _observed_key))
    if simulated:
        key.append(("worst simulated", swatch("simulated")))
    key.append(("bound", swatch("bound")))
    if any(f.bound_observed is not None for f in chosen):
        key.append(("bound for the arrivals observed", hollow_key("bound")))
    if any(f.judged_apart and f.promise is not None for f in chosen):
        key.append(("bound end to end", swatch("bound", APART)))
    if any(f.deadline is not None for f in chosen):
        key.append(("deadline", deadline_key))
    if any(group.alarm for group in groups):
        key.append(("above its bound (!)", swatch("alarm")))
    more = len(run.flows) - len(chosen)
    footnote = f"The {len(chosen)} most critical of {len(run.flows)} flows; the table has the others." if more else ""
    title = "Network latency of each flow: observed, simulated, bound, deadline"
    description = f"Horizontal bars for {len(chosen)} flows at their receivers."
    return draw(Plot("flows", title, description, groups, key, footnote), width)


def _observed_key(x: float, y: float) -> Markup:
    return join(
        [
            swatch("observed")(x, y),
            line(x + 7, y + 2, x + 7, y + 9, "ground"),
            line(x + 13, y + 2, x + 13, y + 9, "ground"),
        ]
    )
