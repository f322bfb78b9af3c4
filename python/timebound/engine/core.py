"""The Rust core behind typed functions: JSON in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timebound import _core
from timebound.scenario.model import Scenario
from timebound.scenario.problems import Place, Problem, ScenarioError
from timebound.stacks import Plan

Progress = Callable[[float], None]
"""Called with the share that is done, 0..1."""


class Network:
    """A compiled network with its streams: what bounds, simulator and emulator read."""

    def __init__(self, plan: Plan, declaration: dict[str, Any], effort: int | None = None) -> None:
        """Compiles `declaration`. `effort` limits the work of the method "bound" over several ports at once; None is the core's own limit.

        Raises:
            ScenarioError: the core refuses it; each problem carries the place in the scenario that it comes from.
        """
        try:
            self._network = _core.Network(json.dumps(declaration))
        except ValueError as error:
            raise ScenarioError(_problems(plan, declaration, str(error))) from None
        self.declaration = declaration
        self.effort = effort

    def paths(self) -> dict[str, dict[str, list[str]]]:
        """Stream name -> receiver -> names of the ports on the way (`a->b`)."""
        answer: dict[str, dict[str, list[str]]] = json.loads(self._network.paths())
        return answer

    def bounds(
        self, jitter_ns: dict[str, int] | None = None, method: str = "bound", *, assume_best_effort: bool = True
    ) -> dict[str, Any]:
        """Safe bounds by "holistic", "calculus", their minimum "port-by-port", or the least of all "bound".

        `jitter_ns` replaces declared jitters where it is larger (stream name -> ns).
        """
        options = {
            "method": method,
            "jitter_override": jitter_ns or {},
            "assume_best_effort": assume_best_effort,
            "effort": self.effort,
        }
        answer: dict[str, Any] = json.loads(self._network.bounds(json.dumps(options)))
        return answer

    def brief(self, jitter_ns: dict[str, int], method: str = "bound") -> dict[str, Any]:
        """The bounds alone, as `bounds`, without what they are made of: `streams` and `ports` in the order of the declaration
        (crates/py/src/network.rs, `brief`). Several times faster to read."""
        answer: dict[str, Any] = json.loads(
            self._network.brief(json.dumps({"jitter_override": jitter_ns, "method": method, "effort": self.effort}))
        )
        return answer

    def comparison(
        self, method: str, jitter_ns: dict[str, int] | None = None, *, assume_best_effort: bool = True
    ) -> dict[str, Any]:
        """Figures of a method that is no bound: as `bounds`, with `method` and its `safety` ("experimental" or "unsafe") beside them.

        Methods: "trajectory", "holistic-as-published", "trajectory-as-published", and "trajectory-with-published-defects", the
        published trajectory approach read with transmission times.
        """
        options = {"method": method, "jitter_override": jitter_ns or {}, "assume_best_effort": assume_best_effort}
        answer: dict[str, Any] = json.loads(self._network.comparison(json.dumps(options)))
        return answer

    def explain(
        self, leaves: list[tuple[str, str]], jitter_ns: dict[str, int] | None = None, method: str = "bound"
    ) -> list[dict[str, Any]]:
        """What the bounds of (stream, receiver) are made of (`Explanation` of crates/bounds), or the reason why there is none.

        `jitter_ns` and `method` as of `bounds`.
        """
        bounds = {"method": method, "jitter_override": jitter_ns or {}, "effort": self.effort}
        options = {"bounds": bounds, "leaves": leaves}
        answer: list[dict[str, Any]] = json.loads(self._network.explain(json.dumps(options)))
        return answer

    def assign(self, options: dict[str, Any], progress: Callable[[str, int], bool] | None = None) -> dict[str, Any]:
        """Classes and routes (`AssignOptions` of crates/py/src/assign.rs); `progress(phase, analyses)` breaks off by True."""
        answer: dict[str, Any] = json.loads(self._network.assign(json.dumps(options), progress))
        return answer

    def simulate(self, options: dict[str, Any], progress: Progress | None = None) -> dict[str, Any]:
        """One simulation under the virtual clock."""
        answer: dict[str, Any] = json.loads(self._network.simulate(json.dumps(options), progress))
        return answer

    def search(self, options: dict[str, Any], progress: Progress | None = None) -> dict[str, Any]:
        """The search for worst cases."""
        answer: dict[str, Any] = json.loads(self._network.search(json.dumps(options), progress))
        return answer


_PARTS = {"burst_bytes": ".token_bucket.burst", "rate_bps": ".token_bucket.rate"}
"""What of a stream is stated as it is by whoever it comes from."""


def _problems(plan: Plan, declaration: dict[str, Any], errors: str) -> list[Problem]:
    """Compiler errors, each with the place of the scenario that the declaration's part comes from."""
    problems = []
    for error in json.loads(errors):
        path = str(error["path"])
        if path.startswith("streams["):
            index = int(path[len("streams[") : path.index("]")])
            origin, part = plan.origins[declaration["streams"][index]["name"]], path.rpartition(".")[2]
            path = origin + _PARTS.get(part, "")
        problems.append(problem_at(plan.scenario, path, error["message"], error["hint"]))
    return problems


def problem_at(scenario: Scenario, path: str, message: str, hint: str) -> Problem:
    """A problem at a path of the scenario."""
    place = scenario.locate(path) or Place(scenario.file or "<scenario>")
    return Problem(
        file=place.file,
        line=place.line,
        column=place.column,
        path=scenario.path_in_file(path),
        message=message,
        hint=hint,
        source_line=_source_line(place),
        length=place.length,
    )


def _source_line(place: Place) -> str:
    if place.line < 1:
        return ""
    try:
        lines = Path(place.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[place.line - 1] if place.line <= len(lines) else ""
