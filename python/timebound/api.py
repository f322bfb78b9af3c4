"""The Python API: what the command line does, for notebooks and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timebound.engine import runs
from timebound.engine.progress import SILENT, Progress
from timebound.files import release
from timebound.scenario import load as load_scenario
from timebound.scenario.builtin import find
from timebound.scenario.model import Scenario

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: its folder, its figures and its exit code (0 all well, 1 a requirement is not met, 3 the host cannot
    do it, 4 the run was disturbed, 130 interrupted)."""

    folder: Path
    summary: dict[str, Any]
    exit_code: int

    @property
    def flows(self) -> pl.DataFrame:
        """One row per flow and receiver; times in microseconds."""
        return flow_frame(self.summary)

    @property
    def messages(self) -> pl.DataFrame:
        """One row per message and receiver; `FileNotFoundError` where nothing was emulated."""
        import polars as pl

        return pl.read_parquet(self.folder / "messages.parquet")

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.folder / "report.html"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A loaded scenario and what can be done with it."""

    scenario: Scenario

    def predict(self) -> pl.DataFrame:
        """Safe worst-case bounds: one row per flow and receiver, times in microseconds."""
        return flow_frame(runs.figures_only(self.scenario, {"predict"}))

    def simulate(self) -> pl.DataFrame:
        """Bounds and the worst that the simulator found, per flow and receiver."""
        return flow_frame(runs.figures_only(self.scenario, {"predict", "simulate"}))

    def emulate(self, output: str | Path | None = None, *, progress: Progress = SILENT, force: bool = False) -> Run:
        """Real clients and a real broker over the emulated network; `force` replaces results of another scenario or verb."""
        return self._run({"predict", "emulate"}, output, progress, force=force)

    def run(self, output: str | Path | None = None, *, progress: Progress = SILENT, force: bool = False) -> Run:
        """All three, and the report that puts them side by side; `force` replaces results of another scenario or verb."""
        return self._run({"predict", "simulate", "emulate"}, output, progress, force=force)

    def _run(self, parts: set[str], output: str | Path | None, progress: Progress, *, force: bool) -> Run:
        done = runs.run(self.scenario, output, parts, progress, force=force)
        # This process may go on for days, and others may write the report anew.
        release(done.folder)
        return Run(done.folder, done.summary, done.exit_code)


def load(scenario: str | Path, overrides: Mapping[str, str] | None = None) -> Experiment:
    """Loads a scenario file or a built-in scenario by its name.

    Raises:
        ScenarioError: with every problem and its place.
    """
    return Experiment(load_scenario(find(str(scenario)), dict(overrides or {})))


def flow_frame(summary: dict[str, Any]) -> pl.DataFrame:
    """The flows of a summary as a flat frame."""
    import polars as pl

    rows = []
    for flow in summary["flows"]:
        latency = flow["latency_us"] or {}
        application = flow["application_us"] or {}
        rows.append(
            {
                "flow": flow["flow"],
                "receiver": flow["receiver"],
                "priority": flow["priority"],
                "qos": flow["qos"],
                "sent": flow["sent"],
                "lost": flow["lost"],
                "late": flow["late"],
                "observed_p50_us": latency.get("p50"),
                "observed_max_us": latency.get("max"),
                "application_p50_us": application.get("p50"),
                "application_max_us": application.get("max"),
                "simulated_max_us": flow["simulated_max_us"],
                "bound_us": flow["bound_us"]["bound"],
                "end_to_end_us": flow["end_to_end_us"]["bound"],
                "bound_observed_us": flow["bound_us"]["observed_arrivals"],
                "deadline_us": flow["deadline_us"],
                "verdict": flow["verdict"],
                "reason": flow["bound_us"]["reason"] or flow["end_to_end_us"]["reason"],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)
