"""The figures of the report by name. Each is one SVG document that carries its own styles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..markup import Markup
from ..run import ReportError, Run
from ..svg import Canvas, label
from .bars import flow_bars
from .distributions import boxes, cdf
from .explained import explained
from .fidelity import fidelity
from .lateness import lateness
from .packets import kinds, overhead, sizes
from .packets import series as packet_series
from .series import latency, links
from .shares import shares
from .topology import topology
from .way import way

FIGURES: Mapping[str, Callable[[Run, float], Markup | None]] = {
    "flows": flow_bars,
    "explained": explained,
    "topology": topology,
    "boxes": boxes,
    "cdf": cdf,
    "shares": shares,
    "way": way,
    "series": latency,
    "links": links,
    "fidelity": fidelity,
    "lateness": lateness,
    "packet-kinds": kinds,
    "packet-sizes": sizes,
    "packet-overhead": overhead,
    "packet-series": packet_series,
}

WIDE = 960.0
NARROW = 344.0


def draw(name: str, run: Run, width: float = WIDE) -> Markup | None:
    """The figure as SVG, `width` pixels wide; `None` where the run has nothing to draw.

    Raises `ReportError` for a name that is no figure.
    """
    try:
        drawer = FIGURES[name]
    except KeyError:
        raise ReportError(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}") from None
    return drawer(run, width)


def figure_svg(name: str, summary: Mapping[str, Any]) -> str:
    """One figure of a `summary.json` object as an SVG document; where there is nothing to draw, it says so.

    Raises `ReportError` for a name that is no figure or a summary of another schema.
    """
    drawn = draw(name, Run.parse(summary))
    if drawn is None:
        canvas = Canvas(name, 480, 60, f"{name}: nothing to show", "The verbs that were run give no figures for this.")
        canvas.add(label(12, 34, f"{name}: nothing to show for the verbs that were run", size=13, colour="muted"))
        drawn = canvas.render()
    return drawn
