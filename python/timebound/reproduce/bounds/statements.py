"""The paper's statements about Figs. 16 to 18, each held against the cells. Pure: cells in, verdicts out.

The figures are drawings, so no number is read off them; what the text states in words and numbers is checked. `published.csv` beside the
scenario `edge-networks` holds the numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

Cell = Mapping[str, Any]

FIGURED = "topics-of-a"
"""The reading in which the paper's figures can be: under the other no load but the lowest has finite worst cases."""
METHODS = {"holistic": "holistic-as-published", "trajectory": "trajectory-as-published"}
MEANT = "trajectory-with-published-defects"


def published() -> list[dict[str, Any]]:
    """The paper's numbers: `load`, `method`, `deviation_percent`, `compute_ms`."""
    path = resources.files("timebound").joinpath("_scenarios", "edge-networks", "published.csv")
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [
        {
            "load": row["load"],
            "method": row["method"],
            "deviation_percent": float(row["largest_deviation_from_observed_percent"]),
            "compute_ms": int(row["time_to_compute_ms"]),
        }
        for row in rows
    ]


def check_all(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Every statement: `id`, `where`, `text`, `paper`, `ours`, `holds` (None where the cells cannot decide it), `why`."""
    by_load = {cell["load"]: cell for cell in cells if cell["reading"] == FIGURED}
    checks = [
        *(_above(by_load, short, name) for short, name in METHODS.items()),
        _tighter(by_load),
        *(_deviates(by_load, entry) for entry in published()),
        _faster(by_load),
        _beta(by_load),
        _longer(by_load),
    ]
    return [check for check in checks if check is not None]


def _answer(name: str, text: str, paper: str, ours: str, holds: bool | None, why: str = "") -> dict[str, Any]:
    return {
        "id": name,
        "where": "section VII-B, Figs. 16-18",
        "text": text,
        "paper": paper,
        "ours": ours,
        "holds": holds,
        "why": why,
    }


def _method(cell: Cell, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(entry for entry in cell["methods"] if entry["name"] == name)
    return found


def _above(cells: Mapping[str, Cell], short: str, name: str) -> dict[str, Any]:
    least = {
        load: _method(cell, name)["least_deviation_percent"]
        for load, cell in cells.items()
        if _method(cell, name)["least_deviation_percent"] is not None
    }
    text = f"what the {short} approach computes is above what is observed, in every case"
    if not least:
        return _answer(
            f"{short}-above", text, "always", "not searched", None, "no simulated worst case to compare with"
        )
    ours = ", ".join(f"{load} {value:+.1f} %" for load, value in least.items())
    below = min(least.values()) < 0
    why = "as printed it is below what the simulator reaches: no safe figure" if below else ""
    return _answer(f"{short}-above", text, "always", f"least deviation {ours}", not below, why)


def _tighter(cells: Mapping[str, Cell]) -> dict[str, Any]:
    text = "the trajectory approach comes closer to what is observed than the holistic one"
    pairs = {
        load: (
            _method(cell, MEANT)["largest_deviation_percent"],
            _method(cell, METHODS["holistic"])["largest_deviation_percent"],
        )
        for load, cell in cells.items()
    }
    known = {load: (ta, ha) for load, (ta, ha) in pairs.items() if ta is not None and ha is not None}
    if not known:
        return _answer("tighter", text, "always", "not searched", None)
    ours = ", ".join(f"{load} {ta:+.1f} against {ha:+.1f} %" for load, (ta, ha) in known.items())
    why = "of the trajectory approach the reading with transmission times: with the printed SD it is below what is observed"
    return _answer("tighter", text, "always", ours, all(ta < ha for ta, ha in known.values()), why)


def _deviates(cells: Mapping[str, Cell], entry: Mapping[str, Any]) -> dict[str, Any] | None:
    cell = cells.get(entry["load"])
    if cell is None:
        return None
    name = METHODS[entry["method"]]
    printed = _method(cell, name)["largest_deviation_percent"]
    text = f"largest deviation of the {entry['method']} approach from what is observed at {entry['load']} load"
    paper = f"+{entry['deviation_percent']} %"
    if printed is None:
        return _answer(f"deviation-{entry['method']}-{entry['load']}", text, paper, "not searched", None)
    ours = f"as printed {printed:+.1f} %"
    if entry["method"] == "trajectory":
        ours += f"; with transmission times {_method(cell, MEANT)['largest_deviation_percent']:+.1f} %"
    safe = _method(cell, "bound")["largest_deviation_percent"]
    why = (
        f"our safe bound deviates by {safe:+.1f} %. The paper compares with the worst that it happened to observe on a laptop, we with the worst that "
        "a search finds; links, switching delays and deadlines of the figure are assumptions of ours"
    )
    return _answer(f"deviation-{entry['method']}-{entry['load']}", text, paper, ours, None, why)


def _faster(cells: Mapping[str, Cell]) -> dict[str, Any]:
    text = "the holistic approach takes about a quarter of the trajectory approach's time"
    times = {
        load: (_method(cell, METHODS["holistic"])["compute_ms"], _method(cell, MEANT)["compute_ms"])
        for load, cell in cells.items()
    }
    ours = ", ".join(f"{load} {ha:.1f} and {ta:.1f} ms" for load, (ha, ta) in times.items())
    paper = "262, 308, 345 ms and 964, 1140, 1346 ms"
    return _answer("faster", text, paper, ours, all(ha < ta for ha, ta in times.values()) if times else None)


def _beta(cells: Mapping[str, Cell]) -> dict[str, Any]:
    text = "beta, which has the higher priority, has the lower worst case on every path"
    return _ordered(cells, "beta", text, "topic", ("beta", "alpha"), "path")


def _longer(cells: Mapping[str, Cell]) -> dict[str, Any]:
    text = "messages to h15 take longer than those to h10, by one more hop, at the same priority"
    return _ordered(cells, "longer", text, "path", ("L_AB", "L_AC"), "topic")


def _ordered(
    cells: Mapping[str, Cell], name: str, text: str, key: str, order: tuple[str, str], group: str
) -> dict[str, Any]:
    """Is the worst found smaller where `key` is the first of `order` than where it is the second, in every `group`?"""
    pairs = []
    for load, cell in cells.items():
        found = {(figure[key], figure[group]): figure["simulated_us"] for figure in cell["figures"]}
        for member in dict.fromkeys(figure[group] for figure in cell["figures"]):
            small, large = found[order[0], member], found[order[1], member]
            if small is not None and large is not None:
                pairs.append((f"{load} {member}", small, large))
    if not pairs:
        return _answer(name, text, "always", "not searched", None)
    ours = ", ".join(f"{where}: {small:.0f} and {large:.0f} us" for where, small, large in pairs)
    return _answer(name, text, "always", ours, all(small < large for _, small, large in pairs))
