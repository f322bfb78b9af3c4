"""A metric over a varied value: lines with their spread where the values are numbers, bars where they are words."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..markup import Markup, el, join
from ..palette import paint
from ..svg import Canvas, Scale, fit, footer, label, legend, line, polyline, swatch, tip, value_scale, x_axis, y_axis

COLOURS = ("observed", "simulated", "host", "broker", "application", "load4")
MOST_LINES = len(COLOURS)


@dataclass(frozen=True, slots=True)
class Course:
    """One line: for each value of the axis what was found there; empty where nothing was."""

    name: str
    found: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn: the values of the axis as words and, where they are numbers, as numbers."""

    name: str
    title: str
    axis: str
    words: tuple[str, ...]
    numbers: tuple[float, ...] | None
    courses: tuple[Course, ...]
    show: Callable[[float], str]
    footnote: str


def draw(picture: Picture, width: float) -> Markup | None:
    """The figure, `width` pixels wide; None where nothing was found."""
    if not any(group for course in picture.courses for group in course.found):
        return None
    return _bars(picture, width) if picture.numbers is None else _lines(picture, picture.numbers, width)


def _scale(picture: Picture, start: float, end: float, room: float = 0.0) -> Scale:
    values = [value for course in picture.courses for group in course.found for value in group]
    if min(values) == 0 < max(values):
        # Nothing lies at zero on a logarithmic scale.
        return Scale(0.0, max(values) / (1 - room) * 1.02, start, end)
    if min(values) >= 0:
        return value_scale(values, start, end, room=room)
    # Margins may be negative: linear, with zero in view.
    low, high = min(*values, 0.0), max(*values, 0.0)
    pad = (high - low) * 0.05 or 1.0
    return Scale(low - pad, high + pad, start, end)


def _key(picture: Picture, width: float) -> tuple[Markup, float]:
    if len(picture.courses) < 2:
        return Markup(""), 0.0
    entries = [(course.name, swatch(COLOURS[i])) for i, course in enumerate(picture.courses)]
    return legend(entries, 8, 8, width - 16)


def _lines(picture: Picture, numbers: Sequence[float], width: float) -> Markup:
    key, key_height = _key(picture, width)
    left, right, top = 84.0, width - 26, key_height + 18
    bottom = top + (190.0 if width >= 600 else 150.0)
    scale = _scale(picture, bottom, top)
    across = Scale(min(numbers), max(numbers), left + 14, right - 14)
    small, small_height = footer([f"Over {picture.axis}. {picture.footnote}"], 8, bottom + 36, width - 16)
    canvas = Canvas(picture.name, width, bottom + 38 + small_height, picture.title, picture.footnote)
    words = dict(zip(numbers, picture.words, strict=True))
    # The values that were varied are the ticks: no others were computed.
    free, ticks = 0.0, []
    for number in sorted(numbers):
        x = across(number)
        ticks.append(line(x, top, x, bottom))
        shown = fit(words[number], 90, 11)
        if x - 4.0 * len(shown) > free:
            ticks.append(label(x, bottom + 15, shown, size=11, anchor="middle", colour="muted"))
            free = x + 4.0 * len(shown)
    canvas.add(key, join(ticks), y_axis(scale, left, right, picture.show), small)
    for course, colour in zip(picture.courses, COLOURS, strict=False):
        canvas.add(_course(course, numbers, words, across, scale, colour, picture))
    return canvas.render()


def _course(
    course: Course,
    numbers: Sequence[float],
    words: Mapping[float, str],
    across: Scale,
    scale: Scale,
    colour: str,
    picture: Picture,
) -> Markup:
    there = sorted((number, group) for number, group in zip(numbers, course.found, strict=True) if group)
    band = [(across(n), scale(max(g))) for n, g in there] + [(across(n), scale(min(g))) for n, g in reversed(there)]
    area = None
    if len(there) > 1 and any(len(set(group)) > 1 for _, group in there):
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in band) + "Z"
        area = el("path", d=path, fill_opacity=0.18, **paint(fill=colour))
    dots = []
    for number, group in there:
        middle = statistics.median(group)
        spread = (
            f", {picture.show(min(group))} to {picture.show(max(group))} in {len(group)} points"
            if len(group) > 1
            else ""
        )
        dot = el("circle", cx=across(number), cy=scale(middle), r=3.2, **paint(fill=colour))
        whisker = line(across(number), scale(min(group)), across(number), scale(max(group)), colour, width=1.2)
        dots.append(tip(f"{course.name or picture.axis} {words[number]}: {picture.show(middle)}{spread}", whisker, dot))
    middle_line = polyline([(across(n), scale(statistics.median(g))) for n, g in there], colour, width=1.8)
    return join([area, middle_line, *dots])


def _bars(picture: Picture, width: float) -> Markup:
    key, key_height = _key(picture, width)
    narrow = width < 600
    left, right, top = (8.0, width - 70) if narrow else (min(220.0, width * 0.26), width - 90), key_height + 14, 0.0
    (low, high), start = left, right
    pitch = 16.0
    tall = pitch * len(picture.courses) + (22.0 if narrow else 10.0)
    end = start + tall * len(picture.words)
    scale = _scale(picture, low, high)
    small, small_height = footer([f"Over {picture.axis}. {picture.footnote}"], 8, end + 36, width - 16)
    canvas = Canvas(picture.name, width, end + 38 + small_height + top, picture.title, picture.footnote)
    canvas.add(key, x_axis(scale, start, end, picture.show, most=4 if narrow else 7), small)
    zero = scale(max(scale.low, 0.0)) if not scale.log else low
    for index, word in enumerate(picture.words):
        y = start + index * tall
        canvas.add(line(8, y, high, y), label(8, y + 14, fit(word, (high if narrow else low) - 16, 12), bold=True))
        first = y + (20.0 if narrow else 4.0)
        for number, (course, colour) in enumerate(zip(picture.courses, COLOURS, strict=False)):
            if group := course.found[index]:
                canvas.add(
                    _bar(picture, f"{course.name} {word}".strip(), group, colour, scale, zero, first + number * pitch)
                )
    return canvas.render()


def _bar(
    picture: Picture, name: str, group: tuple[float, ...], colour: str, scale: Scale, zero: float, y: float
) -> Markup:
    middle = statistics.median(group)
    x, least, most = scale(middle), scale(min(group)), scale(max(group))
    shape = el("rect", x=min(zero, x), y=y, width=max(abs(x - zero), 1.0), height=12.0, rx=1.5, **paint(fill=colour))
    whisker = line(least, y + 6, most, y + 6, "ink", width=1.4) if most > least else None
    spread = (
        f", {picture.show(min(group))} to {picture.show(max(group))} in {len(group)} points" if len(group) > 1 else ""
    )
    words = label(max(x, most) + 5, y + 10, picture.show(middle), size=11, halo=True)
    return tip(f"{name}: {picture.show(middle)}{spread}", shape, whisker, words)
