"""The page of a sweep: what came of each point, which varied values matter, and every metric over every varied value.

Reads the content of `sweep.json` (docs/results.md) and knows nothing of how it came about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .document import document, facts, section
from .figures import NARROW, WIDE
from .figures.sweep import MOST_LINES, Course, Picture, draw
from .markup import Markup, el, join
from .run import ReportError, figure, items, mapping, text
from .tables import Cell, Row, Table, count_cell, share_cell, time_cell, verdict_word
from .units import bytes_text, count_text, share_text, time_text
from .words import SYMBOL, known_verdict
from .write import write_text

MOST_ROWS = 2000
MOST_FIGURES = 60
MOST_WORDS = 60
SEED = "run.seed"
WORDS: Mapping[str, str] = {
    "met": "met",
    "missed": "missed",
    "disturbed": "disturbed",
    "failed": "violated",
    "missing": "unmeasured",
}


def write_sweep(content: Mapping[str, Any], path: Path) -> Path:
    """Writes the page; returns its path. Raises `ReportError`."""
    try:
        write_text(path, render(content))
    except OSError as error:
        raise ReportError(f"the report cannot be written to {path}: {error.strerror or error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"the content of the sweep is damaged: {error!r}") from error
    return path


def render(content: Mapping[str, Any]) -> str:
    """The page as HTML text."""
    counts = mapping(content.get("counts"))
    body = [
        el("a", "Skip to the results", href="#points", class_="skip"),
        _header(content, counts),
        el(
            "main",
            join(
                [_failed(content), _effects(content), _figures(content), _points(content), _flows(content), _meaning()],
                "\n",
            ),
        ),
        el("footer", el("p", "Timebound sweep. Every figure on this page is in sweep.json and sweep.parquet.")),
    ]
    return document(f"{text(content.get('scenario'))}: sweep (Timebound)", body)


def _axes(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return items(content.get("axes"))


def _show(unit: str) -> Callable[[float], str]:
    shows: dict[str, Callable[[float], str]] = {"us": time_text, "share": share_text, "bytes": bytes_text}
    return shows[unit]


def _cell(unit: str, value: float | None, *, bad: bool = False) -> Cell:
    if unit == "us":
        return time_cell(value, bad=bad)
    return share_cell(value, bad=bad) if unit == "share" else Cell(bytes_text(value), value, True)


def _header(content: Mapping[str, Any], counts: Mapping[str, Any]) -> Markup:
    points = items(content.get("points"))
    verdicts: dict[str, int] = {}
    for point in points:
        verdicts[text(point.get("verdict"))] = verdicts.get(text(point.get("verdict")), 0) + 1
    words = ", ".join(
        f"{count_text(n)} {verdict}" for verdict, n in sorted(verdicts.items(), key=lambda v: (-v[1], v[0]))
    )
    well = set(verdicts) <= {"met"}
    state = "met" if well else "violated" if verdicts.get("violated") or counts.get("failed") else "missed"
    title = (
        "Every point meets its requirements"
        if well
        else f"{count_text(verdicts.get('met', 0))} of {count_text(len(points))} points meet their requirements"
    )
    varied = "; ".join(f"{text(axis.get('name'))}: {_steps(axis)}" for axis in _axes(content))
    return el(
        "header",
        el("h1", f"{text(content.get('scenario'))}: sweep"),
        el(
            "div",
            el("strong", f"{SYMBOL[state]} {title}"),
            el("p", f"{words}."),
            class_=f"verdict is-{state}",
            role="status",
        ),
        facts(
            [
                ("Points", count_text(len(points))),
                ("Verb", text(content.get("verb"))),
                ("Varied", varied),
                ("Common settings", ", ".join(f"{k}={v}" for k, v in mapping(content.get("settings")).items())),
                ("Version", text(content.get("timebound"))),
            ]
        ),
    )


def _steps(axis: Mapping[str, Any]) -> str:
    steps = [", ".join(step) if len(step) > 1 else text(step[0]) for step in axis["steps"]]
    shown = ", ".join(f"({s})" if len(axis["paths"]) > 1 else s for s in steps[:12])
    return shown + (f" … {count_text(len(steps))} values" if len(steps) > 12 else "")


def _name(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in mapping(point.get("settings")).items())


def _failed(content: Mapping[str, Any]) -> Markup | None:
    points = items(content.get("points"))
    failed = [p for p in points if p.get("status") == "failed"]
    missing = [p for p in points if p.get("status") == "missing"]
    if not failed and not missing:
        return None
    entries = [
        el("li", el("strong", f"point {p.get('index')} ({_name(p)}): "), text(p.get("failure"))) for p in failed[:100]
    ]
    if missing:
        numbers = ", ".join(text(p.get("index")) for p in missing[:60]) + (" …" if len(missing) > 60 else "")
        entries.append(el("li", f"{count_text(len(missing))} points have no result yet: {numbers}"))
    return section("failed", "Points without all their figures", el("ul", *entries, class_="note is-violated"))


def _effects(content: Mapping[str, Any]) -> Markup | None:
    axes = [text(axis.get("name")) for axis in _axes(content)]
    found = {(text(e.get("metric")), text(e.get("axis"))): e for e in items(content.get("effects"))}
    rows = []
    for metric in items(content.get("metrics")):
        cells = []
        for axis in axes:
            entry = found.get((text(metric.get("name")), axis))
            share = figure(entry.get("share")) if entry else None
            shown: str | Markup = share_text(share)
            if entry and entry.get("matters"):
                shown = el("strong", f"● {shown}")
            cells.append(Cell(shown, share, True))
        rows.append(Row(text(metric.get("title")), cells))
    if not rows:
        return None
    caption = (
        "How much of a metric's variance over all points lies between the values of each varied parameter. "
        "● marks those that matter: a quarter or more, and means that differ by more than 2 %."
    )
    return section(
        "effects", "What matters", Table("effects-table", caption, ("metric", *axes), rows, len(rows)).render()
    )


def _figures(content: Mapping[str, Any]) -> Markup | None:
    axes = _axes(content)
    matters = {(text(e.get("metric")), text(e.get("axis"))) for e in items(content.get("effects")) if e.get("matters")}
    shown: list[tuple[str, list[object]]] = []
    more = 0
    for number, axis in enumerate(axes):
        if text(axis.get("name")) == SEED and len(axes) > 1:
            continue
        parts: list[object] = []
        for metric in items(content.get("metrics")):
            key = (text(metric.get("name")), text(axis.get("name")))
            picture = _picture(content, number, metric, strong=key in matters)
            if picture is None:
                continue
            if len(parts) + sum(len(p) for _, p in shown) >= MOST_FIGURES:
                more += 1
                continue
            wide, narrow = draw(picture, WIDE), draw(picture, NARROW)
            if wide is not None and narrow is not None:
                title = text(metric.get("title"))
                heading = el("h4", f"● {title}" if key in matters else title)
                parts.append(
                    join([heading, el("figure", el("div", wide, class_="wide"), el("div", narrow, class_="narrow"))])
                )
        if parts:
            shown.append((text(axis.get("name")), parts))
    if not shown:
        return None
    note = el("p", f"{more} more figures are left out; sweep.parquet has all values.", class_="note") if more else None
    return section(
        "figures",
        "Metrics over the varied values",
        *(join([el("h3", f"Over {name}"), *parts]) for name, parts in shown),
        note,
    )


def _step(point: Mapping[str, Any], axis: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(text(point["settings"].get(path)) for path in axis["paths"])


def _picture(content: Mapping[str, Any], number: int, metric: Mapping[str, Any], *, strong: bool) -> Picture | None:
    """A metric over one axis: one line per value of that other axis which matters most, spread over all the rest."""
    axes, name = _axes(content), text(metric.get("name"))
    axis = axes[number]
    steps = [tuple(map(text, step)) for step in axis["steps"]]
    known = [p for p in items(content.get("points")) if figure(mapping(p.get("metrics")).get(name)) is not None]
    if len(steps) < 2 or len(steps) > MOST_WORDS * 10 or not known:
        return None
    if len({figure(p["metrics"][name]) for p in known}) == 1 and len(known) > 1:
        return None  # the same everywhere: the table says so
    by = _second(content, number, name)
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = {}
    for point in known:
        course = groups.setdefault(_step(point, by) if by is not None else (), {})
        course.setdefault(_step(point, axis), []).append(figure(point["metrics"][name]) or 0.0)
    keys: list[tuple[str, ...]] = [tuple(map(text, step)) for step in by["steps"]] if by is not None else [()]
    chosen = [key for key in keys if key in groups][:MOST_LINES]
    numbers = axis.get("numbers")
    if numbers is None and len(steps) > MOST_WORDS:
        return None
    courses = tuple(Course(", ".join(key), tuple(tuple(groups[key].get(step, ())) for step in steps)) for key in chosen)
    rest = [text(a.get("name")) for i, a in enumerate(axes) if i != number and a is not by]
    words = [f"Lines: {text(by.get('name'))}."] if by is not None else []
    if len(keys) > MOST_LINES:
        words.append(f"The first {MOST_LINES} of {len(keys)}.")
    words.append(f"Medians; the spread is that over {', '.join(rest)}." if rest else "One point each.")
    title = text(metric.get("title"))
    return Picture(
        f"sweep-{number}-{name.replace('_', '-')}",
        f"{title} over {text(axis.get('name'))}" + (" (matters)" if strong else ""),
        text(axis.get("name")),
        tuple(", ".join(step) for step in steps),
        None if numbers is None else tuple(float(n) for n in numbers),
        courses,
        _show(text(metric.get("unit"))),
        " ".join(words),
    )


def _second(content: Mapping[str, Any], number: int, metric: str) -> Mapping[str, Any] | None:
    """The axis besides this one and the seed that the metric depends on most."""
    share = {
        text(e.get("axis")): figure(e.get("share")) or 0.0
        for e in items(content.get("effects"))
        if e.get("metric") == metric
    }
    others = [
        a for i, a in enumerate(_axes(content)) if i != number and text(a.get("name")) != SEED and len(a["steps"]) > 1
    ]
    return max(others, key=lambda a: share.get(text(a.get("name")), 0.0), default=None)


def _points(content: Mapping[str, Any]) -> Markup:
    metrics = items(content.get("metrics"))
    paths = [path for axis in _axes(content) for path in axis["paths"]]
    rows = []
    points = items(content.get("points"))
    for point in points[:MOST_ROWS]:
        values = mapping(point.get("metrics"))
        settings = mapping(point.get("settings"))
        verdict = text(point.get("verdict"))
        cells = [Cell(text(settings.get(path))) for path in paths]
        cells += [Cell(_verdict(verdict)), count_cell(figure(point.get("exit_code")))]
        cells += [
            _cell(
                text(m.get("unit")),
                figure(values.get(m["name"])),
                bad=m["name"] == "margin_us" and (figure(values.get(m["name"])) or 0) < 0,
            )
            for m in metrics
        ]
        cells += [Cell(text(point.get("folder")) or "–")]
        rows.append(Row(text(point.get("index")), cells, bad=verdict in ("violated", "failed")))
    columns = ("point", *paths, "verdict", "exit code", *(text(m.get("title")) for m in metrics), "folder")
    caption = "Every point; times are the worst over its flows and receivers."
    return section(
        "points", "Points", Table("points-table", caption, columns, rows, len(points), True, "sweep.parquet").render()
    )


def _verdict(verdict: str) -> Markup:
    known = known_verdict(WORDS.get(verdict, verdict))
    return el("span", f"{SYMBOL[known]}\u00a0{verdict}", class_=f"word is-{known}")


FLOW_TIMES = (
    "observed_max_us",
    "application_max_us",
    "simulated_max_us",
    "bound_us",
    "end_to_end_us",
    "deadline_us",
    "margin_us",
)


def _flows(content: Mapping[str, Any]) -> Markup | None:
    rows: list[Row] = []
    total = 0
    used = [
        name
        for name in FLOW_TIMES
        if any(f.get(name) is not None for p in items(content.get("points")) for f in items(p.get("flows")))
    ]
    for point in items(content.get("points")):
        for flow in items(point.get("flows")):
            total += 1
            if len(rows) < MOST_ROWS:
                values = [figure(flow.get(name)) for name in used]
                bad = [name == "margin_us" and (value or 0) < 0 for name, value in zip(used, values, strict=True)]
                cells = [Cell(_name(point)), Cell(verdict_word(text(flow.get("verdict"))))]
                cells += [time_cell(value, bad=b) for value, b in zip(values, bad, strict=True)]
                cells += [count_cell(figure(flow.get("lost")), bad=True)]
                rows.append(
                    Row(f"{point.get('index')}: {text(flow.get('flow'))} → {text(flow.get('receiver'))}", cells)
                )
    if not rows:
        return None
    names = [name.removesuffix("_us").replace("_", " ") for name in used]
    caption = "Every flow at every receiver of every point."
    return section(
        "flows",
        "Flows",
        Table(
            "flows-table",
            caption,
            ("point: flow → receiver", "settings", "verdict", *names, "lost"),
            rows,
            total,
            True,
            "sweep.parquet",
        ).render(),
    )


def _meaning() -> Markup:
    said: Sequence[str] = (
        "A point's times are the worst over its flows and receivers; shares are over all its messages.",
        "Lines and bars are medians over all points with that value, with the least and the greatest as their spread: over seeds, "
        "and over whatever else was varied and has no line of its own.",
        "A share of variance says what differs between these points and no others: another choice of values gives other shares.",
        "Emulations measure this machine too; a point that it disturbed says so in its verdict, and its run folder says how.",
    )
    return section("meaning", "Meaning", el("ul", *(el("li", words) for words in said)))
