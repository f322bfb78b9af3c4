"""Admission by predictions: every answer is what `timebound predict` says of all that is there together with the flow that asks.

It takes a prediction per decision, where `timebound.engine.admission.Admission` follows a change to what it touches, and it covers everything that a prediction
covers: streams that answer others (what a broker forwards, acknowledgements), brokers with service times, all kinds of ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from timebound.engine.admission import Alternatives, Decision
from timebound.engine.endtoend import EndToEnd, end_to_end
from timebound.engine.predict import Prediction, loaded, predict
from timebound.engine.runs import plan_of
from timebound.scenario.model import Flow, Scenario
from timebound.scenario.problems import ScenarioError
from timebound.scenario.units import LONGEST_NS, format_ms
from timebound.stacks.stages import Crossing, Working

Method = Literal["bound", "port-by-port"]
LISTED = 16
"""Breaches that a refusal lists, as of the core; the rest is counted."""
CLASSES = range(8)

Tell = Callable[[int], None]
"""Told before every prediction how many there were."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Flows that are there, with what is promised to them."""

    flows: tuple[Flow, ...]
    prediction: Prediction
    ways: dict[tuple[str, str], EndToEnd]
    """(flow, receiver) -> bound of the whole way."""

    def ports(self) -> dict[str, dict[str, Any]]:
        """The ports by name."""
        return {port["name"]: port for port in self.prediction.ports}


class Predictions:
    """The flows of a scenario that are there. `count`: how many predictions there were."""

    def __init__(
        self,
        scenario: Scenario,
        there: Iterable[str],
        method: Method,
        *,
        check_buffers: bool = False,
        tell: Tell = lambda count: None,
    ) -> None:
        """Those named in `there` are there without being asked about, also where they miss deadlines.

        Raises:
            ScenarioError: the scenario's stack cannot be laid with them.
        """
        self.scenario = scenario
        self.method = method
        self.check_buffers = check_buffers
        self.tell = tell
        self.count = 0
        known = set(there)
        self.now = self._judged(tuple(flow for flow in scenario.flows if flow.name in known))

    def ask(self, flow: Flow) -> tuple[Decision, Judged]:
        """May this flow join, or take the place of the one of its name? Nothing changes.

        Raises:
            ScenarioError: the scenario's stack cannot be laid with it.
        """
        after = self._judged(self._with(flow))
        breaches = list(self._breaches(flow, after))
        if breaches:
            breaches.sort(key=_rank)
            first = tuple(breaches[:LISTED])
            self._locate(first, after)
            return Decision(False, {}, 0, first, tuple(_text(breach) for breach in first), len(breaches)), after
        bounds = {receiver: after.ways[flow.name, receiver].bound_ns for receiver in flow.receivers}
        changed = {
            name
            for (name, receiver), way in after.ways.items()
            if (old := self.now.ways.get((name, receiver))) is None or old.bound_ns != way.bound_ns
        }
        return Decision(True, bounds, len(changed | {flow.name})), after

    def add(self, flow: Flow) -> Decision:
        """Lets a flow join if every flow with a deadline keeps it and no port is overloaded; else nothing changes. Raises as `ask`."""
        decision, after = self.ask(flow)
        if decision.admitted:
            self.now = after
        return decision

    def alternatives(self, flow: Flow) -> Alternatives:
        """What would still be admitted in the place of `flow`, which may be there or not; each with everything else as asked for."""
        others = tuple(known for known in self.now.flows if known.name != flow.name)
        search = self
        if len(others) != len(self.now.flows):
            search = Predictions(self.scenario, (), self.method, check_buffers=self.check_buffers, tell=self.tell)
            search.count = self.count
            search.now = search._judged(others)
        before = search.count
        found = Alternatives(
            smallest_period_ns=search._smallest_period(flow),
            smallest_deadline_ns=search._smallest_deadline(flow),
            lowest_class=next((number for number in CLASSES if search._admits(replace(flow, priority=number))), None),
            largest_rate_bps=search._largest_rate(flow),
            decisions=search.count - before,
        )
        self.count = search.count
        return found

    def _with(self, flow: Flow) -> tuple[Flow, ...]:
        """Those that are there and this one, in the scenario's order: names and addresses follow it."""
        there = {known.name: known for known in self.now.flows} | {flow.name: flow}
        return tuple(there[known.name] for known in self.scenario.flows if known.name in there)

    def _judged(self, flows: tuple[Flow, ...]) -> Judged:
        self.count += 1
        self.tell(self.count)
        # From nothing every time: from jitters that had settled before, what is found can lie some nanoseconds above what `predict` prints.
        prediction = predict(plan_of(replace(self.scenario, flows=flows)), paths=False, method=self.method)
        ways = {
            (flow.name, receiver): end_to_end(prediction, flow, receiver)
            for flow in flows
            for receiver in flow.receivers
        }
        # What lost its bound loads the ports all the same; the controller's planner counts what is guaranteed alone.
        declared = {stream.name: stream for stream in prediction.plan.streams}
        prediction.ports = loaded(prediction.plan, declared, prediction.orders, prediction.streams, prediction.ports)
        return Judged(flows, prediction, ways)

    def _admits(self, flow: Flow) -> bool:
        try:
            after = self._judged(self._with(flow))
            return next(self._breaches(flow, after), None) is None
        except ScenarioError:
            # Such as a class that the stack does not carry: not to be had, either.
            return False

    def _breaches(self, asked: Flow, after: Judged) -> Iterator[dict[str, Any]]:
        """What the request would break. What was broken before does not count, unless a deadline would be missed by more: a port that background
        traffic overloads still carries the classes above that in time."""
        before = self.now.ports()
        for name, port in after.ports().items():
            load, known = port["utilisation"]["value"], before.get(name)
            if load >= 1 and (known is None or known["utilisation"]["value"] < 1):
                yield {"kind": "overload", "name": name, "utilisation": {"value": load}}
            if self.check_buffers and port["exceeds_buffer"] and (known is None or not known["exceeds_buffer"]):
                yield {"kind": "buffer", "name": name}
        for flow in after.flows:
            for receiver in flow.receivers:
                way, old = after.ways[flow.name, receiver], self.now.ways.get((flow.name, receiver))
                if flow.deadline_ns is None or (way.bound_ns is not None and way.bound_ns <= flow.deadline_ns):
                    continue
                if flow.name == asked.name:
                    yield _deadline(flow, receiver, way, None)
                elif old is None or (
                    old.bound_ns is not None and (way.bound_ns is None or way.bound_ns > old.bound_ns)
                ):
                    yield _deadline(flow, receiver, way, old)

    def _locate(self, breaches: Sequence[dict[str, Any]], after: Judged) -> None:
        """Adds to missed deadlines the port or broker where the bound would grow most; of a new flow, where it is longest."""
        missed = [breach for breach in breaches if breach["kind"] == "deadline" and breach["bound_ns"] is not None]
        if not missed:
            return
        shares_before, shares = self._shares(self.now), self._shares(after)
        for breach in missed:
            key, is_new = (breach["flow"], breach["receiver"]), breach["before_ns"] is None
            before = {} if is_new else shares_before(*key)
            growth = {name: share - before.get(name, 0) for name, share in shares(*key).items()}
            if growth:
                breach["where"] = max(growth, key=lambda name: growth[name])
                breach["growth_ns"] = None if is_new else growth[breach["where"]]

    def _shares(self, judged: Judged) -> Callable[[str, str], dict[str, int]]:
        """For a flow at a receiver: what each port and broker of its way takes of the bound, ns."""
        prediction = judged.prediction
        jitters = {name: stream.jitter_ns for name, stream in prediction.streams.items() if stream.follows is not None}
        hops: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for result in prediction.steady.bounds(jitters, self.method)["streams"]:
            for leaf in result["leaves"]:
                hops[result["stream"], leaf["receiver"]] = leaf["outcome"].get("hops", [])

        def of(flow: str, receiver: str) -> dict[str, int]:
            found: dict[str, int] = {}
            for step in (step for stage in prediction.plan.ways.get((flow, receiver), ()) for step in stage.steps):
                match step:
                    case Crossing(stream, destination):
                        for hop in hops.get((stream, destination), []):
                            name = f"port {hop['name']}"
                            found[name] = found.get(name, 0) + hop["response_ns"] - hop["counted_before_ns"]
                    case Working(broker, packet) if packet is not None:
                        name = f"broker {broker}"
                        found[name] = found.get(name, 0) + (prediction.servers.responses[broker].span_ns or 0)
                    case _:
                        pass
            return found

        return of

    def _smallest_period(self, flow: Flow) -> int | None:
        if flow.pattern not in ("periodic", "sporadic"):
            return None
        return least(flow.period_ns, LONGEST_NS, lambda tried: self._admits(replace(flow, period_ns=tried)))

    def _largest_rate(self, flow: Flow) -> int | None:
        bucket = flow.token_bucket
        if bucket is None:
            return None

        # In terms of a time at the rate: whatever is admitted at one is admitted at every longer one.
        def admits(tried: int) -> bool:
            return self._admits(replace(flow, token_bucket=replace(bucket, rate_bps=_rate(tried))))

        found = least(_rate(bucket.rate_bps), _rate(1), admits)
        return None if found is None else _rate(found)

    def _smallest_deadline(self, flow: Flow) -> int | None:
        # Who has one keeps one: with some stacks only such a flow asks for a channel.
        free = flow if flow.deadline_ns is None else replace(flow, deadline_ns=LONGEST_NS)
        try:
            decision, _ = self.ask(free)
        except ScenarioError:
            return None
        bounds = list(decision.bounds_ns.values())
        return None if not decision.admitted or None in bounds else max(bound for bound in bounds if bound is not None)


def least(first: int, most: int, admits: Callable[[int], bool]) -> int | None:
    """An admitted value in 1..=`most` that exceeds the least one by 0.1 % at most, where all above an admitted one are; begins at `first`. None: not
    even `most` is admitted.

    Away from the first by doubling until the answer turns, then by bisection.
    """
    refused, admitted = 0, min(max(first, 1), most)
    if admits(admitted):
        while admitted > 1:
            tried = admitted // 2
            if not admits(tried):
                refused = tried
                break
            admitted = tried
    else:
        refused = admitted
        while True:
            if refused >= most:
                return None
            admitted = min(2 * refused, most)
            if admits(admitted):
                break
            refused = admitted
    while admitted - refused > max(1, admitted // 1000):
        middle = (admitted + refused) // 2
        if admits(middle):
            admitted = middle
        else:
            refused = middle
    return admitted


def _rate(time: int) -> int:
    """A rate in bit/s for the time that 10^19 bits take at it, and the other way round."""
    return max(1, 10**19 // time)


def _deadline(flow: Flow, receiver: str, way: EndToEnd, old: EndToEnd | None) -> dict[str, Any]:
    """A missed deadline; `Predictions._locate` says where."""
    assert flow.deadline_ns is not None
    return {
        "kind": "deadline",
        "flow": flow.name,
        "receiver": receiver,
        "deadline_ns": flow.deadline_ns,
        "bound_ns": way.bound_ns,
        "before_ns": None if old is None else old.bound_ns,
        "excess_ns": None if way.bound_ns is None else way.bound_ns - flow.deadline_ns,
        "where": None,
        "growth_ns": None,
        "reason": way.reason,
    }


def _rank(breach: dict[str, Any]) -> tuple[int, int]:
    """Overloads first, then what exceeds its deadline most, then queues."""
    match breach["kind"]:
        case "overload":
            return 0, 0
        case "deadline":
            excess = breach["excess_ns"]
            return 1, -LONGEST_NS * 1000 if excess is None else -excess
        case _:
            return 2, 0


def _text(breach: dict[str, Any]) -> str:
    match breach["kind"]:
        case "overload":
            return f"port {breach['name']} would have utilisation {breach['utilisation']['value']:.3f}"
        case "buffer":
            return f"a queue of port {breach['name']} could overflow"
    said = (
        f"flow {breach['flow']!r} could miss its deadline of {format_ms(breach['deadline_ns'])} at {breach['receiver']}"
    )
    if breach["bound_ns"] is None:
        return f"{said}: {breach['reason'] or 'it would have no finite bound'}"
    said += f" by {format_ms(breach['excess_ns'])}"
    if breach["where"] is None:
        return said
    if breach["growth_ns"] is None:
        return f"{said}; it takes longest at {breach['where']}"
    return f"{said}; its bound grows most at {breach['where']}, by {format_ms(breach['growth_ns'])}"
