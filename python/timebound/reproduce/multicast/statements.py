"""The paper's statements about the four stacks, each held against the cells. Pure: cells in, verdicts out.

Compared is the worst of each path and topic: as emulated where every cell of a statement was emulated on a machine that kept up, else as simulated.
Figs. 16 to 18 are drawings, so no number is read off them; what the text states in words and numbers is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from timebound.reproduce.bounds.statements import published
from timebound.reproduce.multicast.cells import LOADS, PATHS, TOPICS

__all__ = ["check_all", "published", "worst_of"]

Cell = Mapping[str, Any]
Cells = Mapping[tuple[str, str], Cell]
Kind = Literal["emulated", "simulated"]
SIMILAR = 1.25
"""Two worst cases within this factor of each other count as similar."""
EQUAL = 1.02
"""And within this one as equal."""
ALL = tuple((path, topic) for path in PATHS for topic in TOPICS.values())
BETWEEN = tuple((path, topic) for path, topic in ALL if path != "L_AA")


def check_all(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Every statement: `id`, `where`, `text`, `paper`, `ours`, `holds` (None where the cells cannot decide it), `why`."""
    known = {(cell["protocol"], cell["load"]): cell for cell in cells}
    return [
        _smaller(
            known,
            "multicast-mrt",
            "multicast reduces worst cases between networks: MRT-MQTT below MQTT",
            "mrt-mqtt",
            "mqtt-bridged",
            BETWEEN,
        ),
        _smaller(
            known,
            "multicast-dm",
            "multicast reduces worst cases between networks: DM-MQTT below MQTT",
            "dm-mqtt",
            "mqtt-bridged",
            BETWEEN,
        ),
        _smaller(
            known,
            "priorities",
            "priorities reduce worst cases further: MRT-MQTT below DM-MQTT",
            "mrt-mqtt",
            "dm-mqtt",
            ALL,
        ),
        _beta(known),
        _longer(known),
        _local(known),
        _alike(known),
        _bounded(known),
        *(_deviation(known, load) for load in LOADS),
    ]


def worst_of(cell: Cell, path: str, topic: str, kind: Kind) -> float | None:
    """The worst of a path and topic, us."""
    entry = next(entry for entry in cell["paths"] if (entry["path"], entry["topic"]) == (path, topic))
    return None if entry[kind] is None else float(entry[kind]["worst_us"])


def kind_of(cells: Iterable[Cell]) -> Kind:
    """What of several cells can be compared."""
    return "emulated" if all(cell["verdict"] == "good" for cell in cells) else "simulated"


def _answer(name: str, text: str, paper: str, ours: str, holds: bool | None, why: str = "") -> dict[str, Any]:
    where = "section VII-B, Figs. 16-18"
    return {"id": name, "where": where, "text": text, "paper": paper, "ours": ours, "holds": holds, "why": why}


def _pairs(
    cells: Cells, first: tuple[str, str], second: tuple[str, str], places: Iterable[tuple[str, str]]
) -> tuple[Kind, list[tuple[str, str, float, float]]]:
    """(path, topic, worst of one cell, worst of the other)."""
    if first not in cells or second not in cells:
        return "simulated", []
    kind = kind_of((cells[first], cells[second]))
    found = []
    for path, topic in places:
        here, there = worst_of(cells[first], path, topic, kind), worst_of(cells[second], path, topic, kind)
        if here is not None and there is not None:
            found.append((path, topic, here, there))
    return kind, found


def _smaller(
    cells: Cells, name: str, text: str, less: str, more: str, places: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    said, against, kinds = [], [], set()
    for load in LOADS:
        kind, pairs = _pairs(cells, (less, load), (more, load), places)
        if not pairs:
            continue
        kinds.add(kind)
        ratios = [here / there for _, _, here, there in pairs]
        said.append(f"{load}: {min(ratios):.2f} to {max(ratios):.2f} of it ({kind})")
        against += [f"{path} {topic} at {load} load" for path, topic, here, there in pairs if here * EQUAL >= there]
    if not said:
        return _answer(name, text, "always", "not run", None)
    why = f"not for {', '.join(against)}" if against else ""
    return _answer(name, text, "always", "; ".join(said), not against, why)


def _beta(cells: Cells) -> dict[str, Any]:
    text = "with MRT-MQTT beta, which has the higher priority, has the lower worst case on every path"
    said, against = [], []
    for load in LOADS:
        cell = cells.get(("mrt-mqtt", load))
        if cell is None:
            continue
        kind = kind_of([cell])
        for path in PATHS:
            alpha, beta = worst_of(cell, path, "alpha", kind), worst_of(cell, path, "beta", kind)
            if alpha is not None and beta is not None:
                said.append(f"{load} {path}: {beta:.0f} and {alpha:.0f} us ({kind})")
                if beta >= alpha:
                    against.append(f"{path} at {load} load")
    if not said:
        return _answer("beta", text, "always", "not run", None)
    why = (
        f"not for {', '.join(against)}"
        if against
        else "the paper's summary gives alpha the higher priority; its section VII-B beta"
    )
    return _answer("beta", text, "always", "; ".join(said), not against, why)


def _longer(cells: Cells) -> dict[str, Any]:
    text = "with MRT-MQTT messages to h15 take longer than those to h10, by one more hop, at the same priority"
    said, against = [], []
    for load in LOADS:
        cell = cells.get(("mrt-mqtt", load))
        if cell is None:
            continue
        kind = kind_of([cell])
        for topic in TOPICS.values():
            near, far = worst_of(cell, "L_AB", topic, kind), worst_of(cell, "L_AC", topic, kind)
            if near is not None and far is not None:
                said.append(f"{load} {topic}: {far:.0f} and {near:.0f} us ({kind})")
                if far <= near:
                    against.append(f"{topic} at {load} load")
    if not said:
        return _answer("longer", text, "always", "not run", None)
    return _answer(
        "longer", text, "always", "; ".join(said), not against, f"not for {', '.join(against)}" if against else ""
    )


def _local(cells: Cells) -> dict[str, Any]:
    text = "inside network A (L_AA) DM-MQTT is similar to MQTT at high load"
    kind, pairs = _pairs(
        cells, ("dm-mqtt", "high"), ("mqtt-bridged", "high"), [("L_AA", topic) for topic in TOPICS.values()]
    )
    if not pairs:
        return _answer("local", text, "similar", "not run", None)
    ours = ", ".join(f"{topic} {here:.0f} and {there:.0f} us" for _, topic, here, there in pairs)
    similar = all(1 / SIMILAR <= here / there <= SIMILAR for _, _, here, there in pairs)
    why = (
        f"similar: within a factor of {SIMILAR}. Of our DM-MQTT local channels are reserved as well, so that background does not come before them; the links "
        "of broker h5 carry what its bridges, or its manager's multicast and the reports about it, add"
    )
    return _answer("local", text, "similar", f"{ours} ({kind})", similar, why)


def _alike(cells: Cells) -> dict[str, Any]:
    text = "with MQTT there is no consistent difference between alpha and beta"
    signs, said = set(), []
    for load in LOADS:
        cell = cells.get(("mqtt-bridged", load))
        if cell is None:
            continue
        kind = kind_of([cell])
        for path in PATHS:
            alpha, beta = worst_of(cell, path, "alpha", kind), worst_of(cell, path, "beta", kind)
            if alpha is not None and beta is not None:
                signs.add(alpha < beta)
                said.append(f"{load} {path}: {alpha / beta:.2f} ({kind})")
    if not said:
        return _answer("alike", text, "none", "not run", None)
    holds = True if len(signs) == 2 else None
    why = "" if holds else "one of them is larger wherever both were run, which so few cells may show by chance"
    return _answer("alike", text, "none", f"alpha over beta: {'; '.join(said)}", holds, why)


def _bounded(cells: Cells) -> dict[str, Any]:
    text = "what is computed is above what is observed, wherever there is a bound"
    least, against = [], []
    for (protocol, load), cell in cells.items():
        for entry in cell["paths"]:
            # What real switches take is judged by the bounds of their own runs (`violations`).
            if entry["searched_us"] is None or entry["bound_us"] is None:
                continue
            ratio = entry["bound_us"] / entry["searched_us"]
            least.append(ratio)
            if ratio < 1:
                against.append(f"{protocol} {load} {entry['path']} {entry['topic']}")
        against += [f"{protocol} {load}: {cell['violations']} in its run"] if cell["violations"] else []
    if not least:
        return _answer("bounded", text, "always", "no bounds to compare with", None if not against else False)
    ours = f"bound over the worst that was searched: {min(least):.2f} to {max(least):.2f}"
    return _answer("bounded", text, "always", ours, not against, f"not for {', '.join(against)}" if against else "")


def _deviation(cells: Cells, load: str) -> dict[str, Any]:
    text = f"largest deviation of the bounds of MRT-MQTT from what is observed at {load} load"
    said = [entry for entry in published() if entry["load"] == load]
    paper = ", ".join(f"{entry['method']} +{entry['deviation_percent']} %" for entry in said)
    cell = cells.get(("mrt-mqtt", load))
    found = []
    for path, topic in ALL if cell is not None else ():
        assert cell is not None
        entry = next(entry for entry in cell["paths"] if (entry["path"], entry["topic"]) == (path, topic))
        if entry["bound_us"] is not None and entry["searched_us"] is not None:
            found.append(100 * (entry["bound_us"] / entry["searched_us"] - 1))
    if not found:
        return _answer(f"deviation-{load}", text, paper, "no finite bound" if cell else "not run", None)
    why = (
        "our bounds hold for any phases of publishers and for everything that the managers and TCP add (reports, acknowledgements, brokers that answer within "
        "5 ms); the paper's are for the messages alone. `mrt-mqtt-bounds` compares the same thing with the same thing"
    )
    return _answer(
        f"deviation-{load}",
        text,
        paper,
        f"+{min(found):.0f} to +{max(found):.0f} % over the worst that was searched",
        None,
        why,
    )
