"""What a channel or group carries, by the streams of a prediction: the rate and burst of its meter, its class, how long it takes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from timebound.control.planner.routes import Way
from timebound.control.planner.site import Site
from timebound.control.planner.world import World
from timebound.engine.predict import Prediction
from timebound.scenario.framing import ETHERNET
from timebound.stacks import Stream


@dataclass(slots=True)
class Load:
    """What one channel, or one group, carries."""

    rate_bps: int = 0
    burst_bytes: int = 0
    data_ns: int = 0
    other_ns: int = 0
    priority: int = 0

    def add(self, prediction: Prediction, stream: Stream) -> None:
        """One more stream; one that promises nothing has no rate."""
        if stream.period_ns is None:
            return
        outcomes = [prediction.outcomes[stream.name, destination] for destination in stream.destinations]
        spans = [(found.nominal_ns, found.best_ns) for found in outcomes]
        jitter = max(stream.jitter_ns if nominal is None else nominal - (best or 0) for nominal, best in spans)
        # Meters see frames as they leave the host, and so does a sender that paces itself.
        framing = prediction.plan.scenario.framing
        size = sum(framing.plain(frame) for frame in stream.frames_bytes)
        self.rate_bps += -(-size * 8_000_000_000 // stream.period_ns)
        # Within no time at all: what the jitter lets come together, at the end of the way and so at every switch before it.
        self.burst_bytes += size * (1 + -(-max(0, jitter) // stream.period_ns))
        self.priority = max(self.priority, stream.priority)
        # On its own way alone: what a message spent before is part of the request's bound, and would be taken for this channel's.
        took = max(found.actual_ns or 0 for found in outcomes)
        if stream.role == "data":
            self.data_ns = max(self.data_ns, took)
        else:
            self.other_ns = max(self.other_ns, took)

    def burst(self, site: Site) -> int:
        """Of a meter, bytes: of what is sent, and the site's slack."""
        return self.sent(site) + site.meter_slack_bytes

    def sent(self, site: Site) -> int:
        """What may be sent at once, bytes. One full frame more: what is sent again is no reason to lose the next one."""
        return self.burst_bytes + ETHERNET.wire(site.mtu)


def links_of(world: World, way: Way) -> tuple[str, ...]:
    """Names of the links of a way."""
    return tuple(world.links[ends].name for ends in itertools.pairwise(way))
