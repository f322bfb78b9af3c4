"""Run folders of earlier versions, whose manifests have no list of files: how they are known, and what may be removed in them."""

from __future__ import annotations

from typing import Any

KEYS = {
    "timebound": str,
    "python": str,
    "kernel": str,
    "host": dict,
    "command": list,
    "seed": int,
    "parts": list,
    "started": str,
}
"""Keys that such a manifest has, all of them, and of what type."""
PARTS = {"predict", "simulate", "emulate"}
FIGURES = (
    *("flows", "explained", "topology", "boxes", "cdf", "shares", "way", "series", "links", "fidelity", "lateness"),
    *("packet-kinds", "packet-sizes", "packet-overhead", "packet-series"),
)
"""Of a report (`timebound.report.FIGURES`)."""
REPORT = (
    "report.html",
    "figures/PNG-MISSING.txt",
    *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")),
)
FILES = (
    *(f"{name}.json" for name in ("plan", "summary", "emulation", "live", "pair", "switches")),
    "scenario.yaml",
    *(
        f"{name}.parquet"
        for name in ("messages", "frames", "nodes", "links", "precision", "simulated", "simulated_links", "packets")
    ),
    *(f"{name}.bin" for name in ("frames", "endpoints")),
    *(f"{name}.csv" for name in ("nodes", "ports", "lateness")),
    "hosts",
    "logs/sandbox.log",
    *REPORT,
)


def is_former(manifest: dict[str, Any]) -> bool:
    """Is this a manifest that an earlier version wrote?"""
    known = all(isinstance(manifest.get(key), kind) for key, kind in KEYS.items())
    return known and bool(manifest["parts"]) and set(map(str, manifest["parts"])) <= PARTS


def files_of(emulation: dict[str, Any] | None) -> tuple[str, ...]:
    """Names of files that it is known to have written; logs and captures are those that its plan of the emulation names."""
    if emulation is None:
        return FILES
    programs, captures = emulation.get("programs"), emulation.get("captures")
    names = [str(entry["name"]) for entry in _objects(programs) if "name" in entry]
    files = [str(entry["file"]) for entry in _objects(captures) if "file" in entry]
    found = [*(f"logs/{name}.log" for name in names), *(f"captures/{name}" for name in files)]
    return (*FILES, *(name for name in found if name.count("/") == 1 and "\0" not in name))


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
