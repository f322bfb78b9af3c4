"""`timebound predict --assign`: classes and routes before and after, and the scenario that has them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter

from timebound.cli.common import print_json, stderr, stdout
from timebound.cli.table import duration
from timebound.files import FolderError, may_write, named, named_file, suffix, write_file
from timebound.scenario.units import TIME, UnitError, parse

if TYPE_CHECKING:
    from timebound.engine.assign import Assigned, Part
    from timebound.scenario.model import Scenario

MOST_RISKS = 5
MOST_ROWS = 40
MOST_WAYS = 12
LONGEST = "60 s"


@dataclass(frozen=True, slots=True)
class AssignOptions:
    """What is to be assigned, and how."""

    assign: Annotated[
        str | None,
        Parameter(
            help="Assign `priorities`, `routes` or `priorities,routes` and show bounds before and after. With -o FILE.yaml the "
            "scenario that has them is written."
        ),
    ] = None
    assign_by: Annotated[
        Literal["best", "deadline-monotonic", "audsley"] | None,
        Parameter(
            help="How classes are found; best (the default): deadline monotonic where that meets all deadlines, else the better."
        ),
    ] = None
    assign_for: Annotated[
        str | None, Parameter(help=f"Longest time for the search, {LONGEST} by default; then the best so far counts.")
    ] = None

    def stated(self) -> list[str]:
        """What was said of how to assign, as written on the command line."""
        options = (("--assign-by", self.assign_by), ("--assign-for", self.assign_for))
        return [name for name, value in options if value is not None]

    def parts(self) -> set[Part]:
        """What is to be assigned.

        Raises:
            FolderError: something else was named.
        """
        from timebound.engine.assign import PARTS, Part

        names = [name.strip() for name in (self.assign or "").split(",")]
        for name in names:
            if name not in PARTS:
                raise FolderError(
                    f"--assign: {name!r} cannot be assigned",
                    f"name {' or '.join(PARTS)}, or both: --assign {','.join(PARTS)}",
                )
        assert set(PARTS) == set(get_args(Part))
        return {part for part in PARTS if part in names}

    def check(self) -> None:
        """Refuses what cannot be meant before a scenario is read.

        Raises:
            FolderError: what is to be assigned, or the time limit, is none; a method for classes that nobody asked for.
        """
        if self.assign_by is not None and "priorities" not in self.parts():
            raise FolderError("--assign-by says how classes are found", "--assign priorities, or leave it out")
        self.parts()
        self.seconds()

    def seconds(self) -> float:
        """The time limit.

        Raises:
            FolderError: it is none.
        """
        try:
            return float(parse(self.assign_for or LONGEST, TIME)) / 1e9
        except UnitError as error:
            raise FolderError(f"--assign-for: {error}", error.hint) from None


def run(
    scenario: Scenario,
    options: AssignOptions,
    settings: tuple[str, ...],
    output: str | None,
    *,
    force: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Assigns, prints and writes; the exit code is that of a prediction with the assignment."""
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine import runs
    from timebound.engine.assign import assign

    parts, seconds = options.parts(), options.seconds()
    target = None if output is None else named(output)
    is_file = target is not None and suffix(target) in (".yaml", ".yml")
    if output is not None and target is not None and is_file:
        target = named_file(output)
        may_write(target, force=force, inputs=scenario.inputs)
    with TerminalProgress(quiet or json) as progress:
        progress.step("assign", "predicting")
        assigned = assign(
            scenario, parts, by=options.assign_by or "best", seconds=seconds,
            tell=lambda phase, analyses: progress.at(0.0, f"{phase}, {analyses} analyses"),
        )  # fmt: skip
        if target is not None and not is_file:
            runs.run(assigned.scenario, target, {"predict"}, progress, force=force)
    if target is not None and is_file:
        _write(target, assigned, scenario, settings, options.assign or "", force=force)
    if json:
        print_json(assigned.document | ({} if output is None else {"output": output}))
    else:
        _print(assigned.document)
    if target is not None:
        stderr(f"scenario: {target}" if is_file else f"report: {target / 'report.html'}")
    return runs.exit_code(assigned.after, None)


def _write(
    target: Path, assigned: Assigned, scenario: Scenario, settings: tuple[str, ...], parts: str, *, force: bool
) -> None:
    """An overlay over the scenario's file; the whole scenario where it has none or was changed by --set."""
    from timebound.engine.assign import overlay

    if scenario.file is None or settings:
        write_file(target, assigned.scenario.to_yaml(), force=force, inputs=scenario.inputs)
        return
    source = Path(scenario.file).resolve()
    near = os.path.relpath(source, target.parent.resolve())
    # Far away the relative name says less than the whole one.
    text = overlay(assigned, str(source) if near.count("..") > 2 else near, parts)
    write_file(target, text, force=force, inputs=scenario.inputs)


def _print(document: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from timebound.cli.table import print_table

    rows = _merged(document["flows"])
    rows = sorted(rows, key=_criticality) if len(rows) > MOST_ROWS else rows
    more = len(rows) - MOST_ROWS
    table = Table(
        title=f"{document['scenario']}: {' and '.join(document['parts'])} assigned",
        caption=f"{more} more rows with --json" if more > 0 else None,
        title_justify="left", caption_justify="left", box=SIMPLE_HEAD,
    )  # fmt: skip
    for column in ("flow", "receiver"):
        table.add_column(column, overflow="fold", min_width=8)
    for column in ("class", "bound\nbefore", "bound\nafter", "deadline"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("deadline\nmet", overflow="fold", min_width=9)
    for row in rows[:MOST_ROWS]:
        table.add_row(*_row(row))
    print_table(table)
    for line in lines(document):
        stdout(line)


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Instances of a flow with the same figures as one row: `alpha (20)`."""
    from timebound.scenario.names import group_of

    groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in rows:
        sides = [(side["class"], side["bound_us"], side["met"]) for side in (row["before"], row["after"])]
        groups.setdefault((group_of(row["flow"]), row["receiver"], row["deadline_us"], *sides), []).append(row)
    return [
        found[0] if len(found) == 1 else found[0] | {"flow": f"{group_of(found[0]['flow'])} ({len(found)})"}
        for found in groups.values()
    ]


def _row(row: dict[str, Any]) -> list[str]:
    from rich.markup import escape

    before, after = row["before"], row["after"]
    same = before["class"] == after["class"]
    met = "-" if row["deadline_us"] is None else _arrow(*("yes" if side["met"] else "no" for side in (before, after)))
    return [
        escape(row["flow"]),
        escape(row["receiver"]),
        str(after["class"]) if same else f"{before['class']} → {after['class']}",
        duration(before["bound_us"]) if before["bound_us"] is not None else "none",
        duration(after["bound_us"]) if after["bound_us"] is not None else "none",
        duration(row["deadline_us"]),
        met,
    ]


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def lines(document: dict[str, Any]) -> list[str]:
    """What stands below the table."""
    missed = document["missed"]
    told = [f"deadlines not promised: {len(missed['before'])} before, {len(missed['after'])} after"]
    told += [f"  {risk}" for risk in document["risks"][:MOST_RISKS]]
    if len(document["risks"]) > MOST_RISKS:
        told.append(f"  and {len(document['risks']) - MOST_RISKS} more queues with --json")
    worst = document["worst_utilisation"]
    if worst["before"] is not None:
        told.append(f"worst utilisation: {_share(worst['before'])} before, {_share(worst['after'])} after")
    priorities = document["priorities"]
    if priorities is not None:
        told += _told_priorities(priorities, document["classes"], any(_is_late(row) for row in document["flows"]))
    if document["routes"] is not None:
        told += _told_routes(document)
    if document["stopped"]:
        told.append("the search was broken off by --assign-for: more time may find more")
    return told


def _is_late(row: dict[str, Any]) -> bool:
    """Is the deadline missed by the bound, not only by what queues may lose?"""
    deadline, bound = row["deadline_us"], row["after"]["bound_us"]
    return deadline is not None and (bound is None or bound > deadline)


def _share(worst: dict[str, Any]) -> str:
    return f"{worst['utilisation']:.1%} at {worst['port']}"


def _told_priorities(priorities: dict[str, Any], classes: list[int], missed: bool) -> list[str]:
    method = {
        "deadline-monotonic": "deadline monotonic",
        "audsley": "Audsley",
        "unchanged": "as they were (nothing found was better)",
    }[priorities["method"]]
    told = [
        f"classes: {method}, out of {', '.join(map(str, classes)) or 'none'}; every bound is that of the full analysis"
    ]
    if priorities["optimal"]:
        told.append(
            "  exact: an assignment is found whenever this analysis has one" + ("; it has none" if missed else "")
        )
    elif missed or priorities["method"] == "audsley":
        told.append(f"  a heuristic here: {priorities['why']}")
    if priorities["reason"] and missed:
        told.append("  " + re.sub(r"\b(\d+) ns", lambda match: duration(int(match[1]) / 1000), priorities["reason"]))
    if priorities["bulk"]:
        told.append(f"  {priorities['bulk']}")
    if priorities["stays"]:
        names = ", ".join(priorities["stays"][:5]) + (", ..." if len(priorities["stays"]) > 5 else "")
        told.append(f"  left as they are, since they promise no arrivals: {names}")
    return told


def _told_routes(document: dict[str, Any]) -> list[str]:
    routes = document["routes"]
    changed = {name: entry["route"] for name, entry in document["changed"].items() if "route" in entry}
    before, after = routes["movable_before"], routes["movable_after"]
    if before is None or after is None:
        return ["routes: none was chosen in time" if document["stopped"] else "routes: there is no choice"]
    among = "of all loop-free ways" if routes["all_ways"] else "of the candidate ways"
    proof = f"the least {among}" if routes["exact"] else "no proof that it is the least"
    told = [
        f"routes: worst utilisation where there is a choice {_share(before)} before, {_share(after)} after ({proof})"
    ]
    if document["kept_routes"]:
        told.append(f"  {document['kept_routes']}: {'others were taken' if changed else 'kept as they were'}")
    ways = [f"  {name}: {' - '.join(way)}" for name, found in changed.items() for way in found]
    told += ways[:MOST_WAYS]
    if len(ways) > MOST_WAYS:
        told.append(f"  {len(ways) - MOST_WAYS} more with --json")
    return told


def _criticality(row: dict[str, Any]) -> tuple[bool, bool, str]:
    changed = row["before"]["class"] != row["after"]["class"] or row["before"]["ways"] != row["after"]["ways"]
    return row["after"]["met"], not changed, row["flow"]
