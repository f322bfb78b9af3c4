"""The page's section on a method that was asked for beside the bound, with its label."""

from __future__ import annotations

from . import tables
from .document import section
from .markup import Markup, el, join
from .run import Run, figure, items, mapping, text
from .units import time_text

MOST_ROWS = 2000


def method(run: Run) -> Markup:
    """What the method says of every flow, beside the bound; nothing where none was asked for."""
    name, label = text(run.method.get("name")), text(run.method.get("label"))
    if not name:
        return join([])
    is_safe = text(run.method.get("safety")) == "safe"
    bounds = {flow.name: flow for flow in run.flows}
    rows = []
    found = [mapping(entry) for entry in items(run.method.get("flows"))]
    for entry in found[:MOST_ROWS]:
        title = f"{text(entry.get('flow'))} → {text(entry.get('receiver'))}"
        flow = bounds.get(title)
        value = figure(entry.get("value_us"))
        cells = [
            tables.Cell("none" if value is None else time_text(value), value, True),
            tables.Cell(time_text(None if flow is None else flow.bound), None if flow is None else flow.bound, True),
            tables.Cell(text(entry.get("reason")), class_="wrap"),
        ]
        rows.append(tables.Row(title, cells))
    columns = ("flow → receiver", f"{name} ({label})", "bound", "reason")
    caption = f"Figures of the method {name}: {label}. Verdicts and margins on this page are those of the bound."
    words = el("p", text(run.method.get("meaning")), class_="note" if is_safe else "note is-violated")
    table = tables.Table("table-method", caption, columns, rows, len(found), filtered=True).render()
    return section("method", f"By another method: {name} ({label})", join([words, table]))
