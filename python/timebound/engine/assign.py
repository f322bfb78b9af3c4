"""Assignment: classes and routes for the flows of a scenario, found by the core and confirmed by the prediction.

A flow as it is written in the file gets one class, with all that answers it: data, acknowledgements, keep-alives (the stacks take
the class from the flow). Ways are chosen for each instance and segment, and the way back is the same. What is not the flows'
to change stays: background, flows without a declared arrival, ways that the file states.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from timebound.engine.core import Network
from timebound.engine.endtoend import waited
from timebound.engine.predict import Prediction, network_of, predict
from timebound.engine.runs import plan_of
from timebound.engine.summary import Results, summarise
from timebound.scenario.model import Flow, Scenario
from timebound.stacks import Plan, Stream
from timebound.stacks.stages import Crossing, Slowest, Waiting, Working

Part = Literal["priorities", "routes"]
By = Literal["best", "deadline-monotonic", "audsley"]
PARTS: tuple[Part, ...] = ("priorities", "routes")
CLASSES = tuple(range(1, 8))
"""Classes that flows may get; class 0 is left to best effort."""
CANDIDATES = 8
ROUNDS = 3
"""How often an assignment is tried with the broker times that the one before led to."""
PHASES = {
    "classes": "trying classes",
    "ways": "looking for ways",
    "routes": "choosing ways",
    "proof": "proving the choice",
}

Tell = Callable[[str, int], None]
"""Told what is done, and the number of analyses so far."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A scenario with its classes and ways, and what became of it.

    `changes` maps flow names to what is new for them, as the part `assigned` of a scenario; `document` is the JSON.
    """

    scenario: Scenario
    changes: dict[str, dict[str, Any]]
    before: dict[str, Any]
    after: dict[str, Any]
    document: dict[str, Any]


def assign(
    scenario: Scenario,
    parts: set[Part],
    *,
    by: By = "best",
    seconds: float = 60.0,
    tell: Tell = lambda phase, analyses: None,
) -> Assigned:
    """Finds classes, ways or both, and predicts with them.

    A search that takes longer than `seconds` ends with the best that it had found; without that limit the same scenario gives the
    same assignment everywhere.

    Raises:
        ScenarioError: the scenario does not compile.
    """
    plan = plan_of(scenario)
    first = predict(plan)
    end = time.monotonic() + seconds

    def progress(phase: str, analyses: int) -> bool:
        tell(PHASES.get(phase, phase), analyses)
        return time.monotonic() > end

    task = Task(plan, first)
    before = after = summarise(Results(first))
    options, changes, changed, second = task.options(parts, by), {}, scenario, first
    found: dict[str, Any] | None = None
    for _ in range(ROUNDS):
        answer = task.network().assign(options, progress)
        new = _changes(task, parts, answer)
        with_new = replace(scenario, flows=tuple(_changed(flow, new) for flow in scenario.flows))
        prediction = predict(plan_of(with_new)) if new else first
        summary = summarise(Results(prediction))
        # The core was told what brokers take as it was before: the prediction has the last word.
        if found is None or len(_missed(summary)) < len(_missed(after)):
            found = answer
            if len(_missed(summary)) <= len(_missed(before)) and ("priorities" in parts or not _worse(before, summary)):
                changes, changed, second, after = new, with_new, prediction, summary
        following = Task(plan, prediction)
        again = following.options(parts, by)
        if (again == options and following.joined == task.joined) or found["stopped"]:
            break
        task, options = following, again
    assert found is not None
    if not changes and found["priorities"] is not None:
        found["priorities"]["method"] = "unchanged"
    document = {
        "scenario": scenario.name,
        "parts": [part for part in PARTS if part in parts],
        "classes": options["priorities"]["classes"] if options["priorities"] else None,
        "priorities": _priorities(task, found),
        "routes": found["routing"],
        "kept_routes": found["kept_routes"],
        "stopped": found["stopped"],
        "analyses": found["analyses"],
        "changed": changes,
        "worst_utilisation": {"before": _worst(first), "after": _worst(second)},
        "missed": {"before": _missed(before), "after": _missed(after)},
        "risks": list(dict.fromkeys(flow["risk"] for flow in after["flows"] if flow["risk"] is not None)),
        "flows": _flows(before, after),
    }
    if document["routes"] is not None:
        document["routes"] = {key: value for key, value in document["routes"].items() if key != "ways"}
    return Assigned(changed, changes, before, after, document)


class Task:
    """The plan's streams as units, bundles and requirements of the core's task.

    Brokers with known service times are no part of the core's task: their response times, and the jitter with which they send, are those
    of `prediction`. So are the segments in which packets of a stream leave together.
    """

    def __init__(self, plan: Plan, prediction: Prediction) -> None:
        self.plan = plan
        self.prediction = prediction
        self.joined = {name: stream.joined for name, stream in prediction.streams.items() if stream.joined is not None}
        self.flows = {f"flows[{index}]": flow for index, flow in enumerate(plan.scenario.flows)}
        streams: dict[str, list[Stream]] = {}
        for stream in plan.streams:
            streams.setdefault(plan.origins[stream.name], []).append(stream)
        # A flow whose data promise nothing has no bound in any class, and would take that of others from them.
        self.movable = {
            origin: found
            for origin, flow in self.flows.items()
            if (found := streams.get(origin)) and all(stream.period_ns is not None for stream in found)
        }
        groups: dict[tuple[object, ...], list[str]] = {}
        for origin in self.movable:
            flow = self.flows[origin]
            groups.setdefault((flow.group, flow.priority, flow.deadline_ns), []).append(origin)
        self.units = list(groups.values())
        moved = {stream.name for found in self.movable.values() for stream in found}
        bulk = [stream for stream in plan.streams if stream.period_ns is None and stream.name not in moved]
        self.bulk = max(bulk, key=lambda stream: stream.priority, default=None)
        self.bundles = [bundle for origin, found in self.movable.items() for bundle in self._bundles(origin, found)]

    def network(self) -> Network:
        """The network that the options are about.

        Raises:
            ScenarioError: it does not compile.
        """
        return network_of(self.plan, self.joined)

    def _lateness(self, stream: str) -> int:
        """Of a stream whose packets leave together the core knows no nominal release."""
        return self.prediction.streams[stream].jitter_ns if stream in self.joined else 0

    def _later(self, stream: str, receiver: str) -> int:
        """By how much a larger packet in its segment can make one of this stream later; the core knows nothing of it."""
        return self.prediction.together.later.get((stream, receiver), 0)

    def options(self, parts: set[Part], by: By) -> dict[str, Any]:
        """The JSON of `AssignOptions` (crates/py/src/assign.rs)."""
        least = -1 if self.bulk is None else self.bulk.priority
        classes = [number for number in CLASSES if number > least]
        return {
            "units": [
                {
                    "name": self.flows[origins[0]].group,
                    "streams": [stream.name for origin in origins for stream in self.movable[origin]],
                }
                for origins in self.units
            ],
            "bundles": [bundle for _, bundle in self.bundles],
            "requirements": list(self._requirements()),
            "follows": list(self._follows()),
            "bounds": {"jitter_override": self._served()},
            "priorities": {"method": by, "classes": classes} if "priorities" in parts else None,
            "routes": {"candidates": CANDIDATES, "seed": self.plan.scenario.run.seed} if "routes" in parts else None,
        }

    def _follows(self) -> Iterator[dict[str, Any]]:
        for stream in self.plan.streams:
            follows = stream.follows
            if follows is None or stream.name in self.joined:
                continue
            if follows.through is None and follows.stream is not None and not follows.also:
                after = [follows.stream, follows.destination]
                extra = follows.extra_ns + self._lateness(follows.stream) + self._later(*after)
                yield {"stream": stream.name, "after": after, "extra_ns": extra}

    def _served(self) -> dict[str, int]:
        """Jitters of what brokers with known service times send, or what waits for several; the shortest possible where nothing is known yet."""
        return {
            stream.name: self.prediction.streams[stream.name].jitter_ns
            for stream in self.plan.streams
            if stream.name not in self.joined
            and stream.follows is not None
            and (stream.follows.through is not None or stream.follows.also)
        }

    def _requirements(self) -> Iterator[dict[str, Any]]:
        unit = {origin: number for number, origins in enumerate(self.units) for origin in origins}
        responses = self.prediction.servers.responses
        for origin in self.movable:
            flow = self.flows[origin]
            for receiver in flow.receivers:
                crossed: list[list[str]] = []
                between = 0
                for step in (step for stage in self.plan.ways[flow.name, receiver] for step in stage.steps):
                    match step:
                        case Crossing(stream, destination):
                            between += 0 if crossed else self._lateness(stream)
                            crossed.append([stream, destination])
                            between += self._later(stream, destination)
                        case Waiting(span_ns):
                            between += span_ns
                        case Working(broker, packet) if packet is not None:
                            between += responses[broker].span_ns or 0
                        case Slowest():
                            # What classes and ways would do to it is not looked into: as it is with those of the plan.
                            between += self._together(step)
                yield {
                    "name": f"{flow.name} at {receiver}",
                    "unit": unit[origin],
                    "parts": crossed,
                    "extra_ns": between,
                    "deadline_ns": flow.deadline_ns,
                }

    def _together(self, step: Slowest) -> int:
        return max(
            waited(branch, self.prediction.outcomes, self.prediction.servers.responses) or 0 for branch in step.branches
        )

    def _bundles(self, origin: str, streams: list[Stream]) -> list[tuple[str, dict[str, Any]]]:
        """Streams by their two ends; one to several receivers stands alone."""
        flow = self.flows[origin]
        found: dict[tuple[str, ...], dict[str, Any]] = {}
        for stream in streams:
            ends = (stream.source, *stream.destinations)
            key = ends if ends in found or ends[::-1] not in found or len(ends) > 2 else ends[::-1]
            fixed = any(flow.way(stream.source, target) is not None for target in stream.destinations)
            bundle = found.setdefault(key, {"name": flow.name, "forward": [], "backward": [], "fixed": fixed})
            bundle["forward" if key == ends else "backward"].append(stream.name)
        return [(origin, bundle) for bundle in found.values()]


def _changes(task: Task, parts: set[Part], found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Flow name (or group, where it is the same for all of it) -> new class and ways."""
    changes: dict[str, dict[str, Any]] = {}
    whole: dict[str, int] = {}
    for flow in task.plan.scenario.flows:
        whole[flow.group] = whole.get(flow.group, 0) + 1
    for origins, number in zip(task.units, found["classes"], strict=True):
        flows = [task.flows[origin] for origin in origins]
        if "priorities" not in parts or flows[0].priority == number:
            continue
        names = [flows[0].group] if whole[flows[0].group] == len(flows) else [flow.name for flow in flows]
        for name in names:
            changes.setdefault(name, {})["priority"] = number
    for way in (found["routing"] or {"ways": []})["ways"]:
        origin, bundle = task.bundles[way["bundle"]]
        flow = task.flows[origin]
        routes = way["streams"][bundle["forward"][0]]
        entry = changes.setdefault(flow.name, {})
        # An assigned route takes the place of all that the flow states.
        entry.setdefault("route", [list(route) for route in flow.routes]).extend(routes)
    return changes


def _changed(flow: Flow, changes: dict[str, dict[str, Any]]) -> Flow:
    for name in dict.fromkeys((flow.group, flow.name)):
        entry = changes.get(name, {})
        if "priority" in entry:
            flow = replace(flow, priority=entry["priority"])
        if "route" in entry:
            flow = replace(flow, routes=tuple(tuple(route) for route in entry["route"]))
    return flow


def _priorities(task: Task, found: dict[str, Any]) -> dict[str, Any] | None:
    told: dict[str, Any] | None = found["priorities"]
    if told is None:
        return None
    stays = [flow.name for origin, flow in task.flows.items() if origin not in task.movable]
    bulk = None
    if task.bulk is not None:
        bulk = (
            f"{task.bulk.name} in class {task.bulk.priority} promises no arrivals: nothing at or below it has a bound"
        )
    if task.plan.packets:
        told = {
            **told,
            "optimal": False,
            "why": told["why"] or "brokers' response times depend on the order of what reaches them",
        }
    return {**told, "bulk": bulk, "stays": stays}


def _worst(prediction: Prediction) -> dict[str, Any] | None:
    """The busiest port, by declared utilisation."""
    busiest = max(prediction.ports, key=lambda port: float(port["utilisation"]["value"]), default=None)
    if busiest is None:
        return None
    return {"port": busiest["name"], "utilisation": busiest["utilisation"]["value"]}


def _missed(summary: dict[str, Any]) -> list[str]:
    """Flows at receivers whose deadline is not promised."""
    return [f"{flow['flow']} at {flow['receiver']}" for flow in summary["flows"] if _misses(flow)]


def _worse(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Flows at receivers whose deadline was promised before and is not after, or is missed by more: new ways take nothing from anybody."""
    found = []
    for old, new in zip(before["flows"], after["flows"], strict=True):
        then, now = old["end_to_end_us"]["bound"], new["end_to_end_us"]["bound"]
        later = then is not None and (now is None or now > then)
        if _misses(new) and (later or not _misses(old)):
            found.append(f"{new['flow']} at {new['receiver']}")
    return found


def _misses(flow: dict[str, Any]) -> bool:
    whole = flow["end_to_end_us"]["bound"]
    # What a queue may lose does not arrive in time, either.
    return flow["deadline_us"] is not None and (
        whole is None or whole > flow["deadline_us"] or flow["risk"] is not None
    )


def _flows(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "flow": old["flow"],
            "receiver": old["receiver"],
            "deadline_us": old["deadline_us"],
            "before": _side(old),
            "after": _side(new),
        }
        for old, new in zip(before["flows"], after["flows"], strict=True)
    ]


def _side(flow: dict[str, Any]) -> dict[str, Any]:
    return {
        "class": flow["priority"],
        "bound_us": flow["end_to_end_us"]["bound"],
        "reason": flow["end_to_end_us"]["reason"],
        "met": not _misses(flow),
        "ways": [_nodes(segment["path"]) for segment in flow["segments"]],
    }


def _nodes(ports: list[str]) -> list[str]:
    """The nodes of a way of ports `a->b`."""
    return [ports[0].partition("->")[0], *(port.partition("->")[2] for port in ports)] if ports else []


def overlay(assigned: Assigned, source: str, parts: str) -> str:
    """A scenario file that includes `source` and lays the changes over it; its comments stay where they are."""
    from timebound.scenario.emit import flow_style

    lines = [
        f"# found by: timebound predict {flow_style(source)} --assign {parts}",
        f"include: {json.dumps(source, ensure_ascii=False)}",
        "assigned:" if assigned.changes else "assigned: {}",
    ]
    lines += [
        f"  {json.dumps(name, ensure_ascii=False)}: {flow_style(entry)}" for name, entry in assigned.changes.items()
    ]
    return "\n".join(lines) + "\n"
