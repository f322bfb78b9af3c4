"""The page of the experiment: what it says at a glance, a figure per load, a table per load, what was disturbed, statements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from timebound.files import Place
from timebound.report.document import document, facts, section
from timebound.report.markup import Markup, el, join
from timebound.report.palette import paint
from timebound.report.svg import Canvas, label, legend, line, scale_note, stroke_key, swatch, tip, value_scale, x_axis
from timebound.report.tables import Cell, Row, Table
from timebound.report.units import time_text
from timebound.reproduce.multicast.cells import LOADS, PATHS, PROTOCOLS, TOPICS

WIDTH = 960.0
BAR, GAP = 11.0, 18.0
COLOURS = {"mqtt-bridged": "broker", "rt-mqtt": "application", "dm-mqtt": "simulated", "mrt-mqtt": "observed"}
FIGURES = {"low": "Fig. 16", "medium": "Fig. 17", "high": "Fig. 18"}
WORDS = {True: "holds", False: "differs", None: "open"}
VERDICTS = {
    "good": "emulated; the machine kept up",
    "disturbed": "DISTURBED: the machine did not keep up, compare the simulated figures",
    "simulated": "simulated",
}
NAMES = {
    "multicast-mrt": "MRT below MQTT",
    "multicast-dm": "DM below MQTT",
    "priorities": "MRT below DM",
    "beta": "beta first",
    "longer": "L_AC above L_AB",
    "local": "local traffic",
    "alike": "MQTT: no order",
    "bounded": "bounds hold",
    "deviation-low": "tightness, low",
    "deviation-medium": "tightness, medium",
    "deviation-high": "tightness, high",
}
SHORT = {"mqtt-bridged": "MQTT", "rt-mqtt": "RT-MQTT", "dm-mqtt": "DM-MQTT", "mrt-mqtt": "MRT-MQTT"}


def write(folder: Path, result: Mapping[str, Any]) -> Path:
    """Writes `report.html` and one SVG per load in `figures/`."""
    drawn = {}
    for load in _loads(result):
        drawn[load] = figure(load, result)
    with Place(folder) as place:
        for name, svg in drawn.items():
            place.write(f"figures/{name}.svg", f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n')
        place.write("report.html", render(result, drawn))
    return folder / "report.html"


def _loads(result: Mapping[str, Any]) -> list[str]:
    present = {cell["load"] for cell in result["cells"]}
    return [load for load in LOADS if load in present]


def _cells(load: str, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cells of a load in the order of the stacks."""
    found = {cell["protocol"]: cell for cell in result["cells"] if cell["load"] == load}
    return [found[protocol] for protocol in PROTOCOLS if protocol in found]


def _entry(cell: Mapping[str, Any], path: str, topic: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(e for e in cell["paths"] if (e["path"], e["topic"]) == (path, topic))
    return found


def title_of(load: str, result: Mapping[str, Any]) -> str:
    """`Fig. 16, low load: 20 publishers per host`."""
    first = _cells(load, result)[0]
    publishers, stretch = first["publishers"], first["stretch"]
    fewer = "" if publishers == LOADS[load] else f" (the paper has {LOADS[load]})"
    slow = f"; emulated {stretch} times as slow, times divided by that" if stretch > 1 else ""
    return f"{FIGURES[load]}, {load} load: {publishers} publishers per host{fewer}{slow}"


def figure(load: str, result: Mapping[str, Any]) -> Markup:
    """Grouped bars to the worst latency: paths and topics, by stack; what is simulated is hatched, a stroke is the median, a line the bound."""
    cells = _cells(load, result)
    kinds = [kind for kind in ("emulated", "simulated") if any(e[kind] for cell in cells for e in cell["paths"])]
    values = [e[kind]["worst_us"] for cell in cells for e in cell["paths"] for kind in kinds if e[kind]]
    values += [e["bound_us"] for cell in cells for e in cell["paths"] if e["bound_us"] is not None]
    keys = [(SHORT[cell["protocol"]], swatch(COLOURS[cell["protocol"]])) for cell in cells]
    keys += [("hatched: simulated", swatch("idle")), ("bound", stroke_key("alarm")), ("gap: median", swatch("grid"))]
    shown, height = legend(keys, 10, 34, WIDTH - 20)
    top, left, right = 48 + height, 110.0, WIDTH - 20
    pitch = BAR * len(cells) * len(kinds) + GAP
    groups = [(path, topic) for path in PATHS for topic in TOPICS.values()]
    bottom = top + pitch * len(groups)
    scale = value_scale(values, left, right, room=0.14)
    title = title_of(load, result)
    canvas = Canvas(
        f"load-{load}",
        WIDTH,
        bottom + 42,
        title,
        "Worst latency by path, topic and stack, emulated and simulated, with bounds.",
    )
    canvas.add(label(10, 20, title, size=14, bold=True), shown, x_axis(scale, top, bottom, time_text, most=8))
    for number, (path, topic) in enumerate(groups):
        y = top + number * pitch + GAP / 2
        canvas.add(label(10, y + (pitch - GAP) / 2 + 4, f"{path} {topic}", bold=True))
        for row, (cell, kind) in enumerate((cell, kind) for cell in cells for kind in kinds):
            canvas.add(_bar(canvas, cell, _entry(cell, path, topic), kind, scale, y + row * BAR))
    canvas.add(label((left + right) / 2, bottom + 34, scale_note(scale), anchor="middle", colour="muted", size=11))
    return canvas.render()


def _bar(canvas: Canvas, cell: Mapping[str, Any], entry: Mapping[str, Any], kind: str, scale: Any, y: float) -> Markup:
    name = f"{SHORT[cell['protocol']]}, {entry['path']} {entry['topic']}, {kind}"
    left, colour, found = scale.start, COLOURS[cell["protocol"]], entry[kind]
    if found is None:
        why = cell["not_emulated"] if kind == "emulated" else "not simulated"
        said = label(left + 4, y + BAR - 3, f"{SHORT[cell['protocol']]}: not {kind}", size=9, colour="muted")
        return tip(f"{name}: {why or 'nothing arrived'}", said)
    disturbed = kind == "emulated" and cell["verdict"] == "disturbed"
    end, middle = scale(found["worst_us"]), scale(found["median_us"])
    filled = paint(fill=colour) if kind == "emulated" else {"fill": canvas.hatch(colour)}
    words = (
        f"{name}: worst {found['worst_us']:.1f} us, median {found['median_us']:.1f} us, 99 % {found['p99_us']:.1f} us"
    )
    parts = [
        el(
            "rect",
            x=left,
            y=y,
            width=max(end - left, 1.0),
            height=BAR - 2,
            fill_opacity=0.4 if disturbed else None,
            **filled,
        ),
        line(middle, y, middle, y + BAR - 2, "ground", width=2),
        label(
            end + 4, y + BAR - 3, time_text(found["worst_us"]) + (" disturbed" if disturbed else ""), size=9, halo=True
        ),
    ]
    if entry["bound_us"] is not None and kind == "simulated":
        at = scale(entry["bound_us"])
        parts.append(
            tip(f"{name}: bound {entry['bound_us']:.1f} us", line(at, y - 1, at, y + BAR - 1, "alarm", width=2))
        )
    return tip(words, *parts)


def render(result: Mapping[str, Any], drawn: Mapping[str, Markup]) -> str:
    """The whole page."""
    header = el(
        "header",
        el("h1", "MRT-MQTT: four stacks, three loads, three paths (Figs. 16 to 18)"),
        el("p", _verdict(result), class_="about"),
        facts(
            [
                (
                    "Paper",
                    "Shahri, Pedreiras, Almeida: A Scalable Real-Time SDN-Based MQTT Framework, IEEE OJIES 2024, section VII",
                ),
                (
                    "Iterations",
                    ", ".join(sorted({f"{c['iterations']} of {c['duration_ns'] / 1e9:g} s" for c in result["cells"]})),
                ),
                ("Complete", "yes" if result["complete"] else "no: started again with the same folder it goes on"),
                ("Timebound", result["timebound"]),
            ]
        ),
    )
    loads = [
        section(
            f"load-{load}",
            title_of(load, result),
            el("figure", drawn[load]),
            _values(load, result),
        )
        for load in _loads(result)
    ]
    body = el(
        "main",
        join(loads, "\n"),
        *_iterations(result),
        section("statements", "What the paper says", _statements(result["statements"])),
        section("cells", "How each cell was run", _runs(result)),
        section("assumptions", "How to read it", el("ul", *(el("li", words) for words in ASSUMPTIONS))),
    )
    footer = el("footer", el("p", "Every figure here is in reproduce.json, every distribution in paths.parquet."))
    return document("MRT-MQTT", [header, body, footer])


ASSUMPTIONS = (
    "Latency is from a publisher's first frame to the broker at the path's end (L_AA: h5, L_AB: h10, L_AC: h15), the way up alone, as in the paper; the "
    "subscribers sit on the brokers' hosts.",
    "Emulated and simulated figures and bounds are the network's own time, added over the segments of a path: without the brokers and managers between, which "
    "the tables show beside it as measured.",
    "Simulated: every segment by itself, for phases drawn at random; a distribution over two segments is that of segments that are slow together. Searched: the "
    "worst after a search for phases that meet, which goes as far as what is declared allows; where nothing is promised there is nothing to search in.",
    "Bounds and simulation are those of switches that take 10 to 20 us. Emulated channels go through real Open vSwitches, which take longer.",
    "MQTT: mosquitto's bridges, one for every publisher and network, no priorities. RT-MQTT: a copy to each broker. The paper has no RT-MQTT between networks.",
    "Topics alpha and beta of network A; beta has the higher priority, as in section VII-B. Links that the text does not name, switching delays, deadlines: "
    "the README of the scenario edge-networks.",
    "Between managers a full frame's message takes two datagrams (docs/edge-networks.md), and every report is declared as a frame of its own: at high load "
    "the declared load of broker h5's links is above what they carry, and nothing is promised to the lower class.",
)


def _verdict(result: Mapping[str, Any]) -> str:
    counts = {verdict: sum(cell["verdict"] == verdict for cell in result["cells"]) for verdict in VERDICTS}
    holds = sum(entry["holds"] is True for entry in result["statements"])
    differs = sum(entry["holds"] is False for entry in result["statements"])
    return (
        f"{len(result['cells'])} cells: {counts['good']} emulated, {counts['disturbed']} disturbed, {counts['simulated']} simulated alone. "
        f"Of the paper's statements {holds} hold, {differs} differ, {len(result['statements']) - holds - differs} are open."
    )


def _values(load: str, result: Mapping[str, Any]) -> Markup:
    rows = []
    for cell in _cells(load, result):
        for entry in cell["paths"]:
            rows.append(
                Row(
                    f"{entry['path']} {entry['topic']}, {SHORT[cell['protocol']]}",
                    [
                        _time(entry["emulated"], "worst_us"),
                        _time(entry["emulated"], "median_us"),
                        _time(entry["with_brokers"], "worst_us"),
                        _time(entry["simulated"], "worst_us"),
                        _time(entry["simulated"], "median_us"),
                        Cell(
                            "" if entry["searched_us"] is None else time_text(entry["searched_us"]),
                            entry["searched_us"],
                            True,
                        ),
                        Cell(
                            "none" if entry["bound_us"] is None else time_text(entry["bound_us"]),
                            entry["bound_us"],
                            True,
                        ),
                        Cell(str(entry["messages"]), entry["messages"], True),
                        Cell(str(entry["lost"]), entry["lost"], True),
                    ],
                    bad=cell["verdict"] == "disturbed",
                )
            )
    columns = [
        "path, topic, stack",
        "emulated worst",
        "median",
        "worst with brokers",
        "simulated worst",
        "median",
        "searched",
        "bound",
        "messages",
        "lost",
    ]
    caption = 'Rows of disturbed cells are marked; "none": no finite bound, its reason is in reproduce.json.'
    return Table(f"table-{load}", caption, columns, rows, len(rows)).render()


def _time(found: Mapping[str, Any] | None, key: str) -> Cell:
    value = None if found is None else found[key]
    return Cell("" if value is None else time_text(value), value, True)


def _runs(result: Mapping[str, Any]) -> Markup:
    rows = []
    for cell in result["cells"]:
        channels = ", ".join(f"{number} {outcome}" for outcome, number in cell["channels"].items())
        asked = f"requests for channels: {channels}" if channels else ""
        fewest = cell["fewest_messages"]
        sent = "" if fewest is None else f"at least {fewest} messages of every publisher in an iteration"
        said = [
            VERDICTS[cell["verdict"]],
            cell["not_emulated"] or "",
            asked,
            sent,
            background(cell),
            *cell["reasons"][:3],
        ]
        busiest = ", ".join(f"{port['port']} {port['utilisation']:.2f}" for port in cell["busiest"][:3])
        unbounded = sorted({entry["reason"] for entry in cell["paths"] if entry["reason"]})
        rows.append(
            Row(
                f"{SHORT[cell['protocol']]}, {cell['load']}",
                [
                    Cell(". ".join(word for word in said if word), class_="wrap"),
                    Cell(busiest, class_="wrap"),
                    Cell(unbounded[0] if unbounded else "", class_="wrap"),
                    Cell(str(cell["attempts"]), cell["attempts"], True),
                    Cell(f"{cell['took_s']:.0f} s", cell["took_s"], True),
                ],
                bad=cell["verdict"] == "disturbed",
            )
        )
    columns = ["cell", "how", "busiest ports (simulated)", "why there is no bound", "attempts", "took"]
    return Table(
        "table-cells", "A cell that the machine disturbed is run once more.", columns, rows, len(rows)
    ).render()


def _iterations(result: Mapping[str, Any]) -> list[Markup]:
    """The distribution of the worst latency of each iteration, where there are several."""
    rows = []
    for cell in result["cells"]:
        for entry in cell["paths"]:
            for kind in ("emulated", "simulated"):
                if entry[kind] is None or len(entry[kind]["worst_of_iterations_us"]) < 2:
                    continue
                worst = entry[kind]["worst_of_iterations_us"]
                marks = [float(value) for value in np.quantile(worst, [0, 0.25, 0.5, 0.75, 1])]
                name = f"{cell['load']}, {entry['path']} {entry['topic']}, {SHORT[cell['protocol']]}, {kind}"
                cells = [Cell(time_text(mark), mark, True) for mark in marks]
                rows.append(
                    Row(name, [*cells, Cell(str(len(worst)), len(worst), True)], bad=cell["verdict"] == "disturbed")
                )
    if not rows:
        return []
    columns = ["load, path, topic, stack", "least", "25 %", "median", "75 %", "most", "iterations"]
    caption = "Of each iteration the worst latency, as the paper takes it; over all iterations."
    return [
        section(
            "iterations",
            "Worst of each iteration",
            Table("table-iterations", caption, columns, rows, len(rows)).render(),
        )
    ]


def background(cell: Mapping[str, Any]) -> str:
    """Who made the background traffic of an emulated cell, and what came of it; empty where nothing was emulated."""
    if not cell["background_sources"]:
        return ""
    rates = [
        f"{source['name']} {source['measured_bps'] / 1e6:.2f} of {source['declared_bps'] / 1e6:.2f}"
        for source in cell["background_sources"]
    ]
    maker = "by the programs themselves" if cell["background"] == "tools" else "by generators"
    return f"background {maker}, Mbit/s on the wire that arrived, of what is declared: {', '.join(rates)}"


def _statements(found: list[dict[str, Any]]) -> Markup:
    rows = [
        Row(
            NAMES.get(entry["id"], entry["id"]),
            [
                Cell(WORDS[entry["holds"]]),
                Cell(entry["text"], class_="wrap"),
                Cell(entry["paper"], class_="wrap"),
                Cell(entry["ours"], class_="wrap"),
                Cell(entry["why"], class_="wrap"),
            ],
        )
        for entry in found
    ]
    caption = "Words and numbers of section VII-B; the bars of the figures are drawings, and no number is read off one."
    return Table("table-statements", caption, ["", "", "statement", "paper", "ours", "why"], rows, len(rows)).render()
