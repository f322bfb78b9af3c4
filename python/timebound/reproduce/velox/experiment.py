"""Works the model out and keeps it: `reproduce.json` and `report.html`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.engine import folder as folders
from timebound.engine.folder import FolderError
from timebound.reproduce.place import MARK, take
from timebound.reproduce.velox import bound, model
from timebound.reproduce.velox.model import Parameters, Printed

NAME = "velox-model"
SCHEMA = 1
LABEL = "means, never bounds"
BEYOND = {
    "sojourn": ("eq. 5", "us", "mean time in an M/M/1, service included: 1/(mu - lambda)"),
    "customers": ("eq. 5", "", "mean number of messages: rho/(1 - rho)"),
    "total_eq_4": ("eq. 4", "us", "end to end with every term of eq. 4"),
    "link_waiting": ("ours", "us", "mean wait for the first link (M/D/1), in no total"),
}
"""Quantities that the paper prints no number for: where they come from, unit, words."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished experiment."""

    folder: Path
    result: dict[str, Any]


def result_of(parameters: Parameters) -> dict[str, Any]:
    """The model as a document; times in microseconds, all of them means except `bounds`.

    Raises:
        ValueError: a packet that no frame can carry.
    """
    printed, right = model.as_printed(parameters), model.corrected(parameters)
    names = model.published()
    quantities = [_quantity(entry, printed.get(key), right.get(key)) for key, entry in names.items() if key in printed]
    for key, (where, unit, words) in BEYOND.items():
        if key in printed or key in right:
            entry = Printed(key, where, unit, "", words)
            quantities.append(_quantity(entry, printed.get(key), right.get(key)))
    measured = names["measured"].value
    return {
        "schema": SCHEMA,
        "experiment": NAME,
        "timebound": __version__,
        "label": LABEL,
        "parameters": {
            key: float(value) if isinstance(value, Fraction) else value for key, value in asdict(parameters).items()
        },
        "is_papers": parameters == Parameters(),
        "link_utilisation": float(parameters.link_utilisation),
        "quantities": quantities,
        "parts": {"printed": _parts(parameters, printed, None), "corrected": _parts(parameters, right, right["sojourn"])},
        "measured_us": float(measured),
        "difference_us": {
            "printed": float(measured - printed["total"]),
            "corrected": float(measured - right["total"]),
        },
        "defects": [asdict(defect) for defect in model.defects(parameters, printed, right)],
        "bounds": bound.bounds(parameters),
    }  # fmt: skip


def _quantity(entry: Printed, printed: Fraction | None, right: Fraction | None) -> dict[str, Any]:
    return {
        "id": entry.id,
        "where": entry.where,
        "quantity": entry.quantity,
        "unit": entry.unit,
        "paper": entry.text or None,
        "printed": None if printed is None else float(printed),
        "corrected": None if right is None else float(right),
    }


def _parts(parameters: Parameters, figures: dict[str, Fraction], sojourn: Fraction | None) -> list[dict[str, Any]]:
    """What the total is made of, in the order of the way."""
    p = parameters
    if sojourn is None:
        ends = [("T_pub + T_sub", figures["waiting"]), ("P + P1", p.service_us)]
    else:
        ends = [("sojourn, publisher", sojourn), ("sojourn, subscriber", sojourn)]
    rows = [("T_appmid", p.appmid_us), *ends, ("D", figures["network"]), ("T_midapp", p.midapp_us)]
    return [{"name": name, "us": float(value)} for name, value in rows]


def run(parameters: Parameters, folder: Path) -> Done:
    """Writes the experiment's folder.

    Raises:
        FolderError: the folder holds something else; a packet that no frame can carry.
    """
    try:
        result = result_of(parameters)
    except ValueError as error:
        raise FolderError(f"the network is not possible: {error}", "--packet-size of at most 9000 B") from error
    mark = folder / MARK
    take(folder, NAME)
    folders.write_json(mark, result)
    from timebound.reproduce.velox.page import write

    write(folder, result)
    return Done(folder, result)
