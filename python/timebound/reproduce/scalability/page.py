"""The experiment's page and figures: one for each of the paper's Figs. 8 to 15 and Table II, beside the statements."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timebound.files import Place
from timebound.report.document import document, facts, section
from timebound.report.markup import Markup, el, join
from timebound.report.palette import paint
from timebound.report.svg import Canvas, Scale, label, legend, polyline, stroke_key, swatch, tip, x_axis, y_axis
from timebound.report.tables import Cell as TableCell
from timebound.report.tables import Row, Table
from timebound.reproduce.scalability.cells import NAME
from timebound.scenario.builtin import builtin_file

COLOURS = ("observed", "simulated", "broker")
WORDS = {True: ("holds", "is-met"), False: ("differs", "is-missed"), None: ("open", "is-unmeasured")}
CLASSES = ("40-79", "80-159", "160-319", "320-639", "640-1279", ">=1280")
WIDTH, HEIGHT = 960.0, 330.0

# name, scenario, title, [(quantity, words, dashed)], unit: the paper's figures over the number of clients.
CURVES: tuple[tuple[str, int, str, tuple[tuple[str, str, bool], ...], str], ...] = (
    ("fig-08", 1, "Scenario 1: CPU of the broker (Fig. 8)", (("broker_cpu", "", False),), "%"),
    ("fig-09", 1, "Scenario 1: traffic of the broker (Fig. 9)", (("broker_rx_bytes", "received", False), ("broker_tx_bytes", "sent", True)), "kB/s"),
    ("fig-10", 1, "Scenario 1: CPU of the one subscriber (Fig. 10)", (("subscriber_cpu", "", False),), "%"),
    ("fig-11", 1, "Scenario 1: traffic of the one subscriber (Fig. 11)", (("subscriber_bytes", "", False),), "kB/s"),
    ("fig-12", 2, "Scenario 2: CPU of the broker (Fig. 12)", (("broker_cpu", "", False),), "%"),
    ("fig-13", 2, "Scenario 2: traffic of the broker (Fig. 13)", (("broker_rx_bytes", "received", False), ("broker_tx_bytes", "sent", True)), "kB/s"),
)  # fmt: skip
TITLES = {name: title for name, _, title, _, _ in CURVES} | {
    "fig-14": "Scenario 1: sizes of packets at the broker's link (Fig. 14)",
    "fig-15": "Scenario 1: packets with payload at the broker's link (Fig. 15)",
}
FACTOR = {"%": 100.0, "kB/s": 1e-3}


def write(folder: Path, result: dict[str, Any]) -> Path:
    """Writes `report.html` and `figures/*.svg` into the experiment's folder."""
    cells = {(cell["scenario"], cell["qos"]): cell for cell in result["cells"]}
    drawn = figures(cells)
    with Place(folder) as place:
        for name, svg in drawn.items():
            place.write(f"figures/{name}.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n')
        place.write("report.html", render(result, drawn))
    return folder / "report.html"


def figures(cells: dict[tuple[int, int], dict[str, Any]]) -> dict[str, Markup]:
    """All figures for which there are cells, by name."""
    drawn: dict[str, Markup] = {}
    for name, scenario, title, quantities, unit in CURVES:
        levels = [cells[scenario, qos] for qos in range(3) if (scenario, qos) in cells]
        if levels:
            drawn[name] = _curves(name, title, levels, quantities, unit)
    levels = [cells[1, qos] for qos in range(3) if (1, qos) in cells and cells[1, qos]["packets"]]
    if levels:
        drawn["fig-14"] = _sizes(levels)
        drawn["fig-15"] = _payload(levels)
    return drawn


def _curves(
    name: str, title: str, levels: Sequence[dict[str, Any]], quantities: Sequence[tuple[str, str, bool]], unit: str
) -> Markup:
    series = []
    for cell in levels:
        for quantity, words, dashed in quantities:
            points = [(point["clients"], point[quantity] * FACTOR[unit]) for point in cell["curve"]]
            series.append((cell["qos"], f"QoS {cell['qos']}{', ' + words if words else ''}", dashed, points))
    most = max((value for *_, points in series for _, value in points), default=0.0)
    clients = max(cell["clients"] for cell in levels)
    said = f"{title}, in {unit}, over the number of clients that have joined; the last point is the time after all had joined."
    canvas = Canvas(name, WIDTH, HEIGHT, title, said)
    keys = [(words, stroke_key(COLOURS[qos], "5 4" if dashed else None)) for qos, words, dashed, _ in series]
    shown, height = legend(keys, 70, 10, WIDTH - 90)
    top, bottom, left, right = 20 + height, HEIGHT - 48, 70.0, WIDTH - 20
    across, up = Scale(0, clients, left, right), Scale(0, most * 1.08 or 1.0, bottom, top)
    canvas.add(shown, x_axis(across, top, bottom, lambda v: f"{v:g}", most=8))
    canvas.add(y_axis(up, left, right, lambda v: f"{v:.3g}"))
    canvas.add(label((left + right) / 2, HEIGHT - 10, "clients that have joined", anchor="middle", colour="muted"))
    canvas.add(label(6, top - 8, unit, colour="muted"))
    for qos, words, dashed, points in series:
        path = polyline([(across(x), up(y)) for x, y in points], COLOURS[qos], width=2, dash="5 4" if dashed else None)
        last = f"{points[-1][1]:.3g} {unit} with {points[-1][0]:g} clients" if points else "no samples"
        canvas.add(tip(f"{words}: {last}", path))
    return canvas.render()


def _groups(name: str, title: str, said: str, rows: Sequence[tuple[str, list[float]]], qos: Sequence[int]) -> Markup:
    """Bars in groups, one bar per QoS level, in per cent."""
    canvas = Canvas(name, WIDTH, HEIGHT, title, said)
    shown, height = legend([(f"QoS {level}", swatch(COLOURS[level])) for level in qos], 70, 10, WIDTH - 90)
    top, bottom, left, right = 34 + height, HEIGHT - 34, 70.0, WIDTH - 20
    most = max((value for _, values in rows for value in values), default=0.0)
    up = Scale(0, most * 1.08 or 1.0, bottom, top)
    canvas.add(shown, y_axis(up, left, right, lambda v: f"{v * 100:.3g} %"))
    span = (right - left) / len(rows)
    wide = min(40.0, span * 0.8 / max(1, len(qos)))
    for index, (words, values) in enumerate(rows):
        middle = left + span * (index + 0.5)
        canvas.add(label(middle, bottom + 18, words, anchor="middle", colour="muted"))
        for place, (level, value) in enumerate(zip(qos, values, strict=True)):
            x = middle + (place - len(qos) / 2) * wide
            bar = el(
                "rect", x=x + 1, y=up(value), width=wide - 2, height=bottom - up(value), **paint(fill=COLOURS[level])
            )
            figure = label(x + wide / 2, up(value) - 4, f"{value:.1%}", size=10, anchor="middle", colour="muted")
            canvas.add(tip(f"{words}, QoS {level}: {value:.2%}", bar, figure))
    return canvas.render()


def _sizes(levels: Sequence[dict[str, Any]]) -> Markup:
    rows = []
    for name in CLASSES:
        shares = []
        for cell in levels:
            counts = cell["packets"]["frame_classes"]
            shares.append(counts[name] / max(1, sum(counts.values())))
        rows.append((f"{name} B", shares))
    said = "Share of the packets at the broker's link by their size in bytes of the Ethernet frame."
    return _groups("fig-14", TITLES["fig-14"], said, rows, [cell["qos"] for cell in levels])


def _payload(levels: Sequence[dict[str, Any]]) -> Markup:
    packets = [cell["packets"] for cell in levels]
    rows = [
        ("with TCP payload", [1 - entry["without_transport_payload"] for entry in packets]),
        ("with a message", [1 - entry["without_application_payload"] for entry in packets]),
        ("MQTT control", [entry["categories"].get("mqtt-control", 0.0) for entry in packets]),
        ("TCP control", [entry["categories"].get("tcp-control", 0.0) for entry in packets]),
        ("bytes not message", [entry["overhead_share"] for entry in packets]),
    ]
    said = "Share of the packets at the broker's link that carry TCP payload, and what the others are; last: share of bytes."
    return _groups("fig-15", TITLES["fig-15"], said, rows, [cell["qos"] for cell in levels])


def render(result: dict[str, Any], drawn: dict[str, Markup]) -> str:
    """The whole page."""
    counts = {verdict: sum(s["holds"] is verdict for s in result["statements"]) for verdict in (True, False, None)}
    cells = result["cells"]
    disturbed = [cell for cell in cells if cell["certificate"]["verdict"] != "good"]
    clients = max((cell["clients"] for cell in cells), default=0)
    header = el(
        "header",
        el("h1", "MQTT scalability: the paper's statements on this machine"),
        el("p", f"Up to {clients} clients, each a process with a network stack of its own; 100 messages of 717 bytes a second in total.", class_="about"),
        el(
            "div",
            el("strong", f"{counts[True]} of {len(result['statements'])} statements hold"),
            el("p", f"{counts[False]} come out differently, {counts[None]} cannot be decided here; each says why."),
            el("p", f"{len(disturbed)} of {len(cells)} cells were disturbed by the machine." if disturbed else "All cells ran undisturbed."),
            class_=f"verdict {'is-disturbed' if disturbed else 'is-met'}",
        ),
        facts([("Paper", "Wilcox, Kaleshi, Sooriyabandara: Multi-Protocol Transport Layer QoS, 2014, sections II and III"), ("Timebound", result["timebound"])]),
    )  # fmt: skip
    captions = "Lines run over the number of clients that have joined; the last point is the mean after all had joined."
    body = el(
        "main",
        section("statements", "Statement by statement", _statements(result["statements"])),
        section("figures", "Figures", el("p", captions), *(_figure(name, svg) for name, svg in drawn.items())),
        section("table-2", "CPU of the nodes (Table II)", _table_two(cells)),
        section("cells", "The cells", _cells(cells)),
    )
    return document(
        "MQTT scalability", [header, body, el("footer", el("p", "Every figure here is in reproduce.json."))]
    )


def _figure(name: str, svg: Markup) -> Markup:
    title = TITLES[name]
    return join([el("h3", title), el("figure", svg)])


def _statements(statements: Sequence[dict[str, Any]]) -> Markup:
    rows = []
    for statement in statements:
        word, tone = WORDS[statement["holds"]]
        ours = statement["ours"] + (f" — {statement['why']}" if statement["why"] else "")
        rows.append(
            Row(
                statement["where"],
                [
                    TableCell(el("span", word, class_=f"word {tone}")),
                    TableCell(statement["text"], class_="wrap"),
                    TableCell(statement["paper"], class_="wrap"),
                    TableCell(ours, class_="wrap"),
                ],
            )
        )
    caption = "What the paper says, in our words, and what this run says to it."
    return Table("table-statements", caption, ["paper", "", "statement", "says", "ours"], rows, len(rows)).render()


def _published() -> dict[int, tuple[str, str]]:
    """Table II as printed: QoS -> CPU per node, CPU of the host."""
    text = (builtin_file(NAME).parent / "published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {int(row["qos"]): (f"{row['node_cpu_percent']} %", f"{row['host_cpu_percent']} %") for row in rows}


def _percent(value: float, digits: int = 3) -> TableCell:
    return TableCell(f"{value * 100:.{digits}g} %", value, True)


def _table_two(cells: Sequence[dict[str, Any]]) -> Markup:
    paper = _published()
    rows = [
        Row(
            f"QoS {cell['qos']}",
            [
                TableCell(paper[cell["qos"]][0]),
                _percent(cell["held"]["publisher_cpu"]),
                TableCell(paper[cell["qos"]][1]),
                _percent(cell["held"]["all_nodes_cpu"]),
            ],
        )
        for cell in cells
        if cell["scenario"] == 1
    ]
    caption = (
        "Shares of one CPU; scenario 1. The paper's nodes are virtual machines with an operating system each, ours processes: the "
        "figures themselves cannot agree, their order may."
    )
    columns = ["level", "paper, per node", "ours, per publisher", "paper, host", "ours, all nodes together"]
    return join([Table("table-two", caption, columns, rows, len(rows)).render()])


def _cells(cells: Sequence[dict[str, Any]]) -> Markup:
    rows = [
        Row(
            f"scenario {cell['scenario']}, QoS {cell['qos']}",
            [
                TableCell(
                    cell["certificate"]["verdict"] + (f" ({cell['attempts']} runs)" if cell["attempts"] > 1 else "")
                ),
                TableCell(str(cell["nodes"]), cell["nodes"], True),
                TableCell(str(cell["messages"]["sent"]), cell["messages"]["sent"], True),
                TableCell(str(cell["messages"]["lost"]), cell["messages"]["lost"], True),
                _percent(cell["held"]["broker_cpu"]),
                TableCell(f"{cell['held']['broker_rx_bytes'] / 1000:.4g} kB/s", cell["held"]["broker_rx_bytes"], True),
                TableCell(f"{cell['held']['broker_tx_bytes'] / 1000:.4g} kB/s", cell["held"]["broker_tx_bytes"], True),
                TableCell(_memory(cell["client_memory_bytes"]), cell["client_memory_bytes"], True),
                TableCell(f"{cell['took_s']:.0f} s", cell["took_s"], True),
                TableCell("; ".join(cell["certificate"]["reasons"]), class_="wrap"),
            ],
            bad=cell["certificate"]["verdict"] != "good",
        )
        for cell in cells
    ]
    caption = "Means after all clients had joined. The certificate is the emulator's own error; a disturbed cell was run twice."
    columns = ["cell", "certificate", "nodes", "sent", "lost", "broker CPU", "broker in", "broker out", "memory of a client", "took", "reasons"]  # fmt: skip
    return Table("table-cells", caption, columns, rows, len(rows)).render()


def _memory(size: int | None) -> str:
    return "not measured" if size is None else f"{size / 1024:.0f} KiB"
