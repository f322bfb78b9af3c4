"""Tables for the terminal."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from timebound.scenario.problems import plain

MOST_ROWS = 40
END_TO_END, TIGHTNESS, APPLICATION = "end to end", "bound /found", "application max"
MOST_NARROW = 6
"""Figures that have room in 80 columns beside flow, receiver and verdict, if they stand close together."""
WIDE = 110
"""Columns of a terminal with room for every method's figure."""
VERDICT = "verdict"
WHOLE = (VERDICT, "deadline\nmet")
"""Headings of columns that are never cut or folded."""
LEAST_NAME = 6
"""Cells that a name folds into before figures do."""
MOST_REASONS = 8
MOST_APPLICATION = 5
"""Application latencies under a table without room for them."""
STYLES = {
    "disturbed": "yellow",
    "met": "green",
    "missed": "yellow",
    "violated": "bold red",
    "unbounded": "magenta",
    "unsupported": "magenta",
}


def duration(micros: float | None) -> str:
    """Microseconds for people: `123 us`, `1.36 ms`, `2.5 s`."""
    if micros is None:
        return "-"
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if abs(micros) < limit:
            return f"{micros / divisor:.4g} {unit}"
    return f"{micros / 1e6:.4g} s"


def ratio(value: float | None) -> str:
    """A tightness: `1.04`, rounded up, so that no bound looks tighter than it is."""
    return "-" if value is None else f"{math.ceil(value * 100 - 1e-9) / 100:.2f}"


IN_JSON = "with --json"
"""Where everything is that a table leaves out, unless a run folder was written."""


def _caption(summary: dict[str, Any], left_out: int, everything: str) -> str:
    lines = [f"{left_out} more rows {everything}"] if left_out else []
    lines += _application_words([flow for flow in summary["flows"] if flow["application_us"] is not None])
    if any(worst_found(flow) is not None for flow in summary["flows"]):
        seen = any(flow["latency_us"] for flow in summary["flows"])
        lines.append(
            f"worst found: by simulation and search{', and in the run' if seen else ''}; the true worst case lies between it and the bound"
        )
        if any(_is_more(flow) for flow in summary["flows"]):
            lines.append(
                "observed max above worst found: sources came less regularly than declared, or segments were sent again; the report has the bound for the "
                "arrivals observed"
            )
    lines.append(
        "bound: of the network, from the actual release; the least of holistic and calculus, port by port and over stretches of ports (each on a wide terminal, "
        "and in --json)"
    )
    if any(judged_apart(flow) for flow in summary["flows"]):
        lines.append(
            "end to end: the bound from the nominal release, with release jitter and brokers: this is what a deadline is compared with"
        )
    return "\n".join(lines)


def _application_words(flows: list[dict[str, Any]]) -> list[str]:
    """From where to where the application latency is: a program that is not ours shows its frames alone."""
    words = {
        (False, False): "from the write at the publisher to the callback at the subscriber",
        (True, False): "from the first port (the publisher is a program of its node) to the callback",
        (False, True): "from the write to the last port (the subscriber is a program of its node)",
        (True, True): "from the first port to the last (publisher and subscriber are programs of their nodes)",
    }
    if not flows:
        return []
    ends = set()
    for flow in flows:
        own, segments = flow.get("programs") or [], flow["segments"]
        ends.add((bool(segments) and segments[0]["source"] in own, flow["receiver"] in own))
    said = "; ".join(text for which, text in words.items() if which in ends)
    return [f"{APPLICATION}: {said}, with hosts and brokers"]


def flow_table(summary: dict[str, Any], everything: str = IN_JSON) -> Table:
    """Observed, simulated and bound of every flow; the most critical rows where there are many. `everything` says where the others are."""
    flows = sorted(summary["flows"], key=_criticality) if len(summary["flows"]) > MOST_ROWS else summary["flows"]
    left_out = max(0, len(flows) - MOST_ROWS)
    table = Table(
        title=f"{summary['scenario']['name']}: {summary['verdict']}",
        caption=_caption(summary, left_out, everything),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        # All columns have room in 80 characters.
        padding=(0, 1, 0, 0),
    )
    method = summary.get("method")
    by_method = {} if method is None else {(entry["flow"], entry["receiver"]): entry for entry in method["flows"]}
    shown = [flow_row(flow, by_method.get((flow["flow"], flow["receiver"]))) for flow in flows[:MOST_ROWS]]
    heading = "" if method is None else _heading(method)
    names = (
        "observed max",
        APPLICATION,
        "worst found",
        "bound",
        TIGHTNESS,
        heading,
        "holistic",
        "calculus",
        "best case",
        END_TO_END,
        "deadline",
        "lost",
    )
    if (
        method is not None
        or shutil.get_terminal_size().columns < WIDE
        or any(cell != "-" for row in shown for cell in row[2:5])
    ):
        # Beside what was seen, or on a narrow terminal, there is room for the bound alone; which method gave what is in the summary and in the report.
        for row in shown:
            row[8:11] = ["-"] * 3
    # A verb that did not run leaves no empty column behind, and no figure stands there twice.
    used = [index for index in range(len(names)) if any(row[index + 2] != "-" for row in shown)]
    if not any(judged_apart(flow) for flow in summary["flows"]):
        used = [index for index in used if names[index] != END_TO_END]
    if shutil.get_terminal_size().columns < WIDE:
        if len(used) > MOST_NARROW and any(names[index] == APPLICATION for index in used):
            used = [index for index in used if names[index] != APPLICATION]
            table.caption = "\n".join([str(table.caption), *_application(flows, everything)])
        if len(used) > MOST_NARROW:
            used = [index for index in used if names[index] != TIGHTNESS]
        if len(used) >= MOST_NARROW:
            table.padding = (0, 0, 0, 0)
    table.add_column("flow", overflow="fold")
    table.add_column("receiver", overflow="fold")
    for index in used:
        title = names[index] if names[index] == heading else names[index].replace(" ", "\n", 1)
        # Names of flows fold where there is little room, the words on what a method's figure is worth do not.
        least = max(map(len, title.splitlines())) if names[index] == heading else None
        table.add_column(title, justify="right", no_wrap=names[index] != heading, min_width=least, overflow="fold")
    table.add_column(VERDICT, no_wrap=True)
    for row in shown:
        table.add_row(row[0], row[1], *(row[index + 2] for index in used), row[-1])
    return table


def _application(flows: list[dict[str, Any]], everything: str) -> list[str]:
    """The application latency where it has no column, and is another one than the network's: the longest ones."""
    maxima = {
        f"{flow['flow']} at {flow['receiver']}": (flow["application_us"]["max"], (flow["latency_us"] or {}).get("max"))
        for flow in flows
        if flow["application_us"] is not None
    }
    apart = {name: seen for name, (seen, network) in maxima.items() if duration(seen) != duration(network)}
    longest = sorted(apart.items(), key=lambda each: -each[1])[:MOST_APPLICATION]
    if not longest:
        return []
    more = f"; {len(apart) - len(longest)} more {everything}" if len(apart) > len(longest) else ""
    return [f"{APPLICATION}: {', '.join(f'{_escape(name)} {duration(seen)}' for name, seen in longest)}{more}"]


def flow_reasons(summary: dict[str, Any], everything: str = IN_JSON) -> list[str]:
    """Why flows have no bound or may lose messages, and what made messages late: each reason once, with those it holds for."""
    whom: dict[str, list[str]] = {}
    for flow in summary["flows"]:
        whole = flow.get("end_to_end_us") or {}
        reason = flow["bound_us"]["reason"] or whole.get("reason")
        late = flow.get("late_reason")
        for why in (reason, flow.get("risk"), None if late is None else f"late {late}"):
            if why is not None:
                whom.setdefault(why, []).append(f"{flow['flow']} at {flow['receiver']}")
    lines = []
    for reason, names in list(whom.items())[:MOST_REASONS]:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"{', '.join(names[:3])}{more}: {reason}")
    if len(whom) > MOST_REASONS:
        lines.append(f"{len(whom) - MOST_REASONS} more reasons {everything}")
    return lines


def _heading(method: dict[str, Any]) -> str:
    """Name and label of a method on lines short enough for a column."""
    name, label = method["name"].replace("-as-", "\nas "), method["label"].replace(", ", ",\n")
    return f"{name}\n({label})"


def method_lines(summary: dict[str, Any], everything: str = IN_JSON) -> list[str]:
    """What the figures of another method are worth, and why it has none for some flows."""
    method = summary.get("method")
    if method is None:
        return []
    reasons = list(dict.fromkeys(entry["reason"] for entry in method["flows"] if entry["reason"] is not None))
    said = [f"{method['name']} ({method['label']}): {method['meaning']}"]
    said += [f"{method['name']} has no figure: {reason}" for reason in reasons[:MOST_REASONS]]
    more = len(reasons) - MOST_REASONS
    return [*said, f"{more} more such reasons {everything}"] if more > 0 else said


def flow_row(flow: dict[str, Any], by_method: dict[str, Any] | None = None) -> list[str]:
    """All cells of one flow; `-` where there is no figure. `by_method` is its entry of another method beside the bound."""
    latency = flow["latency_us"] or {}
    verdict = flow["verdict"]
    reason = flow["bound_us"]["reason"]
    text = f"[{STYLES[verdict]}]{verdict}[/]" if verdict in STYLES else verdict
    return [
        _escape(flow["flow"]),
        _escape(flow["receiver"]),
        duration(latency.get("max")),
        duration((flow["application_us"] or {}).get("max")),
        duration(worst_found(flow)),
        duration(flow["bound_us"]["bound"]) if reason is None else "none",
        ratio(flow["tightness"]),
        "-" if by_method is None else duration(by_method["value_us"]) if by_method["reason"] is None else "none",
        duration(flow["bound_us"]["holistic"]),
        duration(flow["bound_us"]["calculus"]),
        duration(flow["best_us"]),
        _judged(flow),
        duration(flow["deadline_us"]),
        str(flow["lost"]) if flow["lost"] else "-",
        text,
    ]


def worst_found(flow: dict[str, Any]) -> float | None:
    """The worst of simulation and search, and of the run where everybody sent as declared; run folders of earlier versions have the first alone."""
    found: float | None = flow.get("worst_found_us", flow["simulated_max_us"])
    return found


def _is_more(flow: dict[str, Any]) -> bool:
    """Was more observed than can be said of the network as declared?"""
    found, seen = worst_found(flow), (flow["latency_us"] or {}).get("max")
    return found is not None and seen is not None and seen > found


def _whole(flow: dict[str, Any]) -> float | None:
    """The bound from the nominal release over segments and brokers: what a deadline is compared with."""
    found: float | None = (flow.get("end_to_end_us") or {}).get("bound")
    return found


def judged_apart(flow: dict[str, Any]) -> bool:
    """Is a deadline compared with another figure than the network's bound: is there release jitter, or a broker on the way?"""
    return _whole(flow) != flow["bound_us"]["bound"] or _has_broker(flow)


def _has_broker(flow: dict[str, Any]) -> bool:
    return any(part["kind"] == "broker" for part in (flow.get("end_to_end_us") or {}).get("parts", []))


def _judged(flow: dict[str, Any]) -> str:
    whole = _whole(flow)
    return "none" if whole is None and (flow.get("end_to_end_us") or {}).get("reason") else duration(whole)


def broker_lines(summary: dict[str, Any], everything: str = IN_JSON) -> list[str]:
    """What the end-to-end figures over brokers hold with, each statement once, and the assumptions that a run found broken."""
    statements = dict.fromkeys(
        flow["end_to_end_us"]["statement"]
        for flow in summary["flows"]
        if _has_broker(flow) and _whole(flow) is not None
    )
    lines = [f"end to end: {statement}" for statement in list(statements)[:MOST_REASONS]]
    if len(statements) > MOST_REASONS:
        lines.append(f"{len(statements) - MOST_REASONS} more statements {everything}")
    broken = summary.get("assumptions", [])
    lines += [f"assumption broken: {entry['text']}" for entry in broken[:MOST_REASONS]]
    if len(broken) > MOST_REASONS:
        lines.append(f"{len(broken) - MOST_REASONS} more broken assumptions {everything}")
    return lines


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _criticality(flow: dict[str, Any]) -> tuple[int, float]:
    order = {"violated": 0, "missed": 1, "disturbed": 2, "unbounded": 3, "unsupported": 4}
    deadline = flow["deadline_us"]
    bound = _whole(flow)
    margin = (deadline - bound) / deadline if deadline and bound is not None else 1.0
    weight = order.get(flow["verdict"], 5) if flow.get("decides", True) or flow["verdict"] == "violated" else 5
    return weight, margin


def print_table(table: Table) -> None:
    """Prints a table to standard output: as wide as the terminal, with no verdict cut and no control character obeyed."""

    from rich.console import Console

    console = Console()
    _make_plain(table)
    fit(table, console.width)
    console.print(table)


def fit(table: Table, width: int) -> None:
    """Makes a table that is too wide as wide as there is room: names fold first, then figures, verdicts never."""
    columns = table.columns
    widths = [_widest(column, str.splitlines) for column in columns]
    words = [_widest(column, str.split) for column in columns]
    if sum(widths) <= _room(table, width):
        return
    if sum(words) > _room(table, width):
        table.padding = 0
    room = _room(table, width)
    below = [_widest(column, str.splitlines, with_header=False) for column in columns]
    kept = [str(column.header) in WHOLE for column in columns]
    names = [not column.no_wrap and not kept[index] for index, column in enumerate(columns)]
    stages = [
        *([name if is_name else wide for is_name, wide in zip(names, widths, strict=True)] for name in (8, LEAST_NAME)),
        [LEAST_NAME if is_name else word for is_name, word in zip(names, words, strict=True)],
        [1] * len(columns),
    ]
    for least in stages:
        while sum(widths) > room:
            able = [index for index, wide in enumerate(widths) if wide > least[index] and not kept[index]]
            if not able:
                break
            # A heading folds before what stands below it.
            widths[max(able, key=lambda index: (widths[index] > below[index], widths[index]))] -= 1
    for column, wide in zip(columns, widths, strict=True):
        column.width, column.min_width, column.no_wrap, column.overflow = wide, None, False, "fold"


def _room(table: Table, width: int) -> int:
    """Cells that the columns share."""
    _, right, _, left = table.padding
    count = len(table.columns)
    return width - count * (left + right) - (count + 1 if table.box else 0)


def _widest(column: Column, parts: Callable[[str], list[str]], *, with_header: bool = True) -> int:
    """Cells of the widest part of a column."""
    from rich.cells import cell_len
    from rich.text import Text

    texts = [str(cell) for cell in (*([column.header] if with_header else []), *column.cells)]
    return max((cell_len(part) for text in texts for part in parts(Text.from_markup(text).plain)), default=1)


def _make_plain(table: Table) -> None:
    """Shows control characters of names in place of obeying them."""
    table.title, table.caption = (
        plain(text) if isinstance(text, str) else text for text in (table.title, table.caption)
    )
    for column in table.columns:
        column.header = plain(column.header) if isinstance(column.header, str) else column.header
        column._cells = [plain(cell) if isinstance(cell, str) else cell for cell in column._cells]


def comparison_table(names: list[str], summaries: list[dict[str, Any]]) -> Table:
    """Worst observed latency (else simulated, else the bound) of every flow in each run."""
    table = Table(
        title="worst network latency: observed / worst found / bound (bound / worst found)", title_justify="left"
    )
    table.add_column("flow", overflow="fold")
    table.add_column("receiver")
    for name in names:
        table.add_column(_escape(name), justify="right", overflow="fold")
    by_pair = [{(f["flow"], f["receiver"]): f for f in summary["flows"]} for summary in summaries]
    pairs = list(dict.fromkeys(pair for flows in by_pair for pair in flows))
    for pair in pairs[:MOST_ROWS]:
        table.add_row(*map(_escape, pair), *(_cell(flows.get(pair)) for flows in by_pair))
    if len(pairs) > MOST_ROWS:
        table.caption = f"{len(pairs) - MOST_ROWS} more rows in the comparison"
    return table


def _cell(flow: dict[str, Any] | None) -> str:
    if flow is None:
        return "absent"
    latency = flow["latency_us"] or {}
    figures = (latency.get("max"), worst_found(flow), flow["bound_us"]["bound"])
    tightness = flow.get("tightness")
    return " / ".join(duration(value) for value in figures) + ("" if tightness is None else f" ({ratio(tightness)})")
