"""The report page of one run: the answer first, then the reasons to trust it or not."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime

from . import tables
from .document import document, facts, section
from .fidelity import fidelity
from .figures import NARROW, draw
from .markup import Markup, el, join
from .method import method
from .packets import packets
from .picture import picture
from .run import Run, figure, text
from .units import count_text, time_text
from .words import HEADLINE, LIMITS, MEANINGS, METHOD, SYMBOL, headlines, kept, known_verdict, sentence

MOST_VIOLATIONS = 20


def render(run: Run) -> str:
    """The page as HTML text."""
    sections = [
        _latency(run),
        _explained(run),
        method(run),
        _network(run),
        _distributions(run),
        _shares(run),
        _way(run),
        _series(run),
        packets(run, picture),
        _tables(run),
        fidelity(run),
        _meaning(run),
        _reproduce(run),
    ]
    body = [
        el("a", "Skip to the results", href="#latency", class_="skip"),
        _header(run),
        _contents(run),
        el("main", join(sections, "\n")),
        el(
            "footer",
            el(
                "p",
                "Timebound report. Every figure on this page is in summary.json of the run folder; figures are also in figures/.",
            ),
        ),
    ]
    return document(f"{run.name}: {run.verdict} (Timebound)", body)


def _plain(value: object) -> str:
    """A manifest value as text: lists joined, objects as `key value` pairs."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(entry)}" for key, entry in list(value.items())[:20])
    if isinstance(value, list):
        return ", ".join(_plain(entry) for entry in value[:20])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return text(value)


def _when(manifest: Mapping[str, object]) -> str:
    """When the run took place: start and length, in the time zone in which it was recorded."""
    started, ended = text(manifest.get("started")), text(manifest.get("ended"))
    try:
        start = datetime.fromisoformat(started)
    except ValueError:
        return started
    zone = start.tzname() or ""
    shown = f"{start:%Y-%m-%d %H:%M:%S} {zone}".strip()
    try:
        return f"{shown}, {(datetime.fromisoformat(ended) - start).total_seconds():.0f} s in all"
    except (ValueError, TypeError):
        return shown


def _versions(manifest: Mapping[str, object]) -> str:
    found = {key: manifest.get(key) for key in ("timebound", "python", "kernel")}
    return _plain({key: value for key, value in found.items() if value})


def _header(run: Run) -> Markup:
    scenario, manifest = run.scenario, run.manifest
    duration = figure(scenario.get("duration_s"))
    warmup = figure(scenario.get("warmup_s"))
    measured = time_text(duration * 1e6) if duration is not None else None
    if measured and warmup:
        measured += f" after {time_text(warmup * 1e6)} of warm-up"
    about = facts(
        [
            ("Run", _when(manifest)),
            ("Host", _plain(manifest.get("host"))),
            ("Versions", _versions(manifest)),
            ("Parts that ran", _plain(manifest.get("parts"))),
            ("Stack", text(scenario.get("stack"))),
            ("Seed", text(scenario.get("seed"))),
            ("Measured", measured),
            ("Reading", text(scenario.get("reading"))),
        ]
    )
    return el(
        "header",
        el("h1", run.name),
        el("p", text(scenario.get("description")), class_="about") if scenario.get("description") else None,
        _banner(run),
        _failure(run),
        _channels(run),
        _left_out(run),
        _measured_notes(run),
        _numbers(run),
        about,
    )


def _banner(run: Run) -> Markup:
    verdict = known_verdict(run.verdict)
    title = f"{SYMBOL[verdict]} {HEADLINE.get(verdict, run.verdict)}"
    more = None
    if run.violations:
        shown = run.violations[:MOST_VIOLATIONS]
        rest = len(run.violations) - len(shown)
        entries = [el("li", f"{text(v.get('flow'))} → {text(v.get('receiver'))}: {text(v.get('text'))}") for v in shown]
        more = el("ul", *entries, el("li", f"and {count_text(rest)} more in summary.json") if rest else None)
    return el("div", el("strong", title), el("p", sentence(run)), more, class_=f"verdict is-{verdict}", role="status")


def _failure(run: Run) -> Markup | None:
    if run.failed_programs and not run.failure:
        # The first is in the banner already, where it is the verdict.
        rest = run.failed_programs[1:] if run.verdict == "failed" else run.failed_programs
        return el("p", f"{'; '.join(rest)}.", class_="note is-disturbed") if rest else None
    if not run.failure:
        return None
    measured = kept(run)
    said = f"The emulation did not reach its end: {run.failure}. {measured[:1].upper()}{measured[1:]}"
    return el("p", el("strong", said), class_="note is-violated")


def _left_out(run: Run) -> Markup | None:
    """What is not shown since a file of the folder cannot be read."""
    if not run.left_out:
        return None
    said = el("ul", *(el("li", said) for said in run.left_out))
    return el("div", el("strong", "What is left out of this page"), said, class_="note is-disturbed")


def _measured_notes(run: Run) -> Markup | None:
    """Which messages were not measured, and what of them is not as declared."""
    if not run.measured_notes:
        return None
    shown = [el("li", note) for note in run.measured_notes[:MOST_VIOLATIONS]]
    rest = len(run.measured_notes) - len(shown)
    more = el("li", f"and {count_text(rest)} more in summary.json") if rest else None
    return el(
        "div",
        el("strong", "What was not measured, or is not as declared"),
        el("ul", *shown, more),
        class_="note is-disturbed",
    )


def _channels(run: Run) -> Markup | None:
    """Who asked for a channel and had none, or not all the time: bounds do not hold for them."""
    found = [said for entry in run.channels if (said := text(entry.get("text")))]
    if not found:
        return None
    rest = len(found) - MOST_VIOLATIONS
    more = el("li", f"and {count_text(rest)} more in summary.json") if rest > 0 else None
    entries = [el("li", said) for said in found[:MOST_VIOLATIONS]]
    return el("div", el("strong", "Without a channel"), el("ul", *entries, more), class_="note is-violated")


def _numbers(run: Run) -> Markup:
    boxes = []
    for entry in headlines(run):
        alarm = entry.value is not None and entry.value < 0
        shown = el("dd", time_text(entry.value), class_="alarm" if alarm else None)
        boxes.append(el("div", el("dt", entry.title), shown, el("dd", entry.detail)))
    return el("dl", *boxes, class_="numbers")


CONTENTS = (
    ("latency", "Latency"),
    ("explained", "What bounds are made of"),
    ("method", "By another method"),
    ("network", "Network load"),
    ("distributions", "Distributions"),
    ("shares", "Where the time goes"),
    ("way", "Publisher to subscriber"),
    ("series", "Over time"),
    ("packets", "Packets"),
    ("tables", "Tables"),
    ("fidelity", "Fidelity"),
    ("meaning", "Meaning and limits"),
    ("reproduce", "Reproduce"),
)


def _contents(run: Run) -> Markup:
    brokers = any(flow.way.has_broker for flow in run.flows)
    optional = {"packets": run.packets, "method": run.method, "way": brokers}
    there = [(name, title) for name, title in CONTENTS if optional.get(name, True)]
    return el(
        "nav", el("ul", *(el("li", el("a", title, href=f"#{name}")) for name, title in there)), aria_label="Sections"
    )


def _latency(run: Run) -> Markup:
    caption = (
        "For each flow at each receiver: the largest network latency observed, the largest that the simulator found, and the bound "
        "that neither may exceed. The line with a triangle is the deadline; where there is release jitter or a broker on the way, it is the bound "
        "end to end (from the nominal release) that it is compared with. Point at a bar, or touch it, for exact figures."
    )
    missing = "There is no flow with a figure to show." if run.flows else "The scenario has no flow."
    return section("latency", "Observed, simulated, bound", picture(run, "flows", caption, missing))


def _explained(run: Run) -> Markup:
    caption = (
        "The flows whose bound leaves the least room to their deadline (without deadlines, the longest bounds). For each: the whole way, "
        "then port by port. Point at a part, or touch it, for whose frames it is. Any other flow: timebound predict --explain FLOW."
    )
    missing = "No flow has a bound to take apart."
    return section("explained", "What the bounds are made of", picture(run, "explained", caption, missing))


def _network(run: Run) -> Markup:
    kinds = [
        name
        for name in ("observed", "simulated", "declared")
        if any(getattr(port, name) is not None for port in run.ports)
    ]
    which = f"Load is the {kinds[0]} one" if kinds else "No load is known"
    if len(kinds) > 1:
        which += f" (where there is none: {', else '.join(kinds[1:])})"
    caption = f"{which}. Each half of a line belongs to the port at its own end: the half at h1 is what h1 sends."
    full = [port for port in run.ports if port.reason]
    listed = None
    if full:
        entries = [el("li", f"{port.name.replace('->', ' → ')}: {port.reason}") for port in full[:MOST_VIOLATIONS]]
        rest = len(full) - len(entries)
        more = el("li", f"and {count_text(rest)} more in the table of ports") if rest else None
        listed = el(
            "div", el("strong", "Ports without a finite bound"), el("ul", *entries, more), class_="note is-violated"
        )
    return section(
        "network", "Load of the network", picture(run, "topology", caption, "No topology was recorded."), listed
    )


def _distributions(run: Run) -> Markup:
    missing = "Nothing was measured or simulated, so there is no distribution."
    first = picture(run, "boxes", "Box plots from 101 quantiles of every flow.", missing)
    if draw("cdf", run, NARROW) is None:
        return section("distributions", "Distributions of latency", first)
    second = picture(run, "cdf", "The same as cumulative shares.", missing)
    return section("distributions", "Distributions of latency", first, second)


def _shares(run: Run) -> Markup:
    caption = "Application latency split into its parts: the emulated network, the broker, and the hosts with their protocol stacks."
    return section(
        "shares",
        "Where the time goes",
        picture(run, "shares", caption, "Nothing was emulated, so there are no shares."),
    )


def _way(run: Run) -> Markup | None:
    flows = [flow for flow in run.flows if flow.way.has_broker]
    if not flows:
        return None
    caption = (
        "The bound of each part of the way, from the nominal release to the last frame at the receiver: publisher's segment, broker, "
        "subscriber's segment. The upright line is the deadline."
    )
    missing = "No flow over a broker has a bound from publisher to subscriber."
    basis = list(dict.fromkeys(flow.way.statement for flow in flows if flow.way.statement))
    shown = [el("li", said) for said in basis[:MOST_VIOLATIONS]]
    more = (
        el("li", f"and {count_text(len(basis) - len(shown))} more in summary.json") if len(basis) > len(shown) else None
    )
    return section(
        "way",
        "From publisher to subscriber",
        picture(run, "way", caption, missing),
        el("div", el("strong", "The figures hold"), el("ul", *shown, more), class_="note"),
        _assumptions(run),
    )


def _assumptions(run: Run) -> Markup | None:
    """Times that were assumed of a broker and that the run found exceeded."""
    if not run.assumptions:
        return None
    shown = [el("li", text(entry.get("text"))) for entry in run.assumptions[:MOST_VIOLATIONS]]
    rest = len(run.assumptions) - len(shown)
    more = el("li", f"and {count_text(rest)} more in summary.json") if rest else None
    return el("div", el("strong", "Assumptions that did not hold"), el("ul", *shown, more), class_="note is-violated")


def _series(run: Run) -> Markup:
    missing = "No series over time was recorded."
    first = picture(run, "series", "Median and maximum network latency of each interval.", missing)
    second = picture(
        run,
        "links",
        "Load of each port over the run, the busiest first; the key gives the shades.",
        "No load of links over time was recorded.",
    )
    marked = None
    if run.series.marks:
        entries = (el("li", f"{time:g} s: {words}") for time, words in run.series.marks[:100])
        marked = el("div", el("strong", "Marked in the figures"), el("ul", *entries), class_="note")
    return section("series", "Over time", first, second, marked)


def _tables(run: Run) -> Markup:
    parts: list[Markup] = []
    for title, table, missing in (
        ("Flows", tables.flows(run), "The scenario has no flow."),
        ("Segments", tables.segments(run), "No flow was split into network segments."),
        ("Ports", tables.ports(run), "No port was recorded."),
        ("Queues", tables.queues(run), "No queue of declared traffic was recorded."),
        ("Nodes", tables.nodes(run), "No node was measured."),
        ("Undeclared frames", tables.undeclared(run), _no_undeclared(run)),
    ):
        parts += [el("h3", title), table.render() if table.rows else el("p", missing, class_="note")]
    again = figure(run.tcp.get("retransmissions"))
    said = text(run.tcp.get("verdict"))
    if again is None and not said:
        tcp = "TCP was not watched: nothing was emulated, or the stack does not use it."
    else:
        tcp = f"Segments sent again: {count_text(again)}{f' ({said})' if said else ''}."
    parts += [el("h3", "TCP"), el("p", tcp, class_="note is-disturbed word" if again else None)]
    return section("tables", "Tables", el("p", "Select a column's name to sort by it.", class_="muted tools"), *parts)


def _no_undeclared(run: Run) -> str:
    if run.precision.get("verdict") in ("good", "disturbed"):
        return "Every frame seen on the wire was declared."
    return "Nothing was emulated, so no frame was seen."


def _meaning(run: Run) -> Markup:
    words = facts(MEANINGS)
    notes = el("ul", *(el("li", note) for note in run.notes)) if run.notes else None
    return section(
        "meaning",
        "What the words mean, the method and its limits",
        words,
        el("h3", "Method"),
        *(el("p", paragraph) for paragraph in METHOD),
        el("h3", "What this run assumes") if notes else None,
        notes,
        el("h3", "Limits"),
        el("ul", *(el("li", limit) for limit in LIMITS)),
    )


def _command(run: Run) -> str | None:
    found = run.manifest.get("command")
    if isinstance(found, list):
        return shlex.join(text(word) for word in found)
    return text(found) if found is not None else None


def _reproduce(run: Run) -> Markup:
    folder = shlex.quote(run.folder or "RUN")
    commands = [
        f"timebound run {folder}/scenario.yaml   # the scenario as resolved, with its seed",
        f"timebound report {folder}   # this page again",
    ]
    command = _command(run)
    parts: list[Markup | None] = []
    if command:
        parts += [el("p", "This run was started with:"), el("pre", command, tabindex=0)]
    parts += [el("p", "From the run folder:"), el("pre", "\n".join(commands), tabindex=0)]
    parts.append(
        el(
            "p",
            "Bounds and simulation come out the same on any machine for the same seed; measured figures depend on the host.",
        )
    )
    if run.manifest:
        parts.append(_details("Manifest of the run", "\n".join(_lines(run.manifest))))
    if run.resolved:
        parts.append(_details("Scenario as resolved", run.resolved))
    return section("reproduce", "Reproduce", *parts)


MOST_TEXT = 60_000


def _details(title: str, body: str) -> Markup:
    if len(body) > MOST_TEXT:
        body = f"{body[:MOST_TEXT]}\n... ({count_text(len(body) - MOST_TEXT)} more characters in the run folder)"
    return el("details", el("summary", title), el("pre", body, tabindex=0))


def _lines(value: Mapping[str, object]) -> Iterable[str]:
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(entry))
        else:
            yield f"{key}: {_plain(entry)}"
