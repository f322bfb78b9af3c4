"""`timebound sweep`: one scenario with many values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from timebound.cli.common import AsJson, Given, Quiet, Settings, print_json, stderr, stdout, whole
from timebound.files import FolderError, given, named_folder

if TYPE_CHECKING:
    from timebound.engine.sweep import Outcome, Sweep


def register(app: App) -> None:
    """Adds the verb."""
    app.command(sweep)


def sweep(
    *names: Annotated[str, Parameter(help="A scenario; with --gather the folders of a sweep's shards.")],
    vary: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            help='PATH=VALUES with a path as for --set; values are a list (`"5 ms, 10 ms"`), integers `1..5` or steps `10..50/10`. '
            "May be given several times: all combinations are run.",
        ),
    ] = (),
    zip: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="PATH=VALUES that vary together: the first with the first, and so on."),
    ] = (),
    vary_file: Annotated[
        Given | None,
        Parameter(help="The same from a file: YAML (`vary: {...}`, `zip: {...}`) or CSV (one line per point)."),
    ] = None,
    verb: Annotated[
        Literal["predict", "simulate", "emulate", "run"], Parameter(help="What is done at each point.")
    ] = "run",
    set: Settings = (),
    output: Annotated[str | None, Parameter(name=["--output", "-o"], help="The folder of the sweep.")] = None,
    jobs: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="Points at once; all cores by default, one where emulated: emulations disturb each other.",
        ),
    ] = None,
    resume: Annotated[
        bool, Parameter(negative=(), help="Go on with the sweep in the folder; refused where there is none.")
    ] = False,
    force: Annotated[
        bool,
        Parameter(negative=(), help="Compute again what is there; and take the folder of another scenario's sweep."),
    ] = False,
    shard: Annotated[
        str | None, Parameter(help="Compute only part i of n (`1/4`), for jobs with an index; --gather joins them.")
    ] = None,
    gather: Annotated[bool, Parameter(negative=(), help="Join the results of shards into one comparison.")] = False,
    executor: Annotated[
        Literal["local", "dask", "slurm"],
        Parameter(help="Where points are computed; Dask and Slurm: pip install 'timebound[cluster]'."),
    ] = "local",
    executor_option: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="NAME=VALUE: for Dask `address`; for Slurm options of sbatch, or `cluster=local`."),
    ] = (),
    rootless: Annotated[bool, Parameter(negative=(), help="Even as root, emulate with the rights of a user.")] = False,
    dry_run: Annotated[bool, Parameter(negative=(), help="List the points and an estimate; start nothing.")] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run a scenario at many points and compare them in one report.

    Every point is checked before anything starts. Results are kept by their content: a sweep that was interrupted or killed goes
    on where it was, and a point that is there already is not computed again.
    """
    from timebound.cli.live_progress import TerminalProgress
    from timebound.engine.sweep import Options, run_sweep
    from timebound.engine.sweep import gather as join_shards

    target = None if output is None else named_folder(output)
    if gather:
        if not names or vary or zip or vary_file:
            raise FolderError(
                "--gather takes folders and nothing to vary", "timebound sweep --gather FOLDER ... -o OUT"
            )
        with TerminalProgress(quiet or json) as progress:
            outcome = join_shards([given(name) for name in names], target, progress)
        return _close(outcome, json=json)
    if len(names) != 1:
        raise FolderError("a sweep takes one scenario", "timebound sweep SCENARIO --vary PATH=VALUES -o FOLDER")
    if jobs is not None and jobs < 1:
        raise FolderError(f"--jobs {jobs} is too few", "use 1 or more")
    part = _shard(shard)
    pairs = _pairs(executor_option)
    with TerminalProgress(quiet or json) as progress:
        plan = _plan(names[0], verb, vary, zip, vary_file, set, progress)
        for warning in plan.warnings:
            progress.note(warning)
        folder = target or Path("runs") / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', plan.name)}-sweep"
        options = Options(folder, executor, pairs, jobs, resume, force, part, rootless)
        if not dry_run:
            outcome = run_sweep(plan, options, progress)
    return _list(plan, options, json=json) if dry_run else _close(outcome, json=json)


def _plan(
    source: str,
    verb: str,
    vary: Sequence[str],
    zipped: Sequence[str],
    file: Path | None,
    settings: Sequence[str],
    progress: Any,
) -> Sweep:
    from timebound.cli.common import assignments
    from timebound.engine.sweep import parse_axes, plan_sweep
    from timebound.scenario.builtin import find
    from timebound.scenario.files import noting

    with noting() as inputs:
        axes = parse_axes(vary, zipped, file)
    if not axes:
        raise FolderError("nothing varies", 'for example --vary flows.alpha.period="5 ms, 10 ms" --vary run.seed=1..5')
    path = find(source)
    plan = plan_sweep(str(path.resolve()) if path.exists() else source, verb, axes, assignments(settings), progress)
    return replace(plan, inputs=(*plan.inputs, *inputs))


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise FolderError(f"--shard {text} is no part", "the first of four is 1/4, the last 4/4")
    return int(match[1]), int(match[2])


def _pairs(options: Sequence[str]) -> dict[str, str]:
    found = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name:
            raise FolderError(f"--executor-option {option!r} is no assignment", "write NAME=VALUE, as partition=short")
        found[name] = value
    return found


def _list(plan: Sweep, options: Any, *, json: bool) -> int:
    """The dry run: points, what is there, what it takes."""
    from timebound.engine.sweep.drive import estimate_s, mine, waiting
    from timebound.engine.sweep.store import Store

    store = Store(options.folder)
    points = mine(plan.points, options.shard)
    todo = waiting(points, store, force=options.force)
    left = {point.key for point in todo}
    known = [result.elapsed_s for point in plan.points if (result := store.read(point.key)) is not None]
    jobs = options.workers(plan.verb)
    seconds = estimate_s(todo, jobs)
    if seconds is None and known:
        seconds = sum(known) / len(known) * len(todo) / jobs
    script = None
    if options.executor == "slurm" and options.executor_options.get("cluster", "slurm") == "slurm":
        from timebound.engine.sweep.executors import sbatch_script

        script = sbatch_script(options.folder, options.executor_options)
    if json:
        listed = [
            {"index": p.index, "settings": dict(p.settings), "key": p.key, "done": p.key not in left} for p in points
        ]
        print_json({"points": listed, "to_compute": len(todo), "jobs": jobs, "estimate_s": seconds, "sbatch": script})
        return 0
    for point in points:
        stdout(f"{point.index:>6}  {point.key[:12]}  {'to do' if point.key in left else 'done ':<5}  {point.name}")
    words = (
        f"at least {seconds:.0f} s"
        if seconds is not None
        else "known once points are done (predict and simulate take what they take)"
    )
    stdout(f"{len(points)} points, {len(todo)} to compute, {jobs} at once: {words}")
    if script is not None:
        stdout(script)
    return 0


def _close(outcome: Outcome, *, json: bool) -> int:
    content = outcome.content
    if json:
        counts = None if content is None else content["counts"]
        points = None if content is None else [{k: v for k, v in p.items() if k != "flows"} for p in content["points"]]
        print_json(
            {
                "folder": str(outcome.folder),
                "exit_code": outcome.exit_code,
                "computed": outcome.computed,
                "reused": outcome.reused,
                "counts": counts,
                "points": points,
                "effects": None if content is None else content["effects"],
            }
        )
    elif content is not None:
        _table(content)
    if outcome.interrupted:
        stderr(f"interrupted: what was computed is kept in {outcome.folder}; the same command goes on")
    stderr(f"{outcome.computed} points computed, {outcome.reused} were there")
    if content is None:
        stderr(f"this was a shard; when all are done: timebound sweep --gather {outcome.folder} ...")
        return outcome.exit_code
    for point in [p for p in content["points"] if p["status"] == "failed"][:10]:
        stderr(f"point {point['index']} failed: {str(point['failure']).splitlines()[0]}")
    if content["counts"]["missing"]:
        stderr(f"{content['counts']['missing']} points have no result")
    stderr(f"report: {outcome.folder / 'report.html'}")
    return outcome.exit_code


def _table(content: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from timebound.cli.table import MOST_ROWS, STYLES, duration, print_table

    shown_times = ("observed_max_us", "simulated_max_us", "bound_us", "end_to_end_us", "margin_us")
    times = [metric for metric in content["metrics"] if metric["name"] in shown_times]
    paths = [path for axis in content["axes"] for path in axis["paths"]]
    short = [metric["name"].removesuffix("_us").replace("_", " ") for metric in times]
    last = [path.rpartition(".")[2] for path in paths]
    heads = [word if last.count(word) == 1 else path for path, word in zip(paths, last, strict=True)]
    table = Table(title=f"{content['scenario']}: sweep", title_justify="left", box=SIMPLE_HEAD)
    for title in ("point", *heads, *short, "verdict"):
        table.add_column(escape(title), overflow="fold")
    for point in content["points"][:MOST_ROWS]:
        verdict = point["verdict"]
        shown = f"[{STYLES[verdict]}]{verdict}[/]" if verdict in STYLES else escape(verdict)
        values = [duration(point["metrics"].get(metric["name"])) for metric in times]
        table.add_row(str(point["index"]), *(escape(point["settings"][path]) for path in paths), *values, shown)
    if len(content["points"]) > MOST_ROWS:
        table.caption = f"{len(content['points']) - MOST_ROWS} more rows in the report"
    print_table(table)
    matter = [
        f"{effect['axis']} ({effect['share']:.0%} of {effect['metric']})"
        for effect in content["effects"]
        if effect["matters"]
    ]
    if matter:
        stdout(f"What matters: {', '.join(matter[:12])}")
