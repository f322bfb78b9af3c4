"""A small SVG generator: canvas, text that is measured and cut to fit, scales with round ticks, axes. Knows nothing about runs."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .markup import Markup, clean, el, join
from .palette import paint

# Named fonts as well as generic ones: resvg knows what is installed, but not which of it is the desktop's.
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Noto Sans', 'Liberation Sans', Ubuntu, "
    "Cantarell, 'DejaVu Sans', FreeSans, sans-serif"
)


def text_width(text: str, size: float) -> float:
    """An upper estimate of the width of the text in pixels: which font draws it is not known."""
    units = 0.0
    for letter in text:
        if unicodedata.east_asian_width(letter) in "WF":
            units += 1.05
        elif letter in "iljtfrI.,:;'|!()[]/- ":
            units += 0.42
        elif letter in "mwMW%@→<>=+&~#…�":
            units += 0.95
        elif letter.isupper():
            units += 0.77
        elif letter.isascii():
            units += 0.66
        else:
            units += 0.9
    return units * size


def fit(text: str, width: float, size: float) -> str:
    """The text, cut in its middle where it is wider than `width` pixels: names differ at both ends."""
    text = clean(text)
    if text_width(text, size) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if text_width(_cut(text, kept), size) <= width:
            low = kept
        else:
            high = kept - 1
    return _cut(text, low)


def fit_start(text: str, width: float, size: float) -> str:
    """The text, cut at its end where it is wider than `width` pixels: for sentences."""
    text = clean(text)
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, width: float, size: float) -> list[str]:
    """The text in lines of at most `width` pixels, broken between words."""
    lines: list[str] = []
    for word in clean(text).split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(fit(word, width, size))
    return lines


def _cut(text: str, kept: int) -> str:
    tail = kept // 3
    return text[: kept - tail] + "…" + (text[-tail:] if tail else "")


def label(
    x: float,
    y: float,
    text: object,
    *,
    size: float = 12,
    anchor: str = "start",
    colour: str = "ink",
    bold: bool = False,
    halo: bool = False,
) -> Markup:
    """Text at a baseline. `halo` draws the ground behind it, for text that lies on lines."""
    attributes = paint(fill=colour, stroke="ground" if halo else None)
    return el(
        "text",
        text,
        x=float(x),
        y=float(y),
        font_size=size,
        text_anchor=anchor if anchor != "start" else None,
        font_weight=600 if bold else None,
        paint_order="stroke" if halo else None,
        stroke_width=3 if halo else None,
        stroke_linejoin="round" if halo else None,
        **attributes,
    )


def tip(text: str, *children: object) -> Markup:
    """A group that says more when it is pointed at (and to a screen reader)."""
    return el("g", el("title", text), *children, class_="m")


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels. `log` scales clamp what is at or below zero to their low end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        share = (value - low) / (high - low) if high > low else 0.0
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the scale, at most about `most` of them."""
        return _log_ticks(self.low, self.high, most) if self.log else _linear_ticks(self.low, self.high, most)


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    # Steps that a float cannot tell apart, or hold, are none.
    if not 1e-290 < high - low < 1e290:
        return [low]
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.9999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return list(dict.fromkeys(index * step for index in range(first, last + 1)))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    exponents = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**e for e in exponents for f in factors if low * 0.9999 <= f * 10.0**e <= high * 1.0001]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


# Smaller and larger figures are drawn at the end of a scale: powers of ten around them have to be floats, too.
LEAST, MOST = 1e-15, 1e30

# Above this ratio of the largest to the smallest value, short bars on a linear scale can no longer be told apart.
LOG_RATIO = 40.0


def value_scale(values: Iterable[float], start: float, end: float, *, room: float = 0.0) -> Scale:
    """A scale for latencies: linear from zero, or logarithmic where the values span more than `LOG_RATIO`.

    `room` is the share of the width kept free at the far end, for the figures printed behind the bars.
    """
    positive = sorted(min(max(v, LEAST), MOST) for v in values if v > 0)
    if not positive:
        return Scale(0.0, 1.0, start, end)
    low, high = positive[0], positive[-1]
    if high / low > LOG_RATIO:
        low = 10.0 ** math.floor(math.log10(low) - 0.15)
        exponent = math.log10(high / low) / (1 - room)
        return Scale(low, low * 10.0 ** max(exponent, 0.1), start, end, log=True)
    return Scale(0.0, high / (1 - room) * 1.02, start, end)


def scale_note(scale: Scale) -> str:
    return "logarithmic scale: equal steps are equal ratios" if scale.log else "linear scale from zero"


@dataclass(slots=True)
class Canvas:
    """Collects shapes and becomes one SVG document with title and description."""

    name: str
    width: float
    height: float
    title: str
    description: str
    parts: list[Markup] = field(default_factory=list)
    definitions: list[Markup] = field(default_factory=list)

    def add(self, *parts: Markup) -> None:
        self.parts.extend(parts)

    def hatch(self, colour: str) -> str:
        """Declares a hatching in the colour and returns the value for `fill`."""
        identity = f"hatch-{self.name}-{colour}-{self.width:.0f}"
        if not any(f'id="{identity}"' in known for known in self.definitions):
            stroke = el("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5", stroke_width=1.6, **paint(stroke=colour))
            self.definitions.append(
                el("pattern", stroke, id=identity, width=6, height=6, patternUnits="userSpaceOnUse")
            )
        return f"url(#{identity})"

    def render(self) -> Markup:
        identity = f"{self.name}-{self.width:.0f}"
        return el(
            "svg",
            el("title", self.title, id=f"{identity}-title"),
            el("desc", self.description, id=f"{identity}-desc"),
            el("defs", *self.definitions) if self.definitions else None,
            el(
                "rect",
                x=0,
                y=0,
                width=self.width,
                height=self.height,
                **(paint(fill="ground") | {"class_": "f-ground paper"}),
            ),
            *self.parts,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width:.0f} {self.height:.0f}",
            width=f"{self.width:.0f}",
            height=f"{self.height:.0f}",
            font_family=FONT,
            role="img",
            aria_labelledby=f"{identity}-title {identity}-desc",
        )


def line(
    x1: float, y1: float, x2: float, y2: float, colour: str = "grid", *, width: float = 1, dash: str | None = None
) -> Markup:
    return el(
        "line",
        x1=float(x1),
        y1=float(y1),
        x2=float(x2),
        y2=float(y2),
        stroke_width=width,
        stroke_dasharray=dash,
        **paint(stroke=colour),
    )


def x_axis(
    scale: Scale, top: float, bottom: float, show: Callable[[float], str], *, most: int = 6, size: float = 11
) -> Markup:
    """Vertical grid lines with their values below `bottom`; values that would touch are left out."""
    parts: list[Markup] = []
    free = 1.0
    for tick in scale.ticks(most):
        x, shown = scale(tick), show(tick)
        half = text_width(shown, size) / 2
        parts.append(line(x, top, x, bottom))
        # A value at the very edge of the figure moves inwards.
        x = half + 2 if x < half + 2 and free == 1.0 else x
        if x - half > free:
            parts.append(label(x, bottom + size + 4, shown, size=size, anchor="middle", colour="muted"))
            free = x + half + 6
    return join(parts)


def y_axis(
    scale: Scale, left: float, right: float, show: Callable[[float], str], *, most: int = 4, size: float = 11
) -> Markup:
    """Horizontal grid lines with their values left of `left`."""
    parts: list[Markup] = []
    for tick in scale.ticks(most):
        y = scale(tick)
        parts.append(line(left, y, right, y))
        parts.append(label(left - 5, y + size * 0.35, show(tick), size=size, anchor="end", colour="muted"))
    return join(parts)


def polyline(
    points: Iterable[tuple[float, float] | None], colour: str, *, width: float = 1.5, dash: str | None = None
) -> Markup:
    """A line through the points, broken at `None`; a point between two gaps is drawn as a dot."""
    path: list[str] = []
    dots: list[Markup] = []
    piece: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            piece.append(point)
            continue
        if len(piece) == 1:
            dots.append(el("circle", cx=piece[0][0], cy=piece[0][1], r=1.6, **paint(fill=colour)))
        elif piece:
            path.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece))
        piece = []
    shape = el(
        "path",
        d="".join(path),
        stroke_width=width,
        stroke_dasharray=dash,
        stroke_linejoin="round",
        **paint(stroke=colour),
    )
    return join([shape if path else None, *dots])


def footer(words: Iterable[str], x: float, y: float, width: float, size: float = 11) -> tuple[Markup, float]:
    """Small print, wrapped to `width`; `y` is its first baseline. Returns the markup and its height."""
    lines = [line for sentence in words for line in wrap(sentence, width, size)]
    parts = [label(x, y + 15 * index, line, size=size, colour="muted") for index, line in enumerate(lines)]
    return join(parts), 15.0 * len(lines)


def legend(
    entries: list[tuple[str, Callable[[float, float], Markup]]], x: float, y: float, width: float, size: float = 12
) -> tuple[Markup, float]:
    """Keys with their words, wrapped to `width`; each draws itself in a box of 18 x 10 px. Returns the markup and its height."""
    parts: list[Markup] = []
    column, row = x, y
    for words, draw in entries:
        needed = 24 + text_width(words, size) + 14
        if column > x and column + needed > x + width + 14:
            column, row = x, row + size + 8
        parts.append(draw(column, row))
        parts.append(label(column + 24, row + 9.5, words, size=size, colour="muted"))
        column += needed
    return join(parts), row - y + size + 8


def swatch(colour: str, opacity: float | None = None) -> Callable[[float, float], Markup]:
    return lambda x, y: el("rect", x=x, y=y + 1, width=18, height=9, rx=1.5, **paint(fill=colour), fill_opacity=opacity)


def stroke_key(colour: str, dash: str | None = None, width: float = 2) -> Callable[[float, float], Markup]:
    return lambda x, y: line(x, y + 5.5, x + 18, y + 5.5, colour, width=width, dash=dash)
