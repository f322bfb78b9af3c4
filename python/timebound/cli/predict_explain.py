"""`timebound predict --explain` and `--ports`: what bounds are made of, and what every port and queue is asked for."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from timebound.cli.common import print_json, stdout
from timebound.cli.table import MOST_REASONS, duration

if TYPE_CHECKING:
    from timebound.scenario.model import Scenario

MOST_NAMED = 5
MOST_WAYS = 3
"""Of the instances of a flow that was named by its bare name."""
NAME_WIDTH = 46


def run(scenario: Scenario, flows: tuple[str, ...], *, json: bool, quiet: bool, effort: int | None = None) -> int:
    """Explains all receivers of the flows; 0 if all have a bound and keep their deadlines, else 1."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import explain, runs
    from timebound.engine.predict import predict

    with TerminalProgress(quiet or json) as progress:
        progress.step("predict", "working out the bounds")
        prediction = predict(runs.plan_of(scenario), effort=effort)
        pairs = explain.pairs_of(prediction, flows)
        instances = len({flow for flow, _ in pairs}) > len(set(flows))
        left_out = len(pairs) - MOST_WAYS if instances and not json else 0
        if left_out > 0:
            pairs = explain.by_slack(prediction, pairs)[:MOST_WAYS]
        entries = explain.explain(prediction, pairs)
        methods = explain.by_method(prediction)
    if json:
        for entry in entries:
            for segment in entry["segments"]:
                key = segment["stream"], segment["destination"]
                segment["bounds_ns"] = {**{name: found[key] for name, found in methods.items()}}
                segment["bounds_ns"]["bound"] = prediction.outcomes[key].actual_ns
        print_json(entries)
    else:
        for entry in entries:
            stdout("\n".join(entry_lines(entry, methods)), end="\n\n")
        if left_out > 0:
            stdout(
                f"These {MOST_WAYS} have the least slack; {left_out} more with --json, or by name: --explain {shlex.quote(pairs[0][0])}"
            )
    are_bounded = all(segment["explanation"] for entry in entries for segment in entry["segments"])
    return 0 if are_bounded and not any(_is_missed(entry) for entry in entries) else 1


def _is_missed(entry: dict[str, Any]) -> bool:
    deadline, whole = entry["deadline_ns"], entry["end_to_end_ns"]
    return deadline is not None and (whole is None or whole > deadline)


def entry_lines(entry: dict[str, Any], methods: dict[str, dict[tuple[str, str], int | None]]) -> list[str]:
    """One flow at one receiver as text."""
    deadline = "" if entry["deadline_ns"] is None else f", deadline {_time(entry['deadline_ns'])}"
    if entry["deadline_ns"] is not None and entry["end_to_end_ns"] is not None:
        late = entry["end_to_end_ns"] - entry["deadline_ns"]
        deadline += f" missed by {_time(late)}" if late > 0 else " met"
    lines = [f"{entry['flow']} -> {entry['receiver']}: {_bound(entry['end_to_end_ns'])} end to end{deadline}"]
    if not entry["segments"]:
        lines.append("  no part of its way crosses the network")
    for place, segment in enumerate(entry["segments"]):
        lines += _segment(segment, methods, first=place == 0)
        for part in entry["between"][place] if place < len(entry["between"]) else []:
            lines.append(f"  {part['kind']} {part['name']}: {_stage(part)}")
            lines += [_step(step) for step in part["steps"] if len(part["steps"]) > 1]
    return lines


def _stage(part: dict[str, Any]) -> str:
    if part["bound_ns"] is not None:
        return _time(part["bound_ns"])
    if part["counted_ns"]:
        return f"{_time(part['counted_ns'])} without the broker's own time, which is not bounded"
    return "not bounded: its own time is left out"


def _step(step: dict[str, Any]) -> str:
    words = {
        "network": f"{step['name']} over the network",
        "window": f"TCP's {step['name']}",
        "broker": f"broker {step['name']}",
        "host": "the client's host, as declared",
    }
    if step["bound_ns"] is None:
        return f"{' ' * 6}{words[step['kind']]}: not bounded: its own time is left out"
    return _row("+", step["bound_ns"], words[step["kind"]], 6)


def _segment(
    segment: dict[str, Any], methods: dict[str, dict[tuple[str, str], int | None]], *, first: bool
) -> list[str]:
    heading = f"  {segment['name']}: {segment['source']} -> {segment['destination']} (stream {segment['stream']})"
    explanation = segment["explanation"]
    if explanation is None:
        return [heading, f"    no bound: {segment['reason']}"]
    key = segment["stream"], segment["destination"]
    each = ", ".join(f"{name} {_bound(found[key])}" for name, found in methods.items())
    lines = [
        heading,
        f"    bound {_time(explanation['from_actual_ns'])} from the release ({each}), best case {_time(explanation['best_case_ns'])}; "
        f"frame of {explanation['frame_bytes']} bytes, class {explanation['class']}{_joined(segment['joined'])}",
    ]
    window = segment["window"]
    # Waiting for the window is jitter of the frames on the network.
    jitter = explanation["source_jitter_ns"] - (0 if window is None else window["wait_ns"])
    if first and jitter:
        lines.append(_row("+", jitter, "release jitter, where the nominal release counts", 4))
    if window is not None:
        lines.append(_row("+", window["wait_ns"], _window(window), 4))
    for hop in explanation["hops"]:
        lines += _hop(hop)
    return lines


def _joined(joined: dict[str, int] | None) -> str:
    if joined is None:
        return ""
    return f"; may be joined: {joined['messages']} messages in a segment, {joined['frame_bytes']} bytes on the wire"


def _window(window: dict[str, Any]) -> str:
    rounds = "1 round" if window["rounds"] == 1 else f"{window['rounds']} rounds"
    return (
        f"TCP's window of {window['segments']} segments: {rounds} of {_time(window['round_ns'])} ({window['reason']})"
    )


def _hop(hop: dict[str, Any]) -> list[str]:
    from timebound.engine.explain import blocker

    unshaped = hop["unshaped_ns"]
    by = hop["method"]
    if by == "calculus" and unshaped is not None:
        by += f"; {_time(unshaped)} without line shaping"
    lines = [
        f"    port {hop['name']}, utilisation {hop['utilisation']['value']:.1%}: {_time(hop['response_ns'])} ({by})"
    ]
    rows: list[tuple[str, int, str]] = []
    if hop["blocking"]["time_ns"]:
        rows.append(("+", hop["blocking"]["time_ns"], f"blocking: {blocker(hop['blocking'])}"))
    rows += _group("higher priority", hop["higher"])
    rows += _group("same priority", hop["same"])
    rows.append(("+", hop["own_ns"], "the frame itself"))
    if hop["service_ns"]:
        rows.append(("+", hop["service_ns"], "others in turn (weighted classes, slots or a shared medium)"))
    rows += [("-", part["time_ns"], f"not come yet over {part['link']}") for part in hop["shaping"]]
    if hop["rounding_ns"]:
        rows.append(("+" if hop["rounding_ns"] > 0 else "-", abs(hop["rounding_ns"]), "rounding"))
    if hop["window_ns"]:
        rows.append(("-", hop["window_ns"], "passed when the frame arrives (since the busy period began)"))
    lines += [_row(*row, 6) for row in rows]
    if hop["counted_before_ns"]:
        words = "then taken off: counted at ports before (rivals that go the same way)"
        lines.append(_row("-", hop["counted_before_ns"], words, 6))
    after = [
        ("propagation", hop["propagation_ns"]),
        ("link jitter", hop["link_jitter_ns"]),
        ("switching", hop["switching_ns"]),
    ]
    lines += [_row("+", value, f"then {name}", 6) for name, value in after if value]
    return lines


def _group(title: str, parts: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """The longest by name, the others in one line."""
    rows = []
    for part in parts[:MOST_NAMED]:
        frames = part["frames"]
        count = "" if frames is None else f"{frames} frame{'' if frames == 1 else 's'} of "
        rows.append(("+", part["time_ns"], f"{title}: {count}{_short(part['stream'])}"))
    rest = parts[MOST_NAMED:]
    if rest:
        total = sum(part["time_ns"] for part in rest)
        rows.append(("+", total, f"{title}: {len(rest)} more stream{'' if len(rest) == 1 else 's'}"))
    return rows


def _row(sign: str, nanos: int, words: str, indent: int) -> str:
    return f"{' ' * indent}{sign} {_time(nanos):>12}  {words}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 16]}…{name[-15:]}"


def _bound(nanos: int | None) -> str:
    return "no bound" if nanos is None else _time(nanos)


def _time(nanos: int) -> str:
    """Microseconds to the nanosecond: parts must be seen to add up."""
    return f"{nanos / 1000:,.3f} us" if nanos < 10**15 else duration(nanos / 1000)


def print_ports(summary: dict[str, Any], everything: str) -> None:
    """Utilisation, backlog per queue and the room that loses nothing, port by port; `everything` says where the reasons are that are left out."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from timebound.cli.table import print_table

    name = escape(summary["scenario"]["name"])
    # All columns have room in 80 characters: what is a sentence stands below.
    table = Table(box=SIMPLE_HEAD, title=f"{name}: ports", title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("port", overflow="fold", min_width=8)
    for name in ("utilisation", "class", "longest\ndelay", "backlog =\nbuffer that\nloses nothing", "buffer"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    used = [port for port in summary["ports"] if port["queues"]]
    reasons: list[str] = []
    for port in sorted(used, key=lambda port: -port["utilisation_declared"]):
        for place, queue in enumerate(port["queues"]):
            first = place == 0
            if queue["reason"]:
                reasons.append(f"{port['port']} class {queue['class']}: {queue['reason']}")
            table.add_row(
                escape(port["port"]) if first else "",
                f"{port['utilisation_declared']:.1%}" if first else "",
                str(queue["class"]),
                duration(queue["largest_delay_us"]),
                "-" if queue["backlog_bytes"] is None else f"{queue['backlog_bytes']:,} B",
                f"{queue['room_bytes']:,} B",
                "[yellow]too small[/]" if queue["exceeds"] else "[magenta]no bound[/]" if queue["reason"] else "",
            )
    unused = len(summary["ports"]) - len(used)
    notes = [f"{unused} ports without declared traffic are left out"] if unused else []
    if any(queue["exceeds"] for port in used for queue in port["queues"]):
        notes.append("too small: the backlog can exceed the buffer, and frames can be lost")
    table.caption = "\n".join(notes) or None
    table.caption_justify = "left"
    print_table(table)
    for reason in reasons[:MOST_REASONS]:
        stdout(reason)
    if len(reasons) > MOST_REASONS:
        stdout(f"{len(reasons) - MOST_REASONS} more queues without a bound {everything}")
