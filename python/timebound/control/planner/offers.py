"""What would be admitted in place of what was refused, found by the same decisions."""

from __future__ import annotations

from dataclasses import replace

from timebound.control.planner.decide import Refused, settled
from timebound.control.planner.demand import Demand
from timebound.control.planner.groups import grouped
from timebound.control.planner.judge import Bound, Judged, judge
from timebound.control.planner.site import Site
from timebound.control.planner.state import State
from timebound.control.planner.world import World
from timebound.control.srt.rows import Offer, Side
from timebound.scenario.units import LONGEST_NS

_US = 1000
"""Offers are whole microseconds: rounded up, they are admitted as well."""
_MOST_DOUBLINGS = 20


def offer_for(world: World, state: State, refused: Refused) -> Offer:
    """The smallest deadline, and the smallest period, with which the request would be granted now, everything else as asked, on the way that
    came closest. Nothing where the request did not get as far as a judgement."""
    demand = refused.demand
    if demand is None or refused.route is None:
        return Offer()
    base = settled(world, state)
    search = _Search(world, base, refused, world.site.trials)
    # Others may have been granted since it was judged.
    now = search.judge(demand)
    return Offer(deadline_ns=search.deadline(demand, now), period_ns=search.period(demand))


class _Search:
    """Trials of one request on one way."""

    def __init__(self, world: World, base: State, refused: Refused, trials: int) -> None:
        self.world = world
        self.base = base
        self.refused = refused
        self.trials = trials

    def judge(self, demand: Demand) -> Judged:
        """What the network would be like with this in the place of what was refused."""
        assert self.refused.route is not None
        self.trials -= 1
        trial = grouped(self.world, self.base.with_demands([demand], {demand.connection: self.refused.route}))
        return judge(self.world, trial, self.base.judged)

    def deadline(self, demand: Demand, judged: Judged) -> int | None:
        """The smallest deadline: bounds do not depend on it but by the class that it leads to, so one trial of each class tells."""
        if demand.deadline_ns is None:
            return None
        longer, here = demand.deadline_ns, judged
        while True:
            needed = _needed(here, demand)
            if needed is not None and needed <= LONGEST_NS:
                asked = replace(demand, deadline_ns=max(needed, longer), derived=False)
                if _class(asked, self.world.site) == _class(replace(demand, deadline_ns=longer), self.world.site):
                    return asked.deadline_ns
            # Not in this class: the next one begins where this one ends.
            limit = self.world.site.longest_in_class(_class(replace(demand, deadline_ns=longer), self.world.site))
            if demand.priority is not None or limit is None or self.trials <= 0:
                return None
            longer = limit + 1
            here = self.judge(replace(demand, deadline_ns=longer, derived=False))

    def period(self, demand: Demand) -> int | None:
        """The smallest period: the more time between messages, the less load. To about one part in two hundred."""
        if demand.side is Side.SUBSCRIBE:
            return None
        refused, admitted = demand.period_ns, 0
        for _ in range(_MOST_DOUBLINGS):
            longer = min(_whole(refused * 2), LONGEST_NS)
            if self.trials <= 0 or longer <= refused:
                return None
            if self.fits(demand, longer):
                admitted = longer
                break
            refused = longer
        while self.trials > 0 and admitted - refused > max(_US, refused // 200):
            middle = _whole((refused + admitted) // 2)
            if not refused < middle < admitted:
                break
            if self.fits(demand, middle):
                admitted = middle
            else:
                refused = middle
        return admitted or None

    def fits(self, demand: Demand, period_ns: int) -> bool:
        """Would it be granted with this period? A deadline that was stated stays; one that was not is the period."""
        deadline = period_ns if demand.derived else demand.deadline_ns
        return self.judge(replace(demand, period_ns=period_ns, deadline_ns=deadline)).holds


def _needed(judged: Judged, demand: Demand) -> int | None:
    """The deadline of `demand` with which every flow would keep its own; `None`: none would do."""
    if judged.full:
        return None
    needed = 0
    for bound in judged.bounds.values():
        own = demand.request in _requests(bound)
        others = [
            asked.deadline_ns
            for asked in (bound.pair.publisher, bound.pair.subscriber)
            if asked is not None and asked.request != demand.request and asked.deadline_ns is not None
        ]
        if bound.bound_ns is None or bound.bound_ns > min(others, default=LONGEST_NS):
            return None
        if own:
            needed = max(needed, _whole(bound.bound_ns))
    return needed or None


def _requests(bound: Bound) -> set[str]:
    return {asked.request for asked in (bound.pair.publisher, bound.pair.subscriber) if asked is not None}


def _class(demand: Demand, site: Site) -> int:
    if demand.priority is not None:
        return demand.priority
    return site.lowest if demand.deadline_ns is None else site.class_of(demand.deadline_ns)


def _whole(nanoseconds: int) -> int:
    return -(-nanoseconds // _US) * _US
