"""The cells of the experiment: a stack under a load, as the built-in scenario `edge-networks` with other parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from timebound.reproduce.bounds.networks import BROKERS, LOADS, TOPICS
from timebound.reproduce.multicast.stretch import stretched
from timebound.scenario import load as load_scenario
from timebound.scenario.builtin import find
from timebound.scenario.model import Background, BackgroundProgram, Scenario

NAME = "mrt-mqtt"
Protocol = Literal["mqtt-bridged", "rt-mqtt", "dm-mqtt", "mrt-mqtt"]
PROTOCOLS: dict[Protocol, str] = {
    "mqtt-bridged": "MQTT: brokers bridged, unicast, no priorities",
    "rt-mqtt": "RT-MQTT: guaranteed channels, a copy to each broker",
    "dm-mqtt": "DM-MQTT: multicast in reserved channels of one class",
    "mrt-mqtt": "MRT-MQTT: multicast in guaranteed channels",
}
"""The paper draws three; RT-MQTT to several brokers shows what priorities do without multicast."""

BackgroundMakers = Literal["generators", "tools"]
MADE_BY: dict[str, BackgroundProgram] = {"d-itg": "d-itg", "vlc": "vlc", "vsftpd": "vsftpd"}
"""The article's programs by the names that their traffic has in the scenario."""

PATHS = {path: receiver for receiver, path in BROKERS.items()}
"""The paper's paths from network A -> the broker at their end."""
SUBSCRIBERS = "h[5,10,15]"
"""On the brokers' hosts: the way up to the brokers alone, as the paper measures it."""

DURATION_NS = 30_000_000_000
FULL_ITERATIONS, FULL_MESSAGES = 1_000, 100
"""The paper's iterations (section VII-B): in each, every publisher sends at least so many messages, and the worst response time is taken."""
LONGEST_PERIOD_NS, RELEASE_JITTER_NS = 20_000_000, 400_000
FULL_DURATION_NS = FULL_MESSAGES * LONGEST_PERIOD_NS + RELEASE_JITTER_NS
"""In whatever part of a run as long as this, a publisher of the longest period and any jitter releases so many."""
REAL_SWITCH_DELAY = "0 us..20 ms"
"""What a real switch may take in an emulation; beyond it the run is disturbed (scenario `rt-mqtt`)."""
EMULATED_WARM_UP = "8 s"
"""So that channels and groups are there before anything counts."""
EMULATED_DEADLINE = "1 s"
"""In an emulation of channels: over switches that may take so long the controller would rightly refuse 15 ms. Classes are as ever."""

__all__ = ["BROKERS", "LOADS", "PATHS", "PROTOCOLS", "TOPICS", "Cell", "scenario_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One stack under one load."""

    protocol: Protocol
    load: str
    publishers: int
    """Per publishing host; the paper's 20, 40 or 60 unless fewer were asked for."""
    duration_ns: int
    iterations: int
    seed: int
    """Of the first iteration; every further one has the next."""
    evaluations: int
    """Of the simulator's search for the worst case; 0: none."""
    emulate: bool = True
    background: BackgroundMakers = "generators"
    """Who makes the background traffic of emulated cells. Bounds and simulation know it as the same."""
    stretch: int = 1
    """So many times as slow is the emulated network; its latencies are divided by it."""

    @property
    def name(self) -> str:
        """As its folder is called."""
        return f"{self.protocol}-{self.load}"

    @property
    def is_reserved(self) -> bool:
        """Are there channels in real switches?"""
        return self.protocol != "mqtt-bridged"

    def conditions(self) -> dict[str, Any]:
        """What an iteration that is kept must have been run with."""
        return asdict(self)


def scenario_of(cell: Cell, iteration: int, *, emulated: bool) -> Scenario:
    """The network of the paper with this cell's stack and load.

    Bounds and simulation are those of switches of 10 to 20 us; an emulation of channels has real switches, which take longer.

    Raises:
        ScenarioError: it does not resolve.
    """
    overrides: dict[str, object] = {
        "protocol": cell.protocol,
        "load": cell.load,
        "publishers": str(cell.publishers),
        "subscribers": SUBSCRIBERS,
        "run.seed": str(cell.seed + iteration),
        "run.duration": f"{cell.duration_ns} ns",
        "run.simulate.duration": f"{cell.duration_ns} ns",
        "run.simulate.search": str(cell.evaluations),
    }
    if cell.is_reserved:
        overrides["engine"] = "ovs"
    if cell.is_reserved and emulated:
        overrides |= {
            "switch-delay": REAL_SWITCH_DELAY,
            "run.warm-up": EMULATED_WARM_UP,
            "alpha-deadline": EMULATED_DEADLINE,
            "beta-deadline": EMULATED_DEADLINE,
        }
    scenario = load_scenario(find("edge-networks"), overrides)
    reading = f"{cell.publishers} publishers per host, {cell.load} load"
    if emulated and cell.background == "tools":
        scenario = replace(scenario, background=tuple(_by_tool(source) for source in scenario.background))
        reading += ", background by D-ITG, VLC and vsftpd"
    if emulated and cell.stretch > 1:
        scenario = stretched(scenario, cell.stretch)
        reading += f", {cell.stretch} times as slow"
    return replace(scenario, name=f"{NAME}-{cell.name}", reading=reading)


def _by_tool(source: Background) -> Background:
    """The same traffic, made by the program that it is named after (`vlc[2]`)."""
    return replace(source, program=MADE_BY[source.name.partition("[")[0]])
