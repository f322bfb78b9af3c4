"""Keeping a state true: what has left, what the network no longer carries, disjoint ways, and a state from the rows that are left of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from timebound.control.planner.decide import reservations, understand
from timebound.control.planner.demand import Demand
from timebound.control.planner.groups import class_of, grouped, restored, restored_peers
from timebound.control.planner.judge import judge
from timebound.control.planner.routes import Way, disjoint, is_live
from timebound.control.planner.state import Route, State
from timebound.control.planner.world import Ends, World
from timebound.control.srt.rows import Outcome


@dataclass(frozen=True, slots=True)
class Upkeep:
    """A state without what has left it."""

    state: State
    released: tuple[str, ...]
    """Requests that are gone, or changed: they need nothing any more as they were."""
    displaced: tuple[str, ...]
    """Requests whose ways are gone, or that the network as it is now does not carry: to be decided anew, in this order."""


def keep_up(world: World, state: State) -> Upkeep:
    """The state on the table and the network as they are now. A connection whose way is gone takes its disjoint one if all deadlines hold then."""
    released: list[str] = []
    displaced: list[str] = []
    for request, demand in state.granted.items():
        now = understand(world, request)
        if not isinstance(now, Demand):
            (released if request not in world.tables.requests else displaced).append(request)
        elif now != demand:
            released.append(request)
    left = state.without([*released, *displaced])
    routes = dict(left.routes)
    for connection, route in left.routes.items():
        live = _live_route(world, route, connection)
        if live is None:
            displaced += [demand.request for demand in left.on(connection)]
        else:
            routes[connection] = live
    left = grouped(world, replace(left, routes=routes).without(displaced))
    if routes != dict(state.routes):
        left = left.with_judged(None)
    left, pushed = _what_holds(world, left)
    return Upkeep(left, tuple(sorted(released)), tuple(urgency(world, {**state.granted}, [*displaced, *pushed])))


def _live_route(world: World, route: Route, connection: str) -> Route | None:
    ends = world.ends(connection)
    if not isinstance(ends, Ends):
        return None
    fits = (route.client[0], route.client[-1]) == (ends.client, ends.manager) and (route.leg is None) == (
        ends.broker is None
    )
    if not fits:
        return None
    client = _live(world, route.client, route.client_backup)
    if client is None:
        return None
    if route.leg is None:
        return replace(route, client=client, client_backup=_other(world, client, route.client, route.client_backup))
    leg = _live(world, route.leg, route.leg_backup)
    if leg is None or (leg[0], leg[-1]) != (ends.manager, ends.broker) or (ends.is_loop and leg != client[::-1]):
        return None
    return Route(
        client=client,
        leg=leg,
        client_backup=_other(world, client, route.client, route.client_backup),
        leg_backup=_other(world, leg, route.leg, route.leg_backup),
    )


def _live(world: World, way: Way, backup: Way | None) -> Way | None:
    if is_live(world, way):
        return way
    return backup if backup is not None and is_live(world, backup) else None


def _other(world: World, taken: Way, way: Way, backup: Way | None) -> Way | None:
    """The backup that remains beside the way that is taken."""
    return backup if taken == way and backup is not None and is_live(world, backup) else None


def _what_holds(world: World, state: State) -> tuple[State, list[str]]:
    """The state without the least urgent requests of those that stand in the way of deadlines; nearly always all of it holds."""
    pushed: list[str] = []
    while True:
        judged = state.judged or judge(world, state)
        state = state.with_judged(judged)
        if judged.holds or not state.granted:
            return state, pushed
        broken = [bound.pair for bound in judged.breaches()]
        concerned = {
            asked.request for pair in broken for asked in (pair.publisher, pair.subscriber) if asked is not None
        }
        order = urgency(world, dict(state.granted), concerned or state.granted.keys())
        pushed.append(order[-1])
        state = grouped(world, state.without([order[-1]]))


def urgency(world: World, demands: dict[str, Demand], requests: object) -> list[str]:
    """Requests in the order in which they are decided anew: by class, then by when they were asked."""

    def key(request: str) -> tuple[int, int, str]:
        row = world.tables.requests.get(request)
        demand = demands.get(request)
        priority = 0 if demand is None else class_of(demand, world.site, [])
        return -priority, 0 if row is None else row.asked_ns, request

    assert hasattr(requests, "__iter__")
    return sorted(dict.fromkeys(requests), key=key)


def with_backup(world: World, state: State, connection: str) -> State:
    """The state with a disjoint way for a connection, where there is one on which all deadlines hold as everything else is now."""
    route, ends = state.routes[connection], world.ends(connection)
    if isinstance(ends, Ends) and ends.is_loop:
        return state
    bare = route.without_backup()
    reserved = reservations(state)
    found = bare
    client = disjoint(world, route.client, reserved)
    if client is not None and _holds(world, state, connection, replace(bare, client=client)):
        found = replace(found, client_backup=client)
    leg = None if route.leg is None else disjoint(world, route.leg, reserved)
    if leg is not None and _holds(world, state, connection, replace(bare, leg=leg)):
        found = replace(found, leg_backup=leg)
    return state if found == route else replace(state, routes={**state.routes, connection: found})


def _holds(world: World, state: State, connection: str, route: Route) -> bool:
    return judge(world, replace(state, routes={**state.routes, connection: route})).holds


def restore(world: World) -> State:
    """The state that the table's verdicts and channels tell of; what they do not tell whole is left to be decided anew."""
    granted: dict[str, Demand] = {}
    routes: dict[str, Route] = {}
    for request, verdict in sorted(world.tables.verdicts.items()):
        demand = understand(world, request)
        if (
            verdict.outcome is not Outcome.GRANTED
            or not isinstance(demand, Demand)
            or demand.revision != verdict.revision
        ):
            continue
        route = routes.get(demand.connection) or _route_of(world, demand.connection)
        if route is not None:
            granted[request] = demand
            routes[demand.connection] = route
    found = State(granted, routes, restored(world), restored_peers(world))
    return grouped(world, found)


def _route_of(world: World, connection: str) -> Route | None:
    ends = world.ends(connection)
    if not isinstance(ends, Ends):
        return None
    client = _way_of(world, f"{connection}:up", ends.client, ends.manager)
    if client is None:
        return None
    if ends.broker is None:
        return Route(client=client)
    leg = _way_of(world, f"{connection}:leg-up", ends.manager, ends.broker)
    return None if leg is None or (ends.is_loop and leg != client[::-1]) else Route(client=client, leg=leg)


def _way_of(world: World, channel: str, source: str, target: str) -> Way | None:
    if source == target:
        return (source,)
    row = world.tables.channels.get(channel)
    if row is None:
        return None
    links = [world.topology.links.get(name) for name in row.links]
    if not links or any(link is None for link in links):
        return None
    way = (source, *(link.target for link in links if link is not None))
    return way if way[-1] == target and is_live(world, way) else None
