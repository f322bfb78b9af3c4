"""A scenario's network without its flows: brought up with its programs, and held."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from timebound.engine import programs
from timebound.engine.control import ControlError
from timebound.engine.core import Network
from timebound.engine.emulate import (
    EXIT_DISTURBED,
    EXIT_HOST,
    emulation_plan,
    event_lines,
    sandbox_process,
    stop_process,
)
from timebound.engine.predict import Prediction
from timebound.engine.servers import Servers
from timebound.files import Place
from timebound.scenario.model import Scenario
from timebound.stacks import Plan

FOR_EVER_NS = 10 * 365 * 86_400 * 1_000_000_000


class Held:
    """A network that is up. `run_id` is what orders are given to."""

    def __init__(self, run_id: str, folder: Path) -> None:
        self.run_id = run_id
        self.folder = folder
        self.status: int | None = None
        self.failure: str | None = None
        self.exit_code = EXIT_HOST
        """What a failure to come up ends with: as `emulate` does, 4 where the machine was too busy."""
        self._up = threading.Event()
        self._over = threading.Event()

    def wait_until_up(self) -> None:
        """Waits until programs are ready and the network carries frames.

        Raises:
            ControlError: it did not come up.
        """
        while not self._up.wait(0.5):
            pass
        if self.failure is not None:
            raise ControlError(
                f"the network did not come up: {self.failure}", f"see {self.folder / 'logs'}", self.exit_code
            )

    def wait(self, seconds: float | None) -> bool:
        """Waits until it ended by itself, or for some time; true where it ended."""
        if seconds is not None:
            return self._over.wait(seconds)
        while not self._over.wait(0.5):
            pass
        return True

    def listen(self, lines: Iterator[dict[str, Any]], tell: Callable[[dict[str, Any]], None]) -> None:
        """Takes note of what the sandbox says until it says no more."""
        for event in lines:
            if event.get("event") == "failed":
                self.failure = str(event.get("message") or "it gave no reason")
                if event.get("exit_code") == EXIT_DISTURBED:
                    self.exit_code = EXIT_DISTURBED
            elif event.get("event") == "phase" and event.get("phase") == "measure":
                self._up.set()
            tell(event)
        if not self._up.is_set():
            self.failure = self.failure or "it ended without a word"
        self._over.set()
        self._up.set()


@contextmanager
def hold(
    scenario: Scenario,
    plan: Plan,
    folder: Path,
    *,
    rootless: bool,
    duration_ns: int | None = None,
    tell: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Iterator[Held]:
    """Brings the network up with its programs (brokers included) and takes it down in the end.

    Nothing is declared: every frame is best effort, and no records of frames are written.

    Raises:
        ScenarioError: a program is missing, or the network does not compile.
    """
    run = replace(scenario.run, duration_ns=duration_ns or FOR_EVER_NS, warm_up_ns=0)
    bare = Plan(
        scenario=replace(scenario, run=run),
        addresses=plan.addresses,
        programs=plan.programs,
        files=plan.files,
        roles=plan.roles,
        hosts=plan.hosts,
    )
    programs.resolve(bare)
    network = Network(bare, bare.declaration())
    prediction = Prediction(bare, network, {}, {}, [], 0, network, Servers(bare))
    content = emulation_plan(prediction, folder, record_ingress=False, rootless=rootless)
    content["statistics"] = {"node_interval_ns": 0, "port_interval_ns": 0}
    plan_file = folder / "emulation.json"
    with Place(folder) as place:
        for name, text in bare.files.items():
            place.write(name, text)
        place.write(plan_file.name, json.dumps(content))
        log = place.create("logs/sandbox.log")
    held = Held(content["run_id"], folder)
    with log, sandbox_process(plan_file, log.fileno()) as process:
        listener = threading.Thread(target=held.listen, args=(event_lines(process), tell), daemon=True)
        listener.start()
        try:
            held.wait_until_up()
            yield held
        finally:
            if process.poll() is None:
                stop_process(process, at_once=False)
            listener.join()
            held.status = process.wait()
