"""The points of a sweep: each loaded, checked and named by its content before anything starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timebound import __version__
from timebound.engine import nodes, programs, runs
from timebound.engine.core import Network
from timebound.engine.progress import SILENT, Progress
from timebound.engine.sweep.axes import Axis, product
from timebound.scenario import Scenario, load
from timebound.scenario.problems import Problem, ScenarioError
from timebound.stacks import Plan

KEY_SCHEMA = 1
VERBS = {
    "predict": {"predict"},
    "simulate": {"predict", "simulate"},
    "emulate": {"predict", "emulate"},
    "run": {"predict", "simulate", "emulate"},
}
MOST_PROBLEMS = 40


@dataclass(frozen=True, slots=True)
class Point:
    """One run: settings, the key of its result, and what an emulation of it takes."""

    index: int
    settings: Mapping[str, str]
    key: str
    emulated_s: float

    @property
    def name(self) -> str:
        """For people: `period=5 ms, seed=1`."""
        return describe(self.settings)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was asked for. `common` are the settings of every point (`--set`)."""

    source: str
    name: str
    verb: str
    common: Mapping[str, str]
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    warnings: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    """Absolute paths of the files that it was read from."""

    def definition(self) -> dict[str, Any]:
        """What stands in `sweep-plan.json`; two parts of one sweep have the same."""
        return {
            "schema": 1,
            "timebound": __version__,
            "scenario": self.name,
            "source": self.source,
            "verb": self.verb,
            "settings": dict(self.common),
            "axes": [{"paths": list(axis.paths), "steps": [list(step) for step in axis.steps]} for axis in self.axes],
            "points": [{"index": p.index, "settings": dict(p.settings), "key": p.key} for p in self.points],
        }


def describe(settings: Mapping[str, str]) -> str:
    """Settings in short: the last word of each path where that is clear."""
    last = [path.rpartition(".")[2] for path in settings]
    names = {path: word if last.count(word) == 1 else path for path, word in zip(settings, last, strict=True)}
    return ", ".join(f"{names[path]}={value}" for path, value in settings.items())


def plan_sweep(
    source: str, verb: str, axes: Sequence[Axis], common: Mapping[str, str], progress: Progress = SILENT
) -> Sweep:
    """Loads and compiles every point.

    Raises:
        ScenarioError: every problem of every point, each once, with the point that it was met at first.
    """
    settings = product(axes)
    problems: dict[tuple[str, int, int, str], tuple[Problem, int, int]] = {}
    warnings: dict[str, None] = {}
    inputs: dict[str, None] = {}
    points = []
    name = Path(source).stem
    progress.step("check", f"{len(settings)} points")
    for index, point in enumerate(settings):
        try:
            scenario, plan = compiled(source, verb, {**common, **point})
        except ScenarioError as error:
            for found in error.problems:
                place = (found.file, found.line, found.column, found.message)
                first, number, count = problems.get(place, (found, index, 0))
                problems[place] = (first, number, count + 1)
            continue
        name = scenario.name
        inputs.update(dict.fromkeys(scenario.inputs))
        warnings.update(dict.fromkeys(warning.render() for warning in scenario.warnings))
        points.append(Point(index, point, key_of(scenario, plan, verb), _emulated(scenario, verb)))
        progress.at((index + 1) / len(settings), f"{index + 1} of {len(settings)} points")
    if problems:
        raise ScenarioError([_at_point(*entry, settings) for entry in list(problems.values())[:MOST_PROBLEMS]])
    return Sweep(source, name, verb, dict(common), tuple(axes), tuple(points), tuple(warnings), tuple(inputs))


def _at_point(found: Problem, index: int, count: int, settings: list[dict[str, str]]) -> Problem:
    more = f", and {count - 1} more" if count > 1 else ""
    return replace(found, message=f"{found.message} [point {index}: {describe(settings[index])}{more}]")


def compiled(source: str, verb: str, settings: Mapping[str, str]) -> tuple[Scenario, Plan]:
    """A point's scenario and plan, as far as it can be checked without running it."""
    scenario = load(source, dict(settings))
    plan = runs.plan_of(scenario)
    Network(plan, plan.declaration())
    if "emulate" in VERBS[verb]:
        programs.resolve(plan)
        nodes.check_nodes(scenario)
    return scenario, plan


def key_of(scenario: Scenario, plan: Plan, verb: str) -> str:
    """The name of a result: the same content gives the same one, on any machine.

    Programs of one's own are part of it by the content of the files that their commands name.
    """
    content = {
        "schema": KEY_SCHEMA,
        "timebound": __version__,
        "verb": verb,
        "seed": scenario.run.seed,
        "scenario": scenario.to_yaml(),
        "files": _files(scenario, plan) if "emulate" in VERBS[verb] else {},
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _files(scenario: Scenario, plan: Plan) -> dict[str, str]:
    """Digests of the files that its nodes get, and of those beside the scenario that their commands name."""
    sources = {file.source for node in scenario.nodes for file in node.files if file.source is not None}
    base = Path(scenario.file).resolve().parent if scenario.file else Path.cwd()
    found = {source: _digest(Path(source)) for source in sorted(sources) if _readable(Path(source))}
    for program in plan.programs:
        folder = base / str(program.get("folder") or "")
        for word in program["argv"][1:]:
            for path in (folder / word, base / word):
                if not Path(word).is_absolute() and _readable(path):
                    found[word] = _digest(path)
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _readable(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _emulated(scenario: Scenario, verb: str) -> float:
    """Seconds that the emulation of a point takes at least: its clock is the real one."""
    return (scenario.run.warm_up_ns + scenario.run.duration_ns) / 1e9 if "emulate" in VERBS[verb] else 0.0
