"""The page of the Velox model: table, defects, the bound, and a figure of what the total is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timebound.files import Place
from timebound.report.document import document, facts, section
from timebound.report.markup import Markup, el, join
from timebound.report.palette import paint
from timebound.report.svg import Canvas, Scale, label, legend, line, swatch, tip, x_axis
from timebound.report.tables import Cell, Row, Table
from timebound.report.units import time_text

WIDTH = 960.0
BAR, PITCH = 30.0, 64.0
COLOURS = {
    "T_appmid": "application",
    "T_pub + T_sub": "simulated",
    "P + P1": "host",
    "sojourn, publisher": "host",
    "sojourn, subscriber": "host",
    "D": "observed",
    "T_midapp": "application",
}
KEY = (
    ("middleware and application", "application"),
    ("1/lambda taken for a wait", "simulated"),
    ("CPU", "host"),
    ("network", "observed"),
)


def write(folder: Path, result: dict[str, Any]) -> Path:
    """Writes `report.html` and `figures/parts.svg`."""
    drawn = figure(result)
    with Place(folder) as place:
        place.write("figures/parts.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n')
        place.write("report.html", render(result, drawn))
    return folder / "report.html"


def figure(result: dict[str, Any]) -> Markup:
    """Two stacked bars, as printed and corrected, with the measured mean as a line."""
    rows = (("as printed (table 2)", result["parts"]["printed"]), ("corrected", result["parts"]["corrected"]))
    most = max(result["measured_us"], *(sum(part["us"] for part in parts) for _, parts in rows))
    shown, height = legend([(words, swatch(colour)) for words, colour in KEY], 10, 10, WIDTH - 20)
    top, left, right = 34 + height, 170.0, WIDTH - 90
    bottom = top + PITCH * len(rows)
    scale = Scale(0, most * 1.05, left, right)
    title = "Mean end-to-end delay: what the model adds up"
    said = "Stacked bars of the terms of eq. 4, as printed and as corrected; the line is the paper's measured mean."
    canvas = Canvas("parts", WIDTH, bottom + 46, title, said)
    canvas.add(shown, x_axis(scale, top, bottom, time_text, most=8))
    for index, (words, parts) in enumerate(rows):
        y, at = top + index * PITCH + (PITCH - BAR) / 2, 0.0
        canvas.add(label(10, y + 19, words, bold=True))
        for part in parts:
            x, end = scale(at), scale(at + part["us"])
            box = el("rect", x=x, y=y, width=max(end - x - 1, 0.5), height=BAR, **paint(fill=COLOURS[part["name"]]))
            canvas.add(tip(f"{part['name']}: {part['us']:.2f} us", box))
            if end - x > 70:
                canvas.add(label((x + end) / 2, y + 19, part["name"], size=11, anchor="middle", halo=True))
            at += part["us"]
        canvas.add(label(scale(at) + 5, y + 19, f"{at:.2f} us", halo=True))
    x = scale(result["measured_us"])
    canvas.add(line(x, top - 4, x, bottom, "deadline", width=1.5, dash="5 4"))
    canvas.add(label(x, top - 8, f"measured about {result['measured_us']:g} us", size=11, anchor="middle"))
    canvas.add(label((left + right) / 2, bottom + 38, "mean, no bound", anchor="middle", colour="muted"))
    return canvas.render()


def render(result: dict[str, Any], drawn: Markup) -> str:
    """The whole page."""
    header = el(
        "header",
        el("h1", "The delay model of Velox: as printed, and corrected"),
        el("p", "Every figure of the model is a mean. None of them is a bound.", class_="about"),
        facts(
            [
                ("Paper", "Hakiri, Berthou, Gokhale, Schmidt, Gayraud: Velox, JSS 86 (10), 2013, sections 2.1 and 3.2"),
                ("Parameters", "the paper's" if result["is_papers"] else "others than the paper's"),
                ("Timebound", result["timebound"]),
            ]
        ),
    )
    body = el(
        "main",
        section("figure", "End to end", el("figure", drawn)),
        section("quantities", "Tables 1 and 2", _quantities(result["quantities"])),
        section("defects", "What is wrong", _defects(result["defects"])),
        section("bounds", "What the worst case is", _bounds(result)),
    )
    footer = el("footer", el("p", "Every figure here is in reproduce.json."))
    return document("Velox delay model", [header, body, footer])


def number(value: float | None, unit: str) -> str:
    """A figure of the tables: two digits after the point for times, four for shares."""
    if value is None:
        return ""
    if unit == "us":
        return f"{value:.2f} us"
    return f"{value:.4g}"


def _quantities(quantities: list[dict[str, Any]]) -> Markup:
    rows = [
        Row(
            entry["quantity"],
            [
                Cell(entry["where"]),
                Cell(" ".join(filter(None, (entry["paper"], entry["unit"] if entry["paper"] else "")))),
                Cell(number(entry["printed"], entry["unit"]), entry["printed"], True),
                Cell(number(entry["corrected"], entry["unit"]), entry["corrected"], True),
            ],
        )
        for entry in quantities
    ]
    caption = "The paper's number, its own formula for these parameters, and the corrected reading. All are means."
    return Table(
        "table-quantities", caption, ["quantity", "where", "printed", "by its formula", "corrected"], rows, len(rows)
    ).render()


def _defects(defects: list[dict[str, Any]]) -> Markup:
    rows = [
        Row(
            entry["where"],
            [
                Cell(entry["says"], class_="wrap"),
                Cell(entry["printed"]),
                Cell(entry["right"]),
                Cell(entry["why"], class_="wrap"),
            ],
        )
        for entry in defects
    ]
    caption = "Each with the number that the paper's text gives and the right one."
    return Table("table-defects", caption, ["where", "the paper", "printed", "right", "why"], rows, len(rows)).render()


def _bounds(result: dict[str, Any]) -> Markup:
    rows = [
        Row(
            entry["words"],
            [
                Cell(f"{entry['frame_bytes']} B", entry["frame_bytes"], True),
                Cell(f"{entry['utilisation']:.1%}", entry["utilisation"], True),
                Cell(worst(entry), entry["bound_us"], True),
                Cell(entry["reason"] or "", class_="wrap"),
            ],
        )
        for entry in result["bounds"]
    ]
    caption = (
        "The network alone, packets no closer than 1/lambda, one full frame of undeclared best effort on every port. The two CPUs have no "
        "worst case in this model: exponential service has no greatest value."
    )
    words = el("p", "Poisson arrivals promise nothing: with them even the network has no finite bound.")
    columns = ["reading", "frame on the wire", "utilisation", "safe bound", "reason"]
    return join([words, Table("table-bounds", caption, columns, rows, len(rows)).render()])


def worst(entry: dict[str, Any]) -> str:
    """A bound in words."""
    return "no finite bound" if entry["bound_us"] is None else f"{entry['bound_us']:.2f} us"
