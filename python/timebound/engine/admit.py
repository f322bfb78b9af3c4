"""May these flows of a scenario join those that are there? There are two ways to the answer.

Where no stream answers another, there is no background traffic and the core's state covers all ports, that follows each change port by port
(`timebound.engine.admission`). Elsewhere, or where the bounds over stretches of ports are asked for, each decision is a prediction (`timebound.engine.judged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from timebound.engine.admission import Admission, Alternatives, Decision
from timebound.engine.core import problem_at
from timebound.engine.judged import Method, Predictions
from timebound.engine.orders import Orders
from timebound.engine.predict import predict
from timebound.engine.runs import plan_of
from timebound.engine.summary import Results, summarise
from timebound.scenario.model import Flow, Scenario
from timebound.scenario.problems import Problem, ScenarioError
from timebound.stacks import Plan


@dataclass(frozen=True, slots=True)
class FlowAnswer:
    """What is said about a flow of a scenario."""

    flow: str
    admitted: bool
    decisions: dict[str, Decision]
    """By a state: stream by stream until the first refusal. By predictions: of the flow's whole way, brokers included."""
    alternatives: dict[str, Alternatives]
    """Of the flow's only stream; by predictions, and where there are several streams: of the flow."""
    method: Method = "port-by-port"
    rests_on: dict[str, str] = field(default_factory=dict)
    """Receiver -> what the bound rests on beside the declaration, where that is not all: service times of brokers, or that these are unknown; why there is
    none."""


def admit(
    scenario: Scenario,
    flows: tuple[str, ...] = (),
    *,
    method: Method | None = None,
    check_buffers: bool = False,
    tell: Callable[[float, int], None] = lambda share, predictions: None,
) -> Iterator[FlowAnswer]:
    """Asks for flows of the scenario one after another, by name or group; those that are not named are there from the start. All of them
    are asked for where none is named. A flow joins with all of its streams or not at all.

    `method`: the bounds that count. None: port by port where a state decides, which is instant, else what `timebound predict` prints. What would still be
    admitted is then looked for of flows that are refused, and of those that are named. `tell`: how much is decided, and how many predictions there were.

    Raises:
        ScenarioError: the scenario does not compile; no such flow, one that is named twice, or one that passes on messages of a flow which would join later.
    """
    plan = plan_of(scenario)
    named = _flows(scenario, flows)
    if method != "bound" and _is_plain(plan):
        of_flow = _streams(plan, named)
        moved = {stream for streams in of_flow.values() for stream in streams}
        there = [stream for stream in plan.streams if stream.name not in moved]
        state = Admission(plan, there, check_buffers=check_buffers)
        if not state.uncovered():
            yield from _by_state(state, plan, of_flow, bool(flows), check_buffers, tell)
            return
    _check_order(scenario, [flow.name for flow in named])
    if method == "port-by-port" and (scenario.events or Orders.of(scenario)):
        message = "no state decides here, and predictions of a network that changes (at:) have no bounds port by port"
        raise ScenarioError([problem_at(scenario, "at", message, "leave out --method port-by-port")])
    yield from _by_prediction(scenario, named, bool(flows), method or "bound", check_buffers, tell)


def risks(scenario: Scenario, answers: Iterable[FlowAnswer]) -> list[str]:
    """Why messages can be lost although every deadline is kept, with all that is there after these answers: queues that are too small."""
    refused = {answer.flow for answer in answers if not answer.admitted}
    there = tuple(flow for flow in scenario.flows if flow.name not in refused)
    summary = summarise(Results(predict(plan_of(replace(scenario, flows=there)))))
    return list(dict.fromkeys(flow["risk"] for flow in summary["flows"] if flow["risk"] is not None))


def _is_plain(plan: Plan) -> bool:
    """Does no stream answer others or carry several flows, and is there no background? (A state refuses whatever crosses a port that is overloaded, also by
    background below it.)"""
    if plan.scenario.background:
        return False
    carries: dict[str, str] = {}
    return not any(stream.follows is not None and not stream.follows.is_nothing for stream in plan.streams) and all(
        carries.setdefault(segment.stream, flow) == flow
        for (flow, _), segments in plan.segments.items()
        for segment in segments
    )


def _streams(plan: Plan, named: list[Flow]) -> dict[str, list[str]]:
    """The names of the streams of each flow."""
    found: dict[str, dict[str, None]] = {flow.name: {} for flow in named}
    for (flow, _), segments in plan.segments.items():
        if flow in found:
            found[flow].update((segment.stream, None) for segment in segments)
    return {flow: list(streams) for flow, streams in found.items()}


def _by_state(
    state: Admission,
    plan: Plan,
    of_flow: dict[str, list[str]],
    are_stated: bool,
    check_buffers: bool,
    tell: Callable[[float, int], None],
) -> Iterator[FlowAnswer]:
    streams = {stream.name: stream for stream in plan.streams}
    scenario = plan.scenario
    there = {flow.name for flow in scenario.flows} - set(of_flow)
    for done, (name, own) in enumerate(of_flow.items()):
        tell(done / len(of_flow), 0)
        decisions: dict[str, Decision] = {}
        for stream in own:
            decisions[stream] = state.add(streams[stream])
            if not decisions[stream].admitted:
                break
        admitted = all(decision.admitted for decision in decisions.values())
        alternatives = {}
        if len(own) == 1:
            alternatives = {own[0]: state.alternatives(streams[own[0]])}
        elif (are_stated or not admitted) and not scenario.events and not Orders.of(scenario):
            # All of its streams together are no matter of one stream's state.
            others = Predictions(scenario, there, "port-by-port", check_buffers=check_buffers)
            others.tell = partial(tell, done / len(of_flow))
            alternatives = {name: others.alternatives(next(flow for flow in scenario.flows if flow.name == name))}
        if admitted:
            there.add(name)
            # Those that joined later delay those before them.
            decisions = {
                stream: replace(decision, bounds_ns=state.bounds_ns(stream)) for stream, decision in decisions.items()
            }
        else:
            for stream, decision in decisions.items():
                if decision.admitted:
                    state.remove(stream)
        yield FlowAnswer(name, admitted, decisions, alternatives)


def _by_prediction(
    scenario: Scenario,
    named: list[Flow],
    are_stated: bool,
    method: Method,
    check_buffers: bool,
    tell: Callable[[float, int], None],
) -> Iterator[FlowAnswer]:
    asked = {flow.name for flow in named}
    there = [flow.name for flow in scenario.flows if flow.name not in asked]
    state = Predictions(scenario, there, method, check_buffers=check_buffers)
    for done, flow in enumerate(named):
        state.tell = partial(tell, done / len(named))
        if flow.after is not None and flow.after not in {known.name for known in state.now.flows}:
            text = f"flow {flow.name!r} passes on messages of {flow.after!r}, which is not there"
            decision = Decision(False, {}, 0, ({"kind": "after", "flow": flow.after},), (text,), 1)
            yield FlowAnswer(flow.name, False, {flow.name: decision}, {}, method)
            continue
        decision = state.add(flow)
        rests_on = {}
        if decision.admitted:
            ways = {receiver: state.now.ways[flow.name, receiver] for receiver in flow.receivers}
            rests_on = {
                receiver: way.reason or way.statement
                for receiver, way in ways.items()
                if way.reason is not None or way.covers != "everything"
            }
        wanted = (are_stated or not decision.admitted) and not _is_passed_on(state, flow)
        alternatives = {flow.name: state.alternatives(flow)} if wanted else {}
        yield FlowAnswer(flow.name, decision.admitted, {flow.name: decision}, alternatives, method, rests_on)


def _is_passed_on(state: Predictions, flow: Flow) -> bool:
    """Do others that are there pass on its messages? Then nothing is there without it."""
    return any(other.after == flow.name for other in state.now.flows)


def _check_order(scenario: Scenario, named: list[str]) -> None:
    for index, flow in enumerate(scenario.flows):
        if flow.after is None or flow.after not in named:
            continue
        if flow.name not in named or named.index(flow.name) < named.index(flow.after):
            message = f"{flow.name!r} passes on messages of {flow.after!r} and would be there before it"
            hint = f"name both, {flow.after} first"
            raise ScenarioError([problem_at(scenario, f"flows[{index}].after", message, hint)])


def _flows(scenario: Scenario, named: tuple[str, ...]) -> list[Flow]:
    """The flows that are asked for, in the order of the request."""
    if not named:
        # Who passes on messages comes after those.
        return sorted(scenario.flows, key=lambda flow: _depth(scenario, flow))
    found: list[Flow] = []
    for name in named:
        these = [flow for flow in scenario.flows if name in (flow.name, flow.group)]
        if not these:
            names = ", ".join(dict.fromkeys(flow.group for flow in scenario.flows))
            raise _asked_wrongly(scenario, name, f"there is no flow {name!r}", f"the flows are {names}")
        twice = [flow.name for flow in these if flow in found]
        if twice:
            raise _asked_wrongly(scenario, name, f"flow {twice[0]!r} is named twice", "a flow joins once: name it once")
        found += these
    return found


def _depth(scenario: Scenario, flow: Flow) -> int:
    """How many flows pass on messages before it does."""
    known = {other.name: other.after for other in scenario.flows}
    depth, at = 0, flow.after
    while at is not None and depth <= len(known):
        depth, at = depth + 1, known.get(at)
    return depth


def _asked_wrongly(scenario: Scenario, name: str, message: str, hint: str) -> ScenarioError:
    file = scenario.file or "<scenario>"
    return ScenarioError([Problem(file=file, line=0, column=0, path=name, message=message, hint=hint, source_line="")])
