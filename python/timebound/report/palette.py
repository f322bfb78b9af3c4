"""Colours by meaning, for light and dark. Chosen to stay apart under the common colour blindnesses (after Okabe and Ito);
nothing is told by colour alone. Text colours keep a contrast of at least 4.5 to their background.
"""

from __future__ import annotations

# name: (light, dark)
PALETTE: dict[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#14181d"),
    "ink": ("#1b2128", "#e7ebef"),
    "muted": ("#57616c", "#a3adb8"),
    "grid": ("#dfe3e8", "#303843"),
    "observed": ("#0b6cb0", "#4ea8e6"),
    "application": ("#7a4fa3", "#b794dc"),
    "simulated": ("#c77700", "#f0a63c"),
    "bound": ("#5a6570", "#9aa5b1"),
    "deadline": ("#1b2128", "#e7ebef"),
    "broker": ("#a8437f", "#e38cc2"),
    "host": ("#08765c", "#3cc5a2"),
    "alarm": ("#b8142b", "#ff7a85"),
    "idle": ("#b9c1ca", "#56616d"),
    "load1": ("#86b6dd", "#2f5f86"),
    "load2": ("#4b8fc7", "#3f86bd"),
    "load3": ("#1f6aa8", "#62aee6"),
    "load4": ("#c77700", "#f0a63c"),
}


def paint(fill: str | None = None, stroke: str | None = None) -> dict[str, object]:
    """Attributes for a shape: the light colours themselves, and classes by which a page can turn them dark.

    So a figure is right on its own, in any program that draws SVG, and follows the reader's choice inside the page.
    """
    classes = [f"f-{fill}"] if fill else []
    classes += [f"s-{stroke}"] if stroke else []
    return {
        "class_": " ".join(classes) or None,
        "fill": PALETTE[fill][0] if fill else "none",
        "stroke": PALETTE[stroke][0] if stroke else None,
    }


def dark_rules() -> str:
    """CSS that turns the figures' colours dark."""
    return "".join(f".f-{n}{{fill:{d}}}.s-{n}{{stroke:{d}}}" for n, (_, d) in PALETTE.items())
