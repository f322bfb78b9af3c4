"""The page of the bounds experiment: utilisations first, a figure per load like the paper's, tables, statements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timebound.files import Place
from timebound.report.document import document, facts, section
from timebound.report.markup import Markup, el, join
from timebound.report.palette import paint
from timebound.report.svg import Canvas, label, legend, scale_note, swatch, tip, value_scale, x_axis
from timebound.report.tables import Cell, Row, Table
from timebound.report.units import time_text

WIDTH = 960.0
BAR, GAP = 13.0, 16.0
MOST_PORTS = 8
BARS = (
    ("simulated_us", "worst found", "simulated"),
    ("bound", "safe bound", "bound"),
    ("trajectory", "trajectory, experimental", "observed"),
    ("holistic-as-published", "HA as published, unsafe", "application"),
    ("trajectory-as-published", "TA as published, unsafe", "broker"),
    ("trajectory-with-published-defects", "TA as published, with transmission times, unsafe", "host"),
)
WORDS = {True: "holds", False: "differs", None: "open"}
SAFETY = {"safe": "safe", "experimental": "experimental, not a bound", "unsafe": "UNSAFE, not a bound"}


def write(folder: Path, result: Mapping[str, Any]) -> Path:
    """Writes `report.html` and one SVG per cell in `figures/`."""
    drawn = {}
    for cell in result["cells"]:
        name = f"{cell['reading']}-{cell['load']}"
        drawn[name] = figure(cell, title_of(cell, result), name)
    with Place(folder) as place:
        for name, svg in drawn.items():
            place.write(f"figures/{name}.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n')
        place.write("report.html", render(result, drawn))
    return folder / "report.html"


def title_of(cell: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """`Fig. 16, low load` where it stands for a figure of the paper."""
    name = f"{cell['load']} load, {result['readings'][cell['reading']]}"
    return f"{result['figures'][cell['load']]}: {name}" if cell["reading"] == "topics-of-a" else name


def value_of(group: Mapping[str, Any], key: str) -> float | None:
    """A bar of a group."""
    found: float | None = group["simulated_us"] if key == "simulated_us" else group["values_us"][key]
    return found


def figure(cell: Mapping[str, Any], title: str, name: str) -> Markup:
    """Grouped bars: paths and topics, by method."""
    groups = cell["figures"]
    values = [value for group in groups for key, _, _ in BARS if (value := value_of(group, key)) is not None]
    shown, height = legend([(words, swatch(colour)) for _, words, colour in BARS], 10, 34, WIDTH - 20)
    top, left, right = 48 + height, 110.0, WIDTH - 20
    pitch = BAR * len(BARS) + GAP
    bottom = top + pitch * len(groups)
    scale = value_scale(values, left, right, room=0.12)
    said = "Bars by path and topic: the worst latency found by simulation, the safe bound, and the other methods."
    canvas = Canvas(name, WIDTH, bottom + 42, title, said)
    canvas.add(label(10, 20, title, size=14, bold=True), shown, x_axis(scale, top, bottom, time_text, most=8))
    for number, group in enumerate(groups):
        y = top + number * pitch + GAP / 2
        canvas.add(label(10, y + pitch / 2 - GAP / 2 + 4, f"{group['path']} {group['topic']}", bold=True))
        for place, (key, words, colour) in enumerate(BARS):
            value, at = value_of(group, key), y + place * BAR
            if value is None:
                none = cell["not_searched"] if key == "simulated_us" else group["reasons"].get(key)
                said = "not searched" if key == "simulated_us" else "no finite bound"
                shape = label(left + 4, at + BAR - 3, f"{words}: {said}", size=10, colour="muted")
                canvas.add(tip(f"{words}: {none or said}", shape))
                continue
            end = scale(value)
            box = el("rect", x=left, y=at, width=max(end - left, 1.0), height=BAR - 2, **paint(fill=colour))
            canvas.add(tip(f"{group['path']} {group['topic']}, {words}: {value:.2f} us", box))
            canvas.add(label(end + 4, at + BAR - 3, time_text(value), size=10, halo=True))
    canvas.add(label((left + right) / 2, bottom + 34, scale_note(scale), anchor="middle", colour="muted", size=11))
    return canvas.render()


def render(result: Mapping[str, Any], drawn: Mapping[str, Markup]) -> str:
    """The whole page."""
    header = el(
        "header",
        el("h1", "Bounds of MRT-MQTT: Figs. 16 to 18 again, as published and safe"),
        el(
            "p",
            "Only the safe bound is a promise. The published formulas are printed for comparison; runs are known that exceed them.",
            class_="about",
        ),
        facts(
            [
                (
                    "Paper",
                    "Shahri, Pedreiras, Almeida: A Scalable Real-Time SDN-Based MQTT Framework, IEEE OJIES 2024, sections VI and VII",
                ),
                ("Seed", str(result["seed"])),
                ("Timebound", result["timebound"]),
            ]
        ),
    )
    cells = [
        section(
            f"cell-{cell['reading']}-{cell['load']}",
            title_of(cell, result),
            el("figure", drawn[f"{cell['reading']}-{cell['load']}"]),
            el("p", cell["not_searched"], class_="note is-violated") if cell["not_searched"] else None,
            _values(cell),
            _methods(cell),
        )
        for cell in result["cells"]
    ]
    body = el(
        "main",
        section("assumptions", "Readings and assumptions", el("ul", *(el("li", words) for words in _said(result)))),
        section("utilisation", "Utilisation of the ports, first of all", _ports(result)),
        join(cells, "\n"),
        section("statements", "What the paper says", _statements(result["statements"])),
    )
    footer = el("footer", el("p", "Every figure here is in reproduce.json."))
    return document("MRT-MQTT bounds", [header, body, footer])


def _said(result: Mapping[str, Any]) -> list[str]:
    return [*(f"Reading {name}: {words}." for name, words in result["readings"].items()), *result["assumptions"]]


def _ports(result: Mapping[str, Any]) -> Markup:
    rows = []
    for cell in result["cells"]:
        for port in cell["ports"][:MOST_PORTS]:
            full = port["utilisation"] >= 1
            cells = [
                Cell(f"{port['utilisation']:.3f}", port["utilisation"], True),
                Cell("no finite bound for what needs all of it" if full else ""),
            ]
            rows.append(Row(f"{cell['reading']}, {cell['load']}: {port['port']}", cells, bad=full))
    caption = (
        f"The {MOST_PORTS} most used ports of each case, by the time-sensitive messages; all are in reproduce.json."
    )
    return Table("table-ports", caption, ["case and port", "utilisation", ""], rows, len(rows)).render()


def _values(cell: Mapping[str, Any]) -> Markup:
    rows = []
    for group in cell["figures"]:
        entries = []
        for key, _, _ in BARS:
            value = value_of(group, key)
            missing = "not searched" if key == "simulated_us" else "no finite bound"
            entries.append(Cell(missing if value is None else time_text(value), value, True))
        rows.append(Row(f"{group['path']} {group['topic']}", entries))
    caption = "The slowest publisher of each topic on each path, from its actual release to the broker."
    columns = ["path and topic", *(words for _, words, _ in BARS)]
    return Table(f"table-{cell['reading']}-{cell['load']}", caption, columns, rows, len(rows)).render()


def _methods(cell: Mapping[str, Any]) -> Markup:
    rows = []
    for method in cell["methods"]:
        most, least = method["largest_deviation_percent"], method["least_deviation_percent"]
        rows.append(
            Row(
                method["name"] + (f" ({method['paper']})" if method["paper"] else ""),
                [
                    Cell(SAFETY[method["safety"]]),
                    Cell("" if least is None else f"{least:+.1f} %", least, True),
                    Cell("" if most is None else f"{most:+.1f} %", most, True),
                    Cell(f"{method['compute_ms']:.2f} ms", method["compute_ms"], True),
                    Cell(method["words"], class_="wrap"),
                ],
                bad=least is not None and least < 0,
            )
        )
    caption = (
        f"Deviation from the worst found in {cell['evaluations']} evaluations; computing time of one analysis of all "
        f"{cell['publishers']} streams (median of three, JSON included)."
    )
    columns = ["method", "label", "least deviation", "largest deviation", "computing time", "what it is"]
    return Table(f"table-methods-{cell['reading']}-{cell['load']}", caption, columns, rows, len(rows)).render()


def _statements(found: list[dict[str, Any]]) -> Markup:
    rows = [
        Row(
            entry["text"],
            [
                Cell(WORDS[entry["holds"]]),
                Cell(entry["paper"], class_="wrap"),
                Cell(entry["ours"], class_="wrap"),
                Cell(entry["why"], class_="wrap"),
            ],
        )
        for entry in found
    ]
    caption = "Words and numbers of section VII-B; the bars of the figures are drawings, and no number is read off one."
    return Table("table-statements", caption, ["statement", "", "paper", "ours", "why"], rows, len(rows)).render()
