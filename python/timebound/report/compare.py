"""Two or more runs side by side: what differs in the scenario, which verdicts changed, by how much every figure moved."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from timebound.files import may_write, results_of, write_file

from . import tables
from .document import document, section
from .figures import NARROW, WIDE
from .figures.bars import Bar, Group, Plot, deadline_key, draw
from .markup import Markup, el, join
from .ranking import critical
from .run import Flow, ReportError, Run, items, read_run, text
from .svg import swatch
from .tables import Cell, Row, Table, share_cell, time_cell, verdict_word
from .units import MISSING, count_text, rate_text, share_text, time_text
from .words import SYMBOL, headlines

MOST_RUNS = 6
MOST_GROUPS = 24
MOST_DIFFERENCES = 300
# From this change on a figure is called better or worse; below it, two runs of one scenario differ by chance.
NOTABLE = 0.02

SIGNATURE = "Timebound comparison."
"""What every comparison has in its last lines."""

Pair = tuple[str, str]
Side = Sequence[Flow | None]
MEASURES = (
    ("bound", "bound"),
    ("simulated", "worst simulated"),
    ("network", "network max"),
    ("application", "application max"),
)


def figure_of(flow: Flow, measure: str) -> float | None:
    """The figure of a flow that is compared, in microseconds."""
    found = {
        "bound": flow.bound,
        "simulated": flow.simulated,
        "network": flow.network.max,
        "application": flow.application.max,
    }
    return found[measure]


def write_comparison(
    folders: list[Path], out: Path, *, force: bool = False, tell: Callable[[str], None] = lambda said: None
) -> Path:
    """Compares run folders, the first being what the others are measured against; returns the path of the page.

    `out` is the HTML file, or a folder, in which `comparison.html` is written. Raises `ReportError` where there are fewer than two
    or more than six folders, or one of them cannot be read, or the page cannot be written; `FolderError` as `check_page`.
    """
    if not 2 <= len(folders) <= MOST_RUNS:
        raise ReportError(f"a comparison takes 2 to {MOST_RUNS} run folders, not {len(folders)}")
    runs = [read_run(folder) for folder in folders]
    for said in (said for run in runs for said in run.left_out):
        tell(said)
    path = out / "comparison.html" if out.is_dir() else out
    try:
        check_page(path, folders, force=force)
        page = render(runs, digest_of(folders))
        write_file(path, page, force=force, ours=lambda there: is_comparison(there, folders))
    except OSError as error:
        raise ReportError(f"the comparison cannot be written to {path}: {error.strerror or error}") from error
    return path


def check_page(page: Path, folders: Sequence[Path], *, force: bool = False) -> None:
    """May the page be written there? An earlier comparison of the same runs is replaced, as an earlier run is by one of the same scenario.

    Raises:
        FolderError: another file is there (`force` replaces it), one of what is compared, a link, or no folder to write it into.
    """
    inputs = [file for folder in folders for file in results_of(folder)]
    may_write(page, force=force, ours=lambda there: is_comparison(there, folders), inputs=inputs)


def digest_of(folders: Sequence[Path]) -> str:
    """What a page is known by: the folders that it compares, in their order."""
    return hashlib.sha256("\0".join(str(folder.resolve()) for folder in folders).encode()).hexdigest()[:32]


def is_comparison(path: Path, folders: Sequence[Path]) -> bool:
    """Is there a page that `write_comparison` wrote of these folders?"""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return f'data-comparison="{digest_of(folders)}"' in text and SIGNATURE in text


def render(runs: Sequence[Run], digest: str | None = None) -> str:
    """The page as HTML text."""
    letters = [chr(ord("A") + index) for index in range(len(runs))]
    pairs = _paired(runs)
    sections = [
        _changes(letters, pairs),
        _figure(letters, pairs),
        section("flows", "Every flow", _flow_table(letters, pairs).render()),
        section("ports", "Load of the links", _port_table(letters, runs).render()),
        _scenarios(letters, runs),
    ]
    left_out = [
        el("li", f"{letter}: {said}") for letter, run in zip(letters, runs, strict=True) for said in run.left_out
    ]
    header = el(
        "header", el("h1", "Comparison of runs"), _overview(letters, runs), el("ul", *left_out) if left_out else None
    )
    footer = el(
        "footer",
        el("p", f"{SIGNATURE} A change in per cent is against run A; under 2 % it is not coloured."),
        data_comparison=digest,
    )
    return document("Comparison of runs (Timebound)", [header, el("main", join(sections, "\n")), footer])


def _paired(runs: Sequence[Run]) -> list[tuple[Pair, Side]]:
    """Every flow and receiver with its entry in each run, the most critical first."""
    known = [{(flow.flow, flow.receiver): flow for flow in run.flows} for run in runs]
    order: dict[Pair, None] = {}
    for flow in critical([flow for run in runs for flow in run.flows]):
        order.setdefault((flow.flow, flow.receiver))
    return [(pair, [flows.get(pair) for flows in known]) for pair in order]


def _overview(letters: Sequence[str], runs: Sequence[Run]) -> Markup:
    rows = []
    for letter, run in zip(letters, runs, strict=True):
        numbers = headlines(run)
        cells = [
            Cell(run.name),
            Cell(verdict_word(run.verdict)),
            *(time_cell(number.value, bad=number.value is not None and number.value < 0) for number in numbers),
            Cell(text(run.scenario.get("stack"))),
            Cell(text(run.scenario.get("seed"))),
            Cell(text(run.precision.get("verdict"))),
            Cell(text(run.manifest.get("started"))),
        ]
        rows.append(Row(f"{letter}: {run.folder}", cells))
    columns = (
        "run",
        "scenario",
        "verdict",
        "worst observed",
        "worst simulated",
        "tightest margin",
        "stack",
        "seed",
        "precision",
        "started",
    )
    return Table("table-runs", "The runs that are compared.", columns, rows, len(rows)).render()


def _changes(letters: Sequence[str], pairs: Sequence[tuple[Pair, Side]]) -> Markup:
    lines: list[Markup] = []
    for pair, side in pairs:
        verdicts = [flow.verdict if flow else "absent" for flow in side]
        if len(set(verdicts)) > 1:
            words = [
                join([f"{letter} ", verdict_word(v) if v in SYMBOL else v])
                for letter, v in zip(letters, verdicts, strict=True)
            ]
            lines.append(el("li", f"{pair[0]} → {pair[1]}: ", join(words, ", ")))
    if not lines:
        said = "No verdict of a flow changed." if pairs else "No run has a flow."
        return section("changes", "Changed verdicts", el("p", said))
    rest = len(lines) - MOST_DIFFERENCES
    more = el("li", f"and {count_text(rest)} more in the table") if rest > 0 else None
    heading = (
        f"{count_text(len(lines))} of {count_text(len(pairs))} flows changed their verdict or are not in every run."
    )
    return section("changes", "Changed verdicts", el("p", heading), el("ul", *lines[:MOST_DIFFERENCES], more))


_SHADE = {"network": "observed", "application": "application", "simulated": "simulated", "bound": "bound"}


def _figure(letters: Sequence[str], pairs: Sequence[tuple[Pair, Side]]) -> Markup:
    present = [
        (m, words) for m, words in MEASURES if any(f and figure_of(f, m) is not None for _, side in pairs for f in side)
    ]
    shown = [(m, words) for m, words in present if m != "application"] or present
    groups = [_group(letters, pair, side, [m for m, _ in shown]) for pair, side in pairs[:MOST_GROUPS]]
    if not any(group.bars for group in groups):
        return section("figure", "Side by side", el("p", "There is no figure to compare.", class_="note"))
    key = [(words, swatch(_SHADE[m])) for m, words in shown]
    if any(group.deadline is not None for group in groups):
        key.append(("deadline", deadline_key))
    more = len(pairs) - len(groups)
    footnote = f"The {len(groups)} most critical of {len(pairs)} flows; the table has the others." if more else ""
    title = "Bounds and latencies of the runs side by side"
    plot = Plot("comparison", title, f"Horizontal bars for {len(groups)} flows.", groups, key, footnote)
    caption = "For each flow and measure one bar for each run, from A on, ever paler. The deadline is that of the first run that states one."
    wide, narrow = el("div", draw(plot, WIDE), class_="wide"), el("div", draw(plot, NARROW), class_="narrow")
    return section("figure", "Side by side", el("figure", wide, narrow, el("figcaption", caption)))


def _group(letters: Sequence[str], pair: Pair, side: Side, measures: Sequence[str]) -> Group:
    words = dict(MEASURES)
    bars = []
    for measure in measures:
        for index, (letter, flow) in enumerate(zip(letters, side, strict=True)):
            if flow is None:
                continue
            value = figure_of(flow, measure)
            if value is None and measure == "bound" and (flow.reason or flow.verdict in ("unbounded", "unsupported")):
                kind = "unsupported" if flow.verdict == "unsupported" else "no finite bound"
                bars.append(Bar(f"{letter} {words[measure]}", None, "bound", kind, mark=letter))
            elif value is not None:
                bars.append(
                    Bar(
                        f"{letter} {words[measure]}",
                        value,
                        _SHADE[measure],
                        mark=letter,
                        opacity=1 - 0.6 * index / len(letters),
                    )
                )
    deadline = next((flow.deadline for flow in side if flow is not None and flow.deadline is not None), None)
    note = ", ".join(
        f"{letter} {flow.verdict if flow else 'absent'}" for letter, flow in zip(letters, side, strict=True)
    )
    alarm = any(flow is not None and flow.verdict == "violated" for flow in side)
    return Group(f"{pair[0]} → {pair[1]}", note, tuple(bars), deadline, alarm)


def delta_cell(base: float | None, value: float | None) -> Cell:
    """The change against the first run, as a share of it; more latency is worse."""
    if base is None or value is None or base == 0:
        return Cell(MISSING, None, True)
    change = (value - base) / base
    class_ = None if abs(change) < NOTABLE else "delta-worse" if change > 0 else "delta-better"
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    return Cell(f"{sign}{share_text(abs(change))}", change, True, class_)


def _flow_table(letters: Sequence[str], pairs: Sequence[tuple[Pair, Side]]) -> Table:
    columns = ["flow → receiver", *(f"verdict {letter}" for letter in letters)]
    for _, words in MEASURES:
        columns.append(f"{words} A")
        for letter in letters[1:]:
            columns += [f"{words} {letter}", f"{letter} against A"]
    columns += [f"lost {letter}" for letter in letters]
    rows = []
    for pair, side in pairs[: tables.MOST_ROWS]:
        cells = [Cell(verdict_word(flow.verdict) if flow else "absent") for flow in side]
        for measure, _ in MEASURES:
            values = [figure_of(flow, measure) if flow else None for flow in side]
            cells.append(time_cell(values[0]))
            for value in values[1:]:
                cells += [time_cell(value), delta_cell(values[0], value)]
        cells += [tables.count_cell(flow.counts["lost"] if flow else None, bad=True) for flow in side]
        rows.append(Row(f"{pair[0]} → {pair[1]}", cells))
    caption = "Every figure of every run, and its change against run A."
    return Table(
        "table-comparison", caption, columns, rows, len(pairs), filtered=True, where="the summary.json of each run"
    )


def _port_table(letters: Sequence[str], runs: Sequence[Run]) -> Table:
    known = [{port.name: port for port in run.ports} for run in runs]
    names = list(dict.fromkeys(name for ports in known for name in ports))
    names.sort(key=lambda name: -max((ports[name].load or 0.0) for ports in known if name in ports))
    rows = []
    for name in names[: tables.MOST_ROWS]:
        found = [ports.get(name) for ports in known]
        cells = [share_cell(port.load if port else None, bad=bool(port and port.reason)) for port in found]
        cells += [tables.count_cell(port.dropped if port else None, bad=True) for port in found]
        rows.append(Row(name.replace("->", " → "), cells))
    columns = ["port", *(f"load {letter}" for letter in letters), *(f"dropped {letter}" for letter in letters)]
    return Table(
        "table-loads",
        "Observed, else simulated, else declared load of every port.",
        columns,
        rows,
        len(names),
        filtered=True,
    )


def _facts_of(run: Run) -> dict[str, str]:
    """What a scenario asks for, flat: name of a thing and property to its value in words."""
    flat = {f"scenario: {key}": text(value) for key, value in run.scenario.items() if key != "notes"}
    for node in items(run.topology.get("nodes")):
        flat[f"node {text(node.get('name'))}"] = text(node.get("kind"))
    for link in items(run.topology.get("links")):
        rate, delay = link.get("rate_bps"), link.get("delay_ns")
        words = [rate_text(rate) if isinstance(rate, int | float) else MISSING]
        words.append(f"delay {time_text(delay / 1000)}" if isinstance(delay, int | float) else "")
        flat[f"link {text(link.get('a'))} – {text(link.get('b'))}"] = ", ".join(w for w in words if w)
    for flow in run.flows:
        properties = (
            ("topic", flow.topic),
            ("priority", _short(flow.priority)),
            ("QoS", _short(flow.qos)),
            ("size", f"{_short(flow.size)} B"),
            ("period", time_text(flow.period, 6)),
            ("jitter", time_text(flow.jitter, 6)),
            ("deadline", time_text(flow.deadline, 6)),
        )
        for name, value in properties:
            flat[f"flow {flow.name}: {name}"] = value
    return flat


def _short(value: float | None) -> str:
    return MISSING if value is None else f"{value:g}"


def _scenarios(letters: Sequence[str], runs: Sequence[Run]) -> Markup:
    flat = [_facts_of(run) for run in runs]
    names = list(dict.fromkeys(name for facts_of_run in flat for name in facts_of_run))
    different = [name for name in names if len({facts_of_run.get(name) for facts_of_run in flat}) > 1]
    rows = [
        Row(name, [Cell(f.get(name, "absent"), class_="wrap") for f in flat]) for name in different[: tables.MOST_ROWS]
    ]
    if rows:
        caption = "What the scenarios declare differently."
        said: Markup = Table("table-scenario", caption, ["what", *letters], rows, len(different)).render()
    else:
        said = el("p", "The scenarios declare the same network and the same flows.")
    texts = [_difference(runs[0], run, letter) for letter, run in zip(letters[1:], runs[1:], strict=True)]
    return section("scenarios", "Differences of the scenarios", said, *texts)


def _difference(first: Run, other: Run, letter: str) -> Markup | None:
    """The unified difference of the two resolved scenarios."""
    if not first.resolved or not other.resolved or first.resolved == other.resolved:
        return None
    before, after = first.resolved.splitlines()[:5000], other.resolved.splitlines()[:5000]
    lines = list(difflib.unified_diff(before, after, "A", letter, lineterm="", n=2))
    shown = lines[:MOST_DIFFERENCES]
    if len(lines) > len(shown):
        shown.append(f"... ({count_text(len(lines) - len(shown))} more lines)")
    return el("details", el("summary", f"scenario.yaml: {letter} against A"), el("pre", "\n".join(shown), tabindex=0))
