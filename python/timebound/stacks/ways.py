"""Stated ways: every stream of a flow goes where the flow's `route` says, answers back by the same nodes."""

from __future__ import annotations

from dataclasses import replace

from timebound.scenario.model import Flow
from timebound.stacks.plan import Plan, PlanError, Stream


def lay(plan: Plan) -> None:
    """Gives the streams that are there so far their ways.

    Raises:
        PlanError: a group's datagrams have a way to some receivers only; several flows share a connection.
    """
    flows = plan.scenario.flows
    if not any(flow.routes for flow in flows):
        return
    if getattr(plan.scenario.stack, "connections", "per-flow") == "per-node":
        index = next(index for index, flow in enumerate(flows) if flow.routes)
        message = "a route, but connections: per-node puts flows on shared connections"
        raise PlanError(f"flows[{index}].routes", message, "use connections: per-flow, or remove the route")
    by_origin = {f"flows[{index}]": flow for index, flow in enumerate(flows)}
    plan.streams = [
        _routed(stream, by_origin.get(plan.origins[stream.name]), plan.origins[stream.name]) for stream in plan.streams
    ]


def _routed(stream: Stream, flow: Flow | None, origin: str) -> Stream:
    if flow is None or not flow.routes:
        return stream
    way = flow.answer_way if flow.multicast and stream.role != "data" else flow.way
    found = [way(stream.source, destination) for destination in stream.destinations]
    known = tuple(way for way in found if way is not None)
    if not known:
        return stream
    if len(known) < len(found):
        missing = stream.destinations[found.index(None)]
        raise PlanError(
            f"{origin}.routes",
            f"one datagram goes to all receivers, and {missing!r} has no route",
            "state a route for every receiver, or for none",
        )
    return replace(stream, route=known)
