"""A whole run: the parts that were asked for, one folder, one summary, one report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timebound.engine import calibration, joining, nodes, packets, programs, written
from timebound.engine import folder as folders
from timebound.engine.core import Network, problem_at
from timebound.engine.emulate import EXIT_DISTURBED, EXIT_HOST, EXIT_INTERRUPTED, Emulation, emulate
from timebound.engine.folder import FolderError
from timebound.engine.measured import measure
from timebound.engine.methods import Method, work_out
from timebound.engine.pair import Pair, PairError, read_token, too_short
from timebound.engine.predict import Prediction, predict
from timebound.engine.progress import SILENT, Progress
from timebound.engine.simulate import simulate
from timebound.engine.summary import Results, summarise
from timebound.engine.write import write_tables
from timebound.files import Claim, Place, close_list, holding, read_mark
from timebound.scenario import load
from timebound.scenario.model import Scenario
from timebound.scenario.problems import ScenarioError
from timebound.stacks import Plan, PlanError, build_plan
from timebound.stacks.parts import computer, take_part

EXIT_OK, EXIT_NOT_MET = 0, 1
PHASES = {
    "network": "building the network",
    "switches": "starting Open vSwitch",
    "preflight": "proving the emulated conditions",
    "setup": "starting programs, connecting clients",
    "measure": "measuring",
    "stop": "taking it down",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Which of the scenario's two machines this is, and the file with the secret that both share."""

    name: str
    token: Path
    timeout_s: float = 120.0


@dataclass(slots=True)
class Done:
    """A finished run. `failure` says why an emulation ended early; what it had measured is in the folder."""

    folder: Path
    summary: dict[str, Any]
    exit_code: int
    failure: str | None = None
    hint: str | None = None


def plan_of(scenario: Scenario, machine: str | None = None) -> Plan:
    """The plan of a scenario; what does not fit comes back with its place.

    Raises:
        ScenarioError: the stack cannot be laid on this network.
    """
    try:
        plan = build_plan(scenario)
        if machine is not None:
            take_part(plan, machine)
        return plan
    except PlanError as error:
        raise ScenarioError([problem_at(scenario, error.path, error.message, error.hint)]) from None


def check(scenario: Scenario, *, rootless: bool = False) -> list[str]:
    """Compiles the scenario's plan and nothing more; says where it asks for more than this host was measured to carry.

    Raises:
        ScenarioError: what is wrong, with its place.
    """
    plan = plan_of(scenario)
    found = programs.unfound(scenario)
    return [*found, *calibration.warnings(plan, Network(plan, plan.declaration()), rootless=rootless)]


def figures_only(
    scenario: Scenario,
    parts: set[str],
    progress: Progress = SILENT,
    *,
    method: Method | None = None,
    effort: int | None = None,
) -> dict[str, Any]:
    """The summary of a prediction (and simulation) without a run folder; with `method`, its figures beside the bounds. `effort` as of `predict`."""
    results = _compute(plan_of(scenario), parts, progress, method, effort)
    return summarise(results)


def run(
    scenario: Scenario,
    output: str | Path | None,
    parts: set[str],
    progress: Progress = SILENT,
    *,
    rootless: bool = False,
    take_interfaces: tuple[str, ...] = (),
    report: bool = True,
    machine: Machine | None = None,
    method: Method | None = None,
    force: bool = False,
    effort: int | None = None,
) -> Done:
    """Predicts, simulates and emulates as asked, and writes the run folder with its report (unless `report` is false).

    `force` is about an `output` that holds the results of another scenario or other parts: they are replaced.

    Raises:
        ScenarioError: the scenario does not compile; nothing was started.
        FolderError: the run folder cannot be used; nothing was started.
    """
    started = datetime.now(UTC)
    plan = plan_of(scenario, None if machine is None else machine.name)
    if "emulate" in parts:
        if plan.unemulated is not None:
            advice = "timebound predict and timebound simulate take this scenario"
            raise ScenarioError([problem_at(scenario, plan.unemulated_at, plan.unemulated, advice)])
        programs.resolve(plan)
        nodes.check_nodes(scenario)
    claim = written.claim(plan, parts, paired=machine is not None)
    folder = folders.prepare(output, claim, force=force)
    results = _compute(plan, parts, progress, method, effort)
    prediction = results.prediction
    with Place(folder) as place:
        place.write("scenario.yaml", scenario.to_yaml())
    folders.write_json(folder / "plan.json", prediction.network.declaration)
    emulation: Emulation | None = None
    interrupted = results.simulation is not None and results.simulation.is_interrupted
    results.is_emulated = "emulate" in parts
    if "emulate" in parts and not interrupted:
        pair = None if machine is None else _meet(results, machine, progress)
        emulation = _emulate(results, folder, progress, rootless=rootless, take_interfaces=take_interfaces, pair=pair)
    with joining.kept(folder, progress) as interrupts:
        manifest = folders.manifest(scenario.file, scenario.run.seed, claim, started)
        done = _write_down(results, folder, progress, manifest, emulation, report=report)
    done.exit_code = EXIT_INTERRUPTED if interrupts.count else done.exit_code
    return done


def rejoin(folder: Path, progress: Progress = SILENT) -> Done:
    """Makes the results of an emulation that was broken off when its records were there and nothing was made of them.

    Bounds and simulation are worked out again, from the resolved scenario in the folder.

    Raises:
        FolderError: the folder is no such one, or another process is at it; it belongs to a part of two machines.
        ScenarioError: the scenario in it does not compile.
    """
    with Place(folder) as place, holding(place):
        mark = read_mark(place)
        if mark is None or not joining.can_be_joined(folder):
            raise FolderError(f"{folder} holds no records to join", "name a folder that `timebound run` wrote")
        if joining.read_plan(folder).get("cut") is not None:
            raise FolderError(
                f"{folder} holds the records of one of two machines, which are joined by the run alone",
                "run both parts again",
            )
        scenario = load(folder / "scenario.yaml")
        parts, run = set(mark.content["parts"]), mark.content.get("run") or {}
        claim = Claim(scenario.name, run.get("source"), tuple(sorted(parts)), mark.files)
        results = _compute(plan_of(scenario), parts, progress, None, None)
        results.is_emulated = True
        live = joining.read_live(folder)
        emulation = Emulation(status=EXIT_OK, failure=live.get("failure"))
        with joining.kept(folder, progress) as interrupts:
            started = datetime.fromtimestamp((live.get("epoch_unix_ns") or 0) / 1e9, UTC)
            manifest = {**folders.manifest(run.get("source"), scenario.run.seed, claim, started), "joined_later": True}
            done = _write_down(results, folder, progress, manifest, emulation, report=True)
        done.exit_code = EXIT_INTERRUPTED if interrupts.count else done.exit_code
        return done


def _write_down(
    results: Results,
    folder: Path,
    progress: Progress,
    manifest: dict[str, Any],
    emulation: Emulation | None,
    *,
    report: bool,
) -> Done:
    """Joins what was measured and writes results and report."""
    if emulation is not None:
        _measure(results, folder, progress, emulation)
    progress.step("report", "writing the report")
    summary = summarise(results)
    manifest["precision"] = summary["precision"]
    if emulation is not None and emulation.failure is not None:
        manifest["failure"] = summary["failure"] = emulation.failure
        if summary["verdict"] in ("met", "unmeasured"):
            summary["verdict"] = "failed"
    plan = results.prediction.plan
    if results.measured is not None and (ended := programs.failed(plan, results.measured.live, folder)):
        # What the scenario asks for was not there, or not to the end.
        summary["failed_programs"] = ended
        summary["verdict"] = "failed" if summary["verdict"] == "met" else summary["verdict"]
    if results.is_emulated:
        hertz, source = nodes.nominal_hz()
        # What `cpu: 200 MHz` was a part of.
        manifest["host"]["cpu_hz"], manifest["host"]["cpu_hz_source"] = hertz or None, source
    folders.write_json(folder / "manifest.json", manifest)
    write_tables(results, folder)
    if emulation is not None and (found := packets.summary_of_run(folder, progress)) is not None:
        summary["packets"] = found
    folders.write_json(folder / "summary.json", summary)
    if results.measured is not None:
        joining.discard_records(folder)
    if report:
        _report(folder)
    with Place(folder) as place:
        close_list(place)
    code = exit_code(summary, emulation)
    failure, hint = (None, None) if emulation is None else (emulation.failure, emulation.hint)
    return Done(folder, summary, code, failure, hint)


def _report(folder: Path) -> None:
    from timebound.report import ReportError, write_report

    try:
        write_report(folder)
    except ReportError as error:
        advice = f"the figures are in {folder / 'summary.json'}; timebound report writes the page again"
        raise FolderError(str(error), advice, EXIT_HOST) from error


def exit_code(summary: dict[str, Any], emulation: Emulation | None) -> int:
    """0 all well, 1 a requirement is not met, 3 the host cannot do it, or ended it before anything was measured, 4 disturbed, 130 interrupted.

    A program that dies while the run measures is no fault of the host: 1.
    """
    if "search_interrupted" in summary:
        return EXIT_INTERRUPTED
    if emulation is not None:
        if emulation.status == EXIT_INTERRUPTED:
            return EXIT_INTERRUPTED
        if emulation.status != EXIT_OK and not emulation.measuring:
            # Nothing is known of any requirement.
            return EXIT_DISTURBED if emulation.status == EXIT_DISTURBED else EXIT_HOST
        if emulation.failure is not None:
            return EXIT_NOT_MET
    if summary["verdict"] == "disturbed":
        return EXIT_DISTURBED
    return EXIT_OK if summary["verdict"] == "met" else EXIT_NOT_MET


def _compute(plan: Plan, parts: set[str], progress: Progress, method: Method | None, effort: int | None) -> Results:
    progress.step("predict", "working out the bounds")
    results = Results(predict(plan, effort=effort))
    if method is not None:
        results.figures = work_out(results.prediction, method)
    if "simulate" in parts:
        results.simulation = simulate(results.prediction, progress)
    return results


def _meet(results: Results, machine: Machine, progress: Progress) -> Pair:
    """The other machine, with clocks compared.

    Raises:
        FolderError: it does not come, has another token or scenario, or cut links are shorter than the way between the two.
    """
    scenario = results.prediction.plan.scenario
    here, there = computer(scenario, machine.name)
    progress.step("pair", f"waiting for machine {there.name}")
    try:
        pair = Pair(scenario, here, there, read_token(machine.token), machine.timeout_s)
    except PairError as error:
        raise FolderError(str(error), error.hint, EXIT_HOST) from None
    for index, delay, least in too_short(scenario, pair):
        pair.close()
        problem = problem_at(
            scenario,
            f"links[{index}].delay_ns",
            f"the link is {delay / 1000:.0f} us long, and the way between the machines takes at least {least / 1000:.0f} us",
            "cut the network at a longer link, or join the machines by a shorter way",
        )
        raise FolderError(problem.render(), problem.hint, EXIT_HOST)
    return pair


def _emulate(
    results: Results,
    folder: Path,
    progress: Progress,
    *,
    rootless: bool,
    take_interfaces: tuple[str, ...],
    pair: Pair | None,
) -> Emulation:
    progress.step("emulate", "building the network")
    teller = _teller(results.prediction, progress)
    emulation = emulate(
        results.prediction, folder, teller, rootless=rootless, take_interfaces=take_interfaces, pair=pair
    )
    if pair is not None:
        pair.close()
        folders.write_json(folder / "pair.json", pair.summary(joining.read_live(folder)))
    return emulation


def _measure(results: Results, folder: Path, progress: Progress, emulation: Emulation) -> None:
    live = joining.read_live(folder)
    emulation.measuring = live.get("epoch_unix_ns") is not None
    if emulation.measuring:
        progress.step("measure", "joining the records")
        results.measured = measure(results.prediction, folder, live)


def _teller(prediction: Prediction, progress: Progress) -> Any:
    """Turns the sandbox's events into progress."""
    run_ns = prediction.plan.scenario.run
    total = (run_ns.warm_up_ns + run_ns.duration_ns) / 1e9

    def tell(event: dict[str, Any]) -> None:
        match event.get("event"):
            case "phase":
                progress.at(0.0, PHASES.get(str(event.get("phase")), ""))
            case "progress":
                at = float(event.get("run_ns", 0)) / 1e9
                progress.at(min(1.0, at / total) if total else 1.0, f"{at:.0f} of {total:.0f} s")
            case "log":
                progress.note(str(event.get("message", "")))

    return tell
