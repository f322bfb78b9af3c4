"""Does every granted flow keep its deadline? The prediction of a state, and what it says of each flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from timebound.control.planner.layout import Layout, Pair, lay_out
from timebound.control.planner.state import State
from timebound.control.planner.world import World
from timebound.engine.endtoend import EndToEnd, end_to_end
from timebound.engine.predict import Prediction, predict
from timebound.scenario.problems import ScenarioError
from timebound.scenario.units import format_time
from timebound.stacks import Plan, PlanError, Stream, build_plan

MANY = 250
"""Streams, answers included, of which a state may have no more if its bounds are to be worked out over stretches of ports at once. With 223 of them on the
same ways that took 0.2 s, with 327 0.8 s and with 535 1.5 s, in which no client is answered and no manager hears from the controller; port by port 0.2 s."""
TOO_MANY = 600
"""Streams from which on nothing is worked out over stretches: 1,055 took 5 s."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What one flow is promised, from the nominal release to its last frame, brokers included; `None` with a reason where nothing is."""

    pair: Pair
    bound_ns: int | None
    reason: str | None = None
    where: str = ""
    """The part that takes longest, in words."""

    @property
    def excess_ns(self) -> int | None:
        """By how much the deadline is exceeded: at most 0 where it is kept, `None` where there is no bound."""
        if self.bound_ns is None:
            return None
        deadline = self.pair.deadline_ns
        return 0 if deadline is None else self.bound_ns - deadline

    @property
    def holds(self) -> bool:
        """Is the deadline kept?"""
        return self.excess_ns is not None and self.excess_ns <= 0


@dataclass(frozen=True, slots=True)
class Judged:
    """A state with its bounds."""

    layout: Layout
    bounds: dict[str, Bound]
    """By flow."""
    method: str = "bound"
    """As `timebound.engine.predict.predict` has it."""
    groups: Mapping[str, int | None] = field(default_factory=dict)
    """By flow that multicasts: from the nominal release to the slowest member's broker; `None`: no bound, which its receivers' bounds say."""
    full: tuple[str, ...] = ()
    """Why the network cannot carry it, beside deadlines: queues that could overflow, ports of which too much would be reserved."""
    prediction: Prediction | None = None
    declared: tuple[Stream, ...] = ()
    """The plan's streams as they were before their jitters were worked out."""
    jitters: Mapping[str, int] = field(default_factory=dict)
    """Those of streams that follow others, as they settled."""

    @property
    def holds(self) -> bool:
        """Is every deadline kept, and is there room?"""
        return not self.full and all(bound.holds for bound in self.bounds.values())

    def breaches(self) -> list[Bound]:
        """Flows without their deadlines, the gravest first: those without a bound, then by the excess."""
        broken = [bound for bound in self.bounds.values() if not bound.holds]
        return sorted(broken, key=lambda bound: (bound.excess_ns is not None, -(bound.excess_ns or 0), bound.pair.flow))


def judge(world: World, state: State, before: Judged | None = None) -> Judged:
    """The bounds of a state. `before`, a state that this one may add to, spares work.

    With many streams the bounds are those port by port where deadlines hold by them, as they do in most cases and cost little: only what they refuse is
    looked at over stretches of ports, unless that could not help.
    """
    world.breath()
    layout = lay_out(world, state)
    if not layout.scenario.flows:
        return Judged(layout, {})
    try:
        plan = build_plan(layout.scenario)
        if len(plan.streams) <= MANY:
            return _judged(world, layout, plan, "bound", before)
        judged = _judged(world, layout, plan, "port-by-port", before)
        if judged.holds or judged.full or len(plan.streams) > TOO_MANY:
            return judged
        world.breath()
        return _judged(world, layout, plan, "bound", before)
    except (PlanError, ScenarioError) as error:
        reason = error.message if isinstance(error, PlanError) else error.problems[0].message
        return Judged(layout, {name: Bound(pair, None, reason) for name, pair in layout.pairs.items()})


def _judged(world: World, layout: Layout, plan: Plan, method: str, before: Judged | None) -> Judged:
    declared = tuple(plan.streams)
    prediction = predict(plan, _below(declared, method, before), paths=False, method=method)
    flows = {flow.name: flow for flow in layout.scenario.flows}
    bounds = {}
    for name, pair in layout.pairs.items():
        whole = end_to_end(prediction, flows[name], flows[name].receivers[0])
        bounds[name] = Bound(pair, whole.bound_ns, whole.reason, "" if whole.bound_ns is None else _longest(whole))
    groups: dict[str, int | None] = {}
    for name in layout.groups:
        spans = [end_to_end(prediction, flows[name], member).bound_ns for member in flows[name].receivers]
        groups[name] = None if None in spans else max(span for span in spans if span is not None)
    settled = prediction.streams
    jitters = {stream.name: settled[stream.name].jitter_ns for stream in declared if stream.follows is not None}
    full = _full(world, prediction)
    return Judged(layout, bounds, method, groups, full, prediction, declared, jitters)


def _below(streams: tuple[Stream, ...], method: str, before: Judged | None) -> Mapping[str, int] | None:
    """The jitters that had settled, where nothing of what was there has become less."""
    # Those of the other method may exceed what this one finds.
    if before is None or before.method != method or not before.jitters or not before.holds:
        return None
    now = {stream.name: stream for stream in streams}
    unchanged = all(now.get(stream.name) == stream for stream in before.declared)
    return before.jitters if unchanged else None


def _longest(whole: EndToEnd) -> str:
    part = max(whole.parts, key=lambda part: part.bound_ns or 0)
    names = {
        "publish": "from the publisher to the broker",
        "deliver": "from the broker to the subscriber",
        "multicast": "between the networks",
    }
    where = (
        f"in the broker on {part.stage.name}"
        if part.stage.kind in ("broker", "handshake")
        else names.get(part.stage.name, part.stage.name)
    )
    return f"{format_time(part.bound_ns or 0)} of it {where}"


def _full(world: World, prediction: Prediction) -> tuple[str, ...]:
    found = []
    for port in prediction.ports:
        if port["exceeds_buffer"]:
            found.append(f"a queue of port {port['name']} could overflow")
        share = port["utilisation"]["value"]
        if share > world.site.reservable:
            found.append(
                f"{share:.1%} of port {port['name']} would be reserved, and {world.site.reservable:.0%} may be"
            )
    return tuple(found)
