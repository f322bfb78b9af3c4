"""Decisions: may this request be granted beside those that are?

A request is granted if with it every granted flow keeps its deadline, from the nominal release to the last frame at the receiver, over both segments
and the broker between them (`judge`). The way of a connection is the cheapest of a few under which that holds; a connection that has one keeps
it where that holds. Several requests are first tried together: if all of them fit, so does each alone, since whatever is added only makes bounds
longer. So the answer is the one that asking one after the other gives, in the order in which they were asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from timebound.control.planner.demand import Demand, Unclear, demand_of
from timebound.control.planner.groups import grouped
from timebound.control.planner.judge import Judged, judge
from timebound.control.planner.routes import is_live, ways
from timebound.control.planner.state import Route, State
from timebound.control.planner.words import refusal_words
from timebound.control.planner.world import Ends, Missing, World
from timebound.control.srt.rows import Outcome


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request is not granted; `judged` is what the network would have been like, on the best way that was tried."""

    request: str
    outcome: Outcome
    reason: str
    demand: Demand | None = None
    route: Route | None = None
    judged: Judged | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The state after a decision, and who is not in it."""

    state: State
    refused: dict[str, Refused] = field(default_factory=dict)


def decide(world: World, state: State, requests: Sequence[str]) -> Decided:
    """Decides requests of the table in this order. Those that are granted already are asked anew, in the place of what they were."""
    clear: list[Demand] = []
    refused: dict[str, Refused] = {}
    for request in requests:
        found = understand(world, request)
        if isinstance(found, Demand):
            clear.append(found)
        else:
            refused[request] = found
    base = settled(world, grouped(world, state.without(requests)))
    decided = _together(world, base, clear)
    return Decided(decided.state, refused | decided.refused)


def understand(world: World, request: str) -> Demand | Refused:
    """A request of the table as a demand, where it says enough and its connection is in the network."""
    row = world.tables.requests.get(request)
    if row is None:
        return Refused(request, Outcome.UNAVAILABLE, "the request is gone")
    ends = world.ends(row.connection)
    if isinstance(ends, Missing):
        return Refused(request, Outcome.UNAVAILABLE, ends.reason)
    found = demand_of(row, world.site, world.access_rate(row.connection))
    return Refused(request, Outcome.REFUSED, found.reason) if isinstance(found, Unclear) else found


def settled(world: World, state: State) -> State:
    """The state with its prediction."""
    return state if state.judged is not None else state.with_judged(judge(world, state))


def _together(world: World, state: State, demands: list[Demand]) -> Decided:
    if not demands:
        return Decided(state)
    if len(demands) == 1:
        return _one(world, state, demands[0])
    routes: dict[str, Route] = {}
    for demand in demands:
        if demand.connection not in routes:
            route = next(candidates(world, state, demand.connection), None)
            if route is None:
                break
            routes[demand.connection] = route
    else:
        trial = grouped(world, state.with_demands(demands, routes))
        judged = judge(world, trial, state.judged)
        if judged.holds:
            return Decided(trial.with_judged(judged))
    half = len(demands) // 2
    first = _together(world, state, demands[:half])
    second = _together(world, first.state, demands[half:])
    return Decided(second.state, first.refused | second.refused)


def _one(world: World, state: State, demand: Demand) -> Decided:
    best: Refused | None = None
    for route in candidates(world, state, demand.connection):
        trial, judged = _best_tree(world, state, state.with_demands([demand], {demand.connection: route}))
        if judged.holds:
            return Decided(trial.with_judged(judged))
        if best is None or best.judged is None or _gravity(judged) < _gravity(best.judged):
            reason = refusal_words(demand, judged, state)
            best = Refused(demand.request, Outcome.REFUSED, reason, demand, route, judged)
    if best is None:
        ends = world.ends(demand.connection)
        where = f"from {ends.client} to {ends.manager}" if isinstance(ends, Ends) else ""
        best = Refused(demand.request, Outcome.UNAVAILABLE, f"there is no way {where} through the network now", demand)
    return Decided(state, {demand.request: best})


def _best_tree(world: World, state: State, trial: State) -> tuple[State, Judged]:
    """With the trees of least delay; where that does not hold, with trees that go round what is reserved."""
    first = grouped(world, trial)
    judged = judge(world, first, state.judged)
    if judged.holds or not first.groups:
        return first, judged
    other = grouped(world, trial, reservations(state))
    if other.groups == first.groups:
        return first, judged
    judged_other = judge(world, other, state.judged)
    return (other, judged_other) if _gravity(judged_other) < _gravity(judged) else (first, judged)


def _gravity(judged: Judged) -> tuple[int, int, int]:
    """How bad it would be: flows without a bound, full ports, and by how much deadlines would be exceeded together."""
    broken = judged.breaches()
    unbounded = sum(bound.bound_ns is None for bound in broken)
    return unbounded, len(judged.full), sum(bound.excess_ns or 0 for bound in broken)


def candidates(world: World, state: State, connection: str) -> Iterator[Route]:
    """Ways for a connection: those that it has first, then the cheapest."""
    ends = world.ends(connection)
    if isinstance(ends, Missing):
        return
    present = state.routes.get(connection)
    if present is not None and all(is_live(world, way) for way in present.ways()):
        yield present
        present = present.without_backup()
    most, reserved = world.site.candidates, reservations(state)
    clients = list(itertools.islice(ways(world, ends.client, ends.manager, reserved), most))
    if ends.broker is None:
        found = [Route(client=client) for client in clients]
    elif ends.is_loop:
        found = [Route(client=client, leg=client[::-1]) for client in clients]
    else:
        legs = list(itertools.islice(ways(world, ends.manager, ends.broker, reserved), most))
        if not clients or not legs:
            return
        pairs = [(client, legs[0]) for client in clients] + [(clients[0], leg) for leg in legs[1:]]
        found = [Route(client=client, leg=leg) for client, leg in pairs]
    for route in found:
        if route != present:
            yield route


def reservations(state: State) -> dict[str, int]:
    """Link -> bit/s on the wire that the state's flows need, by its prediction."""
    judged = state.judged
    if judged is None or judged.prediction is None:
        return {}
    found = {}
    rates = {}
    for link in judged.layout.scenario.links:
        rates[f"{link.a}->{link.b}"] = link.forward.rate_bps
        rates[f"{link.b}->{link.a}"] = link.backward.rate_bps
    for port in judged.prediction.ports:
        found[port["name"]] = round(port["utilisation"]["value"] * rates.get(port["name"], 0))
    return found
